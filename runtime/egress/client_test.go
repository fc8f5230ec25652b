package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/service"
)

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Header.Set("X-Host", r.Host)
	r.Header.Set("X-Length", fmt.Sprint(r.ContentLength))
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(w, "%s %s %s\n", r.Method, r.RequestURI, r.Proto)
	for _, name := range names {
		fmt.Fprintf(w, "%s: %s\n", name, strings.Join(r.Header[name], "|"))
	}
	_, _ = w.Write(body)
}

// roots trusts a server.
func roots(s *server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

func TestDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start         func(*httptest.Server)
		scheme, proto string
	}{"plain": {plain, "http", "HTTP/1.1"}, "TLS": {secure, "https", "HTTP/1.1"}, "HTTP2": {http2, "https", "HTTP/2.0"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, echo, c.start)
			cfg := Config{Networks: loopback, resolver: always("127.0.0.1")}
			if c.scheme == "https" {
				cfg.rootCAs = roots(s)
			}
			origin := c.scheme + "://example.com" + s.port()
			h := setup(t, cfg).For("a", grants(t, origin), nil)

			r, err := h.Do(t.Context(), service.Request{
				Method: "POST", URL: strings.ToUpper(c.scheme) + "://EXAMPLE.com." + s.port() + "/a//b/../%2F?q=1&r=%20#fragment", Body: []byte("the body"),
				Headers: map[string][]string{"x-two": {"1", "2"}, "X-Two": {"0"}, "Authorization": {"Bearer x"}, "X-None": {}},
			})
			succeeds(t, r, err, 200, "POST /a//b/../%2F?q=1&r=%20 "+c.proto+"\n"+
				"Authorization: Bearer x\nContent-Length: 8\nUser-Agent: Quern\nX-Host: example.com"+s.port()+"\nX-Length: 8\nX-Two: 0|1|2\nthe body")
			if want := []string{"text/plain; charset=utf-8"}; !slices.Equal(r.Headers["Content-Type"], want) {
				t.Errorf("headers %v", r.Headers)
			}

			r, err = h.Do(t.Context(), service.Request{Method: "GET", URL: origin, Headers: map[string][]string{"user-agent": {"guest"}}})
			succeeds(t, r, err, 200, "GET / "+c.proto+"\nUser-Agent: guest\nX-Host: example.com"+s.port()+"\nX-Length: 0\n")
			r, err = h.Do(t.Context(), service.Request{Method: "HEAD", URL: origin})
			succeeds(t, r, err, 200, "")
			if n := s.accepted.Load(); n != 1 {
				t.Errorf("%d connections for three requests", n)
			}
		})
	}
}

