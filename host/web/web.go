// Package web serves a host's /metrics, /healthz (the process lives) and /readyz (the host can take tasks). It can be
// open to the network, because it shows no data of tasks and changes nothing.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// readTimeout and writeTimeout limit slow clients, and idleTimeout limits idle connections.
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	// closeTimeout is how long running requests can go on when the server ends.
	closeTimeout = 2 * time.Second
	// maxConnections is the maximum number of open connections. Probes and scrapers need few.
	maxConnections = 512
)

// Server answers requests on one address.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the address at once, so that an error appears before anything runs. Port 0 chooses a free port. ready
// returns the text of /readyz, or an error that says why the host cannot take tasks. The logger gets the errors of
// requests.
func Listen(address string, gatherer prometheus.Gatherer, ready func() (text string, err error),
	logger hclog.Logger,
) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", address, err)
	}
	log := logger.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrapes(gatherer, log))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok", nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		text, err := ready()
		answer(w, text, err)
	})
	return NewServer(Bound(listener, maxConnections, logger), &http.Server{
		Handler: mux, ErrorLog: log, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}), nil
}

// scrapes answers with the metrics. It compresses at the fastest level. At promhttp's own level, compression takes a
// quarter of the time of a large scrape, and the answer has the same size.
func scrapes(gatherer prometheus.Gatherer, log promhttp.Logger) http.Handler {
	plain := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: log,
		DisableCompression: true,
	})
	compressed, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed))
	if err != nil {
		panic(err) // BestSpeed is a valid level
	}
	return compressed(plain)
}

// NewServer makes a Server, which owns and closes the listener and the server.
func NewServer(listener net.Listener, server *http.Server) *Server { return &Server{listener, server} }

// Addr returns the address in use.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close releases the address of a Server that does not run.
func (s *Server) Close() { _ = s.listener.Close() }

// Run answers requests until ctx ends, and then releases the address.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer done()
		if s.http.Shutdown(closing) != nil {
			_ = s.http.Close()
		}
	})
	err := s.http.Serve(s.listener)
	if stop() {
		_ = s.http.Close() // connections must not outlive the listener
	} else {
		<-ended
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	}
	return nil
}

// answer writes the text, or the error with status 503.
func answer(w http.ResponseWriter, text string, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, text)
}
