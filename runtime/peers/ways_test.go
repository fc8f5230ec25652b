package peers

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	quern "github.com/quern-project/quern/runtime"
)

// entry is the function of all guests; Extism calls any.
const entry = "quern_handle"

// ways are the columns of the table. start makes ready what a way needs, and returns a task for each core.
var ways = []struct {
	name  string
	start func(b *testing.B, g guest, cores int) []task
}{
	{"quern", func(b *testing.B, g guest, cores int) []task { return startQuern(b, g, cores, nil, "") }},
	{"quern warm", func(b *testing.B, g guest, cores int) []task {
		return startQuern(b, g, cores, append([]byte{}, g.input...), "")
	}},
	{"extism new", startExtism},
	{"wazero new", startNew},
	{"wazero kept", startKept},
}

// startQuern runs each task in an instance that is as if nobody had used it before: as it was made or, if a call is
// given to warm it, as that has left it. Machine code is kept in the folder cache, "" for one of its own.
func startQuern(b *testing.B, g guest, cores int, warm []byte, cache string) []task {
	engine, err := quern.New(b.Context(), quern.Config{Guests: cores, CacheDir: cache})
	if err != nil {
		b.Fatal(err)
	}
	closing(b, engine)
	module, err := engine.Load(b.Context(), g.quern)
	if err != nil {
		b.Fatal(err)
	}
	closing(b, module)
	pool := module.Bind(quern.Profile{Tenant: "tenant", Warm: warm})
	call := quern.Call{TaskID: "1", Queue: "queue", Plugin: "plugin", Attempt: 1, Input: g.input}
	return same(cores, func() error {
		outcome := pool.Run(b.Context(), call)
		if outcome.Kind != quern.Complete {
			return fmt.Errorf("outcome: %+v", outcome)
		}
		return g.check(0, outcome.Output)
	})
}

// startExtism runs each task in a plugin instance of its own, made from a plugin that was compiled before: so its
// documentation has it for isolation. It is not asked to be able to stop a guest, which makes it slower.
func startExtism(b *testing.B, g guest, cores int) []task {
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: g.extism}}}
	compiled, err := extism.NewCompiledPlugin(b.Context(), manifest, extism.PluginConfig{EnableWasi: true}, nil)
	if err != nil {
		b.Fatal(err)
	}
	closing(b, compiled)
	return same(cores, func() error {
		plugin, err := compiled.Instance(b.Context(), extism.PluginInstanceConfig{})
		if err != nil {
			return err
		}
		code, output, err := plugin.CallWithContext(b.Context(), entry, g.input)
		if err != nil {
			return err
		}
		if err := g.check(code, output); err != nil {
			return err
		}
		return plugin.CloseWithContext(b.Context())
	})
}

// startNew runs each task in an instance of its own on wazero alone, with nothing that could stop it.
func startNew(b *testing.B, g guest, cores int) []task {
	rt, compiled := compile(b, g)
	return same(cores, func() error {
		instance, err := rt.InstantiateModule(b.Context(), compiled, instanceConfig)
		if err != nil {
			return err
		}
		if err := g.handle(b.Context(), instance.ExportedFunction(entry)); err != nil {
			return err
		}
		return instance.Close(b.Context())
	})
}

// startKept runs all tasks of a core in one instance, where each finds what others have left. Nobody may do so: it is
// the yardstick.
func startKept(b *testing.B, g guest, cores int) []task {
	rt, compiled := compile(b, g)
	var tasks []task
	for range cores {
		instance, err := rt.InstantiateModule(b.Context(), compiled, instanceConfig)
		if err != nil {
			b.Fatal(err)
		}
		function := instance.ExportedFunction(entry)
		tasks = append(tasks, func() error { return g.handle(b.Context(), function) })
	}
	return tasks
}

var instanceConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")

// compile makes a runtime of wazero with the functions that the guests call.
func compile(b *testing.B, g guest) (wazero.Runtime, wazero.CompiledModule) {
	ctx := b.Context()
	rt := wazero.NewRuntime(ctx)
	closing(b, rt)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		b.Fatal(err)
	}
	host := rt.NewHostModuleBuilder("quern_v1")
	for name, function := range map[string]struct {
		call       func(c *call, mem api.Memory, stack []uint64)
		parameters int
	}{
		"input_size":   {(*call).inputSize, 0},
		"input_read":   {(*call).inputRead, 3},
		"output_write": {(*call).outputWrite, 2},
	} {
		types := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}
		host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, m api.Module, stack []uint64) {
			function.call(ctx.Value(callKey{}).(*call), m.Memory(), stack)
		}), types[:function.parameters], types[:1]).Export(name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		b.Fatal(err)
	}
	compiled, err := rt.CompileModule(ctx, g.quern)
	if err != nil {
		b.Fatal(err)
	}
	return rt, compiled
}

// call is a task on wazero alone.
type call struct{ input, output []byte }

type callKey struct{} // of the call, in its context

func (g guest) handle(ctx context.Context, function api.Function) error {
	c := &call{input: g.input}
	results, err := function.Call(context.WithValue(ctx, callKey{}, c))
	if err != nil {
		return err
	}
	return g.check(uint32(results[0]), c.output)
}

func (c *call) inputSize(_ api.Memory, stack []uint64) { stack[0] = uint64(len(c.input)) }

func (c *call) inputRead(mem api.Memory, stack []uint64) {
	p := c.input[min(int(uint32(stack[0])), len(c.input)):]
	p = p[:min(int(uint32(stack[2])), len(p))]
	if !mem.Write(uint32(stack[1]), p) {
		panic("input_read: out of memory's range")
	}
	stack[0] = uint64(len(p))
}

func (c *call) outputWrite(mem api.Memory, stack []uint64) {
	p, ok := mem.Read(uint32(stack[0]), uint32(stack[1]))
	if !ok {
		panic("output_write: out of memory's range")
	}
	c.output = append(c.output, p...)
	stack[0] = 0
}

// check tells what is wrong with the result of a task.
func (g guest) check(code uint32, output []byte) error {
	if code != 0 || !bytes.Equal(output, g.output) {
		return fmt.Errorf("%s: %d with the output %q", g.name, code, output)
	}
	return nil
}

// same is one task for all cores.
func same(cores int, t task) []task {
	tasks := make([]task, cores)
	for i := range tasks {
		tasks[i] = t
	}
	return tasks
}

// closing closes what a benchmark has opened when it ends, the last one first.
func closing(b *testing.B, what interface{ Close(context.Context) error }) {
	b.Cleanup(func() {
		if err := what.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
}