func TestNotGranted(t *testing.T) {
	t.Parallel()
	s := serve(t, echo, plain)
	get, err := ParseGrant("http://127.0.0.1"+s.port(), []string{"GET"})
	if err != nil {
		t.Fatal(err)
	}
	c := setup(t, Config{Networks: loopback, resolver: always("127.0.0.1")})
	h := c.For("a", []Grant{get}, nil)
	for _, r := range []service.Request{
		{Method: "POST", URL: s.URL},
		{Method: "GET", URL: "http://localhost" + s.port()},
		{Method: "GET", URL: "http://127.0.0.2" + s.port()},
		{Method: "GET", URL: "http://127.0.0.1"},
		{Method: "GET", URL: "https://127.0.0.1" + s.port()},
		{Method: "GET", URL: "http://[::1]" + s.port()},
		{Method: "GET", URL: "http://127.0.0.1.example.com" + s.port()},
	} {
		answer, err := h.Do(t.Context(), r)
		fails(t, answer, err, service.ErrDenied)
	}
	_, err = h.Do(t.Context(), service.Request{Method: "POST", URL: s.URL + "/secret?token=1"})
	if want := fmt.Sprintf("POST %s: denied: the manifest does not allow it: add POST to methods of %s in capabilities.http", s.URL, s.URL); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	answer, err := c.For("a", nil, nil).Do(t.Context(), service.Request{Method: "GET", URL: s.URL})
	fails(t, answer, err, service.ErrDenied)
	answer, err = c.For("a", make([]Grant, 1), nil).Do(t.Context(), service.Request{Method: "GET", URL: s.URL})
	fails(t, answer, err, service.ErrDenied)
	if n := s.accepted.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestCeiling(t *testing.T) {
	t.Parallel()
	s := serve(t, echo, plain)
	post, err := ParseGrant(s.URL, []string{"POST"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ceiling []Grant
		want    error
	}{{nil, service.ErrDenied}, {[]Grant{post}, service.ErrDenied}, {grants(t, "http://example.com", s.URL), nil}} {
		client := setup(t, Config{Networks: loopback})
		r, err := get(t, client.For("a", grants(t, s.URL), &Ceiling{c.ceiling, "a of grants.yaml"}), s.URL)
		if c.want == nil {
			succeeds(t, r, err, 200, string(r.Body))
		} else {
			fails(t, r, err, c.want)
			add := fmt.Sprintf("capabilities: {http: [{host: %q, methods: [GET]}]} to ", s.URL)
			if c.ceiling != nil { // a second key, or a second entry of the host, would be refused
				add = fmt.Sprintf("GET to methods of %s in capabilities.http of ", s.URL)
			}
			want := fmt.Sprintf("GET %s: denied: the manifest allows it, the host does not: add %sa of grants.yaml", s.URL, add)
			if err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		}
	}
}

// TestNetworks has names and addresses that are granted, and addresses that are not.
func TestNetworks(t *testing.T) {
	t.Parallel()
	s := serve(t, echo, plain)
	for _, networks := range [][]netip.Prefix{nil, {netip.MustParsePrefix("10.0.0.0/8")}, {netip.MustParsePrefix("127.0.0.2/31")}} {
		c := setup(t, Config{Networks: networks, resolver: always("127.0.0.1")})
		for _, host := range []string{"127.0.0.1", "localhost", "name.test", "[::1]", "[::7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::1]", "0.0.0.0", "[::]"} {
			url := "http://" + host + s.port()
			r, err := get(t, c.For("a", grants(t, url), nil), url)
			fails(t, r, err, service.ErrDenied)
			if err != nil && !strings.Contains(err.Error(), "the operator can allow the address with --allow-networks ") {
				t.Errorf("error %v", err)
			}
		}
	}
	if n := s.accepted.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
	c := setup(t, Config{Networks: loopback, resolver: always("127.0.0.1")})
	for _, host := range []string{"127.0.0.1", "name.test"} {
		url := "http://" + host + s.port()
		if r, err := get(t, c.For("a", grants(t, url), nil), url); err != nil || r.Status != 200 {
			t.Errorf("%s: %v, %v", url, r, err)
		}
	}
}

// TestRebinding has a name that means another address each time, and one that means two.
// What Loopback allows is what the URL names: no other name, no other private network, and nothing behind a proxy.
func TestLoopback(t *testing.T) {
	t.Parallel()
	s := serve(t, echo, plain)
	port := s.port()
	resolver := resolver(func(name string) []netip.Addr {
		if name == "private.localhost" {
			return []netip.Addr{netip.MustParseAddr("10.0.0.5")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	var told []string
	cfg := Config{resolver: resolver, Loopback: func(origin string, addr netip.Addr) { told = append(told, origin+" "+addr.String()) }}
	granted := grants(t, s.URL, "http://localhost"+port, "http://example.com"+port, "http://*.localhost"+port, "http://10.0.0.5")
	h := setup(t, cfg).For("a", granted, nil)
	for _, url := range []string{"http://example.com" + port, "http://private.localhost" + port, "http://sub.localhost" + port, "http://10.0.0.5"} {
		r, err := get(t, h, url)
		fails(t, r, err, service.ErrDenied)
	}
	for range 2 {
		for _, url := range []string{s.URL, "http://localhost" + port} {
			if r, err := get(t, h, url); err != nil || r.Status != 200 {
				t.Errorf("%s: %d, %v", url, r.Status, err)
			}
		}
	}
	if want := []string{s.URL + " 127.0.0.1"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	r, err := get(t, setup(t, cfg).For("a", grants(t, "http://localhost"), nil), "http://127.0.0.1"+port)
	fails(t, r, err, service.ErrDenied)
	r, err = get(t, setup(t, Config{}).For("a", granted, nil), s.URL)
	fails(t, r, err, service.ErrDenied)
	_, err = get(t, setup(t, cfg).For("a", granted, &Ceiling{Where: "the host's grants"}), s.URL)
	fails(t, service.Response{}, err, service.ErrDenied)
	cfg.Proxy = parsed(t, s.URL)
	r, err = get(t, setup(t, cfg).For("a", granted, nil), s.URL)
	fails(t, r, err, service.ErrDenied)

	told = nil
	open := setup(t, Config{Networks: loopback, Loopback: cfg.Loopback})
	if r, err = get(t, open.For("a", granted, nil), s.URL); err != nil || r.Status != 200 || len(told) > 0 {
		t.Errorf("in an open network: %d, %v, told %q", r.Status, err, told)
	}
}

func TestRebinding(t *testing.T) {
	t.Parallel()
	var calls, inside atomic.Int64
	granted, other := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		echo(w, r)
	}, plain)
	_, forbidden := rawOn(t, "127.0.0.2"+s.port(), func(context.Context, net.Conn) { inside.Add(1) })
	h := setup(t, Config{
		Networks: []netip.Prefix{netip.PrefixFrom(granted, 32)},
		resolver: resolver(func(name string) []netip.Addr {
			switch {
			case name == "both.test":
				return []netip.Addr{other, granted}
			case calls.Load() == 0:
				return []netip.Addr{granted}
			}
			return []netip.Addr{other}
		}),
	}).For("a", grants(t, "http://name.test"+s.port(), "http://both.test"+s.port()), nil)

	r, err := get(t, h, "http://name.test"+s.port())
	succeeds(t, r, err, 200, string(r.Body))
	calls.Store(1)
	for range 3 {
		r, err = get(t, h, "http://name.test"+s.port())
		fails(t, r, err, service.ErrDenied)
	}
	calls.Store(0)
	r, err = get(t, h, "http://name.test"+s.port())
	succeeds(t, r, err, 200, string(r.Body))
	r, err = get(t, h, "http://both.test"+s.port())
	succeeds(t, r, err, 200, string(r.Body))
	if n := forbidden.Load(); n != 0 || inside.Load() != 0 {
		t.Errorf("%d connections to the address that is not granted", n)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	inside := serve(t, echo, plain)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", inside.URL+"/latest/meta-data")
			w.WriteHeader(status)
			fmt.Fprint(w, "moved")
		}, plain)
		r, err := get(t, setup(t, Config{Networks: loopback}).For("a", grants(t, s.URL, inside.URL), nil), s.URL)
		succeeds(t, r, err, status, "moved")
		if !slices.Equal(r.Headers["Location"], []string{inside.URL + "/latest/meta-data"}) {
			t.Errorf("headers %v", r.Headers)
		}
	}
	if n := inside.accepted.Load(); n != 0 {
		t.Errorf("%d connections to where the redirects lead", n)
	}
}

// TestPools counts connections: plugins of a tenant share them, tenants do not, and an open one opens nothing to a
// plugin that may not have it.
func TestPools(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*httptest.Server){"HTTP1": plain, "HTTP2": http2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, echo, start)
			cfg := Config{Networks: loopback}
			if name == "HTTP2" {
				cfg.rootCAs = roots(s)
			}
			c := setup(t, cfg)
			one, two, none := c.For("a", grants(t, s.URL), nil), c.For("a", grants(t, s.URL), nil), c.For("a", grants(t, "http://example.com"), nil)
			for _, h := range []service.HTTP{one, two, one} {
				r, err := get(t, h, s.URL)
				succeeds(t, r, err, 200, string(r.Body))
			}
			r, err := get(t, none, s.URL)
			fails(t, r, err, service.ErrDenied)
			if n := s.accepted.Load(); n != 1 {
				t.Errorf("%d connections of one tenant", n)
			}
			r, err = get(t, c.For("b", grants(t, s.URL), nil), s.URL)
			succeeds(t, r, err, 200, string(r.Body))
			if n := s.accepted.Load(); n != 2 {
				t.Errorf("%d connections of two tenants", n)
			}
		})
	}
}

