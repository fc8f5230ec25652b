package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// peak runs a command of the program as users have it, and returns the most resident memory in bytes that it or its
// compile child had.
func (u *user) peak(arguments ...string) (got result, bytes int64) {
	u.t.Helper()
	c := u.prepare(arguments...)
	test, err := os.Executable()
	if err != nil {
		u.t.Fatal(err)
	}
	c.Path, c.Args = test, append([]string{test, measured, c.Path}, arguments...)
	_ = c.Run() // its status is looked at
	kib, err := strconv.ParseInt(strings.TrimSpace(c.stdout.String()), 10, 64)
	if err != nil {
		u.t.Fatalf("quern %s: %v\n%s", strings.Join(arguments, " "), err, c.stderr)
	}
	return result{status: c.ProcessState.ExitCode(), stderr: c.stderr.String()}, kib << 10
}

// manyLocals is a command of so many functions with 50,000 locals each.
func manyLocals(functions int) []byte {
	locals := append(append([]byte{1}, runtimetest.Number(50_000)...), 0x7f, 0x0b)
	body := append(runtimetest.Number(uint32(len(locals))), locals...)
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, slices.Repeat([][]byte{{0}}, functions)...),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, slices.Repeat([][]byte{body}, functions)...),
	)
}

// TestPluginCheckMemory: a small file that declares many locals takes little memory, whether it is refused or not.
func TestPluginCheckMemory(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	for name, test := range map[string]struct {
		file   []byte
		status int
		most   int64
	}{
		"as many locals as there may be": {manyLocals(40), exitDone, 300 << 20},
		"10 KB that declare 60 million":  {manyLocals(1200), exitRefused, 300 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(folder(t, map[string][]byte{"p": test.file}), "p.wasm")
			got, bytes := u.peak("plugin", "check", file)
			t.Logf("%d bytes in the file, %d MiB", len(test.file), bytes>>20)
			if got.status != test.status || bytes > test.most {
				t.Errorf("%+v with %d MiB in a process, want status %d and at most %d MiB", got, bytes>>20, test.status, test.most>>20)
			}
		})
	}
}
