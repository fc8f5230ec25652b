package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback is what the operator grants where a test's server is to be reached.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// everything is all methods that the tests use.
var everything = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}

// setup makes a client that is closed when the test ends.
func setup(t testing.TB, cfg Config) *Client {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

// grants makes grants of everything to hosts.
func grants(t testing.TB, hosts ...string) []Grant {
	t.Helper()
	all := make([]Grant, 0, len(hosts))
	for _, host := range hosts {
		g, err := ParseGrant(host, everything)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	return all
}

// server is a real one, on loopback.
type server struct {
	*httptest.Server
	accepted atomic.Int64 // connections
}

type countingListener struct {
	net.Listener
	count *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.count.Add(1)
	}
	return c, err
}

// serve starts a server. change may alter it before, and start says how.
func serve(t testing.TB, handler http.HandlerFunc, start func(*httptest.Server)) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(handler)}
	s.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	s.Listener = countingListener{s.Listener, &s.accepted}
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

func plain(s *httptest.Server)  { s.Start() }
func secure(s *httptest.Server) { s.StartTLS() }
func http2(s *httptest.Server) {
	s.EnableHTTP2 = true
	s.StartTLS()
}

// port is what follows the last colon of a server's URL, with it.
func (s *server) port() string { return s.URL[strings.LastIndexByte(s.URL, ':'):] }

// raw serves connections with bytes that no server of HTTP would send. It accepts until the test ends.
func raw(t testing.TB, serve func(ctx context.Context, c net.Conn)) (url string, accepted *atomic.Int64) {
	t.Helper()
	return rawOn(t, "127.0.0.1:0", serve)
}

func rawOn(t testing.TB, address string, serve func(ctx context.Context, c net.Conn)) (url string, accepted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	accepted = &atomic.Int64{}
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			running.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				serve(ctx, c)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		running.Wait()
	})
	return "http://" + l.Addr().String(), accepted
}

// resolver answers with what resolve says of a name; no address is none of that name.
func resolver(resolve func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, its := net.Pipe()
		go func() {
			defer ours.Close()
			for answerDNS(ours, resolve) == nil {
			}
		}()
		return its, nil
	}}
}

// answerDNS answers one question over a stream (RFC 1035 §4).
func answerDNS(c net.Conn, resolve func(name string) []netip.Addr) error {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return err
	}
	end, name := 12, ""
	for query[end] != 0 {
		n := int(query[end])
		name += string(query[end+1:end+1+n]) + "."
		end += 1 + n
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	end += 5
	addrs := resolve(strings.TrimSuffix(name, "."))
	count := 0
	var records []byte
	for _, a := range addrs {
		if want := uint16(1); a.Is4() && kind == want || a.Is6() && kind == 28 {
			b := a.AsSlice()
			records = append(records, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(b)))
			records = append(records, b...)
			count++
		}
	}
	flags := uint16(0x8580) // an answer, with authority, recursion available
	if len(addrs) == 0 {
		flags |= 3 // no such name
	}
	answer := append([]byte{}, query[:2]...)
	answer = binary.BigEndian.AppendUint16(answer, flags)
	answer = append(answer, 0, 1, 0, byte(count), 0, 0, 0, 0)
	answer = append(append(answer, query[12:end]...), records...)
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err
}

// always is a resolver with the same addresses for every name.
func always(addrs ...string) *net.Resolver {
	parsed := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	return resolver(func(string) []netip.Addr { return parsed })
}

// get asks for a URL.
func get(t testing.TB, h service.HTTP, url string) (service.Response, error) {
	t.Helper()
	return h.Do(t.Context(), service.Request{Method: "GET", URL: url})
}

// fails checks what kind of an error there is, that it is of no other kind, and that there is no answer.
func fails(t testing.TB, r service.Response, err, want error) {
	t.Helper()
	for _, kind := range []error{
		service.ErrInvalid, service.ErrDenied, service.ErrTooBig, service.ErrUnavailable, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) != errors.Is(want, kind) {
			t.Errorf("the error is %v, want %v", err, want)
		}
	}
	if r.Status != 0 || r.Headers != nil || r.Body != nil {
		t.Errorf("with the error %v comes the answer %+v", err, r)
	}
}

// succeeds checks an answer.
func succeeds(t testing.TB, r service.Response, err error, status int, body string) {
	t.Helper()
	if err != nil {
		t.Errorf("error %v", err)
		return
	}
	if r.Status != status || string(r.Body) != body {
		t.Errorf("answer %d %.100q, want %d %.100q", r.Status, r.Body, status, body)
	}
}