// TestCertificate has names of one certificate, of which a connection over HTTP/2 is used for its own alone, and a
// server that nobody trusts.
func TestCertificate(t *testing.T) {
	t.Parallel()
	s := serve(t, echo, http2)
	h := setup(t, Config{Networks: loopback, resolver: always("127.0.0.1"), rootCAs: roots(s)}).
		For("a", grants(t, "https://example.com"+s.port(), s.URL, "https://other.test"+s.port()), nil)
	for _, url := range []string{s.URL, "https://example.com" + s.port()} {
		r, err := get(t, h, url)
		succeeds(t, r, err, 200, string(r.Body))
	}
	if n := s.accepted.Load(); n != 2 {
		t.Errorf("%d connections for two names", n)
	}
	r, err := get(t, h, "https://other.test"+s.port())
	fails(t, r, err, service.ErrUnavailable)
	r, err = get(t, setup(t, Config{Networks: loopback}).For("a", grants(t, s.URL), nil), s.URL)
	fails(t, r, err, service.ErrUnavailable)
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, echo, plain)
	h := setup(t, Config{Networks: loopback, maxHeader: 2048}).For("a", grants(t, s.URL), nil)
	ask := func(name, value string) (service.Response, error) {
		return h.Do(t.Context(), service.Request{Method: "GET", URL: s.URL, Headers: map[string][]string{name: {value}}})
	}
	for _, name := range []string{
		"Connection", "connection", "Content-Length", "content_length", "Transfer-Encoding", "transfer_encoding", "TRANSFER-ENCODING", "Host", "host", "Proxy-Authorization", "Proxy-Connection",
		"proxy-x", "Proxy_X", "Proxy", "Upgrade", "TE", "te", "Trailer", "Keep-Alive", "Expect", "HTTP2-Settings",
		"X-HTTP-Method-Override", "x_http_method_override", "X-HTTP-Method", "X-Method-Override", "Forwarded", "forwarded", "X-Forwarded-For", "x_forwarded_host", "X-Forwarded-",
		"", " ", "X Y", "X:", ":authority", "X\r\nY", "X\n", "X\x00", "é", "X\t", "(x)", "\u212aeep-Alive", "Transfer-Encoding ", " Host",
	} {
		r, err := ask(name, "1")
		fails(t, r, err, service.ErrInvalid)
	}
	for _, value := range []string{"a\r\nX: y", "a\n", "\r", "a\x00", "\x7f", "\x1b[0m", "a\r\n b"} {
		r, err := ask("X-Value", value)
		fails(t, r, err, service.ErrInvalid)
	}
	for _, value := range []string{"", "a b\tc", " \ta\t ", "é", "\xff", strings.Repeat("x", 1900)} {
		r, err := ask("X-Value", value)
		succeeds(t, r, err, 200, string(r.Body))
		if !bytes.Contains(r.Body, []byte("X-Value: "+strings.TrimSpace(value)+"\n")) {
			t.Errorf("%q is sent as %q", value, r.Body)
		}
	}
	// The trace of the call goes with the request, unless the guest has one of its own; it does not count.
	trace := map[string]string{"traceparent": "00-1", "tracestate": "a=1", "x-id": "7"}
	for want, of := range map[string]map[string][]string{
		"Traceparent: 00-1\nTracestate: a=1\nUser-Agent": {"tracestate": {"b=2"}},
		"Traceparent: 00-2\nUser-Agent":                  {"traceparent": {"00-2"}},
		"Traceparent: 00-1\nTracestate: a=1\nUser":       {"Accept": {strings.Repeat("x", 2000)}},
	} {
		r, err := h.Do(t.Context(), service.Request{Method: "GET", URL: s.URL, Headers: of, Trace: trace})
		succeeds(t, r, err, 200, string(r.Body))
		if !bytes.Contains(r.Body, []byte(want)) || bytes.Contains(r.Body, []byte("X-Id")) {
			t.Errorf("%s", r.Body)
		}
	}
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}

	many, names := map[string][]string{}, map[string][]string{}
	for i := range 3000 {
		many[fmt.Sprint("X-", i%500)] = []string{""}
		names[fmt.Sprint("X-", i)] = nil
	}
	for _, r := range []service.Request{
		{Method: "GET", URL: s.URL, Headers: map[string][]string{"X": {strings.Repeat("x", 2048)}}},
		{Method: "GET", URL: s.URL, Headers: map[string][]string{"X": make([]string, 1000)}},
		{Method: "GET", URL: s.URL, Headers: many},
		{Method: "GET", URL: s.URL, Headers: names},
		{Method: "GET", URL: s.URL + "/" + strings.Repeat("x", 2048)},
		{Method: strings.Repeat("G", 3000), URL: s.URL},
	} {
		answer, err := h.Do(t.Context(), r)
		fails(t, answer, err, service.ErrTooBig)
	}
	for _, r := range []service.Request{
		{Method: "", URL: s.URL},
		{Method: "get", URL: s.URL},
		{Method: "GET / HTTP/1.1\r\nX:", URL: s.URL},
		{Method: "CONNECT", URL: s.URL},
		{Method: "TRACE", URL: s.URL},
		{Method: "GET", URL: s.URL, Timeout: -1},
	} {
		answer, err := h.Do(t.Context(), r)
		fails(t, answer, err, service.ErrInvalid)
	}
}

