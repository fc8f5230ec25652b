package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup serves on a free port until the test ends or stops it. change may alter the server before.
func setup(t *testing.T, gatherer prometheus.Gatherer, ready func() (string, error), change func(*http.Server)) (s *Server, log *strings.Builder, stop func()) {
	t.Helper()
	log = &strings.Builder{} // to be read when the server has ended
	s, err := Listen("127.0.0.1:0", gatherer, ready, hclog.New(&hclog.LoggerOptions{Output: log, DisableTime: true}))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s.http)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return s, log, stop
}

// answered is what a client sees.
type answered struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, s *Server, method, path string) answered {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{response.StatusCode, response.Header, string(body)}
}

func TestPages(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "answer", Help: "The answer."})
	gauge.Set(42)
	registry.MustRegister(gauge)
	notReady := make(chan error, 1)
	s, _, _ := setup(t, registry, func() (string, error) {
		select {
		case err := <-notReady:
			return "", err
		default:
			return "ok, but tenant acme is drained", nil
		}
	}, nil)
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok, but tenant acme is drained\n", "/metrics": "# HELP answer The answer.\n# TYPE answer gauge\nanswer 42\n"} {
		got := ask(t, s, http.MethodGet, path)
		if got.status != http.StatusOK || got.body != want || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain; ") {
			t.Errorf("%s: %+v", path, got)
		}
		if got := ask(t, s, http.MethodHead, path); got.status != http.StatusOK || got.body != "" {
			t.Errorf("HEAD %s: %+v", path, got)
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodTrace} {
			if got := ask(t, s, method, path); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %+v", method, path, got)
			}
		}
	}
	for _, path := range []string{"/", "/metrics/", "/debug/pprof/", "/healthz/x", "/../metrics/../x"} {
		if got := ask(t, s, http.MethodGet, path); got.status != http.StatusNotFound {
			t.Errorf("%s: %+v", path, got)
		}
	}
	notReady <- errors.New("draining")
	if got := ask(t, s, http.MethodGet, "/readyz"); got.status != http.StatusServiceUnavailable || got.body != "draining\n" {
		t.Errorf("/readyz: %+v", got)
	}
}

// Prometheus asks for OpenMetrics, and gets it.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t, prometheus.NewRegistry(), func() (string, error) { return "ok", nil }, nil)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "# EOF\n" {
		t.Errorf("%q, %v", body, err)
	}
}

// A scrape of some length is compressed for who can read that.
func TestCompression(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	help := strings.Repeat("The answer. ", 1000)
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "answer", Help: help}))
	s, _, _ := setup(t, registry, func() (string, error) { return "ok", nil }, nil)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request) // which asks for gzip, and unpacks it
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !response.Uncompressed || !strings.Contains(string(body), "# HELP answer "+help) {
		t.Errorf("%q, compressed %t: %v", body, response.Uncompressed, err)
	}
}

// A client that does not go on is not waited for, neither before a request nor between two.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t, prometheus.NewRegistry(), func() (string, error) { return "ok", nil }, func(server *http.Server) {
		if server.ReadTimeout <= 0 || server.WriteTimeout <= 0 || server.IdleTimeout <= 0 {
			t.Errorf("unbounded: read %s, write %s, idle %s", server.ReadTimeout, server.WriteTimeout, server.IdleTimeout)
		}
		server.ReadTimeout, server.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond
	})
	for name, text := range map[string]string{
		"Nothing": "",
		"Header":  "GET /healthz HTTP/1.1\r\nHost: quern\r\nX-Slow: ",
		"Body":    "GET /healthz HTTP/1.1\r\nHost: quern\r\nContent-Length: 10\r\n\r\n1",
		"Idle":    "GET /healthz HTTP/1.1\r\nHost: quern\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				t.Errorf("the connection was not closed: %v", err)
			}
		})
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// What goes wrong with a request is in the log, in its form, and the server goes on.
func TestFaults(t *testing.T) {
	t.Parallel()
	broken := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("no figures") })
	s, log, stop := setup(t, broken, func() (string, error) { panic("no idea") }, nil)
	if got := ask(t, s, http.MethodGet, "/metrics"); got.status != http.StatusInternalServerError {
		t.Errorf("/metrics: %+v", got)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		response.Body.Close()
		t.Errorf("/readyz: %s", response.Status)
	}
	if got := ask(t, s, http.MethodGet, "/healthz"); got.status != http.StatusOK {
		t.Errorf("/healthz: %+v", got)
	}
	stop()
	for _, want := range []string{"no figures", "panic serving"} {
		if !strings.Contains(log.String(), "[WARN]  http: ") || !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
}

func TestAddressTaken(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t, prometheus.NewRegistry(), func() (string, error) { return "ok", nil }, nil)
	_, err := Listen(s.Addr(), prometheus.NewRegistry(), func() (string, error) { return "ok", nil }, hclog.NewNullLogger())
	var network *net.OpError
	if !errors.As(err, &network) || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("%v", err)
	}
}

// A client that keeps many connections open leaves room for others; what it closes it may open again.
func TestManyConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bound := Bound(listener, 4, hclog.NewNullLogger())
	defer bound.Close()
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := bound.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var open []net.Conn
	for range 2 {
		dial()
		open = append(open, <-accepted)
	}
	third := dial()
	_ = third.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if n, err := third.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third of one address: %d bytes, %v: want the end", n, err)
	}
	_, _ = open[0].Close(), open[0].Close()
	dial()
	select {
	case conn := <-accepted:
		_ = conn.Close()
	case <-time.After(2 * time.Minute):
		t.Error("a place that became free is not given again")
	}
	_ = open[1].Close()
}
