package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestBodyLimits(t *testing.T) {
	w := setup(t)
	big := bytes.Repeat([]byte("x"), 16<<20)
	receipt := decode[api.Receipt](t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks", body: big}), http.StatusOK)
	if got := w.do(t, request{method: http.MethodGet, path: "/tasks/" + receipt.ID + "/parameters"}); !bytes.Equal(got.body, big) {
		t.Errorf("%d bytes came back", len(got.body))
	}
	if task := get[admin.Task](t, w, "/tasks/"+receipt.ID); task.Parameters != nil || task.ParametersSize != len(big) {
		t.Errorf("the JSON has parameters of %d bytes", task.ParametersSize)
	}
	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks", body: append(big, 'x')}), http.StatusRequestEntityTooLarge, `urn:quern:problem:too-large","title":"Request Entity Too Large","status":413,"detail":"the body is larger than 16MiB: send less`)
	refused(t, w.do(t, request{method: http.MethodPut, path: "/queues/q/limit", body: big[:2<<20]}), http.StatusRequestEntityTooLarge, "larger than 1MiB")
}

// What is wrong with a body is told in few words, without the body.
func TestWrongBodies(t *testing.T) {
	w := setup(t)
	for name, body := range map[string]string{
		"no JSON":          strings.Repeat("secret\x01", 100_000),
		"wrong type":       `{"tasks": "` + strings.Repeat("secret", 100_000) + `"}`,
		"unknown property": `{"tasks": [{"parameters": "secret", "` + strings.Repeat("x", 500_000) + `": 1}]}`,
		"many errors":      `{"tasks": [{"x": "secret"}` + strings.Repeat(`, {"x": "secret"}`, 50_000) + `]}`,
	} {
		got := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks/batch", body: []byte(body), header: map[string]string{"Content-Type": "application/json"}})
		if got.status/100 != 4 || len(got.body) > 8<<10 || bytes.Contains(got.body, []byte("secret")) {
			t.Errorf("%s: %d, %d bytes: %.300s", name, got.status, len(got.body), got.body)
		}
	}
}

// dial is a connection of a client that does what it wants.
func dial(t *testing.T, w *world) net.Conn {
	t.Helper()
	connection, err := new(net.Dialer).DialContext(w.ctx, "tcp", w.server.Addr())
	must(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// What a request says in a place where nobody reads it is refused, and nothing is done.
func TestWrongPauses(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "q", "x", queue.Options{})
	for _, of := range []string{"/queues/q", "", "/plugins/p"} {
		for _, body := range []string{`{"accepting": "yes"}`, `{"foo": 5}`, "accepting=true", strings.Repeat(" ", 1000)} {
			refused(t, w.do(t, request{method: http.MethodPost, path: of + "/pause", body: []byte(body)}), http.StatusUnprocessableEntity,
				"takes no body")
		}
	}
	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/pause?key="}), http.StatusUnprocessableEntity, "query.key is empty")
	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues//pause"}), http.StatusNotFound, "/v1/openapi.json")
	if list := get[api.List[manage.Pause]](t, w, "/pauses").Items; len(list) > 0 {
		t.Errorf("%+v", list)
	}
	if got := w.do(t, request{method: http.MethodPost, path: "/queues/q/pause", body: []byte(" {}\n")}); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Clients that send nothing, half a request, half a body, or read nothing, keep nobody from being served.
func TestSlowClients(t *testing.T) {
	w := setup(t)
	id := w.enqueue(t, "q", strings.Repeat("x", 8<<20), queue.Options{})
	for range 20 {
		dial(t, w)
		_, err := io.WriteString(dial(t, w), "GET /v1/ten")
		must(t, err)
		_, err = fmt.Fprintf(dial(t, w), "POST /v1/tenants/%s/queues/q/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nx", w.Tenant())
		must(t, err)
	}
	for range 4 {
		_, err := fmt.Fprintf(dial(t, w), "POST /v1/tenants/%s/queues/q/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nx", w.Tenant())
		must(t, err)
		_, err = fmt.Fprintf(dial(t, w), "GET /v1/tenants/%s/tasks/%s/parameters HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", w.Tenant(), id)
		must(t, err)
	}
	get[admin.Queue](t, w, "/queues/q")
	decode[api.Receipt](t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks", body: []byte("x")}), http.StatusOK)
}

// upload begins a request of 16 MiB, and returns the first line of the answer: that the body may come, or what is wrong. A client that
// may sends a sixteenth, for which it keeps its share 4 s longer: enough for the other requests of a test beside other load.
func upload(t *testing.T, w *world) (net.Conn, string) {
	t.Helper()
	return uploadTo(t, w, w.Tenant())
}

func uploadTo(t *testing.T, w *world, tenant string) (net.Conn, string) {
	t.Helper()
	connection := dial(t, w)
	_, err := fmt.Fprintf(connection, "POST /v1/tenants/%s/queues/q/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", tenant, w.token, 16<<20)
	must(t, err)
	line, err := bufio.NewReader(connection).ReadString('\n')
	must(t, err)
	if strings.Contains(line, "100 Continue") {
		_, err := connection.Write(make([]byte, 1<<20))
		must(t, err)
	}
	return connection, line
}

// A principal that has taken its share of the memory for bodies is told to come again with large ones. Others have theirs, and a
// client that sends too little loses its share.
func TestManyLargeBodies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	slow, other := token(t, path, "slow", api.Operator), token(t, path, "other", api.Operator)
	w := setup(t, access(t, path))
	w.token = slow
	var connections []net.Conn
	for i := range 2 {
		connection, line := upload(t, w)
		if connections = append(connections, connection); !strings.Contains(line, "100 Continue") {
			t.Fatalf("request %d: %q", i, line)
		}
	}
	if _, line := upload(t, w); !strings.Contains(line, "503 Service Unavailable") {
		t.Errorf("the third: %q", line)
	}
	decode[api.Receipt](t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks", body: []byte("x")}), http.StatusOK)
	w.token = other
	if _, line := upload(t, w); !strings.Contains(line, "100 Continue") {
		t.Errorf("of another: %q", line)
	}
	for _, connection := range connections { // long before the 30 s that all of it may take
		must(t, connection.SetReadDeadline(time.Now().Add(20*time.Second)))
		if text, err := io.ReadAll(connection); err != nil || !strings.Contains(string(text), "408") {
			t.Errorf("%q, %v: want 408 and the end", text, err)
		}
	}
	w.token = slow
	if _, line := upload(t, w); !strings.Contains(line, "100 Continue") {
		t.Errorf("afterwards: %q", line)
	}
}

// Tokens of one tenant share a part: however many there are, they keep no other tenant out.
func TestManyTokensOfATenant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	tenant := queuetest.Tenant()
	tokens := make([]string, 2)
	for i := range tokens {
		tokens[i] = token(t, path, fmt.Sprint("own", i), api.Operator, tenant)
	}
	other := token(t, path, "other", api.Operator)
	w := setup(t, access(t, path), func(c *api.Config) {
		client, err := queue.NewFromRedis(queuetest.Shared(t).Client(t), queue.Config{Tenant: tenant})
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		c.Clients = append(c.Clients, client)
	})
	for i := range tokens {
		w.token = tokens[i]
		for range 2 {
			_, line := uploadTo(t, w, tenant)
			if fits := i == 0; strings.Contains(line, "100 Continue") != fits {
				t.Errorf("token %d: %q", i, line)
			}
		}
	}
	w.token = other
	if _, line := upload(t, w); !strings.Contains(line, "100 Continue") {
		t.Errorf("of another: %q", line)
	}
}

// A principal may open only so many streams; others may still open theirs. HEAD opens none.
func TestManyStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	greedy, other := token(t, path, "greedy", api.Viewer), token(t, path, "other", api.Viewer)
	w := setup(t, access(t, path))
	w.token = greedy
	for range 100 {
		if got := w.do(t, request{method: http.MethodHead, path: "/changes"}); got.status != http.StatusOK {
			t.Fatalf("HEAD: %d", got.status)
		}
	}
	for range 64 {
		follow(t, w, "/changes")
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/changes"}), http.StatusTooManyRequests, "64 of greedy")
	w.token = other
	follow(t, w, "/changes")
}

// A client that sends its headers too slowly loses the connection.
func TestSlowHeaders(t *testing.T) {
	w := setup(t)
	connection := dial(t, w)
	_, err := io.WriteString(connection, "GET /v1/tenants HTTP/1.1\r\nHost: 127.0.0.1\r\n")
	must(t, err)
	must(t, connection.SetReadDeadline(time.Now().Add(30*time.Second)))
	if text, err := io.ReadAll(connection); err != nil {
		t.Errorf("%q, %v: want the end of the connection", text, err)
	}
}

// While Redis is away the answer is that, at once; afterwards all goes on.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	w := serve(t, server.URL(), queuetest.Tenant())
	w.enqueue(t, "q", "", queue.Options{})
	events := follow(t, w, "/changes")
	await(t, w, events, "queue", `"queue":"q"`)
	for _, c := range []struct{ set, back, words string }{
		{"config set maxmemory 1mb", "config set maxmemory 0", "Redis is full: raise maxmemory"},
		{"replicaof 127.0.0.1 1", "replicaof no one", "this Redis is a replica"},
	} {
		command := func(text string) {
			var words []any
			for _, word := range strings.Fields(text) {
				words = append(words, word)
			}
			must(t, w.rdb.Do(w.ctx, words...).Err())
		}
		command(c.set)
		refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks"}), http.StatusServiceUnavailable, c.words)
		command(c.back)
	}
	server.Kill()
	for _, r := range []request{
		{method: http.MethodGet, path: "/queues"},
		{method: http.MethodPost, path: "/queues/q/tasks"},
		{method: http.MethodGet, path: "/audit"},
		{method: http.MethodGet, path: "/kv"},
		{method: http.MethodGet, path: "/nodes"},
	} {
		got := w.do(t, r)
		refused(t, got, http.StatusServiceUnavailable, "Redis is not available")
		if got.header.Get("Retry-After") == "" || strings.Contains(string(got.body), server.Addr()) {
			t.Errorf("%s %s: %v %s", r.method, r.path, got.header, got.body)
		}
	}
	await(t, w, events, "problem", "Redis")
	server.Restart(t)
	w.enqueue(t, "back", "", queue.Options{})
	await(t, w, events, "queue", `"queue":"back"`)
}