// TestAnswerHeaders checks which of an answer's headers a guest gets, and that a length without a body is only that.
func TestAnswerHeaders(t *testing.T) {
	t.Parallel()
	url, _ := raw(t, func(_ context.Context, c net.Conn) {
		if request(c) {
			fmt.Fprint(c, "HTTP/1.1 407 No\r\nConnection: close\r\nKeep-Alive: 1\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nContent-Length: 5000000\r\nx-a: 1\r\nX-A: 2\r\n\r\n")
		}
	})
	r, err := setup(t, Config{Networks: loopback, MaxResponse: 10}).For("a", grants(t, url), nil).Do(t.Context(), service.Request{Method: "HEAD", URL: url})
	succeeds(t, r, err, 407, "")
	if want := map[string][]string{"Content-Length": {"5000000"}, "X-A": {"1", "2"}}; !reflect.DeepEqual(r.Headers, want) {
		t.Errorf("headers %v, want %v", r.Headers, want)
	}
}

func TestTrimmed(t *testing.T) {
	t.Parallel()
	h, err := headers(map[string][]string{"x-b": {" b\t "}, "X-B": {"\ta b"}}, 0, 1000)
	if want := []string{"a b", "b"}; err != nil || !slices.Equal(h["X-B"], want) {
		t.Errorf("headers %v, %v, want %q", h, err, want)
	}
	if got := printable("a\x1b[31m\r\n\u009b\xff" + strings.Repeat("é", 20<<10)); !strings.HasPrefix(got, "a?[31m????é") && !strings.HasPrefix(got, "a?[31m???\ufffdé") || len(got) > 20<<10 || !utf8.ValidString(got) {
		t.Errorf("printed as %q", got)
	}
}

