package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// jsonGuest is a program in Go of the usual size, which uses much of its runtime.
const jsonGuest = `package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"
)

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	var values map[string]any
	if err := json.Unmarshal(input, &values); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	var group sync.WaitGroup
	var mutex sync.Mutex
	var lines []string
	for name, value := range values {
		group.Go(func() {
			line := regexp.MustCompile("[aeiou]+").ReplaceAllStringFunc(fmt.Sprintf("%s=%v", name, value), strings.ToUpper)
			mutex.Lock()
			defer mutex.Unlock()
			lines = append(lines, line)
		})
	}
	group.Wait()
	sort.Strings(lines)
	var memory [][]byte
	for i := range 200 {
		memory = append(memory, make([]byte, i*100))
	}
	out, err := json.MarshalIndent(map[string]any{"lines": lines, "kept": len(memory)}, "", "\t")
	if err != nil {
		panic(err)
	}
	fmt.Println(string(out))
}
`

// guestRun is what a guest leaves behind.
type guestRun struct {
	stdout, stderr string
	code           uint32
	trap           string
	spent          int64
}

// runGuest runs a WASI command.
func runGuest(t *testing.T, w *world, file []byte, input string) (r guestRun) {
	t.Helper()
	if _, err := wasi_snapshot_preview1.Instantiate(t.Context(), w.runtime); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	w.config = w.config.WithStdin(strings.NewReader(input)).WithStdout(&stdout).WithStderr(&stderr).WithArgs("guest").WithEnv("KEY", "value")
	i, err := w.instantiate(t.Context(), file, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = i.ExportedFunction("_start").Call(t.Context())
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		r.code, err = exit.ExitCode(), nil
	}
	r.stdout, r.stderr, r.trap = stdout.String(), stderr.String(), trapText(err)
	if w.options != nil {
		r.spent = i.spent()
	}
	return r
}

// TestGuests runs real guests as they are and rewritten, and verifies what they were charged.
func TestGuests(t *testing.T) {
	t.Parallel()
	trap := runtimetest.Trap(t)
	for name, test := range map[string]struct {
		file  []byte
		input string
	}{
		"echo":        {runtimetest.Echo(t), strings.Repeat("some words ", 1000)},
		"exit":        {runtimetest.Exit(t), "7 of all"},
		"env":         {runtimetest.Env(t), ""},
		"clock":       {runtimetest.Clock(t), ""},
		"flood":       {runtimetest.OutputFlood(t), "100000"},
		"memory":      {runtimetest.MemoryBomb(t), "8"},
		"unreachable": {trap, "unreachable"},
		"divide":      {trap, "divide"},
		"overflow":    {trap, "overflow"},
		"conversion":  {trap, "conversion"},
		"out":         {trap, "memory"},
		"null":        {trap, "null"},
		"table":       {trap, "table"},
		"mismatch":    {trap, "mismatch"},
		"recursion":   {trap, "recursion"},
		"descent":     {trap, "descent"},
		"empty Go":    {runtimetest.EmptyGo(t), ""},
		"JSON":        {runtimetest.BuildGo(t, jsonGuest), `{"one": [1, 2.5, null], "more": {"a": "\u00e9", "b": true}, "last": "` + strings.Repeat("lorem ipsum ", 500) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && name == "JSON" {
				t.Skip("it is compiled three times")
			}
			plainWorld, usualWorld := worlds(t, api.CoreFeaturesV2, Options{})
			plain, usual := runGuest(t, plainWorld, test.file, test.input), runGuest(t, usualWorld, test.file, test.input)
			spent := usual.spent
			usual.spent = 0
			if plain != usual {
				t.Fatalf("it was %+v, rewritten %+v", plain, usual)
			}
			_, exactWorld := worlds(t, api.CoreFeaturesV2, Options{Every: 1})
			exact := runGuest(t, exactWorld, test.file, test.input)
			executed := exact.spent
			exact.spent = 0
			if plain != exact {
				t.Errorf("it was %+v, with exact charges %+v", plain, exact)
			}
			if name != "recursion" && (spent < executed/2 || spent > 4*executed) {
				t.Errorf("%d charged for %d", spent, executed)
			}
			m, err := Rewrite(test.file, Options{})
			if err != nil {
				t.Fatal(err)
			}
			found := verify(t, m, false)
			t.Logf("%d of %d charged, %d ticks; %d bytes became %d; %s", spent, executed, usualWorld.ticks, len(test.file), len(m.Binary), found)
		})
	}
}

// TestLargeGuest: the caps leave room for the largest program that we know, and it is bounded like others.
func TestLargeGuest(t *testing.T) {
	t.Parallel()
	file := runtimetest.Python(t)
	m, err := Rewrite(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes became %d; %s", len(file), len(m.Binary), verify(t, m, false))
}

// TestGuestNames: the stack trace of a trap names the functions of the guest.
func TestGuestNames(t *testing.T) {
	t.Parallel()
	file := runtimetest.BuildC(t, `
__attribute__((noinline)) static void inner(int n) { if (n > 0) __builtin_trap(); __asm__ volatile(""); }
__attribute__((noinline)) void outer(int n) { inner(n); __asm__ volatile(""); }
int main(int argc, char **argv) { outer(argc); return 0; }`, runtimetest.KeepNames)
	_, w := worlds(t, api.CoreFeaturesV2, Options{})
	if _, err := wasi_snapshot_preview1.Instantiate(t.Context(), w.runtime); err != nil {
		t.Fatal(err)
	}
	w.config = w.config.WithArgs("guest")
	i, err := w.instantiate(t.Context(), file, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = i.ExportedFunction("_start").Call(t.Context())
	if err == nil || !strings.Contains(err.Error(), ".inner(") || !strings.Contains(err.Error(), ".outer(") {
		t.Errorf("trap = %v", err)
	}
}

func BenchmarkRewrite(b *testing.B) {
	guests := []struct {
		name string
		file []byte
	}{
		{"C", runtimetest.Echo(b)},
		{"Go", runtimetest.BuildGo(b, jsonGuest)},
		{"Python", runtimetest.Python(b)},
	}
	for _, guest := range guests {
		b.Run(fmt.Sprintf("%s %d KiB", guest.name, len(guest.file)>>10), func(b *testing.B) {
			b.SetBytes(int64(len(guest.file)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Rewrite(guest.file, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
