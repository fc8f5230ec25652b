package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/service"
)

func parsed(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// proxy takes everything to one address, and tells what it was asked.
func proxy(t testing.TB, to string, start func(*httptest.Server)) (p *server, asked chan string) {
	t.Helper()
	asked = make(chan string, 10)
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, r.Header.Get("Proxy-Authorization"))
		if r.Method != http.MethodConnect {
			fmt.Fprint(w, "by the proxy")
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		w.WriteHeader(http.StatusOK)
		in, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(out, buffered)
			_ = out.Close()
		}()
		_, _ = io.Copy(in, out)
		_ = in.Close()
		<-done
	}, start), asked
}

func TestProxy(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*httptest.Server){"plain": plain, "TLS": secure} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testProxy(t, start)
		})
	}
}

func testProxy(t *testing.T, start func(*httptest.Server)) {
	s := serve(t, echo, http2)
	p, asked := proxy(t, s.Listener.Addr().String(), start)
	at := parsed(t, p.URL)
	at.User = url.UserPassword("me", "secret")
	c := setup(t, Config{
		Proxy: at, rootCAs: roots(s), // no networks: the proxy's address is the operator's
		resolver: resolver(func(name string) []netip.Addr {
			switch name {
			case "example.com", "plain.test":
				return []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("2606:2800:220:1::1")}
			case "inside.test":
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}
			case "both.test":
				return []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.0.0.1")}
			}
			return nil
		}),
	})
	h := c.For("a", grants(t, "https://example.com", "http://plain.test", "https://inside.test", "http://both.test", "http://10.0.0.1", "https://none.test", "http://localhost"), nil)
	for range 2 {
		r, err := get(t, h, "https://example.com/x")
		succeeds(t, r, err, 200, "GET /x HTTP/2.0\nUser-Agent: Quern\nX-Host: example.com\nX-Length: 0\n")
	}
	const basic = "Basic bWU6c2VjcmV0"
	if got := <-asked; got != "CONNECT example.com:443 "+basic {
		t.Errorf("the proxy was asked %q", got)
	}
	r, err := get(t, h, "http://plain.test/y?z")
	succeeds(t, r, err, 200, "by the proxy")
	if got := <-asked; got != "GET http://plain.test/y?z "+basic {
		t.Errorf("the proxy was asked %q", got)
	}
	for _, url := range []string{"https://inside.test", "http://both.test", "http://10.0.0.1", "http://localhost"} {
		r, err := get(t, h, url)
		fails(t, r, err, service.ErrDenied)
	}
	r, err = get(t, h, "https://none.test")
	fails(t, r, err, service.ErrUnavailable)
	if len(asked) > 0 {
		t.Errorf("the proxy was asked %q", <-asked)
	}
}

// TestNoProxyOfEnvironment sends a request in a process whose environment has proxies.
func TestNoProxyOfEnvironment(t *testing.T) {
	const address = "QUERN_TEST_EGRESS_ADDRESS" // of the server; set in the child alone
	if at := os.Getenv(address); at != "" {
		u := "http://plain.test" + at
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := http.ProxyFromEnvironment(request); p == nil || err != nil {
			t.Fatalf("the environment has no proxy for %s: %v, %v", u, p, err)
		}
		r, err := get(t, setup(t, Config{Networks: loopback, resolver: always("127.0.0.1")}).For("a", grants(t, u), nil), u)
		succeeds(t, r, err, 200, "direct")
		return
	}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "direct") }, plain)
	at, asked := raw(t, func(_ context.Context, c net.Conn) { silence(c) })
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoProxyOfEnvironment$", "-test.v")
	child.Env = append(os.Environ(), address+"="+s.port(), "NO_PROXY=", "no_proxy=", "REQUEST_METHOD=")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		child.Env = append(child.Env, name+"="+at, strings.ToLower(name)+"="+at)
	}
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestNoProxyOfEnvironment") {
		t.Errorf("the child ended with %v:\n%s", err, out)
	}
	if n := asked.Load(); n != 0 || s.accepted.Load() != 1 {
		t.Errorf("%d connections to the proxy, and %d to the server", n, s.accepted.Load())
	}
}