// TestBodies has bodies that are as large as they may be, and a byte larger.
func TestBodies(t *testing.T) {
	t.Parallel()
	const most = 100_000
	for name, start := range map[string]func(*httptest.Server){"HTTP1": plain, "HTTP2": http2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.Header.Get("X-Chunked") != "" {
					w.(http.Flusher).Flush()
				}
				_, _ = w.Write(body)
				if r.Header.Get("X-More") != "" {
					_, _ = w.Write([]byte("!"))
				}
			}, start)
			cfg := Config{Networks: loopback, maxRequest: most, MaxResponse: most}
			if name == "HTTP2" {
				cfg.rootCAs = roots(s)
			}
			h := setup(t, cfg).For("a", grants(t, s.URL), nil)
			body := bytes.Repeat([]byte("0123456789"), most/10)
			for _, headers := range []map[string][]string{nil, {"X-Chunked": {"1"}}} {
				r, err := h.Do(t.Context(), service.Request{Method: "POST", URL: s.URL, Headers: headers, Body: body})
				succeeds(t, r, err, 200, string(body))
			}
			for _, headers := range []map[string][]string{{"X-More": {"1"}}, {"X-Chunked": {"1"}, "X-More": {"1"}}} {
				r, err := h.Do(t.Context(), service.Request{Method: "POST", URL: s.URL, Headers: headers, Body: body})
				fails(t, r, err, service.ErrTooBig)
			}
			r, err := h.Do(t.Context(), service.Request{Method: "POST", URL: s.URL, Body: append(body, 0)})
			fails(t, r, err, service.ErrTooBig)
			if err == nil || !strings.Contains(err.Error(), "the request's body has 100001 bytes") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestCompressed checks that nothing is asked for that the guest did not, and nothing decompressed.
