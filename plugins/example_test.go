package plugins_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
)

// A host follows a directory, and runs each task on the version that serves its queue then.
func ExampleDirectory() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "handlers-*")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	// The smallest command there is: a _start that does nothing.
	module := "\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" +
		"\x07\x0a\x01\x06_start\x00\x00" + "\x0a\x04\x01\x02\x00\x0b"
	if err := os.WriteFile(filepath.Join(dir, "noop.wasm"), []byte(module), 0o600); err != nil {
		panic(err)
	}

	engine, err := runtime.New(ctx, runtime.Config{})
	if err != nil {
		panic(err)
	}
	directory, err := plugins.New(engine, plugins.Config{Dir: dir, Tenants: []string{"acme"}})
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- directory.Run(ctx) }()
	<-directory.Ready()

	for _, b := range directory.Bindings() {
		fmt.Printf("the plugin %s serves the queue %s of %s\n", b.Plugin, b.Queue, b.Tenant)
	}
	version := directory.Acquire("acme", "noop")
	outcome := version.Run(ctx, runtime.Call{TaskID: "1", Queue: "noop"})
	fmt.Println("the task is", outcome.Kind)
	version.Release()

	stop()
	if err := <-ended; err != nil {
		panic(err)
	}
	if err := engine.Close(context.WithoutCancel(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// the plugin noop serves the queue noop of acme
	// the task is complete
}
