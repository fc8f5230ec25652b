package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestHostilePaths: of all names that a guest may try, those of granted files lead to them, and no other leads
// anywhere.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	files, err := NewFiles(map[string][]byte{"/data/granted": []byte("granted"), "/data/link": []byte("/etc/passwd"), "/etc/motd": []byte("granted")})
	if err != nil {
		t.Fatal(err)
	}
	module := load(t, runtimetest.Cat(t))
	for path, want := range map[string]string{
		"/data/granted":                     "granted",
		"/data/../data/./granted":           "granted",
		"/etc/motd":                         "granted",
		"/data/link":                        "/etc/passwd", // a file with these bytes, and no link
		"/etc/passwd":                       "",
		"/data/link/passwd":                 "",
		"/data/granted/":                    "",
		"/data/granted/..":                  "",
		"/data/../../etc/passwd":            "",
		"/data/../../../../etc/passwd":      "",
		"../etc/passwd":                     "",
		"/../etc/passwd":                    "",
		"//etc/passwd":                      "",
		"/proc/self/environ":                "",
		"/proc/self/root/etc/passwd":        "",
		"/dev/stdin":                        "",
		"/checkpoint":                       "",
		"/data/granted\x00/etc/passwd":      "granted", // C's strings end there
		"/data/\xff":                        "",
		"/data/" + strings.Repeat("x", 300): "",
		`C:\Windows\win.ini`:                "",
		`\\server\share`:                    "",
	} {
		got := bound(module, "", Profile{Files: files}).Run(t.Context(), Call{Plugin: "cat", Input: []byte(path)})
		if want == "" && (got.Kind != Failed || got.Code != 66) || want != "" && string(got.Output) != want {
			t.Errorf("%q = %+v, want %q", path, got, want)
		}
	}
}

// TestHostileCalls: what the host does not have, or a guest may not do with what it has, are errors for the guest.
func TestHostileCalls(t *testing.T) {
	t.Parallel()
	files, err := NewFiles(map[string][]byte{"/data/granted": []byte("granted")})
	if err != nil {
		t.Fatal(err)
	}
	module := load(t, runtimetest.BuildC(t, `
#include <stdio.h>
#include <wasi/api.h>
#define TRY(call) printf(#call " %d\n", call)
static __wasi_fd_t fd;
static __wasi_size_t n;
static __wasi_ciovec_t out[1];
static __wasi_iovec_t in[1];
static __wasi_roflags_t flags;
int main(void) {
	char *far = (char *)0xfffffff0u, *past = (char *)(__builtin_wasm_memory_size(0) << 16);
	for (int dir = 3; dir < 5; dir++) {
		TRY(__wasi_path_open(dir, 0, "/data/granted", 0, 2, 0, 0, &fd));
		TRY(__wasi_path_open(dir, 0, "../data/granted", 0, 2, 0, 0, &fd));
	}
	TRY(__wasi_path_open(3, 0, "data/granted", 0, __WASI_RIGHTS_FD_WRITE, 0, 0, &fd));
	TRY(__wasi_path_open(3, 0, "data/new", __WASI_OFLAGS_CREAT, 2, 0, 0, &fd));
	TRY(__wasi_path_open(3, 0, "data/granted", __WASI_OFLAGS_TRUNC, 2, 0, 0, &fd));
	TRY(__wasi_path_unlink_file(3, "data/granted"));
	TRY(__wasi_path_symlink("/etc", 3, "etc"));
	TRY(__wasi_path_link(3, 0, "data/granted", 3, "hard"));
	TRY(__wasi_path_rename(3, "data/granted", 3, "data/other"));
	TRY(__wasi_sock_recv(0, in, 1, 0, &n, &flags));
	TRY(__wasi_sock_send(1, out, 1, 0, &n));
	TRY(__wasi_sock_shutdown(2, 3));
	TRY(__wasi_sock_shutdown(9, 3));
	out[0].buf = (void *)far, out[0].buf_len = 32;
	TRY(__wasi_fd_write(1, out, 1, &n));
	out[0].buf = (void *)past, out[0].buf_len = 1;
	TRY(__wasi_fd_write(1, out, 1, &n));
	out[0].buf = 0, out[0].buf_len = 0xffffffffu;
	TRY(__wasi_fd_write(1, out, 1, &n));
	TRY(__wasi_fd_write(1, (void *)far, 1, &n));
	TRY(__wasi_random_get((void *)past - 1, 2));
	TRY(__wasi_random_get((void *)far, 0xffffffffu));
	TRY(__wasi_clock_time_get(1, 0, (void *)(past - 7)));
	TRY(__wasi_path_open(3, 0, "data/granted", 0, 2, 0, 0, (void *)far));
}`))
	got := complete(t, bound(module, "", Profile{Files: files}).Run(t.Context(), Call{Plugin: "calls"}))
	const badf, fault, notsock, perm, rofs = 8, 21, 57, 63, 69
	var errnos []int
	for line := range strings.Lines(got) {
		var errno int
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' '):], &errno); err != nil {
			t.Fatal(err)
		}
		errnos = append(errnos, errno)
	}
	want := []int{
		perm, perm, badf, badf, rofs, rofs, rofs, rofs, rofs, rofs, rofs,
		notsock, notsock, notsock, badf, fault, fault, fault, fault, fault, fault, fault, fault,
	}
	if !slices.Equal(errnos, want) {
		t.Errorf("errors of\n%swant %v", got, want)
	}
}

