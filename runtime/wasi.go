package runtime

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/quern-project/quern/runtime/wasm"
)

// wasiModule is the import module of WASI preview 1, the only one that a command may import from.
const wasiModule = wasi_snapshot_preview1.ModuleName

// instantiateWASI gives the runtime WASI preview 1 and returns the signatures of its functions by
// name. It is wazero's own but for two functions with which a guest could make wazero panic.
func instantiateWASI(ctx context.Context, rt wazero.Runtime, c clock) (map[string]wasm.Signature, error) {
	builder := rt.NewHostModuleBuilder(wasiModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(builder)
	const i32, i64 = api.ValueTypeI32, api.ValueTypeI64
	export := func(name string, f api.GoModuleFunc, params ...api.ValueType) {
		builder.NewFunctionBuilder().
			WithGoModuleFunction(guarded(f), params, []api.ValueType{i32}).
			Export(name)
	}
	export("poll_oneoff", c.pollOneoff, i32, i32, i32, i32)
	export("fd_filestat_set_times", noTimes, i32, i64, i64, i32)
	compiled, err := builder.Compile(ctx)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", wasiModule, err)
	}
	if _, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig()); err != nil {
		return nil, fmt.Errorf("instantiate %s: %w", wasiModule, err)
	}
	functions := map[string]wasm.Signature{}
	for name, definition := range compiled.ExportedFunctions() {
		functions[name] = wasm.Signature{
			Params:  typesOf(definition.ParamTypes()),
			Results: typesOf(definition.ResultTypes()),
		}
	}
	return functions, nil
}

func typesOf(types []api.ValueType) []wasm.Type {
	names := make([]wasm.Type, len(types))
	for i, t := range types {
		names[i] = wasm.Type(api.ValueTypeName(t))
	}
	return names
}

// noTimes is fd_filestat_set_times, for guests that have no files whose times they could set.
func noTimes(_ context.Context, _ api.Module, stack []uint64) {
	stack[0] = errnoNotsup
}

// guarded makes a panic of a host function the host's own.
func guarded(f api.GoModuleFunc) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		defer guard()
		f(ctx, mod, stack)
	}
}

// guard is deferred by all code of the host that runs below a guest. wazero recovers a panic there
// and returns it from the call, where it would look like one that the guest has provoked in wazero;
// as a faultError it is known for the host's. What ends a guest passes.
func guard() {
	switch p := recover().(type) {
	case nil:
	case *sys.ExitError:
		panic(p)
	default:
		panic(&faultError{fmt.Errorf("panic in a host function: %v\n%s", p, debug.Stack())})
	}
}
