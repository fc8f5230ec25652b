package runtime

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestLimitsFlood: what never ends by itself is ended by its limit.
func TestLimitsFlood(t *testing.T) {
	t.Parallel()
	for want, binary := range map[string][]byte{
		"memory":  runtimetest.MemoryBomb(t),
		"output":  runtimetest.OutputFlood(t),
		"log":     runtimetest.LogFlood(t),
		"timeout": runtimetest.Loop(t),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			limits := Limits{}
			if want == "timeout" {
				limits.Timeout = 100 * time.Millisecond
			}
			got := call(t, load(t, binary), "", limits)
			if got.Kind != LimitExceeded || got.Limit.Name != want {
				t.Errorf("outcome = %+v, want limit %s", got, want)
			}
		})
	}
}

// TestLimitMemory: a refused growth is told to the guest, and only what it then makes of it counts.
func TestLimitMemory(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, `
#include <stdio.h>
#include <stdlib.h>
int main(void) {
	int code = 0;
	(void)scanf("%d", &code);
	if (__builtin_wasm_memory_grow(0, 60000) != (size_t)-1) return 2;
	if (code < 0) __builtin_trap();
	exit(code);
}`))
	for input, want := range map[string]OutcomeKind{
		"0": Complete, "1": LimitExceeded, "-1": LimitExceeded,
		// What the guest says on purpose stands.
		"75": Retry, "65": Fatal,
	} {
		if got := call(t, module, input, Limits{}); got.Kind != want {
			t.Errorf("exit %s after a refused growth = %+v, want %s", input, got, want)
		}
	}
}

// TestLimitMemoryDeclared: a growth over the maximum that the module itself declares is not the
// limit's doing.
func TestLimitMemoryDeclared(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, `
int main(void) {
	return __builtin_wasm_memory_grow(0, 10) == (unsigned long)-1 ? 3 : 0;
}`, "-Wl,--max-memory=131072"))
	if got := call(t, module, "", Limits{}); got.Kind != Failed || got.Code != 3 {
		t.Errorf("outcome = %+v, want exit status 3", got)
	}
}

// Emscripten's standalone modules tell of the growth of their memory.
func TestEmscriptenGrowth(t *testing.T) {
	t.Parallel()
	const imports, grows = `(import "env" "emscripten_notify_memory_growth" (func $grown (param i32))) (memory (export "memory") 1)`,
		`(drop (memory.grow (i32.const 1))) (call $grown (i32.const 0))`
	for kind, text := range map[string]string{
		"command": `(func (export "_start") ` + grows + `)`,
		"handler": `(func (export "quern_handle") (result i32) ` + grows + ` (i32.const 0))`,
	} {
		if got := call(t, load(t, runtimetest.BuildWAT(t, `(module `+imports+text+`)`)), "", Limits{}); got.Kind != Complete {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

func TestAdmits(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, `int main(void) { return 0; }`, "-Wl,--initial-memory=8388608"))
	if got := module.Info().MemoryMin; got != 8<<20 {
		t.Fatalf("memory min = %d, want 8 MiB", got)
	}
	if err := module.Admits(Limits{Memory: 8 << 20}); err != nil {
		t.Errorf("Admits(8MiB) = %v", err)
	}
	if err := module.Admits(Limits{}); err != nil {
		t.Errorf("Admits of the default = %v", err)
	}
	err := module.Admits(Limits{Memory: 8<<20 - 1})
	want := "the module needs 8MiB of memory from its start, over the memory limit of 8388607B (memory section): " +
		"raise limits.memory in the plugin's manifest to 16MiB or build it with a smaller initial memory"
	if err == nil || err.Error() != want {
		t.Errorf("Admits = %v, want %s", err, want)
	}
	if got := call(t, module, "", Limits{Memory: 4 << 20}); got.Kind != LimitExceeded || got.Limit != (Limit{"memory", "4MiB"}) {
		t.Errorf("outcome = %+v, want limit memory", got)
	}
	complete(t, call(t, module, "", Limits{Memory: 8 << 20}))
	err = module.Admits(Limits{Memory: 4 << 20, Remedies: Remedies{"memory": "ask the host"}})
	if want := "over the memory limit of 4MiB (memory section): ask the host"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("Admits = %v, want %s", err, want)
	}
}

