package main

import (
	"bytes"
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

// muchCode is a command with 8.4 MiB of code: conversions, each of which takes the compiler kilobytes, and calls, of which
// charges make seven times as much code.
func muchCode() []byte {
	conversions := append([]byte{0x41, 0, 0xb2}, bytes.Repeat([]byte{0xa8, 0xb2}, 50)...)
	conversions = append(conversions, 0x1a)
	const mib = 1 << 20
	bodies := [][]byte{
		runtimetest.Body(bytes.Repeat(conversions, 24*mib/10/len(conversions))...),
		runtimetest.Body(bytes.Repeat([]byte{0x10, 0, 0x01}, mib)...),
		runtimetest.Body(bytes.Repeat([]byte{0x10, 0, 0x01}, mib)...),
	}
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, slices.Repeat([][]byte{{0}}, len(bodies))...),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, bodies...),
	)
}

// TestPluginCheckMemory: what a file may take while it is looked at does not depend on what it declares in a few bytes,
// nor on what charges make of its code.
func TestPluginCheckMemory(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	u := newUser(t, "")
	for name, test := range map[string]struct {
		file   []byte
		status int
		most   int64
	}{
		"as many locals as there may be": {manyLocals(40), exitDone, 300 << 20},
		"8.4 MiB of code":                {muchCode(), exitRefused, 1536 << 20},
		"10 KB that declare 60 million":  {manyLocals(1200), exitRefused, 300 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && len(test.file) > 1<<20 {
				t.Skip("compilers take long for it")
			}
			file := filepath.Join(folder(t, map[string][]byte{"p": test.file}), "p.wasm")
			got, peak := u.peak("plugin", "check", file)
			t.Logf("%d bytes in the file, %d MiB", len(test.file), peak>>20)
			if got.status != test.status || peak > test.most {
				t.Errorf("%+v with %d MiB in a process, want status %d and at most %d MiB", got, peak>>20, test.status, test.most>>20)
			}
		})
	}
}
