package runtime

import (
	"slices"
	"strings"
	"testing"
)

// Of a fatal error of Go, the log keeps the goroutine that crashed, without the runtime's functions and repetitions.
func TestGoTrace(t *testing.T) {
	t.Parallel()
	const fatal = `before
runtime: out of memory: cannot allocate 16777216-byte block
fatal error: out of memory

runtime stack:
runtime.newstack()
	runtime/stack.go:1216 +0x57 fp=0x156340
0000000000156240: 00000000 00ae03a0

goroutine 1 gp=0x2021c0 m=0 mp=0x1443e0 [copystack]:
runtime.throw({0x2a8e3, 0xd})
	runtime/panic.go:1229 +0x3
main.deep(0x2)
	try/main.go:20 +0x3
main.deep(0x1)
	try/main.go:20 +0x3
example.com/a/b.(*t).h({0x32ce8, 0x146610}, 0x1465a0)
	try/b/h.go:37 +0xc
github.com/quern-project/quern/sdk.attempt({0x32ce8, 0x146610})
	github.com/quern-project/quern/sdk/panic.go:36 +0x4
main.handle()
	try/main.go:14 +0x4

goroutine 2 gp=0x202380 m=nil [force gc (idle)]:
runtime.gopark(0x32068)
	runtime/proc.go:462 +0x21

goroutine 3 gp=0x202540 m=nil [runnable]:
main.other()
	try/main.go:99
created by main.handle in goroutine 1
	try/main.go:98

after
`
	const panicked = `panic: no ink

goroutine 7 [running]:
main.boom(...)
	try/main.go:18
created by main.h in goroutine 1
	try/main.go:32 +0x41
`
	const text = "goroutine 1 [running]:\nruntime stack:\nmain.f()\n\tf.go:1\n"
	for _, tt := range []struct {
		written, logged, frames string
		grew                    bool
	}{
		{
			fatal, "before\nruntime: out of memory: cannot allocate 16777216-byte block\nfatal error: out of memory\n\n" +
				"goroutine 1 gp=0x2021c0 m=0 mp=0x1443e0 [copystack]:\nmain.deep(0x2)\n\ttry/main.go:20 +0x3\n" +
				"example.com/a/b.(*t).h({0x32ce8, 0x146610}, 0x1465a0)\n\ttry/b/h.go:37 +0xc\n\nafter\n",
			"main.deep (main.go:20), b.(*t).h (h.go:37)", true,
		},
		{panicked, panicked, "main.boom (main.go:18)", false},
		{text, text, "", false},
	} {
		var lines strings.Builder
		l := logs{limit: 1 << 20, line: func(line string) { lines.WriteString(line + "\n") }}
		l.write(&l.stream, []byte(tt.written))
		l.flush()
		if lines.String() != tt.logged || strings.Join(l.trace.frames, ", ") != tt.frames || l.trace.grew != tt.grew {
			t.Errorf("%.20q: %q, %v, logged\n%s", tt.written, l.trace.frames, l.trace.grew, &lines)
		}
	}
}

// The place of a handler in Go that a limit stopped is what its SDK called.
func TestHandlerFrames(t *testing.T) {
	t.Parallel()
	const attempt = "github.com_quern_project_quern_sdk.attempt"
	for frames, want := range map[string]string{
		"main.spin main.h " + attempt + " main.handle":                                                        "main.spin main.h",
		"crypto_sha256.__Digest_.Write main.__box_.spin sort.Slice main.h wasm_pc_f_loop_export quern_handle": "main.(*box).spin main.h",
		"context.cause time.Sleep wasm_pc_f_loop_export quern_handle":                                         "context.cause time.Sleep",
		"go.uber.org_zap.f main.h " + attempt:                                                                 "go.uber.org_zap.f main.h",
		attempt + " main.h wasm_pc_f_loop_export quern_handle":                                                "main.h",
		"main.spin main.h": "", attempt: "", "": "",
	} {
		if got := handlerFrames(strings.Fields(frames)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, want %s", frames, got, want)
		}
	}
}