func TestCompressed(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(make([]byte, 10<<20))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != r.URL.RawQuery {
			t.Errorf("Accept-Encoding: %q, want %q", got, r.URL.RawQuery)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}, plain)
	h := setup(t, Config{Networks: loopback, MaxResponse: 1 << 20}).For("a", grants(t, s.URL), nil)
	r, err := get(t, h, s.URL)
	succeeds(t, r, err, 200, packed.String())
	r, err = h.Do(t.Context(), service.Request{Method: "GET", URL: s.URL + "?gzip", Headers: map[string][]string{"accept-encoding": {"gzip"}}})
	succeeds(t, r, err, 200, packed.String())
	if !slices.Equal(r.Headers["Content-Encoding"], []string{"gzip"}) {
		t.Errorf("headers %v", r.Headers)
	}
}

// TestEnds checks whose end of time a request met.
func TestEnds(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*httptest.Server){"HTTP1": plain, "HTTP2": http2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{}, 10)
			s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-r.Context().Done()
			}, start)
			cfg := Config{Networks: loopback, Timeout: 100 * time.Millisecond}
			if name == "HTTP2" {
				cfg.rootCAs = roots(s)
			}
			short := setup(t, cfg).For("a", grants(t, s.URL), nil)
			cfg.Timeout = 0
			client := setup(t, cfg)
			long := client.For("a", grants(t, s.URL), nil)
			ask := service.Request{Method: "GET", URL: s.URL, Timeout: time.Hour}

			r, err := short.Do(t.Context(), ask)
			fails(t, r, err, service.ErrUnavailable)
			ask.Timeout = 50 * time.Millisecond
			r, err = long.Do(t.Context(), ask)
			fails(t, r, err, service.ErrUnavailable)
			if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
				t.Errorf("error %v", err)
			}

			ask.Timeout = 0
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			r, err = long.Do(ctx, ask)
			fails(t, r, err, context.DeadlineExceeded)
			r, err = long.Do(ctx, ask)
			fails(t, r, err, context.DeadlineExceeded)

			for len(arrived) > 0 {
				<-arrived
			}
			ctx, cancel = context.WithCancel(t.Context())
			go func() {
				<-arrived
				cancel()
			}()
			r, err = long.Do(ctx, ask)
			fails(t, r, err, context.Canceled)

			go func() {
				<-arrived
				client.Close()
			}()
			r, err = long.Do(t.Context(), ask)
			fails(t, r, err, service.ErrUnavailable)
			if err == nil || !strings.Contains(err.Error(), errClosed.Error()) {
				t.Errorf("error %v", err)
			}
			client.Close()
			r, err = long.Do(t.Context(), ask)
			fails(t, r, err, service.ErrUnavailable)
			r, err = client.For("b", grants(t, s.URL), nil).Do(t.Context(), ask)
			fails(t, r, err, service.ErrUnavailable)
		})
	}
}

