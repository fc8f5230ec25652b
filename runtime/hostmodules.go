package runtime

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// instantiateHost gives the runtime what guests import: WASI preview 1, and tick for their fuel. It returns
// the signatures of WASI's functions by name.
func instantiateHost(ctx context.Context, rt wazero.Runtime) (map[string]wasm.Signature, error) {
	functions := map[string]wasm.Signature{}
	builder := rt.NewHostModuleBuilder(wasi.ModuleName)
	for _, f := range wasi.Functions() {
		functions[f.Name] = wasm.Signature{Params: typesOf(f.Params), Results: typesOf(f.Results)}
		builder.NewFunctionBuilder().
			WithGoModuleFunction(hostFunction(func(r *run, mem api.Memory, stack []uint64) {
				f.Call(r.system, mem, stack)
			}), f.Params, f.Results).
			Export(f.Name)
	}
	if _, err := builder.Instantiate(ctx); err != nil {
		return nil, fmt.Errorf("instantiate %s: %w", wasi.ModuleName, err)
	}
	i32 := []api.ValueType{api.ValueTypeI32}
	builder = rt.NewHostModuleBuilder(wasm.HostModule)
	builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(tick), i32, i32).Export(wasm.TickName)
	if _, err := builder.Instantiate(ctx); err != nil {
		return nil, fmt.Errorf("instantiate %s: %w", wasm.HostModule, err)
	}
	return functions, nil
}

func typesOf(types []api.ValueType) []wasm.Type {
	converted := make([]wasm.Type, len(types))
	for i, t := range types {
		converted[i] = wasm.Type(t)
	}
	return converted
}
