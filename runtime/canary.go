package runtime

import (
	"context"
	_ "embed" // canary.wasm
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/wasm"
)

// canaryModule is built from canary.wat, which tells how.
//
//go:embed canary.wasm
var canaryModule []byte

// canary tries the compiler, once for the process. It runs a small program twice, rewritten and compiled as guests are, and
// interpreted, and compares the results. The program computes what wazero's compilers have computed wrongly before. It takes
// some milliseconds.
var canary = sync.OnceValue(func() error {
	file, err := wasm.Rewrite(canaryModule, wasm.Options{})
	if err != nil {
		return fmt.Errorf("%w: rewrite the program that tries it: %w", ErrEngine, err)
	}
	want, err := runCanary(wazero.NewRuntimeConfigInterpreter(), canaryModule)
	if err != nil {
		return fmt.Errorf("%w: the interpreter: %w", ErrEngine, err)
	}
	got, err := runCanary(wazero.NewRuntimeConfigCompiler(), file.Binary)
	if err != nil {
		return fmt.Errorf("%w: the compiler for %s does not run, maybe because this system gives no executable memory (seccomp, SELinux): %w",
			ErrEngine, goruntime.GOARCH, err)
	}
	return agree(got, want)
})

// agree is nil if the compiler computes what the interpreter does.
func agree(got, want []string) error {
	for i, result := range want {
		if i >= len(got) || got[i] != result {
			return fmt.Errorf("%w: the compiler for %s computes %q instead of %q: use another build of quern, and report it as SECURITY.md says",
				ErrEngine, goruntime.GOARCH, got[min(i, len(got)):min(i+1, len(got))], result)
		}
	}
	return nil
}

// runCanary runs the program, and returns what it computes.
func runCanary(config wazero.RuntimeConfig, binary []byte) (results []string, err error) {
	defer func() {
		if p := recover(); p != nil { // wazero panics if it gets no memory
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
	}()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	plenty := func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = 1 << 30 }
	if err := instantiateTick(ctx, rt, plenty); err != nil {
		return nil, err
	}
	module, err := rt.Instantiate(ctx, binary)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"floats", "digits", "calls", "memories", "beyond"} {
		for n := range uint64(12) {
			got, err := module.ExportedFunction(name).Call(ctx, n)
			results = append(results, fmt.Sprintf("%s(%d) = %x %s", name, n, got, firstLine(fmt.Sprint(err))))
		}
	}
	return results, nil
}
