package runtime

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// enginePlugins are different plugins of an interpreter, how many bytes each more may take that has run and is idle, with
// what varies from run to run, and how many a hundred may take with the interpreter.
var enginePlugins = []struct {
	language, source string
	each, most       int64
}{
	{"python", `
import datetime, decimal, re
TABLE_%[1]d = {n: str(n * %[1]d) for n in range(1000)}
def handle(task):
    order = task.json()
    return {"plugin": %[1]d, "name": order["name"].upper(), "entry": TABLE_%[1]d[7]}
`, 3 << 20, 600 << 20},
	{"javascript", `
const table = new Map(Array.from({ length: 1000 }, (_, n) => [n, String(n * %[1]d)]));
export default function (task) {
  const order = task.json();
  return { plugin: %[1]d, name: order.name.toUpperCase(), entry: table.get(7) };
}
`, 3 << 20, 150 << 20},
}

// engineHolding is what the plugins of an interpreter take.
type engineHolding struct {
	Plugins                int
	First, All             int64 // PSS of the process more than without them: with one plugin, with all
	Held                   int64 // of Engine.Held with all
	Code, Snapshots, Spare int64 // of that
}

func (h engineHolding) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("one plugin %.1f MiB, %d plugins %.1f MiB, %.2f MiB for each more; the engine counts %.1f MiB: code %.1f, snapshots %.1f, instances %.1f",
		float64(h.First)/mib, h.Plugins, float64(h.All)/mib, float64(h.All-h.First)/mib/float64(h.Plugins-1),
		float64(h.Held)/mib, float64(h.Code)/mib, float64(h.Snapshots)/mib, float64(h.Spare)/mib)
}

// TestSoakEngines: many plugins of an interpreter, different from each other, that have run and are idle share what is the
// interpreter's.
func TestSoakEngines(t *testing.T) { // not parallel: each part is a process of its own
	if slowdown > 1 {
		t.Skip("the race detector takes memory of its own")
	}
	plugins := 10
	if soaking() {
		plugins = 100
	}
	for _, test := range enginePlugins {
		t.Run(test.language, func(t *testing.T) {
			runtimetest.Engine(t, test.language)
			var found engineHolding
			if !alone(t, &found) {
				tell(t, holdPlugins(t, test.language, test.source, plugins))
				return
			}
			t.Log(found)
			if more := test.each * int64(plugins-1); found.All-found.First > more {
				t.Errorf("%d more plugins take %d MiB, want at most %d", plugins-1, (found.All-found.First)>>20, more>>20)
			}
			if plugins == 100 && (found.All > test.most || found.Held > test.most) {
				t.Errorf("%d plugins take %d MiB, and %d MiB as the engine counts, want at most %d", plugins, found.All>>20, found.Held>>20, test.most>>20)
			}
		})
	}
}

// holdPlugins loads plugins, runs each, and measures.
func holdPlugins(t *testing.T, language, source string, plugins int) engineHolding {
	t.Helper()
	engine := setupBuild(t, "")
	runtimetest.Interpreted(t, language, "") // whose bytes stay in this process
	without := pss(t)
	found := engineHolding{Plugins: plugins}
	for n := range plugins {
		module := loadInto(t, engine, runtimetest.Interpreted(t, language, fmt.Sprintf(source, n+2)))
		pool := module.Bind(Profile{Tenant: "acme"})
		want := fmt.Sprintf(`{"plugin":%d,"name":"ZOË","entry":"%d"}`, n+2, 7*(n+2))
		for range 3 {
			if got := complete(t, pool.Run(t.Context(), Call{Input: []byte(`{"name":"Zoë"}`)})); got != want {
				t.Fatalf("output %s, want %s", got, want)
			}
		}
		if n == 0 {
			found.First = pss(t) - without
		}
	}
	held := engine.Holdings()
	found.All, found.Held = pss(t)-without, engine.Held()
	found.Code, found.Snapshots, found.Spare = held.Code, held.Snapshots, held.Instances
	return found
}

// pss is the memory of this process that is its own, and its part of what it shares with others, in bytes.
func pss(t *testing.T) int64 {
	t.Helper()
	collectAll(t)
	rollup, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(rollup, []byte("\nPss:"))
	kib, err := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
