package compile

import (
	"bytes"
	"errors"
	"os"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasm"
)

// TestCanary: the compiler that the host serves with passes, and the program is what its source says.
func TestCanary(t *testing.T) {
	t.Parallel()
	if err := canary(); err != nil {
		t.Error(err)
	}
	source, err := os.ReadFile("canary.wat")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(runtimetest.BuildWAT(t, string(source)), canaryModule) {
		t.Error("canary.wasm is not made of canary.wat: run the command in its first lines")
	}
}

// TestCanaryFails: a compiler that gets a select of floats wrong does not pass. Wazero's does, if the program is not
// rewritten; when it does not any more, wazero has been mended, and the rewriting can go.
func TestCanaryFails(t *testing.T) {
	t.Parallel()
	want, err := runCanary(wazero.NewRuntimeConfigInterpreter(), canaryModule)
	if err != nil {
		t.Fatal(err)
	}
	got, err := runCanary(wazero.NewRuntimeConfigCompiler(), canaryModule)
	if err != nil {
		t.Fatal(err)
	}
	err = agree(got, want)
	if goruntime.GOARCH == "amd64" && (!errors.Is(err, ErrCompiler) || !strings.Contains(err.Error(), `the compiler for amd64 computes ["floats(`)) {
		t.Errorf("%v, want a refusal: the compiler gets right what it is known to get wrong", err)
	}
	if err := agree(want[:len(want)-1], want); !errors.Is(err, ErrCompiler) {
		t.Errorf("%v, want a refusal of one that computes less", err)
	}
	file, err := wasm.Rewrite(canaryModule, wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err = runCanary(wazero.NewRuntimeConfigCompiler(), file.Binary[:len(file.Binary)-1]); err == nil {
		t.Errorf("a program that is cut off computes %q", got)
	}
}
