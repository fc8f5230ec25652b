package runtimetest

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestGuests(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB) []byte{
		"Echo": Echo, "Exit": Exit, "Loop": Loop, "Sleep": Sleep, "MemoryBomb": MemoryBomb, "OutputFlood": OutputFlood,
		"LogFlood": LogFlood, "Trap": Trap, "Env": Env, "Clock": Clock, "Empty": Empty, "EmptyGo": EmptyGo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if guest := build(t); !bytes.HasPrefix(guest, Module()) {
				t.Errorf("%d bytes that are no module", len(guest))
			}
		})
	}
}

func TestCompilers(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(t testing.TB) []byte{
		"C":              func(t testing.TB) []byte { return BuildC(t, `int main(void) { return 0; }`) },
		"Go":             func(t testing.TB) []byte { return BuildGo(t, "package main\n\nfunc main() {}\n") },
		"Rust":           func(t testing.TB) []byte { return BuildRust(t, `fn main() {}`) },
		"AssemblyScript": func(t testing.TB) []byte { return BuildAssemblyScript(t, `process.exit(0);`) },
		"WAT":            func(t testing.TB) []byte { return BuildWAT(t, `(module (func (export "_start")))`) },
		"Python":         Python,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if guest := build(t); !bytes.HasPrefix(guest, Module()) || !bytes.Contains(guest, []byte("_start")) {
				t.Errorf("%d bytes that are no command", len(guest))
			}
		})
	}
}

// TestMissing: who lacks a tool is told how it comes.
func TestMissing(t *testing.T) {
	t.Parallel()
	_, file := installed("none/none.js")
	for name, err := range map[string]error{
		"a program":     command(t.Context(), "no-such-compiler", nil, t.TempDir()),
		"a file of npm": file,
	} {
		if err == nil || !strings.Contains(err.Error(), "make deps") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	one, two := Version(t, "1"), Version(t, "2")
	if bytes.Equal(one, two) || !bytes.Equal(one, Version(t, "1")) {
		t.Error("a version is not a module of its own")
	}
}

// TestOnce: a guest is built once, also if many ask for it at the same time.
func TestOnce(t *testing.T) {
	t.Parallel()
	var built builds
	var group sync.WaitGroup
	calls := make(chan struct{}, 100)
	for range 10 {
		group.Go(func() {
			got, err := built.get("key", func() ([]byte, error) {
				calls <- struct{}{}
				return []byte("guest"), nil
			})
			if string(got) != "guest" || err != nil {
				t.Errorf("get = %q, %v", got, err)
			}
		})
	}
	group.Wait()
	if len(calls) != 1 {
		t.Errorf("built %d times", len(calls))
	}
}
