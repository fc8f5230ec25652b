package runtime

import (
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
		"raise limits.memory in the plugin's manifest or build it with a smaller initial memory"
	if err == nil || err.Error() != want {
		t.Errorf("Admits = %v, want %s", err, want)
	}
	if got := call(t, module, "", Limits{Memory: 4 << 20}); got.Kind != LimitExceeded || got.Limit != (Limit{"memory", "4MiB"}) {
		t.Errorf("outcome = %+v, want limit memory", got)
	}
	complete(t, call(t, module, "", Limits{Memory: 8 << 20}))
}

func TestLimitsWithDefaults(t *testing.T) {
	t.Parallel()
	for in, want := range map[Limits]Limits{
		{}:                       {64 << 20, 16 << 20, 16 << 20, 256 << 10, 0, 0},
		{-1, -1, -1, -1, -1, -1}: {64 << 20, 16 << 20, 16 << 20, 256 << 10, 0, 0},
		{1, 2, 3, 4, 5, 6}:       {1, 2, 3, 4, 5, 6},
		{Memory: 5 << 30}:        {MaxMemory, 16 << 20, 16 << 20, 256 << 10, 0, 0},
	} {
		if got := in.WithDefaults(); got != want {
			t.Errorf("%+v.WithDefaults() = %+v, want %+v", in, got, want)
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
