package abi

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// signatures are those of the interface's description.
var signatures = map[string]string{
	"result_read":       "i32 i32 i32 -> i32",
	"result_size":       " -> i32",
	"input_size":        " -> i32",
	"input_read":        "i32 i32 i32 -> i32",
	"output_write":      "i32 i32 -> i32",
	"error_set":         "i32 i32 -> i32",
	"retry_after":       "i64 -> i32",
	"task_text":         "i32 -> i32",
	"dependency_result": "i32 i32 -> i32",
	"task_number":       "i32 i32 -> i32",
	"cancelled":         " -> i32",
	"log":               "i32 i32 i32 i32 i32 -> i32",
	"progress":          "f64 i32 i32 -> i32",
	"checkpoint_save":   "i32 i32 -> i32",
	"checkpoint_load":   " -> i32",
	"enqueue":           "i32 i32 i32 i32 i32 i32 -> i32",
	"kv_get":            "i32 i32 i32 i32 -> i32",
	"kv_set":            "i32 i32 i32 i32 i32 i32 i64 -> i32",
	"kv_delete":         "i32 i32 i32 i32 -> i32",
	"kv_increment":      "i32 i32 i32 i32 i64 i32 -> i32",
	"kv_swap":           "i32 i32 i32 i32 i32 i32 i32 i32 i64 -> i32",
	"kv_list":           "i32 i32 i32 i32 i32 i32 i32 -> i32",
	"http":              "i32 i32 i32 i32 -> i32",
	"sql":               "i32 i32 i32 i32 i32 i32 -> i32",
	"sql_commit":        "i32 i32 i32 i32 i32 i32 -> i32",
	"sql_rollback":      "i32 i32 -> i32",
	"sql_step":          "i32 i32 i32 i32 -> i32",
	"config_get":        "i32 i32 -> i32",
	"secret_get":        "i32 i32 -> i32",
	"sleep":             "i64 -> i32",
	"clock":             "i32 i32 -> i32",
	"random":            "i32 i32 -> i32",
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	missing := maps.Clone(signatures)
	for _, f := range Functions() {
		want, ok := missing[f.Name]
		if !ok {
			t.Errorf("%s is no function of %s, or there twice", f.Name, ModuleName)
			continue
		}
		if got := types(f.Params) + " -> " + types(f.Results); got != want {
			t.Errorf("%s is %s, want %s", f.Name, got, want)
		}
		delete(missing, f.Name)
	}
	for name := range missing {
		t.Errorf("%s is missing", name)
	}
}

func types(list []api.ValueType) string {
	var names []string
	for _, t := range list {
		names = append(names, api.ValueTypeName(t))
	}
	return strings.Join(names, " ")
}

