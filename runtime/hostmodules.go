package runtime

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// instantiateHost gives the runtime what guests import: WASI preview 1, quern_v1, and tick for their fuel. It
// returns the signatures of the functions of the first two by name.
func instantiateHost(ctx context.Context, rt wazero.Runtime) (ofWASI, ofABI map[string]wasm.Signature, err error) {
	preview1 := hostModule{name: wasi.ModuleName, signatures: map[string]wasm.Signature{}}
	for _, f := range wasi.Functions() {
		preview1.add(f.Name, f.Params, f.Results, func(r *run, mem api.Memory, stack []uint64) { f.Call(&r.wasi, mem, stack) })
	}
	own := hostModule{name: abi.ModuleName, signatures: map[string]wasm.Signature{}}
	for _, f := range abi.Functions() {
		own.add(f.Name, f.Params, f.Results, func(r *run, mem api.Memory, stack []uint64) { f.Call(&r.abi, mem, stack) })
	}
	i32 := []api.ValueType{api.ValueTypeI32}
	meter := hostModule{name: wasm.HostModule, functions: []hostExport{{wasm.TickName, api.GoModuleFunc(tick), i32, i32}}}
	for _, module := range []hostModule{preview1, own, meter} {
		if err := module.instantiate(ctx, rt); err != nil {
			return nil, nil, err
		}
	}
	return preview1.signatures, own.signatures, nil
}

// hostModule is a module of functions of the host that guests can import.
type hostModule struct {
	name       string
	functions  []hostExport
	signatures map[string]wasm.Signature
}

type hostExport struct {
	name            string
	call            api.GoModuleFunc
	params, results []api.ValueType
}

// add adds a function, behind the wrapper that all of them have.
func (m *hostModule) add(name string, params, results []api.ValueType, f func(r *run, mem api.Memory, stack []uint64)) {
	m.signatures[name] = wasm.Signature{Params: typesOf(params), Results: typesOf(results)}
	m.functions = append(m.functions, hostExport{name, hostFunction(f), params, results})
}

func (m *hostModule) instantiate(ctx context.Context, rt wazero.Runtime) error {
	builder := rt.NewHostModuleBuilder(m.name)
	for _, f := range m.functions {
		builder.NewFunctionBuilder().WithGoModuleFunction(f.call, f.params, f.results).Export(f.name)
	}
	if _, err := builder.Instantiate(ctx); err != nil {
		return fmt.Errorf("instantiate %s: %w", m.name, err)
	}
	return nil
}

func typesOf(types []api.ValueType) []wasm.Type {
	converted := make([]wasm.Type, len(types))
	for i, t := range types {
		converted[i] = wasm.Type(t)
	}
	return converted
}
