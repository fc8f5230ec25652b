package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// TestWASIBadArguments calls every function of WASI with arguments that mean nothing: whatever a
// guest hands to the host, the host is not the one that fails.
func TestWASIBadArguments(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	if len(signatures()["wasi_snapshot_preview1"]) < 40 {
		t.Fatalf("only %d functions", len(signatures()["wasi_snapshot_preview1"]))
	}
	// As i32: 0, 1, -1, the last and the first byte behind the memory of one page, two numbers whose
	// products with sizes of structures overflow.
	arguments := []int64{0, 1, -1, 65535, 65536, 0x10000000, 0x05555556}
	for name, signature := range signatures()["wasi_snapshot_preview1"] {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, argument := range arguments {
				module := loadInto(t, engine, callingWith(name, signature, argument))
				got := call(t, module, "", Limits{Timeout: patience})
				want := Complete
				if name == "proc_exit" && argument != 0 {
					want = Failed
				}
				// Output of one byte, or none: fd_write of nothing is fine.
				if got.Kind != want {
					t.Errorf("%s%d = %+v, want %s", name, argument, got, want)
				}
			}
		})
	}
}

// callingWith is a command that calls one function with the same value for each parameter.
func callingWith(name string, signature wasm.Signature, argument int64) []byte {
	constant := map[wasm.Type]byte{wasm.I32: 0x41, wasm.I64: 0x42}
	var params, results string
	var code []byte
	for _, t := range signature.Params {
		params += string([]byte{byte(t)})
		code = append(append(code, constant[t]), signed(int64(int32(argument)))...)
	}
	for _, t := range signature.Results {
		results += string([]byte{byte(t)})
	}
	code = append(code, 0x10, 0) // call the import
	for range signature.Results {
		code = append(code, 0x1a) // drop
	}
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType(params, results), runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.ImportSection, runtimetest.Import(wasi.ModuleName, name, runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{1}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 1)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(code...)),
	)
}

// signed is a signed number in LEB128.
func signed(n int64) []byte {
	var encoded []byte
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if (n == 0 && b&0x40 == 0) || (n == -1 && b&0x40 != 0) {
			return append(encoded, b)
		}
		encoded = append(encoded, b|0x80)
	}
}

// TestPoll waits for what a guest can wait for, by WASI's own functions.
func TestPoll(t *testing.T) {
	t.Parallel()
	const pre = `
#include <stdio.h>
#include <string.h>
#include <wasi/api.h>
static __wasi_subscription_t s[3];
static __wasi_event_t e[3];
static __wasi_subscription_t after(int id, unsigned long long ns, int flags) {
	__wasi_subscription_t s = {.userdata = 7, .u.tag = __WASI_EVENTTYPE_CLOCK};
	s.u.u.clock.id = id, s.u.u.clock.timeout = ns, s.u.u.clock.flags = flags;
	return s;
}
static __wasi_subscription_t fd(int tag, int fd) {
	__wasi_subscription_t s = {.userdata = 8, .u.tag = tag};
	s.u.u.fd_read.file_descriptor = fd;
	return s;
}
static unsigned long long now(int id) {
	__wasi_timestamp_t t = 0;
	__wasi_clock_time_get(id, 1, &t);
	return t;
}
int main(void) {
	__wasi_size_t n = 99;
	int error = -1;
	`
	const post = `
	printf("%d", error);
	for (int i = 0; error == 0 && i < n; i++) printf(" %d:%d:%d", (int)e[i].userdata, e[i].type, e[i].error);
}`
	for name, test := range map[string]struct {
		code, want string
		least      time.Duration
	}{
		"nothing":   {`error = __wasi_poll_oneoff(s, e, 0, &n);`, "28", 0},
		"overflow":  {`error = __wasi_poll_oneoff(s, e, 0x10000000, &n);`, "21", 0}, // times 48 and times 32 it is 0 in 32 bits
		"relative":  {`s[0] = after(1, 20000000, 0); error = __wasi_poll_oneoff(s, e, 1, &n);`, "0 7:0:0", 20 * time.Millisecond},
		"absolute":  {`s[0] = after(1, now(1) + 20000000, 1); error = __wasi_poll_oneoff(s, e, 1, &n);`, "0 7:0:0", 20 * time.Millisecond},
		"wall":      {`s[0] = after(0, now(0) + 20000000, 1); error = __wasi_poll_oneoff(s, e, 1, &n);`, "0 7:0:0", 10 * time.Millisecond},
		"past":      {`s[0] = after(0, 1, 1); error = __wasi_poll_oneoff(s, e, 1, &n);`, "0 7:0:0", 0},
		"first":     {`s[0] = after(1, -1, 0), s[1] = after(1, 1000, 0), s[1].userdata = 6; error = __wasi_poll_oneoff(s, e, 2, &n);`, "0 6:0:0", 0},
		"stdin":     {`s[0] = after(1, -1, 0), s[1] = fd(__WASI_EVENTTYPE_FD_READ, 0); error = __wasi_poll_oneoff(s, e, 2, &n);`, "0 8:1:0", 0},
		"stdout":    {`s[0] = fd(__WASI_EVENTTYPE_FD_WRITE, 1), s[1] = after(1, -1, 0); error = __wasi_poll_oneoff(s, e, 2, &n);`, "0 8:2:0", 0},
		"no file":   {`s[0] = fd(__WASI_EVENTTYPE_FD_READ, 5); error = __wasi_poll_oneoff(s, e, 1, &n);`, "0 8:1:8", 0},
		"tag":       {`s[0].u.tag = 9; error = __wasi_poll_oneoff(s, e, 1, &n);`, "28", 0},
		"cpu clock": {`s[0] = after(2, 1, 0); error = __wasi_poll_oneoff(s, e, 1, &n);`, "28", 0},
		"flags":     {`s[0] = after(1, 1, 2); error = __wasi_poll_oneoff(s, e, 1, &n);`, "28", 0},
		"result":    {`s[0] = after(1, 1, 0); error = __wasi_poll_oneoff(s, e, 1, (void *)0xfffffff0u);`, "21", 0},
		"events":    {`s[0] = after(1, 1, 0); error = __wasi_poll_oneoff(s, (void *)0xfffffff0u, 1, &n);`, "21", 0},
		"overlap":   {`s[0] = after(1, 1, 0), s[1] = after(1, 1, 0); error = __wasi_poll_oneoff(s, (void *)s, 2, &n); memcpy(e, s, sizeof e);`, "0 7:0:0 7:0:0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, load(t, runtimetest.BuildC(t, pre+test.code+post)), "", Limits{Timeout: patience})
			if output := complete(t, got); output != test.want || got.WaitTime+got.GuestTime < test.least {
				t.Errorf("poll = %q after %v, want %q after %v", output, got.WaitTime+got.GuestTime, test.want, test.least)
			}
		})
	}
}