// TestErrno compares the numbers with those of the description, which guests have compiled in.
func TestErrno(t *testing.T) {
	t.Parallel()
	for got, want := range map[errno]int{
		errnoInval: -1, errnoFault: -2, errnoDenied: -3, errnoNotFound: -4, errnoTooBig: -5, errnoQuota: -6, errnoConflict: -7,
		errnoCancelled: -8, errnoUnavailable: -9, errnoState: -10, errnoLimit: -11,
	} {
		if int(got) != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
}

// arguments are such as each function succeeds with, once the guest has a task.
func arguments(name string) []uint64 {
	switch name {
	case "result_read", "input_read":
		return []uint64{0, 100, 8}
	case "output_write", "error_set", "random":
		return []uint64{100, 8}
	case "task_number", "clock":
		return []uint64{0, 100}
	case "task_text":
		return []uint64{0}
	case "retry_after", "sleep":
		return []uint64{1000}
	case "log":
		return []uint64{2, 100, 8, 0, 0}
	case "progress":
		return []uint64{api.EncodeF64(0.5), 100, 8}
	case "sql":
		return []uint64{200, 2, 200, 2, 0, 0}
	case "sql_commit":
		return []uint64{200, 2, 200, 2, 100, 8}
	case "sql_step":
		return []uint64{200, 2, 200, 2}
	case "sql_rollback", "checkpoint_save", "config_get", "secret_get", "dependency_result":
		return []uint64{200, 2}
	case "kv_get", "kv_delete":
		return []uint64{200, 2, 200, 1}
	case "kv_set":
		return []uint64{200, 2, 200, 1, 100, 8, 0}
	case "kv_increment":
		return []uint64{200, 2, 200, 1, 5, 100}
	case "kv_swap":
		return []uint64{200, 2, 200, 1, 0, 0xffffffff, 100, 8, 0}
	case "kv_list":
		return []uint64{200, 2, 0, 0, 0, 0, 10}
	case "enqueue":
		return []uint64{200, 2, 100, 8, 0, 0}
	case "http":
		return []uint64{300, uint64(len(testHead)), 100, 8}
	default:
		return nil
	}
}

func TestStages(t *testing.T) {
	t.Parallel()
	const refused, noted = "refused", "noted"
	for name, want := range map[string]map[Stage]string{
		"result_read":       {Initializing: refused, Warming: noted},
		"result_size":       {Initializing: refused, Warming: noted},
		"input_size":        {Initializing: refused},
		"input_read":        {Initializing: refused},
		"output_write":      {Initializing: refused},
		"error_set":         {Initializing: refused},
		"retry_after":       {Initializing: refused},
		"task_text":         {Initializing: refused, Warming: refused},
		"task_number":       {Initializing: refused, Warming: refused},
		"cancelled":         {Initializing: refused},
		"log":               {},
		"progress":          {Initializing: refused, Warming: noted},
		"checkpoint_save":   {Initializing: refused, Warming: noted},
		"checkpoint_load":   {Initializing: refused, Warming: noted},
		"enqueue":           {Initializing: refused, Warming: noted},
		"dependency_result": {Initializing: refused, Warming: noted},
		"kv_get":            {Initializing: refused, Warming: noted},
		"kv_set":            {Initializing: refused, Warming: noted},
		"kv_delete":         {Initializing: refused, Warming: noted},
		"kv_increment":      {Initializing: refused, Warming: noted},
		"kv_swap":           {Initializing: refused, Warming: noted},
		"kv_list":           {Initializing: refused, Warming: noted},
		"http":              {Initializing: refused, Warming: noted},
		"sql":               {Initializing: refused, Warming: noted},
		"sql_commit":        {Initializing: refused, Warming: noted},
		"sql_rollback":      {Initializing: refused, Warming: noted},
		"sql_step":          {Initializing: refused, Warming: noted},
		"config_get":        {},
		"secret_get":        {Initializing: refused, Warming: noted},
		"sleep":             {Initializing: refused},
		"clock":             {},
		"random":            {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stage := range []Stage{Running, Initializing, Warming} {
				store := &fakeServices{}
				g := setup(t, 1, Config{
					Stage: stage, Task: Task{ID: "0123456789"}, Input: []byte("an input"), Checkpoint: []byte("kept"), Services: store.set(),
				})
				g.put(200, "bb")
				g.put(300, testHead)
				before := g.get(0, 1<<16)
				got := g.call(name, arguments(name)...)
				_, said := g.system.Error()
				touched := g.host.writes > 0 || g.host.spent > 0 || g.system.RetryAfter() != 0 || said || mismatch(g.get(0, 1<<16), before) >= 0 ||
					len(store.calls) > 0 || len(g.host.lines)+len(g.host.told)+int(g.host.waited) > 0
				switch want[stage] {
				case "":
					if got < 0 || g.system.Misused() != "" {
						t.Errorf("stage %d: %d, misused %q", stage, got, g.system.Misused())
					}
				default:
					if got != errnoState || touched {
						t.Errorf("stage %d: %d, want %d and nothing done", stage, got, errnoState)
					}
					if misused := g.system.Misused() == name; misused != (want[stage] == noted) {
						t.Errorf("stage %d: misused %q", stage, g.system.Misused())
					}
				}
			}
		})
	}
	t.Run("all are here", func(t *testing.T) {
		t.Parallel()
		if len(Functions()) != len(signatures) {
			t.Error("a function without its stages")
		}
	})
}

// TestMisused: the first one is named, whatever the arguments were.
func TestMisused(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Stage: Warming, Input: []byte("sample")})
	later := answering("later", slot, (*System).inputSize)
	g.functions["later"] = later
	g.answers(6, "input_size")
	g.answers(errnoState, "task_text", 99)
	if got := g.system.Misused(); got != "" {
		t.Errorf("misused %q", got)
	}
	g.answers(errnoState, "later")
	g.answers(errnoState, "result_read", 0, 1<<32-1, 1<<32-1)
	if got := g.system.Misused(); got != "later" {
		t.Errorf("misused %q, want the first", got)
	}
	g.answers(0, "output_write", 0, 4)
	if g.host.writes != 1 {
		t.Error("the guest cannot go on")
	}
}

