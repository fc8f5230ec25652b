package plugins

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// largeCommand is a command with 9 MiB of code. The number makes it another one.
func largeCommand(number byte) []byte {
	code := bytes.Repeat([]byte{0x41, number, 0x1a}, 1<<20)
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}, []byte{0}, []byte{0}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(code...), runtimetest.Body(code...), runtimetest.Body(code...)),
	)
}

// TestTenantsTakeTurns: while the large modules of a tenant are compiled, for ever and with all that they may take, the
// small one of another tenant is compiled and serves.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	check(t, err)
	log := &logbook{}
	engine := runtime.Config{
		Compiler: []string{program, slowCompiler}, Logger: hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug}),
	}
	f := preparedOn(t, engine, Config{Tenants: []string{"greedy", "modest"}}, func(dir string) {
		check(t, errors.Join(os.Mkdir(filepath.Join(dir, "greedy"), 0o755), os.Mkdir(filepath.Join(dir, "modest"), 0o755)))
		for i := range 6 {
			write(t, filepath.Join(dir, "greedy", fmt.Sprintf("large%d.wasm", i)), largeCommand(byte(i)))
		}
	})
	f.start()
	eventually(t, func() error {
		if !strings.Contains(log.String(), "compile child started") {
			return errors.New("no large module is compiled yet")
		}
		return nil
	})
	f.write("modest/small.wasm", guest(t, 1))
	f.awaitRun("modest", "small", output(1))
}
