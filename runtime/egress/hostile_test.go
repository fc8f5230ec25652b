package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// request reads a request without a body.
func request(c net.Conn) bool {
	_, err := http.ReadRequest(bufio.NewReader(c))
	return err == nil
}

// endless writes until nobody reads any more.
func endless(c net.Conn, s string) {
	for {
		if _, err := io.WriteString(c, s); err != nil {
			return
		}
	}
}

// trickle writes a little at a time, for ever.
func trickle(c net.Conn, s string) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		if _, err := io.WriteString(c, s); err != nil {
			return
		}
	}
}

// TestHostileServers has servers that do anything but answer. Each has to be done with in the time of a request, and
// the connection to it closed: their functions return by that, or when the test ends.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		answer func(c net.Conn)
		want   error
	}{
		"endless body":        {func(c net.Conn) { endless(c, ok+"\r\n"); endless(c, strings.Repeat("x", 1000)) }, service.ErrTooBig},
		"endless chunks":      {func(c net.Conn) { fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\n"); endless(c, "5\r\nhello\r\n") }, service.ErrTooBig},
		"too long":            {func(c net.Conn) { fmt.Fprint(c, ok+"Content-Length: 1000000\r\n\r\n"); silence(c) }, service.ErrTooBig},
		"endless headers":     {func(c net.Conn) { fmt.Fprint(c, ok); endless(c, "X-Flood: "+strings.Repeat("x", 100)+"\r\n") }, service.ErrTooBig},
		"endless header":      {func(c net.Conn) { fmt.Fprint(c, ok+"X: "); endless(c, "x") }, service.ErrTooBig},
		"endless status":      {func(c net.Conn) { endless(c, "x") }, service.ErrTooBig},
		"endless early hints": {func(c net.Conn) { endless(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n") }, service.ErrTooBig},
		"huge chunk header":   {func(c net.Conn) { fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\n"); endless(c, "0") }, service.ErrUnavailable},
		"huge chunk": {func(c net.Conn) {
			fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n")
			endless(c, "x")
		}, service.ErrTooBig},
		"chunk extensions": {func(c net.Conn) {
			fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\n")
			endless(c, "1;"+strings.Repeat("x", 2000)+"\r\na\r\n")
		}, service.ErrUnavailable},
		"endless trailer":       {func(c net.Conn) { fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\n0\r\n"); endless(c, "X: y\r\n") }, service.ErrUnavailable},
		"truncated body":        {func(c net.Conn) { fmt.Fprint(c, ok+"Content-Length: 10\r\n\r\nhello") }, service.ErrUnavailable},
		"truncated chunk":       {func(c net.Conn) { fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\n5\r\nhel") }, service.ErrUnavailable},
		"truncated chunks":      {func(c net.Conn) { fmt.Fprint(c, ok+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n") }, service.ErrUnavailable},
		"truncated headers":     {func(c net.Conn) { fmt.Fprint(c, ok+"Content-Le") }, service.ErrUnavailable},
		"nothing":               {func(net.Conn) {}, service.ErrUnavailable},
		"silence":               {silence, service.ErrUnavailable},
		"silence after headers": {func(c net.Conn) { fmt.Fprint(c, ok+"Content-Length: 10\r\n\r\n"); silence(c) }, service.ErrUnavailable},
		"trickling headers":     {func(c net.Conn) { fmt.Fprint(c, ok+"X: "); trickle(c, "x") }, service.ErrUnavailable},
		"trickling body":        {func(c net.Conn) { fmt.Fprint(c, ok+"\r\n"); trickle(c, "x") }, service.ErrUnavailable},
		"trickling hints":       {func(c net.Conn) { trickle(c, "HTTP/1.1 103 Early Hints\r\n\r\n") }, service.ErrUnavailable},
		"no HTTP":               {func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-OpenSSH_9.9\r\n\x1b[31m\r\n"); silence(c) }, service.ErrUnavailable},
		"two lengths":           {func(c net.Conn) { fmt.Fprint(c, ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy") }, service.ErrUnavailable},
		"negative length":       {func(c net.Conn) { fmt.Fprint(c, ok+"Content-Length: -1\r\n\r\n") }, service.ErrUnavailable},
		"odd encoding":          {func(c net.Conn) { fmt.Fprint(c, ok+"Transfer-Encoding: gzip\r\n\r\n") }, service.ErrUnavailable},
		"protocol switched": {func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			silence(c)
		}, service.ErrUnavailable},
		"protocol half switched": {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n"); silence(c) }, service.ErrUnavailable},
		"no status":              {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n") }, service.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{}, 10)
			url, _ := raw(t, func(_ context.Context, conn net.Conn) {
				if request(conn) {
					c.answer(conn)
				}
				ended <- struct{}{}
			})
			client := setup(t, Config{Networks: loopback, MaxResponse: 10_000, maxHeader: 8 << 10, Timeout: 2 * time.Minute})
			ask := service.Request{Method: "POST", URL: url} // which is not sent twice
			if c.want == service.ErrUnavailable {            //nolint:errorlint // the table's own value
				ask.Timeout = 200 * time.Millisecond
			}
			r, err := client.For("a", grants(t, url), nil).Do(t.Context(), ask)
			fails(t, r, err, c.want)
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\r\n") {
				t.Errorf("the error %q has the server's control characters", err)
			}
			<-ended // because the connection is closed, before the client is
		})
	}
}

// silence waits for the other side to close the connection.
func silence(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// TestHostileHTTP2 has a server that sends more headers than there may be, and one that goes on for ever.
func TestHostileHTTP2(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/headers", "/flood":
			for i := range map[string]int{"/headers": 70, "/flood": 5000}[r.URL.Path] {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 100))
			}
		case "/hints":
			w.Header().Set("X", strings.Repeat("x", 100)) // once: the server reads it beside the handler
			for range 200 {
				w.WriteHeader(http.StatusEarlyHints)
			}
		case "/trickle", "/endless":
			ticker := time.NewTicker(time.Millisecond)
			defer ticker.Stop()
			for r.Context().Err() == nil {
				if r.URL.Path == "/trickle" {
					<-ticker.C
				}
				fmt.Fprint(w, "x")
				w.(http.Flusher).Flush()
			}
		case "/truncated":
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "x")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}, http2)
	h := setup(t, Config{Networks: loopback, MaxResponse: 1000, maxHeader: 8 << 10, rootCAs: roots(s)}).For("a", grants(t, s.URL), nil)
	for path, want := range map[string]error{
		"/headers": service.ErrTooBig, "/flood": service.ErrUnavailable, "/endless": service.ErrTooBig, "/hints": service.ErrUnavailable, "/trickle": service.ErrUnavailable, "/truncated": service.ErrUnavailable,
	} {
		ask := service.Request{Method: "POST", URL: s.URL + path}
		if path == "/trickle" {
			ask.Timeout = 100 * time.Millisecond
		}
		r, err := h.Do(t.Context(), ask)
		fails(t, r, err, want)
		r, err = get(t, h, s.URL) // which is none the worse for it
		succeeds(t, r, err, 200, "")
	}
}

// TestTinyPieces has servers that send their bodies byte by byte: a short one comes, of a long one the host does not do the
// work.
func TestTinyPieces(t *testing.T) {
	t.Parallel()
	const short, long = 10_000, 8 << 20
	size := func(path string) int { return map[string]int{"/short": short, "/long": long}[path] }
	chunks, _ := raw(t, func(_ context.Context, c net.Conn) {
		reader := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			answer := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", size(r.URL.Path)) + "0\r\n\r\n"
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
	frames := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range size(r.URL.Path) {
			if _, err := w.Write([]byte("x")); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}, http2)
	h := setup(t, Config{Networks: loopback, rootCAs: roots(frames), Timeout: time.Minute}).For("a", grants(t, chunks, frames.URL), nil)
	for _, url := range []string{chunks, frames.URL} {
		for range 3 { // on the same connection
			r, err := get(t, h, url+"/short")
			succeeds(t, r, err, 200, strings.Repeat("x", short))
		}
		r, err := get(t, h, url+"/long")
		if fails(t, r, err, service.ErrUnavailable); err == nil || !strings.Contains(err.Error(), "too many small pieces") {
			t.Errorf("the error is %v", err)
		}
	}
}

// TestSharedConnection has a slow answer beside many others on its connection, which are large headers, or bodies that are
// refused: it comes all the same.
func TestSharedConnection(t *testing.T) {
	t.Parallel()
	const beside = 300
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   error
	}{
		"headers": {func(w http.ResponseWriter) { w.Header().Set("X", strings.Repeat("x", 30<<10)) }, nil},
		"refused": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write(make([]byte, 1_000_000))
		}, service.ErrTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, ending := make(chan struct{}), make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/slow" {
					test.answer(w)
					return
				}
				fmt.Fprint(w, "slow")
				w.(http.Flusher).Flush()
				close(begun)
				<-ending
				fmt.Fprint(w, "ly")
			}, http2)
			h := setup(t, Config{Networks: loopback, MaxResponse: 1000, maxHeader: 64 << 10, rootCAs: roots(s), Timeout: time.Minute}).For("a", grants(t, s.URL), nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				r, err := get(t, h, s.URL+"/slow")
				succeeds(t, r, err, 200, "slowly")
			}()
			<-begun
			for range beside {
				if _, err := get(t, h, s.URL); !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
			}
			close(ending)
			<-done
			if n := s.accepted.Load(); n != 1 {
				t.Errorf("there were %d connections", n)
			}
		})
	}
}

// TestUnreachable has what is not there: a name, a listener, TLS.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	_ = l.Close()
	deaf, _ := raw(t, func(_ context.Context, c net.Conn) { silence(c) })
	deaf = strings.Replace(deaf, "http:", "https:", 1)
	s := serve(t, echo, plain)
	noTLS := strings.Replace(s.URL, "http:", "https:", 1)
	c := setup(t, Config{Networks: loopback, resolver: always(), handshakeTimeout: 50 * time.Millisecond})
	for _, url := range []string{gone, deaf, noTLS, "https://none.test"} {
		r, err := get(t, c.For("a", grants(t, url), nil), url)
		fails(t, r, err, service.ErrUnavailable)
		if url == deaf && (err == nil || !strings.Contains(err.Error(), "handshake timeout")) {
			t.Errorf("error %v", err)
		}
	}
}

// TestDeaf has a server that does not read what it is sent, and a name that nobody resolves.
func TestDeaf(t *testing.T) {
	t.Parallel()
	url, _ := raw(t, func(ctx context.Context, _ net.Conn) { <-ctx.Done() })
	h := setup(t, Config{Networks: loopback}).For("a", grants(t, url), nil)
	r, err := h.Do(t.Context(), service.Request{Method: "POST", URL: url, Body: make([]byte, 16<<20), Timeout: 100 * time.Millisecond})
	fails(t, r, err, service.ErrUnavailable)

	h = setup(t, Config{dialTimeout: 50 * time.Millisecond, resolver: unanswered()}).For("a", grants(t, "https://a.test"), nil)
	began := time.Now()
	r, err = get(t, h, "https://a.test")
	fails(t, r, err, service.ErrUnavailable)
	if took := time.Since(began); took > 4*time.Second { // a resolver's own timeout is 5 s
		t.Errorf("the error %v took %s", err, took)
	}
}

// unanswered is a resolver whose questions nobody answers.
func unanswered() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
}

// TestAbandonedDials gives up while names are resolved: nothing is left under way.
func TestAbandonedDials(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{dialTimeout: time.Minute, resolver: unanswered()})
	h := c.For("a", grants(t, "https://*.test"), nil)
	for i := range 10 {
		r, err := h.Do(t.Context(), service.Request{Method: "GET", URL: fmt.Sprintf("https://h%d.test", i), Timeout: 10 * time.Millisecond})
		fails(t, r, err, service.ErrUnavailable)
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	late := time.After(4 * time.Second) // a resolver's own timeout is 5 s
	for c.pools["a"].conns.Load() != 0 {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatal("dials are under way still")
		}
	}
}