// TestLimitMessage: the parts of a message about a limit, in their order.
func TestLimitMessage(t *testing.T) {
	t.Parallel()
	const most = "memory limit of 2GiB reached: raise limits.memory in the plugin's manifest"
	hosts := Remedies{"cpu": "see --max-cpu", "memory": "see: acme", MaxTimeout: "see --max-timeout"}
	for _, test := range []struct {
		limit       *limitError
		place, said string
		want        string
	}{
		{Remedies(nil).exceeded("cpu", "1s", "cpu limit of %s exceeded"), "", "", "cpu limit of 1s exceeded: raise limits.cpu in the plugin's manifest"},
		{hosts.exceeded("cpu", "1s", "cpu limit of %s exceeded"), "a: b", "ignored", "cpu limit of 1s exceeded at a: b: let it compute less there, or see --max-cpu"},
		{Remedies(nil).memoryExceeded(16<<20, 17<<20), "", "", "memory limit of 16MiB reached: raise limits.memory in the plugin's manifest to 32MiB"},
		{
			Remedies(nil).memoryExceeded(64<<20, 203<<20-1), "", "Error: x",
			"memory limit of 64MiB reached: Error: x: let it keep less at a time, or raise limits.memory in the plugin's manifest to 256MiB, because it asked for 203MiB",
		},
		{
			Remedies(nil).memoryExceeded(64<<20, MaxMemory+1), "run", "",
			"memory limit of 64MiB reached by asking for 2049MiB at run: let it keep less at a time, because limits.memory is at most 2GiB",
		},
		{Remedies(nil).memoryExceeded(MaxMemory, 0), "", "", most},
		{hosts.memoryExceeded(1<<20, 2<<20), "", "MemoryError: x\nat: y", "memory limit of 1MiB reached: MemoryError: x: let it keep less at a time, or see: acme\nat: y"},
		{hosts.timeoutExceeded(time.Second, 0), "", "", "timeout of 1s exceeded: raise limits.timeout in the plugin's manifest"},
		{hosts.timeoutExceeded(time.Second, time.Second), "", "", "timeout of 1s exceeded: give the task a longer timeout, if the host's ceiling allows it"},
		{hosts.timeoutExceeded(time.Second, time.Minute), "f", "", "timeout of 1s exceeded at f: let it end sooner there, or see --max-timeout"},
	} {
		if got := test.limit.message(location{frames: test.place}, test.said); got != test.want {
			t.Errorf("message %q, want %q", got, test.want)
		}
	}
}

func TestLimitsWithDefaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want Limits }{
		{Limits{}, Limits{64 << 20, 16 << 20, 16 << 20, 256 << 10, 256 << 10, 0, 0, nil}},
		{Limits{-1, -1, -1, -1, -1, -1, -1, nil}, Limits{64 << 20, 16 << 20, 16 << 20, 256 << 10, 256 << 10, 0, 0, nil}},
		{Limits{1, 2, 3, 4, 5, 6, 7, nil}, Limits{1, 2, 3, 4, 5, 6, 7, nil}},
		{Limits{Memory: 5 << 30}, Limits{MaxMemory, 16 << 20, 16 << 20, 256 << 10, 256 << 10, 0, 0, nil}},
	} {
		if got := test.in.WithDefaults(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v.WithDefaults() = %+v, want %+v", test.in, got, test.want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		30 * time.Second: "30s", 90 * time.Second: "1m30s", time.Minute: "1m", time.Hour: "1h",
		time.Hour + time.Second: "1h0m1s", 90 * time.Minute: "1h30m", 1500 * time.Millisecond: "1.5s", 10 * time.Minute: "10m", 100 * time.Hour: "100h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%d) = %s, want %s", d, got, want)
		}
	}
}

// TestWaitsHaveTheirPrice: a guest that offers its turn or waits a little, again and again, takes no more
// processor time for its fuel than others. (At the price of an empty call it took a hundred times as much.)
func TestWaitsHaveTheirPrice(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, `
#include <sched.h>
#include <stdio.h>
#include <time.h>
int main(void) {
	if (getchar() == 'y') for (;;) sched_yield();
	for (;;) nanosleep(&(struct timespec){.tv_nsec = 1}, 0);
}`))
	for _, how := range []string{"yield", "sleep"} {
		got := call(t, module, how, Limits{CPU: 100 * time.Millisecond})
		if got.Limit.Name != "cpu" || got.CPU > 30*100*time.Millisecond {
			t.Errorf("%s: %+v, want the cpu limit after about 100ms of processor time", how, got)
		}
	}
}