// forge writes stdin to stderr, and exits with 1.
const forge = `
#include <stdio.h>
int main(void) {
	int c;
	while ((c = getchar()) != EOF) putc(c, stderr);
	return 1;
}`

// TestHostileLog: a guest cannot forge a line of a log that is read line by line, nor speak to a terminal, in
// the log, in the end of it that is kept, or in the message of its outcome.
func TestHostileLog(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, forge))
	for _, text := range []string{
		"done\r2026-01-01T00:00:00Z [ERROR] forged",
		"\x1b]0;owned\x07\x1b[2J\x1b[31mred",
		"\u2028{\"level\":\"error\"}\u2029\u0085",
		"\x00\x08\x08\x08\x7f\x9b31m",
		"right\u202eleft\u2066\u200b\ufeff",
		"quern:progress=0.5 \x1b[2J\u2028",
		"\xff\xfe\xc0\xaf",
	} {
		var lines []string
		got := bound(module, "", Profile{}).Run(t.Context(), Call{
			Plugin: "forge", Input: []byte(text),
			Log:      func(line string) { lines = append(lines, line) },
			Progress: func(_ float64, message string) { lines = append(lines, message) },
		})
		if got.Kind != Failed || len(lines) != 1 {
			t.Errorf("%q: outcome = %+v, lines = %q", text, got, lines)
		}
		for _, said := range append(lines, got.Message, got.Stderr) {
			if said != redact.Escape([]byte(said)) {
				t.Errorf("%q is said as %q", text, said)
			}
		}
	}
}

