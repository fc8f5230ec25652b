package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A host with one plugin, which does nothing, runs one task.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "handlers-")
	check(err)
	defer os.RemoveAll(dir)
	check(os.WriteFile(filepath.Join(dir, "nothing.wasm"), nothing(), 0o600))

	client, err := queue.New(queuetest.SharedURL(), queue.Config{Tenant: "example"})
	check(err)
	defer client.Close()
	engine, err := runtime.New(ctx, runtime.Config{})
	check(err)
	defer engine.Close(ctx)
	directory, err := plugins.New(engine, plugins.Config{Dir: dir, Tenants: []string{client.Tenant()}})
	check(err)
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Config{})
	check(err)
	h, err := host.New([]*queue.Client{client}, directory, m, host.Config{Concurrency: 8})
	check(err)

	serving, terminate := context.WithCancel(ctx) // in a program: ends with the first SIGTERM
	hurry := ctx                                  // and with the second
	ended := make(chan error)
	go func() { ended <- h.Run(serving, hurry) }()

	id, err := client.Queue("nothing").Enqueue(ctx, nil, queue.Options{})
	check(err)
	task, err := client.Wait(ctx, id)
	check(err)
	fmt.Println(task.Plugin, task.Status)
	terminate()
	fmt.Println(<-ended)
	// Output:
	// nothing complete
	// <nil>
}

// nothing is a command that does nothing: its _start returns at once.
func nothing() []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, runtimetest.Number(0)),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()),
	)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
