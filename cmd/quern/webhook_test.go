package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

const receiverSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A webhook without a secret is made, and told with the command that gives it one. A header with a secret is enough.
func TestUnsignedWebhookIsNoted(t *testing.T) { overBoth(t, testUnsignedWebhookIsNoted) }

func testUnsignedWebhookIsNoted(t *testing.T, by over) {
	u := by.tenant(t)
	const note = "quern: the webhook plain has no secret: its server cannot tell its deliveries from forged ones: " +
		"run `quern subscription update plain --secret webhook.plain"
	for id, flags := range map[string][]string{
		"plain": nil, "signed": {"--secret", "webhook.key"}, "token": {"--secret-header", "Authorization=webhook.token"},
	} {
		r := u.run(append([]string{"subscription", "create", id, "--topic", "t", "--url", "https://example.com/"}, flags...)...)
		if noted := strings.HasPrefix(r.stderr, note); r.status != exitDone || r.stdout != id+"\n" || noted != (id == "plain") || !noted && !strings.HasPrefix(r.stderr, "quern: every host needs ") {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if r := u.run("subscription", "update", "plain", "--secret", "webhook.plain"); r.status != exitDone || !strings.Contains(r.stderr, "webhook.plain") {
		t.Errorf("%+v", r)
	}
}

// receiver starts the example, which verifies signatures with a library that others wrote, and returns its URL and what it prints.
func receiver(t *testing.T, secret string) (url string, lines func() string) {
	t.Helper()
	python := "../../build/venv/bin/python"
	if exec.CommandContext(t.Context(), python, "-c", "import standardwebhooks").Run() != nil {
		runtimetest.Missing(t, "left out, there is no standardwebhooks: run make deps")
	}
	return started(t, secret, python, "../../examples/webhook/receiver.py", "0")
}

// started runs a program that receives webhooks.
func started(t *testing.T, secret string, command ...string) (url string, lines func() string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret, "PYTHONPATH="+absolute(t, "../../sdk/python/package/src"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	read := bufio.NewReader(out)
	line := func() string {
		text, err := read.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(text)
	}
	return "http://127.0.0.1:" + strings.TrimPrefix(line(), "listening on "), line
}

// A publication reaches the receiver's example, signed so that a library of others takes it; also by an old and a new secret.
func TestWebhookReceiver(t *testing.T) { overBoth(t, testWebhookReceiver) }

func testWebhookReceiver(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	secrets := filepath.Join(t.TempDir(), "secrets")
	if err := os.MkdirAll(filepath.Join(secrets, "blueque"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]string{"webhook.orders": receiverSecret + "\n", "webhook.next": "whsec_bmV4dCBzZWNyZXQgb2YgdGhlIHJlY2VpdmVy"} {
		if err := os.WriteFile(filepath.Join(secrets, "blueque", name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, line := receiver(t, receiverSecret)
	u.host(folder(t, nil), "--secrets", secrets, "--allow-networks", "127.0.0.0/8")
	create := func(id string, secrets ...string) result {
		return u.run(append([]string{"subscription", "create", id, "--topic", id + ".*", "--url", url + "/"}, secrets...)...)
	}
	if r := create("orders", "--secret", "webhook.next", "--secret", "webhook.orders"); r.status != exitDone || r.stderr != "" {
		t.Errorf("with secrets that the host has: %+v", r)
	}
	const missing = "quern: no host has the secret webhook.gone: start it with --secrets DIR, and put the secret into the file DIR/blueque/webhook.gone " +
		"(to sign: mkdir -p DIR/blueque && echo whsec_$(openssl rand -base64 32) > DIR/blueque/webhook.gone)\n"
	if r := create("bills", "--secret", "webhook.gone", "--secret-header", "X-Key=webhook.next"); r.status != exitDone || r.stderr != missing {
		t.Errorf("with a secret that no host has: %+v", r)
	}
	u.must("topic", "publish", "orders.made", `{"id": 7}`)
	if got := line(); got != `{"id": 7}` {
		t.Errorf("the receiver printed %q", got)
	}
	var deliveries []struct {
		ID, Status string
		Answer     int
	}
	eventually(t, "the delivery is complete", func() bool {
		return json.Unmarshal([]byte(u.must("subscription", "deliveries", "orders", "-o", "json")), &deliveries) == nil && len(deliveries) == 1 && deliveries[0].Status == "complete"
	})
	if deliveries[0].Answer != http.StatusOK {
		t.Errorf("%+v", deliveries)
	}
	if out := u.must("subscription", "replay", "orders", "--since", "1h"); strings.Count(out, "\n") != 1 {
		t.Errorf("replayed %q", out)
	}
	eventually(t, "it is delivered again", func() bool {
		return json.Unmarshal([]byte(u.must("subscription", "deliveries", "orders", "-o", "json")), &deliveries) == nil && len(deliveries) == 2 &&
			deliveries[0].Status == "complete" && deliveries[1].Status == "complete"
	})
}

// A host without any secret is known to have none, so the note about a missing one says so.
func TestHostsWithoutSecrets(t *testing.T) { overBoth(t, testHostsWithoutSecrets) }

func testHostsWithoutSecrets(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	secrets := filepath.Join(t.TempDir(), "secrets")
	write(t, filepath.Join(secrets, "blueque", "webhook.known"), receiverSecret)
	u.host(folder(t, nil), "--name", "without")
	create := func(id, secret, want string) {
		t.Helper()
		r := u.run("subscription", "create", id, "--topic", id, "--url", "https://partner.example/hook", "--secret", secret)
		if r.status != exitDone || !strings.HasPrefix(r.stderr, want) {
			t.Errorf("%+v, want the note %s", r, want)
		}
	}
	create("one", "webhook.known", "quern: no host has the secret webhook.known: ")
	u.host(folder(t, nil), "--name", "with", "--secrets", secrets)
	create("two", "webhook.known", "quern: without lacks the secret webhook.known: ")
}

// receiverInPython receives webhooks with verify of quern.client, as examples/webhook/receiver.mjs does with that of @quern/client.
const receiverInPython = `
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from quern.client import SignatureError, verify

class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body, status = self.rfile.read(int(self.headers["Content-Length"])), 200
        try:
            verify(self.headers, body, os.environ["WEBHOOK_SECRET"])
            print(body.decode(), flush=True)
        except SignatureError as error:
            print(f"refused: {error}", flush=True)
            status = 401
        self.send_response(status)
        self.end_headers()

server = HTTPServer(("127.0.0.1", 0), Receiver)
print(f"listening on {server.server_port}", flush=True)
server.serve_forever()
`

// The clients' verify takes what a host delivers, by an old and a new secret, and refuses other bodies, secrets and times.
func TestWebhookVerify(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	secrets := filepath.Join(t.TempDir(), "secrets")
	if err := os.MkdirAll(filepath.Join(secrets, "blueque"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]string{"webhook.old": receiverSecret + "\n", "webhook.new": "whsec_bmV4dCBzZWNyZXQgb2YgdGhlIHJlY2VpdmVy"} {
		if err := os.WriteFile(filepath.Join(secrets, "blueque", name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u.host(folder(t, nil), "--secrets", secrets, "--allow-networks", "127.0.0.0/8")
	dir := t.TempDir()
	withClients(t, &reader{user: u, dir: dir})
	program, err := os.ReadFile("../../examples/webhook/receiver.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for language, command := range map[string][]string{
		"JavaScript": {"node", write(t, filepath.Join(dir, "receiver.mjs"), string(program)), "0"},
		"Python":     {"../../build/venv/bin/python", "-c", receiverInPython},
	} {
		url, line := started(t, receiverSecret, command...)
		u.must("subscription", "create", language, "--topic", language, "--url", url+"/", "--secret", "webhook.new", "--secret", "webhook.old")
		u.must("topic", "publish", language, `{"größe": 7}`)
		if got := line(); got != `{"größe": 7}` {
			t.Errorf("%s printed %q", language, got)
		}
		// The specification's own example, which is years old, and a delivery without a signature.
		for _, test := range []struct{ signature, want string }{
			{"", "refused: the header webhook-signature is missing"},
			{"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "refused: webhook-timestamp is "},
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"test": 2432232314}`))
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{"id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "timestamp": "1614265330", "signature": test.signature} {
				request.Header.Set("Webhook-"+name, value)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if got := line(); answer.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(got, test.want) {
				t.Errorf("%s: %d %q, want %q", language, answer.StatusCode, got, test.want)
			}
		}
		u.must("subscription", "update", language, "--secret", "webhook.new")
		u.must("topic", "publish", language, "forged")
		if got := line(); !strings.HasPrefix(got, "refused: webhook-signature: not of this secret") {
			t.Errorf("%s printed %q", language, got)
		}
	}
}

// A host reaches no private address for a webhook unless it is allowed, and says which setting would.
func TestWebhookToAPrivateAddress(t *testing.T) { overBoth(t, testWebhookToAPrivateAddress) }

func testWebhookToAPrivateAddress(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	u.host(folder(t, nil))
	u.must("subscription", "create", "private", "--topic", "t", "--url", server.URL)
	u.must("topic", "publish", "t", "x")
	var shown []struct{ Status, Error string }
	eventually(t, "it failed", func() bool {
		return json.Unmarshal([]byte(u.must("subscription", "deliveries", "private", "-o", "json")), &shown) == nil && len(shown) == 1 && shown[0].Status == "failed"
	})
	if !strings.Contains(shown[0].Error, "--allow-networks") {
		t.Errorf("%+v", shown)
	}
}

// A server that does not answer has as many deliveries as one destination may have, and keeps nothing else waiting: neither another
// webhook nor the handlers of the same host, which takes a task at a time.
func TestSlowWebhook(t *testing.T) {
	t.Parallel()
	const places = 50 // an eighth of the default of --webhooks
	count, full := 4*places, os.Getenv("QUERN_WEBHOOKS") == "full"
	if full {
		count = 10_000
	}
	server := queuetest.Start(t)
	u := newUser(t, server.URL())
	client, err := queue.New(server.URL(), queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	release := make(chan struct{}) // for all at once, or after a while each
	var open, most, taken atomic.Int64
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		defer open.Add(-1)
		for is := most.Load(); n > is && !most.CompareAndSwap(is, n); is = most.Load() {
		}
		var later <-chan time.Time
		if full {
			later = time.After(10 * time.Second)
		}
		select {
		case <-release:
		case <-later:
		case <-r.Context().Done():
			return
		}
		taken.Add(1)
	}))
	defer slow.Close()
	answer := sync.OnceFunc(func() { close(release) })
	defer answer()
	fast := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer fast.Close()
	u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), "--allow-networks", "127.0.0.0/8", "--concurrency", "1")
	u.must("subscription", "create", "slow", "--topic", "orders", "--url", slow.URL, "--timeout", "5m")
	var publishing errgroup.Group
	for range 10 {
		publishing.Go(func() (err error) {
			for range count / 10 {
				_, failed := client.Publish(t.Context(), "orders", []byte("x"), queue.PublishOptions{})
				err = errors.Join(err, failed)
			}
			return err
		})
	}
	if err := publishing.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is as busy as it may be", func() bool { return open.Load() == places })
	u.must("subscription", "create", "fast", "--topic", "orders", "--url", fast.URL)
	u.must("subscription", "create", "handler", "--topic", "orders", "--queue", "echo")
	const others = 100
	var waits []time.Duration
	for i := range others {
		id := strconv.Itoa(i)
		if _, err := client.Publish(t.Context(), "orders", []byte("x"), queue.PublishOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
		for _, subscription := range []string{"fast", "handler"} {
			task, err := client.Wait(t.Context(), queue.PublishedID(id, subscription))
			if err != nil || task.Status != queue.Complete {
				t.Fatalf("%+v, %v", task, err)
			}
			waits = append(waits, task.StartedAt.Sub(task.Created))
		}
	}
	slices.Sort(waits)
	t.Logf("beside %d deliveries of which %d ran at a time, %d other tasks started after %s (median) and %s (at most)",
		count, most.Load(), len(waits), waits[len(waits)/2], waits[len(waits)-1])
	if n := taken.Load(); n >= int64(count) || !full && n > 0 {
		t.Errorf("the slow server took %d of %d first", n, count)
	}
	answer()
	eventually(t, "all are delivered", func() bool { return taken.Load() >= int64(count+others) })
	if most.Load() > places {
		t.Errorf("%d requests at a time", most.Load())
	}
}
