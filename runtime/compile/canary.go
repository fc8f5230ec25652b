package compile

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

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasm"
)

// canaryModule is built from canary.wat, which begins with the command that builds it.
//
//go:embed canary.wasm
var canaryModule []byte

// canary tests the compiler, once for the process. It runs a small program twice, compiled like a guest and
// interpreted, and compares the results. The program repeats computations that wazero's compilers got wrong before. The
// test takes some milliseconds.
var canary = sync.OnceValue(func() error {
	file, err := wasm.Rewrite(canaryModule, wasm.Options{})
	if err != nil {
		return fmt.Errorf("%w: rewrite the program that tries it: %w", ErrCompiler, err)
	}
	want, err := runCanary(wazero.NewRuntimeConfigInterpreter(), canaryModule)
	if err != nil {
		return fmt.Errorf("%w: the interpreter: %w", ErrCompiler, err)
	}
	got, err := runCanary(wazero.NewRuntimeConfigCompiler(), file.Binary)
	if err != nil {
		return fmt.Errorf("%w: the compiler for %s does not run, maybe because this system gives no executable memory (seccomp, SELinux): %w",
			ErrCompiler, goruntime.GOARCH, err)
	}
	return agree(got, want)
})

// agree returns an error if the compiler's results differ from the interpreter's.
func agree(got, want []string) error {
	for i, result := range want {
		if i >= len(got) || got[i] != result {
			return fmt.Errorf("%w: the compiler for %s computes %q instead of %q: use another build of quern, and report it as SECURITY.md says",
				ErrCompiler, goruntime.GOARCH, got[min(i, len(got)):min(i+1, len(got))], result)
		}
	}
	return nil
}

// runCanary runs the test program, and returns its results.
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
	if err := addTick(ctx, rt, plenty); err != nil {
		return nil, err
	}
	module, err := rt.Instantiate(ctx, binary)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"floats", "digits", "calls", "memories", "beyond"} {
		for n := range uint64(12) {
			got, err := module.ExportedFunction(name).Call(ctx, n)
			results = append(results, fmt.Sprintf("%s(%d) = %x %s", name, n, got, redact.FirstLine(fmt.Sprint(err))))
		}
	}
	return results, nil
}
