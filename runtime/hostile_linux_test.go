package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/quern-project/quern/runtime/units"
)

// aloneEnv names the file to which a test reports that runs again in a process of its own.
const aloneEnv = "QUERN_TEST_ALONE"

// alone runs a test again, in a process where it is alone, and reads what that reports. In that process, where
// it is to do its work, it returns false.
func alone(t *testing.T, report any, env ...string) bool {
	t.Helper()
	if os.Getenv(aloneEnv) != "" {
		return false
	}
	path := filepath.Join(t.TempDir(), "report")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	cmd.Env = append(append(os.Environ(), aloneEnv+"="+path), env...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, output)
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, report)
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// tell reports from a process of its own.
func tell(t *testing.T, report any) {
	t.Helper()
	text, err := json.Marshal(report)
	if err == nil {
		err = os.WriteFile(os.Getenv(aloneEnv), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// resident is one of the figures of this process in /proc/self/status, in bytes: VmRSS, or VmHWM for its peak.
func resident(t testing.TB, name string) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":"))
	kib, err := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// perGuest is what a guest may take of the host beside the memory that is its own: its call stack and its tables.
const perGuest = 144 << 20

// greedy is a guest that takes all memory that it may have and touches it, and then recurses without end.
var greedy = attack{name: "greedy", text: `(table $t 1000000 funcref)
	(func $attack (local $size i32)
		(loop $grow (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
		(local.set $size (i32.mul (i32.const 65536) (memory.size)))
		(memory.fill (i32.const 0) (i32.const 1) (local.get $size))
		(drop (table.grow $t (ref.null func) (i32.const 65536)))
		(call $deep))
	(func $deep (call $deep))`}

type peak struct{ Base, Peak int64 }

// TestHostileMemory: eight guests at once that take all they can, one time after the other, take no more of the
// host than eight times their limit and 144 MiB, which is for tables and a call stack that wazero doubles up to
// 84 MB, by copying it. Go's collector has to be told of it: without a memory limit it lets more of what is no
// longer used gather. It goes somewhat above what it is told. The race detector takes a multiple of that for itself, and time.
func TestHostileMemory(t *testing.T) {
	t.Parallel()
	guests, rounds, factor := int64(8), 3, int64(1)
	if slowdown > 1 {
		guests, rounds, factor = 4, 1, 4
	}
	var found peak
	if alone(t, &found) {
		ceiling := found.Base + factor*guests*(defaultMemory+perGuest)
		t.Logf("peak %s, ceiling %s", units.FormatSize(found.Peak), units.FormatSize(ceiling))
		if found.Peak > ceiling {
			t.Errorf("%d guests took the host to %d MiB, above %d MiB", guests, found.Peak>>20, ceiling>>20)
		}
		if found.Peak < found.Base+guests*defaultMemory/4 {
			t.Errorf("a peak of %d MiB: they took nothing", found.Peak>>20)
		}
		return
	}
	module := loadInto(t, setup(t), greedy.build(t))
	complete(t, call(t, module, "spare", Limits{}))
	found.Base = resident(t, "VmHWM")
	debug.SetMemoryLimit(found.Base + guests*perGuest*7/8)
	var group sync.WaitGroup
	for range guests {
		group.Go(func() {
			for range rounds {
				got := bound(module, "", Profile{}).Run(context.WithoutCancel(t.Context()), Call{Plugin: "greedy"})
				// The growth that was refused is what a trap is blamed on.
				if got.Kind != LimitExceeded || got.Limit.Name != "memory" {
					t.Errorf("outcome = %+v, want limit memory", got)
				}
			}
		})
	}
	group.Wait()
	found.Peak = resident(t, "VmHWM")
	tell(t, found)
}

// TestHostileReferences: a reference of a function that is taken a hundred million times costs the host nothing,
// where wazero's own instruction would cost it 3 GB.
func TestHostileReferences(t *testing.T) { //nolint:paralleltest // it looks at the memory of the process
	a := attack{text: `(table $t 1 funcref) (elem declare func $attack)
		(func $attack (local $i i32)
			(loop $l ` + strings.Repeat(`(table.set $t (i32.const 0) (ref.func $attack))`, 100) + `
				(br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000)))))`}
	module := loadInto(t, setup(t), a.build(t))
	complete(t, call(t, module, "spare", Limits{}))
	before := resident(t, "VmRSS")
	complete(t, call(t, module, "", Limits{}))
	if grown := resident(t, "VmRSS") - before; grown > 64<<20 {
		t.Errorf("the host grew by %d MiB", grown>>20)
	}
}
