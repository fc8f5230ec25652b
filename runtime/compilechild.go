package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

// CompileChild is all that a process does which an Engine has started with Config.Compiler: it compiles one
// module within limits that it sets itself before it reads the first byte. args are those that the Engine
// has put behind Config.Compiler. The module comes from stdin, the verdict goes to stdout, the code into the
// working directory. An error means that there is no verdict.
func CompileChild(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	const count = 3
	if len(args) != count {
		return fmt.Errorf("got %d arguments, want the bytes of memory, the seconds of processor time and the bytes of the module", len(args))
	}
	var numbers [count]int64
	for i, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("argument %q is no number", arg)
		}
		numbers[i] = n
	}
	memory, seconds, size := numbers[0], numbers[1], numbers[2]
	// The rest of the machine is for the tasks: Go's collector would take every idle processor.
	goruntime.GOMAXPROCS(min(2, goruntime.GOMAXPROCS(0)))
	debug.SetMemoryLimit(memory / 4 * 3) // from here the collector works harder
	if err := limitChild(memory, seconds); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	out := json.NewEncoder(stdout)
	if err := out.Encode(verdict{End: endReady}); err != nil {
		return err
	}
	binary := make([]byte, size)
	if _, err := io.ReadFull(stdin, binary); err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	v := verdictOf(compileIn(ctx, ".", binary))
	v.Text = prefix(v.Text, maxChildText/8) // its quotation is longer
	return out.Encode(v)
}

// compileIn compiles a module for the sake of the entry that wazero writes below the stage.
func compileIn(ctx context.Context, stage string, binary []byte) (err error) {
	cache, err := wazero.NewCompilationCacheWithDir(stage)
	if err != nil {
		return fmt.Errorf("open stage: %w", err)
	}
	b := &backend{cache: cache, runtime: wazero.NewRuntimeWithConfig(ctx, runtimeConfig(cache))}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	_, err = b.compile(ctx, binary)
	return err
}

// panicError is a panic of wazero's compiler.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("%v\n%s", e.value, e.stack) }

// Unwrap is the error that was panicked with, if it was one.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// compile calls wazero, which panics on some modules where it should return an error, and does not look at
// the context while it compiles.
func (b *backend) compile(ctx context.Context, binary []byte) (compiled wazero.CompiledModule, err error) {
	defer func() {
		if p := recover(); p != nil {
			compiled, err = nil, &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return b.runtime.CompileModule(ctx, binary)
}

// errNotCompiled is the end of a load for which the cache has no code.
var errNotCompiled = errors.New("compiled code is not in the cache")

// withoutCompiler is the context in which the host calls wazero: where it finds no code in its cache, it
// would compile here and now. Before the first function it asks the context how many it may compile at once,
// and gets no answer.
type withoutCompiler struct{ context.Context } //nolint:containedctx // it is a context

// Value implements context.Context.
func (c withoutCompiler) Value(key any) any {
	if key == workersKey() {
		panic(errNotCompiled)
	}
	return c.Context.Value(key)
}

// workersKey is the key by which wazero asks, which it does not export.
var workersKey = sync.OnceValue(func() any {
	asked := keyCatcher{Context: context.Background()}
	experimental.GetCompilationWorkers(&asked)
	return asked.key
})

// keyCatcher keeps the key that it is asked for.
type keyCatcher struct {
	context.Context //nolint:containedctx // it is one
	key             any
}

// Value implements context.Context.
func (c *keyCatcher) Value(key any) any {
	c.key = key
	return nil
}