// TestMany has many guests at once, of several tenants, on servers of both versions, and bounds on connections.
func TestMany(t *testing.T) {
	t.Parallel()
	const guests, each, most = 24, 20, 4
	var under, highest atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		for n := under.Add(1); ; {
			if h := highest.Load(); n <= h || highest.CompareAndSwap(h, n) {
				break
			}
		}
		defer under.Add(-1)
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}
	one, two := serve(t, handler, plain), serve(t, echo, http2)
	c := setup(t, Config{Networks: loopback, rootCAs: roots(two), MaxConns: most})
	var running sync.WaitGroup
	for i := range guests {
		running.Go(func() {
			h := c.For(fmt.Sprint("tenant", i%2), grants(t, one.URL, two.URL), nil)
			for j := range each {
				body := fmt.Sprint(i, " ", j)
				r, err := h.Do(t.Context(), service.Request{Method: "POST", URL: one.URL, Body: []byte(body)})
				succeeds(t, r, err, 200, body)
				r, err = h.Do(t.Context(), service.Request{Method: "POST", URL: two.URL, Body: []byte(body)})
				if err != nil || !bytes.HasSuffix(r.Body, []byte("\n"+body)) {
					t.Errorf("%v, %v", r, err)
				}
			}
		})
	}
	running.Wait()
	if n := highest.Load(); n > 2*most {
		t.Errorf("%d requests of two tenants at once, over HTTP/1.1", n)
	}
}

// TestMaxConns fills all connections that a tenant may have, and sees them come free.
func TestMaxConns(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived <- struct{}{}
			<-release
		}
	}, plain)
	c := setup(t, Config{Networks: loopback, resolver: always("127.0.0.1"), MaxConns: 1})
	h := c.For("a", grants(t, "http://*.test"+s.port()), nil)
	var running sync.WaitGroup
	for i := range perTenant {
		running.Go(func() {
			r, err := get(t, h, fmt.Sprintf("http://h%d.test%s/wait", i, s.port()))
			succeeds(t, r, err, 200, "")
		})
		<-arrived
	}
	r, err := h.Do(t.Context(), service.Request{Method: "GET", URL: "http://h0.test" + s.port(), Timeout: 50 * time.Millisecond})
	fails(t, r, err, service.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("error %v where one should wait", err)
	}
	r, err = get(t, h, "http://more.test"+s.port())
	fails(t, r, err, service.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "8 connections") {
		t.Errorf("error %v", err)
	}
	r, err = get(t, c.For("b", grants(t, "http://*.test"+s.port()), nil), "http://more.test"+s.port())
	succeeds(t, r, err, 200, "")
	close(release)
	running.Wait()
	r, err = get(t, h, "http://more.test"+s.port())
	succeeds(t, r, err, 200, "")
}

// TestIdle has a connection closed that nobody uses, and none that somebody does.
func TestIdle(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 10)
	url, accepted := raw(t, func(_ context.Context, c net.Conn) {
		for request(c) {
			fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
		ended <- struct{}{}
	})
	h := setup(t, Config{Networks: loopback, idleTimeout: 20 * time.Millisecond}).For("a", grants(t, url), nil)
	for i := range 2 {
		r, err := get(t, h, url)
		succeeds(t, r, err, 204, "")
		<-ended
		if n := accepted.Load(); n != int64(i+1) {
			t.Errorf("%d connections for %d requests", n, i+1)
		}
	}
}

// TestRepeated has a server that closes a connection instead of a second answer: whether it did what it was asked
// nobody knows.
func TestRepeated(t *testing.T) {
	t.Parallel()
	url, accepted := raw(t, func(_ context.Context, c net.Conn) {
		if request(c) {
			fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n")
			request(c)
		}
	})
	h := setup(t, Config{Networks: loopback}).For("a", grants(t, url), nil)
	for range 2 {
		r, err := get(t, h, url)
		succeeds(t, r, err, 204, "")
	}
	r, err := h.Do(t.Context(), service.Request{Method: "POST", URL: url})
	fails(t, r, err, service.ErrUnavailable)
	if n := accepted.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"network invalid Prefix":             {Networks: make([]netip.Prefix, 1)},
		`proxy: has no scheme that is known`: {Proxy: parsed(t, "ftp://p")},
		`proxy: has no host: use`:            {Proxy: parsed(t, "http://u:secret@")},
	} {
		err := cfg.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("error %v, want %s", err, want)
		}
		c := New(cfg)
		r, got := get(t, c.For("a", grants(t, "https://example.com"), nil), "https://example.com")
		fails(t, r, got, errors.New("none of the service's"))
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("error %v, want %s", got, want)
		}
		c.Close()
	}
}