// TestSandbox: a guest finds no files, no directories and no network.
func TestSandbox(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, `
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <wasi/api.h>
int main(void) {
	const char *paths[] = {"/", ".", "..", "/etc/passwd", "/proc/self/environ", "/dev/null"};
	for (int i = 0; i < sizeof paths / sizeof *paths; i++)
		if (open(paths[i], O_RDONLY) >= 0) printf("opened %s\n", paths[i]);
	__wasi_prestat_t prestat;
	__wasi_fd_t fd;
	for (int i = 0; i < 100; i++) {
		if (i > 2 && __wasi_fd_prestat_get(i, &prestat) == 0) printf("preopened %d\n", i);
		for (int dir = 0; dir < 2; dir++)
			if (__wasi_path_open(i, 0, "etc", 0, ~0ull, ~0ull, 0, &fd) == 0) printf("opened below %d\n", i);
	}
	int error = __wasi_sock_shutdown(1, 1);
	printf("%d", error == 0);
}`))
	if got := complete(t, call(t, module, "", Limits{})); got != "0" {
		t.Errorf("the guest found %s", strings.TrimSuffix(got, "0"))
	}
}

func TestWASISignatures(t *testing.T) {
	t.Parallel()
	wasi := signatures()["wasi_snapshot_preview1"]
	for name, want := range map[string]string{
		"fd_write":    "(i32, i32, i32, i32) -> (i32)",
		"fd_seek":     "(i32, i64, i32, i32) -> (i32)",
		"poll_oneoff": "(i32, i32, i32, i32) -> (i32)",
		"proc_exit":   "(i32) -> ()",
	} {
		if got := fmt.Sprint(wasi[name]); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	if slices.Contains(wasi["fd_write"].Params, 0) {
		t.Error("a type has no name")
	}
}

// TestGuard: a panic in the host's code below a guest is the host's fault, and what ends a guest passes.
func TestGuard(t *testing.T) {
	t.Parallel()
	ended := func(r *run, f func()) (p any) {
		defer func() { p = recover() }()
		defer func() { r.guard(recover()) }()
		f()
		return nil
	}
	module := load(t, command(nil))
	wild := func() { _ = []int{}[len(t.Name())] }
	for name, test := range map[string]struct {
		f    func(r *run)
		want OutcomeKind
	}{
		"ours": {func(*run) { wild() }, HostFault},
		"exit": {func(r *run) { r.Exit(3) }, Failed},
		"end":  {func(r *run) { r.end(Remedies{}.sizeExceeded("log", 1, "log limit of %s exceeded")) }, LimitExceeded},
	} {
		r := &run{module: module}
		if p := ended(r, func() { test.f(r) }); p != any(unwound{}) {
			t.Errorf("%s: panic = %v, want unwound", name, p)
		}
		if got := r.judge(unwound{}); got.Kind != test.want {
			t.Errorf("%s = %+v, want %s", name, got, test.want)
		}
	}
}
