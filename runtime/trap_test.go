package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// crashSource traps three functions deep, and in the ways that need a memory.
const crashSource = `
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static void grind(int deep) {
	if (deep < 0) grind(deep - 1);
	if (deep == 0) __builtin_trap();
	if (deep == 1 && __builtin_wasm_memory_grow(0, 60000) == (size_t)-1) __builtin_trap();
	if (deep > 1) grind(deep - 1);
	puts("ground"); // so that the call is none in tail position
}
__attribute__((noinline)) void mill_corn(int deep) { grind(deep); puts("milled"); }
int main(void) {
	int deep = 0;
	(void)scanf("%d", &deep);
	mill_corn(deep);
	return deep == -2;
}`

func TestBacktrace(t *testing.T) {
	t.Parallel()
	named := load(t, runtimetest.BuildC(t, crashSource, runtimetest.KeepNames))
	bare := load(t, runtimetest.BuildC(t, crashSource))

	got := call(t, named, "0", Limits{})
	if got.Kind != Trap || len(got.Backtrace) < 3 || !slices.Equal(got.Backtrace[:2], []string{"grind", "mill_corn"}) {
		t.Errorf("outcome = %+v, want the functions by name", got)
	}
	got = call(t, bare, "0", Limits{})
	if got.Kind != Trap || len(got.Backtrace) < 3 || !strings.HasPrefix(got.Backtrace[0], "$") {
		t.Errorf("outcome = %+v, want the functions by index", got)
	}
	got = call(t, named, "1", Limits{})
	if got.Limit.Name != "memory" || len(got.Backtrace) < 3 || got.Backtrace[0] != "grind" {
		t.Errorf("outcome = %+v, want the memory limit with the functions", got)
	}
	// What ends otherwise has none: a stack overflow tells no frames, and an exit is no trap.
	got = call(t, named, "-1", Limits{})
	if got.Trap != "stack overflow" || got.Backtrace != nil {
		t.Errorf("outcome = %+v, want a stack overflow", got)
	}
	if got := call(t, load(t, runtimetest.Exit(t)), "1", Limits{}); got.Backtrace != nil {
		t.Errorf("outcome = %+v, want no frames", got)
	}
}

// naming is a module whose name section calls it so, and its only function, which calls itself depth
// times and traps.
func naming(module, function string, depth byte) []byte {
	names := append(runtimetest.Name("name"), runtimetest.RawSection(0, runtimetest.Name(module))...)
	names = append(names, runtimetest.RawSection(1, append([]byte{2, 0}, append(runtimetest.Name("_start"), append([]byte{1}, runtimetest.Name(function)...)...)...))...)
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", ""), runtimetest.FunctionType("\x7f\x7f", "\x7f\x7e")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}, []byte{1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection,
			runtimetest.Body(0x41, depth, 0x41, 0, 0x10, 1, 0x1a, 0x1a), // call 1(depth, 0), drop, drop
			// if (!a) unreachable; return 1(a - 1, 0)
			runtimetest.Body(0x20, 0, 0x45, 0x04, 0x40, 0x00, 0x0b, 0x20, 0, 0x41, 1, 0x6b, 0x41, 0, 0x10, 1)),
		runtimetest.RawSection(0, names),
	)
}

