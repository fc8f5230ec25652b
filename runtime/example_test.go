package runtime_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// hello is a command in WebAssembly: it writes "hello" to stdout with fd_write(1, iovs, 1, result).
func hello() []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection,
			runtimetest.FunctionType("\x7f\x7f\x7f\x7f", "\x7f"), runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.ImportSection,
			runtimetest.Import("wasi_snapshot_preview1", "fd_write", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{1}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 1)),
		runtimetest.Section(runtimetest.CodeSection,
			runtimetest.Body(0x41, 1, 0x41, 0, 0x41, 1, 0x41, 16, 0x10, 0, 0x1a)),
		runtimetest.Section(runtimetest.DataSection, // the iovec {8, 5} and what it points to, at 0
			append([]byte{0, 0x41, 0, 0x0b}, runtimetest.Name("\x08\x00\x00\x00\x05\x00\x00\x00hello")...)),
	)
}

func ExamplePool_Run() {
	ctx := context.Background()
	engine, err := runtime.New(ctx, runtime.Config{})
	if err != nil {
		panic(err)
	}
	defer engine.Close(ctx)
	module, err := engine.Load(ctx, hello())
	if err != nil {
		panic(err)
	}
	defer module.Close(ctx)

	outcome := module.Bind(runtime.Profile{}).Run(ctx, runtime.Call{TaskID: "1", Queue: "greetings", Plugin: "hello"})
	fmt.Printf("%s: %s\n", outcome.Kind, outcome.Output)

	outcome = module.Bind(runtime.Profile{Limits: runtime.Limits{Output: 4}}).Run(ctx, runtime.Call{TaskID: "2"})
	fmt.Printf("%s %s of %s\n", outcome.Kind, outcome.Limit.Name, outcome.Limit.Value)
	// Output:
	// complete: hello
	// limit output of 4B
}

func ExampleEngine_Load() {
	ctx := context.Background()
	engine, err := runtime.New(ctx, runtime.Config{})
	if err != nil {
		panic(err)
	}
	defer engine.Close(ctx)

	_, err = engine.Load(ctx, []byte(`(module (func (export "_start")))`))
	var refused *runtime.RefusedError
	if errors.As(err, &refused) {
		fmt.Println(refused.Refusals[0].What)
		fmt.Println(refused.Refusals[0].Remedy)
	}
	// Output:
	// not a WebAssembly module but a WebAssembly text file (WAT)
	// assemble it with wat2wasm or wasm-tools parse
}