// TestHostileBombs: what is declared or grown beyond all measure ends as the limit says, and what lies outside
// the limits is bounded by itself.
func TestHostileBombs(t *testing.T) {
	t.Parallel()
	grow := `(func $attack (local $size i32)
		(loop $l (br_if $l (i32.ne (%s) (i32.const -1))))
		(if (i32.ne (%s) (i32.const %d)) (then unreachable)))`
	for _, test := range []struct {
		attack
		want OutcomeKind
	}{
		{attack{name: "memory of 2 GiB", pages: 1 << 15, text: `(func $attack)`}, LimitExceeded},
		{attack{name: "growing memory", text: `(func $attack (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable))`}, LimitExceeded},
		{attack{name: "growing memory by all", text: `(func $attack (br_if 0 (i32.ne (memory.grow (i32.const -1)) (i32.const -1))) (unreachable))`}, Trap},
		{attack{name: "growing table", text: `(table $t 10 funcref)` +
			fmt.Sprintf(grow, "table.grow $t (ref.null func) (i32.const 1)", "table.size $t", 10+1<<16)}, Complete},
		{attack{name: "growing table by all", text: `(table $t 10 0xffffffff externref)` +
			`(func $attack (br_if 0 (i32.eq (table.grow $t (ref.null extern) (i32.const -1)) (i32.const -1))) (unreachable))`}, Complete},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			module := load(t, test.build(t))
			got := call(t, module, "", Limits{})
			if got.Kind != test.want || got.Kind == LimitExceeded && got.Limit.Name != "memory" {
				t.Errorf("outcome = %+v, want %s", got, test.want)
			}
			if test.pages == 0 {
				complete(t, call(t, module, "spare", Limits{}))
			}
		})
	}
}

// TestHostileRecursion: a recursion without end, in any shape, ends in the same way each time: by the stack, or
// by the cpu limit if that is less.
func TestHostileRecursion(t *testing.T) {
	t.Parallel()
	for _, a := range attacksByCalls() {
		if !a.overflows {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			module := load(t, a.build(t))
			got := call(t, module, "", Limits{})
			if got.Kind != Trap || got.Message != "stack overflow (endless or too deep recursion)" {
				t.Errorf("outcome = %+v, want a stack overflow", got)
			}
			if again := call(t, module, "", Limits{}); again.Fuel != got.Fuel {
				t.Errorf("it burned %d, and then %d", got.Fuel, again.Fuel)
			}
			got = call(t, module, "", Limits{CPU: time.Duration(got.Fuel) / 2})
			if got.Kind != LimitExceeded || got.Limit.Name != "cpu" {
				t.Errorf("outcome = %+v, want limit cpu", got)
			}
			complete(t, call(t, module, "spare", Limits{}))
		})
	}
}

// TestHostileStart: the start section of a module is called like any function: loading it runs nothing, and what
// does not end there is stopped.
func TestHostileStart(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, runtimetest.BuildWAT(t, `(module (start $f) (func $f (loop (br 0))) (func (export "_start")))`))
	for range 2 {
		got := call(t, module, "", Limits{Timeout: strikeTime})
		if got.Kind != LimitExceeded || got.Limit != (Limit{"timeout", strikeTime.String()}) {
			t.Errorf("outcome = %+v, want the timeout", got)
		}
		if got = call(t, module, "", Limits{CPU: time.Millisecond}); got.Kind != LimitExceeded || got.Limit != (Limit{"cpu", "1ms"}) {
			t.Errorf("outcome = %+v, want limit cpu", got)
		}
	}
	complete(t, call(t, loadInto(t, engine, runtimetest.Empty(t)), "", Limits{}))
}

// TestHostileGlobals: a module that sets every global it can name, an exported one of its own among them, gains
// nothing, and one that it cannot name is not there.
func TestHostileGlobals(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	text := `(module (global (export "fuel") (mut i32) (i32.const 0x7fffffff)) (global (mut i32) (i32.const 0))
		(func (export "_start") (loop (global.set 0 (i32.const 0x7fffffff)) (global.set %d (i32.const 0x7fffffff)) (br 0))))`
	got := call(t, loadInto(t, engine, runtimetest.BuildWAT(t, fmt.Sprintf(text, 1))), "", Limits{CPU: time.Millisecond})
	if got.Kind != LimitExceeded || got.Limit.Name != "cpu" {
		t.Errorf("outcome = %+v, want limit cpu", got)
	}
	for index := 2; index < 6; index++ {
		_, err := engine.Load(t.Context(), runtimetest.BuildWAT(t, fmt.Sprintf(text, index), "--no-check"))
		if want := fmt.Sprintf("a damaged WebAssembly module: global %d does not exist", index); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Load = %v, want %s", err, want)
		}
	}
}
