package runtimetest

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// handle runs a handler on wazero alone, which nothing in this repository is below, and returns its result and
// output.
func handle(t *testing.T, binary, input []byte) (code int32, output []byte) {
	t.Helper()
	instance := instantiate(t, binary, input, &output)
	result, err := instance.ExportedFunction("quern_handle").Call(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int32(uint32(result[0])), output
}

// instantiate gives a handler an instance with the little of quern_v1 that the handlers here need.
func instantiate(t *testing.T, binary, input []byte, output *[]byte) api.Module {
	t.Helper()
	ctx := t.Context()
	rt := wazero.NewRuntime(ctx)
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		t.Fatal(err)
	}
	host := rt.NewHostModuleBuilder("quern_v1")
	host.NewFunctionBuilder().WithFunc(func() int32 { return int32(len(input)) }).Export("input_size")
	host.NewFunctionBuilder().WithFunc(func(_ context.Context, m api.Module, offset, to, capacity uint32) int32 {
		p := input[min(int(offset), len(input)):]
		p = p[:min(int(capacity), len(p))]
		if !m.Memory().Write(to, p) {
			return -2
		}
		return int32(len(p))
	}).Export("input_read")
	host.NewFunctionBuilder().WithFunc(func(_ context.Context, m api.Module, from, size uint32) int32 {
		p, ok := m.Memory().Read(from, size)
		if !ok {
			return -2
		}
		*output = append(*output, p...)
		return 0
	}).Export("output_write")
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	config := wazero.NewModuleConfig().WithStartFunctions("_initialize")
	instance, err := rt.InstantiateWithConfig(ctx, binary, config)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	for _, language := range Languages() {
		t.Run(string(language), func(t *testing.T) {
			t.Parallel()
			if code, output := handle(t, language.Empty(t), []byte("input")); code != 0 || len(output) > 0 {
				t.Errorf("empty: %d with the output %q", code, output)
			}
			if n := len(JSONInput()); n < 900 || n > 1100 {
				t.Errorf("%d bytes of JSON", n)
			}
			code, output := handle(t, language.JSON(t), JSONInput())
			if want := JSONOutput(); code != 0 || !bytes.Equal(output, want) {
				t.Errorf("JSON: %d with the output\n%s, want\n%s", code, output, want)
			}
			if code, output = handle(t, language.JSON(t), []byte(`{"lines": [}`)); code != 65 || len(output) > 0 {
				t.Errorf("no JSON: %d with the output %q", code, output)
			}
		})
	}
}
