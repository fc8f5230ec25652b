package runtimetest

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// instance is one of a handler, on wazero alone: these tests are of the guests, and want no host that is of any
// help to them.
type instance struct {
	module        api.Module
	input, output []byte
}

// handle makes one call, and returns its result and output.
func (i *instance) handle(ctx context.Context, input []byte) (code int32, output []byte, err error) {
	i.input, i.output = input, nil
	results, err := i.module.ExportedFunction("quern_handle").Call(ctx)
	if err != nil {
		return 0, nil, err
	}
	return int32(uint32(results[0])), i.output, nil
}

// compilations keeps what a test has compiled, for all its instances.
func compilations(t *testing.T) wazero.CompilationCache {
	t.Helper()
	cache := wazero.NewCompilationCache()
	closing(t, cache)
	return cache
}

func closing(t *testing.T, what api.Closer) {
	t.Cleanup(func() {
		if err := what.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// instantiate gives a handler the little of quern_v1 that the handlers here need, and 32 MiB of memory.
func instantiate(t *testing.T, cache wazero.CompilationCache, binary []byte) *instance {
	t.Helper()
	i := &instance{}
	ctx := t.Context()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCompilationCache(cache).WithCloseOnContextDone(true).WithMemoryLimitPages(512))
	closing(t, rt)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		t.Fatal(err)
	}
	host := rt.NewHostModuleBuilder("quern_v1")
	host.NewFunctionBuilder().WithFunc(func() int32 { return int32(len(i.input)) }).Export("input_size")
	host.NewFunctionBuilder().WithFunc(func(_ context.Context, m api.Module, offset, to, capacity uint32) int32 {
		p := i.input[min(int(offset), len(i.input)):]
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
		i.output = append(i.output, p...)
		return 0
	}).Export("output_write")
	host.NewFunctionBuilder().WithFunc(func(uint32, uint32) int32 { return 0 }).Export("error_set")
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	config := wazero.NewModuleConfig().WithStartFunctions("_initialize")
	var err error
	if i.module, err = rt.InstantiateWithConfig(ctx, binary, config); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	if n := len(JSONInput()); n < 900 || n > 1100 {
		t.Errorf("%d bytes of JSON", n)
	}
	for _, language := range Languages() {
		t.Run(string(language), func(t *testing.T) {
			t.Parallel()
			cache := compilations(t)
			empty := instantiate(t, cache, language.Empty(t))
			exports := empty.module.ExportedFunctionDefinitions()
			if exports["_start"] != nil || (exports["_initialize"] == nil) != (language == Rust) {
				t.Errorf("exports: %v", exports)
			}
			if code, output, err := empty.handle(t.Context(), []byte("input")); err != nil || code != 0 || len(output) > 0 {
				t.Errorf("empty: %d with the output %q, %v", code, output, err)
			}
			json := instantiate(t, cache, language.JSON(t))
			for range 2 { // an instance may be used again
				code, output, err := json.handle(t.Context(), JSONInput())
				if want := JSONOutput(); err != nil || code != 0 || !bytes.Equal(output, want) {
					t.Errorf("JSON: %d, %v with the output\n%s, want\n%s", code, err, output, want)
				}
				code, output, err = json.handle(t.Context(), []byte(`{"lines": [}`))
				if err != nil || code != 65 || len(output) > 0 {
					t.Errorf("no JSON: %d with the output %q, %v", code, output, err)
				}
			}
		})
	}
}