// TestBacktraceNames: a guest chooses its names, and no name makes more of a backtrace than that.
func TestBacktraceNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ module, function, want string }{
		"plain":       {"", "grind", "grind"},
		"module":      {"mill", "grind", "grind"},
		"its type":    {"a(b) c.d", "operator()(int, char) const", "operator()(int, char) const"},
		"controls":    {"", "a\x1b[31m\r\nb", `a\x1b[31m\x0d\x0ab`},
		"long":        {strings.Repeat("m", 4000), strings.Repeat("ü", 4000), strings.Repeat("ü", 128)},
		"long escape": {"", strings.Repeat("\x01", 4000), strings.Repeat(`\x01`, 64)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, load(t, naming(test.module, test.function, 2)), "", Limits{})
			if want := []string{test.want, test.want, test.want, "_start"}; got.Kind != Trap || !slices.Equal(got.Backtrace, want) {
				t.Errorf("outcome = %+v, want the frames %q", got, want)
			}
		})
	}
	for name, function := range map[string]string{
		"deep":     "grind",
		"forged":   "a\n\tforged()\n\tb",
		"marks":    "a\nwasm stack trace:\n\tb\n\n\tc\n\t... d",
		"host's":   "a\n\nGo runtime stack trace:\nb",
		"a lot":    strings.Repeat("\n\ta", 1000),
		"no names": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, load(t, naming("", function, 60)), "", Limits{})
			if got.Kind != Trap || got.Trap != "unreachable" || len(got.Backtrace) > maxFrames {
				t.Fatalf("outcome = %+v", got)
			}
			if name == "deep" && (len(got.Backtrace) != 31 || got.Backtrace[30] != omitted) {
				t.Errorf("frames = %q, want 30 and the mark of what is left out", got.Backtrace)
			}
			checkFrames(t, got.Backtrace)
		})
	}
}

func checkFrames(t *testing.T, frames []string) {
	t.Helper()
	if len(frames) > maxFrames {
		t.Errorf("%d frames", len(frames))
	}
	for _, frame := range frames {
		if len(frame) > maxFrame || !utf8.ValidString(frame) || strings.ContainsAny(frame, "\n\r\x1b") {
			t.Errorf("frame %q", frame)
		}
	}
}

// TestBacktraceHidesHost: the stack of the host, which wazero adds to its own panics, is not told.
func TestBacktraceHidesHost(t *testing.T) {
	t.Parallel()
	err := errors.New("index out of range (recovered by wazero)\nwasm stack trace:\n\twasi_snapshot_preview1.fd_write(i32,i32) i32\n\t.main()" +
		"\n\nGo runtime stack trace:\ngoroutine 1 [running]:\n\t/secret/main.go:1")
	if got := backtrace(err, ""); !slices.Equal(got, []string{"wasi_snapshot_preview1.fd_write", "main"}) {
		t.Errorf("frames = %q", got)
	}
	if got := backtrace(errors.New("wasm error: unreachable\nwasm stack trace:\n\t"), ""); got != nil {
		t.Errorf("frames = %q of none", got)
	}
}

// TestBacktraceOfGo: what Go's runtime does on the way to a trap tells the author of a handler nothing.
func TestBacktraceOfGo(t *testing.T) {
	t.Parallel()
	const head = "wasm error: unreachable\nwasm stack trace:\n\t"
	for frames, want := range map[string][]string{
		".runtime.throw(i32) i32\n\t.main.draw(i32) i32\n\t.wasm_pc_f_loop()\n\t.internal/runtime/maps.f()": {"main.draw"},
		".runtime.throw(i32) i32\n\t.wasm_pc_f_loop()":                                                      {"runtime.throw", "wasm_pc_f_loop"},
		".runtime.throw(i32) i32\n\t... maybe":                                                              {"runtime.throw", omitted},
	} {
		if got := backtrace(errors.New(head+frames), ""); !slices.Equal(got, want) {
			t.Errorf("frames = %q, want %q", got, want)
		}
	}
}

func TestFrameName(t *testing.T) {
	t.Parallel()
	for frame, want := range map[string]string{
		".f()": "f", ".f(i32,i64)": "f", ".f(i32) f64": "f", ".f() (i32,i64)": "f", ".$12(i32)": "$12",
		".std::f(int)(i32)": "std::f(int)", ".f(int) const(i32) i32": "f(int) const", ".f": "f", ".": "", "m.f()": "m.f",
		".) (": ") (", ".(": "(", ".f(i32) ": "f",
	} {
		if got := frameName(frame, ""); got != want {
			t.Errorf("frameName(%q) = %q, want %q", frame, got, want)
		}
	}
}

func FuzzBacktrace(f *testing.F) {
	f.Add("\n\t.f(i32) i32\n\t... maybe", "m")
	f.Add(" (\n\t))(\xff", "")
	f.Fuzz(func(t *testing.T, trace, module string) {
		checkFrames(t, backtrace(fmt.Errorf("wasm error: unreachable\nwasm stack trace:\n\t%s", trace), module))
	})
}
