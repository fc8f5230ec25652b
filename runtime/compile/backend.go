package compile

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/wasm"
)

// backend is a wazero runtime with its cache.
type backend struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	kernel  atomic.Pointer[wazero.CompiledModule] // the kernel of Extism plugins; nil before an Extism plugin is loaded
	loading [64]sync.Mutex                        // each guards the loads of some modules, chosen by their keys: see load
}

// newBackend makes a wazero runtime. All runtimes have the same configuration, so that their code is interchangeable.
// wazero does not stop guests; fuel does.
func newBackend(ctx context.Context, cache wazero.CompilationCache) *backend {
	config := wazero.NewRuntimeConfigCompiler(). // never the interpreter, not even without executable memory: see canary
							WithCompilationCache(cache).
							WithDebugInfoEnabled(false)
	return &backend{cache: cache, runtime: wazero.NewRuntimeWithConfig(ctx, config)}
}

func (b *backend) close(ctx context.Context) error {
	return errors.Join(b.runtime.Close(ctx), b.cache.Close(ctx))
}

// load loads a module's code from the cache. Only one caller at a time loads a module. Otherwise wazero would give a
// second caller the code that the first is loading, before the code has its entry points. If the cache has no entry,
// the error is errNotCompiled.
func (b *backend) load(ctx context.Context, key string, binary []byte) (wazero.CompiledModule, error) {
	lock := &b.loading[crc32.ChecksumIEEE([]byte(key))%uint32(len(b.loading))]
	lock.Lock()
	defer lock.Unlock()
	return b.compile(withoutCompiler{ctx}, binary)
}

// compile calls wazero's compiler, which panics on some modules, and ignores the context. A panic becomes a
// *panicError.
func (b *backend) compile(ctx context.Context, binary []byte) (compiled wazero.CompiledModule, err error) {
	defer func() {
		if p := recover(); p != nil {
			compiled, err = nil, &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return b.runtime.CompileModule(ctx, binary)
}

// panicError is a panic of wazero's compiler.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("%v\n%s", e.value, e.stack) }

// Unwrap returns the panic's value if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// errNotCompiled is the error of a load whose code is not in the cache.
var errNotCompiled = errors.New("compiled code is not in the cache")

// withoutCompiler is a context in which wazero only loads from its cache. Before wazero compiles the first function, it
// asks the context for the number of compilation workers. Then Value panics with errNotCompiled, which ends the load.
type withoutCompiler struct{ context.Context } //nolint:containedctx // it is a context

// Value implements context.Context.
func (c withoutCompiler) Value(key any) any {
	if key == workersKey() {
		panic(errNotCompiled)
	}
	return c.Context.Value(key)
}

// workersKey returns the context key for the number of compilation workers. wazero does not export this key.
var workersKey = sync.OnceValue(func() any {
	catcher := keyCatcher{Context: context.Background()}
	experimental.GetCompilationWorkers(&catcher)
	return catcher.key
})

// keyCatcher is a context that records the last key whose value was asked for.
type keyCatcher struct {
	context.Context //nolint:containedctx // it is a context
	key             any
}

// Value implements context.Context.
func (c *keyCatcher) Value(key any) any {
	c.key = key
	return nil
}

// addTick adds the function that guests call when their counter falls below zero.
func addTick(ctx context.Context, rt wazero.Runtime, tick api.GoModuleFunc) error {
	i32 := []api.ValueType{api.ValueTypeI32}
	builder := rt.NewHostModuleBuilder(wasm.HostModule).NewFunctionBuilder()
	_, err := builder.WithGoModuleFunction(tick, i32, i32).Export(wasm.TickName).Instantiate(ctx)
	return err
}
