package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestCompileChild: a host compiles in a process of its own program, which here hands over to that which users have.
func TestCompileChild(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	file := filepath.Join(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), "echo.wasm")
	if got := u.feed("hello", "plugin", "run", file); got.status != exitDone || got.stdout != "hello" {
		t.Errorf("plugin run: %+v", got)
	}
	if help := u.must("--help"); strings.Contains(help, "\n  compiler") {
		t.Errorf("help shows the child's command:\n%s", help)
	}
	got := u.run("compiler", "1", "1")
	if got.status != exitUsage || !strings.Contains(got.stderr, "MEMORY SECONDS SIZE") {
		t.Errorf("by hand: %+v", got)
	}
}
