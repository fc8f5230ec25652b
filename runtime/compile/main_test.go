package compile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasm"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], childMode) {
		os.Exit(beChild(os.Args[1], os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// testVersion stands in for wazero's version, which the build of a test does not tell.
const testVersion = "v0.0.0-test"

// open opens a cache for modules without imports.
func open(ctx context.Context, cfg Config) (*Cache, error) {
	if cfg.Version == "" {
		cfg.Version = testVersion
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Imports = func(context.Context, wazero.Runtime) error { return nil }
	cfg.Tick = func(context.Context, api.Module, []uint64) {}
	return Open(ctx, cfg)
}

// setup returns a cache of the test's own, and its log.
func setup(t *testing.T, cfg Config) (*Cache, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	if cfg.Logger == nil {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: &log})
	}
	cache, err := open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cache.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return cache, &log
}

// plain is a module that does nothing.
func plain() []byte { return runtimetest.Locals(1, nil) }

// newCode is the code of a module that is compiled as it is.
func newCode(cache *Cache, binary []byte) *Code {
	return cache.Code(&wasm.Rewritten{Binary: binary, Code: len(binary)}, false)
}

// runs loads code, instantiates the module and calls it.
func runs(ctx context.Context, code *Code) error {
	if err := code.Hold(ctx, "", "digest"); err != nil {
		return err
	}
	defer code.Release()
	module, err := code.Instantiate(ctx, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return err
	}
	_, err = module.ExportedFunction("_start").Call(ctx)
	return errors.Join(err, module.Close(ctx))
}

// compileInto compiles a module as it is into a cache, runs it and closes the code.
func compileInto(ctx context.Context, cache *Cache, binary []byte, digest string) error {
	code := newCode(cache, binary)
	err := code.Hold(ctx, "", digest)
	if err == nil {
		code.Release()
	}
	return errors.Join(err, code.Close(context.WithoutCancel(ctx)))
}

// runsFrom runs a module from a new cache in a directory, and returns the log.
func runsFrom(t *testing.T, dir string, binary []byte) string {
	t.Helper()
	cache, log := setup(t, Config{Dir: dir})
	code := newCode(cache, binary)
	if err := runs(t.Context(), code); err != nil {
		t.Fatal(err)
	}
	if code.backend != cache.main.backend {
		t.Errorf("the module did not come from the cache:\n%s", log)
	}
	if err := code.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return log.String()
}

// entriesOf lists the machine code in a cache directory.
func entriesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(dir, wazeroDirs, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func modified(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