// TestInit: nothing is left of the call before.
func TestInit(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Task: Task{ID: "one"}, Input: []byte("input of one"), Started: time.Now()})
	g.put(0, "error of one")
	g.answers(3, "task_text", 0)
	g.answers(0, "error_set", 0, 12)
	g.answers(0, "retry_after", 5000)
	before := *g.system
	g.system.Init(Config{Host: g.host, Reporter: g.host})
	if text, said := g.system.Error(); text != "" || said || g.system.RetryAfter() != 0 {
		t.Errorf("error %q, %v, retry after %v", text, said, g.system.RetryAfter())
	}
	g.answers(0, "input_size")
	g.answers(0, "result_read", 0, 0, 100)
	// What the next one says does not reach what was read of the one before.
	g.put(0, "error of two")
	g.answers(0, "error_set", 0, 12)
	if text, _ := before.Error(); text != "error of one" {
		t.Errorf("the error before is %q", text)
	}
}

// hostile are arguments that mean nothing: the edges of a memory of one page, numbers whose sums
// overflow, negative ones.
var hostile = []uint64{
	0, 1, 3, 7, 8, 4095, 65528, 65529, 65535, 65536, 65537, 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff,
	0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff,
}

// TestHostile calls every function with each combination of such values, in every stage, and looks for
// what was written beyond what the arguments allow.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, f := range Functions() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			for pages := range uint32(2) {
				mem := newMemory(t, pages)
				for _, arguments := range combinations(len(f.Params)) {
					for _, stage := range []Stage{Running, Initializing, Warming} {
						host := &account{limit: 100}
						s := newSystem(Config{
							Host: host, Reporter: host, Stage: stage, Task: Task{ID: "id"}, Input: []byte("in"), Services: (&fakeServices{}).set(),
						})
						s.slot = "slot"
						stack := append(slices.Clone(arguments), 0)
						if p := ending(func() { f.Call(s, mem, stack) }); p != nil {
							t.Fatalf("%s%x with %d pages panics: %v", f.Name, arguments, pages, p)
						}
						if e := errno(int32(uint32(stack[0]))); e < errnoLimit || stack[0]>>32 != 0 {
							t.Errorf("%s%x with %d pages answers %d", f.Name, arguments, pages, e)
						}
					}
				}
			}
		})
	}
}

// combinations are all of n hostile values; of more than three some, the same each time.
func combinations(n int) [][]uint64 {
	all := [][]uint64{nil}
	if n > 3 {
		random := rand.New(rand.NewPCG(1, uint64(n)))
		all = make([][]uint64, 10_000)
		for i := range all {
			for range n {
				all[i] = append(all[i], hostile[random.IntN(len(hostile))])
			}
		}
		return all
	}
	for range n {
		var longer [][]uint64
		for _, c := range all {
			for _, value := range hostile {
				longer = append(longer, append(slices.Clone(c), value))
			}
		}
		all = longer
	}
	return all
}

// TestUnwind: what the host panics with passes as it is, whichever function it comes through.
func TestUnwind(t *testing.T) {
	t.Parallel()
	for name := range signatures {
		switch name {
		case "input_size", "result_size", "retry_after", "task_text", "task_number", "cancelled", "clock", "sleep":
			continue // move nothing that is paid for
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			services := &fakeServices{}
			g := setup(t, 1, Config{
				Task: Task{ID: "0123456789"}, Input: []byte("an input"), Checkpoint: []byte("kept"), Services: services.set(),
			})
			g.put(200, "bb")
			g.put(300, testHead)
			before := g.get(0, 1<<16)
			g.call("task_text", 0)
			g.host.budget = 1
			if p := ending(func() { g.call(name, arguments(name)...) }); p != errBroke {
				t.Errorf("panics with %v", p)
			}
			if _, said := g.system.Error(); said || g.host.writes > 0 || mismatch(g.get(0, 1<<16), before) >= 0 || len(services.calls) > 0 {
				t.Error("moved before it was paid for")
			}
		})
	}
}

func ExampleFunctions() {
	for _, f := range Functions() {
		if f.Name == "input_read" {
			fmt.Println(f.Name, len(f.Params), len(f.Results))
		}
	}
	// Output: input_read 3 1
}
