package relay

import (
	"context"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// host runs a host that serves queues with a guest in C, until stop or the end of the test.
func (w *world) host(guestText string, queues ...string) (stop func()) {
	w.t.Helper()
	dir, log := w.t.TempDir(), hclog.New(&hclog.LoggerOptions{Output: testWriter{w.t}, Level: hclog.Warn})
	guest := runtimetest.BuildCHandler(w.t, guestText)
	for _, name := range queues {
		if err := os.WriteFile(filepath.Join(dir, name+".wasm"), guest, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	engine, err := runtime.New(context.Background(), runtime.Config{CacheDir: w.t.TempDir()})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Config{Version: "test"})
	if err != nil {
		w.t.Fatal(err)
	}
	directory, err := plugins.New(engine, plugins.Config{Dir: dir, Tenants: []string{w.client.Tenant()}, Logger: log, Observer: m})
	if err != nil {
		w.t.Fatal(err)
	}
	client := w.tenant(w.client.Tenant())
	h, err := host.New([]*queue.Client{client}, directory, m, host.Config{Logger: log, Cache: engine})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Run(ctx, context.Background()); err != nil {
			w.t.Errorf("the host ended: %v", err)
		}
		_ = engine.Close(context.Background())
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(stop)
	return stop
}
