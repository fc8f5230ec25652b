package wasm

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/snapshot"
)

// wide are caps that no test module reaches.
var wide = Caps{
	Size: 1 << 30, Types: 1 << 30, Imports: 1 << 30, Exports: 1 << 30, Globals: 1 << 30, Elements: 1 << 30, Data: 1 << 30,
	Functions: 1 << 30, Values: 1 << 30, AllValues: 1 << 30, Helpers: 1 << 30, Body: 1 << 30, Locals: 1 << 20, Nesting: 1 << 30, Work: 1 << 30, Operands: 1 << 30, Tables: 1 << 20,
	Entries: 1 << 30, Growth: 1 << 30, References: 1 << 30, Loops: 1 << 30, Targets: 1 << 30,
	AllTargets: 1 << 30, Code: 1 << 30,
}

// errOutOfFuel ends a guest that ticked as often as its world allows.
var errOutOfFuel = errors.New("out of fuel")

// world runs modules, either as they are or rewritten. Two worlds that were given the same modules and calls
// can be compared.
type world struct {
	runtime wazero.Runtime
	options *Options            // nil: modules are run as they are
	config  wazero.ModuleConfig // of all instances
	tall    bool                // memories are mapped, for they may have all that one may have

	quantum int32 // what tick gives
	given   int64 // by tick, in all
	ticks   int
	most    int // ticks, after which tick panics; 0: no end
}

// worlds are a plain world and one of rewritten modules.
func worlds(t testing.TB, features api.CoreFeatures, o Options) (plain, rewritten *world) {
	t.Helper()
	config := wazero.NewModuleConfig().WithStartFunctions()
	plain, rewritten = &world{config: config}, &world{options: &o, config: config, quantum: 100_000}
	for _, w := range []*world{plain, rewritten} {
		w.runtime = wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigCompiler().WithCoreFeatures(features))
		t.Cleanup(func() { w.runtime.Close(context.Background()) })
	}
	_, err := rewritten.runtime.NewHostModuleBuilder(HostModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(rewritten.tick), []api.ValueType{api.ValueTypeI32}, []api.ValueType{api.ValueTypeI32}).
		Export(TickName).Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return plain, rewritten
}

// tick adds a quantum to the counter: what it was below zero is paid from it.
func (w *world) tick(_ context.Context, stack []uint64) {
	counter := api.DecodeI32(stack[0])
	w.ticks++
	if w.most > 0 && w.ticks > w.most {
		panic(errOutOfFuel)
	}
	w.given += int64(w.quantum)
	stack[0] = api.EncodeI32(counter + w.quantum)
}

// instance is a module in a world.
type instance struct {
	world *world
	api.Module
	rewritten *Rewritten // nil in a plain world
}

// spent is the fuel that was charged so far, if this is the only instance of its world.
func (i *instance) spent() int64 {
	return i.world.given - int64(int32(i.ExportedGlobal(FuelExport).Get()))
}

// refused is the error about a module that Rewrite or wazero did not take.
type refused struct{ err error }

func (r refused) Error() string { return r.err.Error() }
func (r refused) Unwrap() error { return r.err }

// instantiate runs a module up to the end of its start function. The error wraps refused, if the module did not come
// as far as to run.
func (w *world) instantiate(ctx context.Context, file []byte, name string) (*instance, error) {
	made := &instance{world: w}
	if w.options != nil {
		var err error
		if made.rewritten, err = Rewrite(file, *w.options); err != nil {
			return nil, refused{err}
		}
		file = made.rewritten.Binary
		ctx = experimental.WithMemoryAllocator(ctx, allocator(made.rewritten.Memories))
	}
	if w.tall {
		ctx = experimental.WithMemoryAllocator(ctx, mapped)
	}
	compiled, err := w.runtime.CompileModule(ctx, file)
	if err != nil {
		return nil, refused{err}
	}
	made.Module, err = w.runtime.InstantiateModule(ctx, compiled, w.config.WithName(name))
	if err != nil {
		return nil, err
	}
	if start := made.ExportedFunction(StartExport); start != nil && w.options != nil {
		if _, err := start.Call(ctx); err != nil {
			return nil, errors.Join(err, made.Close(ctx))
		}
	}
	return made, nil
}

// allocator makes memories that grow as far as their modules said before they were rewritten, by which a declared maximum
// became one page more.
func allocator(declared []Limits) experimental.MemoryAllocator {
	most, raised := uint64(MaxPages), uint64(validPages)
	if len(declared) > 0 && declared[0].HasMax {
		most = min(most, uint64(declared[0].Max))
		raised = most + 1
	}
	return experimental.MemoryAllocatorFunc(func(_, maximum uint64) experimental.LinearMemory {
		if maximum != raised*PageSize {
			panic(fmt.Sprintf("a maximum of %d pages became %d", most, maximum/PageSize))
		}
		return &heapMemory{most: most * PageSize}
	})
}

// heapMemory moves when it grows, as memories may.
type heapMemory struct {
	most  uint64
	bytes []byte
}

func (m *heapMemory) Reallocate(size uint64) []byte {
	switch {
	case size > m.most:
		return nil
	case size > uint64(cap(m.bytes)):
		m.bytes = append(make([]byte, 0, size), m.bytes...)
	}
	m.bytes = m.bytes[:size]
	return m.bytes
}

func (m *heapMemory) Free() { m.bytes = nil }

// mappedMemory is one of any size, of which only what is touched takes memory. It lies between guards.
type mappedMemory struct{ space *snapshot.Space }

func (m mappedMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.space.Bytes())) {
		return nil
	}
	return m.space.Bytes()[:size]
}

func (m mappedMemory) Free() { _ = m.space.Release() } // a test that leaks addresses fails of others

// mapped makes memories of up to MaxPages.
var mapped = experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory {
	space, err := snapshot.Reserve(MaxPages * PageSize)
	if err != nil {
		panic(err)
	}
	return mappedMemory{space}
})

// trapText is what an error of wazero says without its stack trace, in which functions have other indices; "" without
// one.
func trapText(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), "\nwasm stack trace")
	if _, started, ok := strings.Cut(text, "] failed: "); ok { // a start function, which is called by name when rewritten
		return started
	}
	return text
}

// sameState tells how the states of two instances of a module differ: their memories and the globals that the module
// itself exports. It is empty if they do not.
func sameState(plain, rewritten *instance) string {
	if a, b := memoryOf(plain), memoryOf(rewritten); a != b {
		at := 0
		for at < min(len(a), len(b)) && a[at] == b[at] {
			at++
		}
		return fmt.Sprintf("the memories of %d and %d bytes differ at %d", len(a), len(b), at)
	}
	for _, export := range rewritten.rewritten.Exports {
		if export.Kind != Global {
			continue
		}
		a, b := plain.ExportedGlobal(export.Name), rewritten.ExportedGlobal(export.Name)
		if a.Type() != b.Type() || Type(a.Type()) != FuncRef && a.Get() != b.Get() {
			return fmt.Sprintf("the global %q is %s, rewritten %s", export.Name, a, b)
		}
	}
	return ""
}

// memoryOf is what an instance has in memory, at both ends.
func memoryOf(i *instance) string {
	memory := i.Memory()
	if reflect.ValueOf(memory).IsNil() { // wazero wraps a nil pointer
		return ""
	}
	size := memory.Size()
	bytes, _ := memory.Read(0, min(size, window))
	if size > window {
		tail, _ := memory.Read(max(window, size-window), min(size-window, window))
		return string(bytes) + string(tail)
	}
	return string(bytes)
}

// window is how much of each end of a memory is looked at: all of those that are not tall.
const window = 1 << 20
