package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// residueEngines are the interpreters, with the file of their residue handler.
var residueEngines = []struct {
	language, file string
	// ends are what becomes of a task, by the ending that it is told.
	ends map[string]OutcomeKind
}{
	{"python", "handler.py", map[string]OutcomeKind{
		"complete": Complete, "fatal": Fatal, "retry": Retry, "error": Failed, "exit": Failed, "recursion": Failed, "abort": Trap,
		"memory": LimitExceeded, "loop": LimitExceeded,
	}},
	{"javascript", "handler.js", map[string]OutcomeKind{
		"complete": Complete, "fatal": Fatal, "retry": Retry, "error": Failed, "recursion": Failed, "memory": LimitExceeded,
		"loop": LimitExceeded,
	}},
}

// residueEndings are how tasks of the engines end, the more often the more often it is here.
var residueEndings = strings.Fields(strings.Repeat("complete complete complete fatal retry error exit abort loop ", 4) + "recursion memory")

// engineTasks is how many tasks each engine gets in each reset mode. In the one that starts it for each task it gets few.
func engineTasks(mode ResetMode) int {
	tasks := 100
	if soaking() {
		tasks = 7000
	}
	if mode == ResetNew {
		tasks /= 10
	}
	return tasks
}

// TestResidueOfEngines: a task in Python or JavaScript finds nothing of another one: not in modules, objects, caches, interned
// strings, files, or settings of the interpreter. No idle instance has anything of a task in its memory. What is random or a
// time is another value in each task.
func TestResidueOfEngines(t *testing.T) {
	t.Parallel()
	if slowdown > 1 {
		t.Skip("the engines are compiled for too long with the race detector, which looks at no guest")
	}
	if testing.Short() {
		t.Skip("the engines are started anew for every task of a reset mode")
	}
	seed := seeded(t)
	for _, language := range residueEngines {
		source, err := os.ReadFile(filepath.Join("testdata", "residue", language.file))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(language.language, func(t *testing.T) {
			t.Parallel()
			binary := runtimetest.Interpreted(t, language.language, string(source))
			loadInto(t, setupBuild(t, ""), binary) // compiles it once for all modes
			for _, mode := range []ResetMode{ResetScan, ResetPagemap, ResetCopy, ResetNew} {
				t.Run(string(mode), func(t *testing.T) {
					t.Parallel()
					if !works(mode) {
						t.Skip("this reset mode does not work here")
					}
					engine := setupBuild(t, mode)
					r := &engineResidue{
						crowd: crowd{engine, loadInto(t, engine, binary), seed, engineTasks(mode)},
						ends:  language.ends, states: map[string]string{}, values: map[string]bool{}, ended: map[OutcomeKind]int{},
					}
					if mode != ResetNew {
						r.isFound(t)
					}
					r.price = r.pilot(t)
					r.run(t, func(random *rand.Rand) bool { return r.task(t, random) })
					r.look(t)
					t.Logf("%d fuel a task; %v; %d values of %s, all different", r.price, r.ended, len(r.values), strings.Join(kinds(r.values), ", "))
				})
			}
		})
	}
}

// engineResidue is a crowd of tasks of a residue handler.
type engineResidue struct {
	crowd
	ends  map[string]OutcomeKind
	price int64 // of a task that completes, in fuel

	mu     sync.Mutex
	states map[string]string // what all tasks of a pool find in the same state
	values map[string]bool   // that a task has got, each with its name
	ended  map[OutcomeKind]int
}

// residueReport is what a task says that completes.
type residueReport struct {
	State  string
	Values map[string]any
	Hash   int64
}

// kinds are the names of values.
func kinds(values map[string]bool) (names []string) {
	seen := map[string]bool{}
	for value := range values {
		if name, _, _ := strings.Cut(value, " is "); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

func residueText(where, number int, ending string) string {
	return fmt.Sprintf("%s canary-%06d", ending, where<<4|number)
}

// pilot runs a task in an instance of its own.
func (r *engineResidue) pilot(t *testing.T) (price int64) {
	t.Helper()
	got := bound(r.module, "", Profile{Tenant: "acme"}).Run(t.Context(), Call{Input: []byte(residueText(0, 1, "complete"))})
	complete(t, got)
	return got.Fuel
}

// task runs one task of the plan, and is false if it was not as it should be.
func (r *engineResidue) task(t *testing.T, random *rand.Rand) bool {
	t.Helper()
	where := random.IntN(len(places))
	ending := residueEndings[random.IntN(len(residueEndings))]
	if _, has := r.ends[ending]; !has {
		ending = "complete"
	}
	input := residueText(where, random.IntN(16), ending)
	var said []string
	c := Call{
		TaskID: "id", Plugin: "residue", Input: []byte(input),
		Log: func(line string) { said = append(said, line) },
	}
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	want, cpu := []OutcomeKind{r.ends[ending]}, time.Duration(0)
	if ending == "loop" || random.IntN(10) == 0 {
		switch random.IntN(3) {
		case 0:
			c.Timeout = time.Duration(1 + random.Int64N(int64(5*time.Millisecond)))
			want = append(want, LimitExceeded)
		case 1:
			time.AfterFunc(time.Duration(random.Int64N(int64(5*time.Millisecond))), func() { stop(errDrain) })
			want = append(want, Cancelled)
		default:
			cpu = time.Duration(r.price/4 + random.Int64N(r.price))
			want = append(want, LimitExceeded)
		}
	}
	got := r.runs(ctx, where, &c, cpu)
	wrong := r.wrong(where, input, got, said, want)
	if wrong != "" {
		t.Errorf("%s\nof the task %q in pool %s of %s: %+v\nsaid %q", wrong, input, places[where].pool, places[where].tenant, got, said)
	}
	if random.IntN(50) == 0 {
		r.look(t)
	}
	return wrong == ""
}

// runs runs a call in a place, whose pool is bound without a limit of fuel: the start needs more than a task.
func (r *engineResidue) runs(ctx context.Context, where int, c *Call, cpu time.Duration) Outcome {
	profile := Profile{Tenant: places[where].tenant}
	if places[where].pool == "warm" {
		profile.Warm = []byte{}
	}
	for {
		p := bound(r.module, places[where].pool, profile)
		limits := p.limitsOf(c)
		limits.CPU = cpu
		if got := p.run(ctx, c, limits); !errors.Is(got.Err, errPoolClosed) || got.Kind != HostFault {
			return got
		}
	}
}

var residueCanary = regexp.MustCompile(`canary-\d{6}`)

// wrong says what is wrong about a task; "" is nothing.
func (r *engineResidue) wrong(where int, input string, got Outcome, said []string, want []OutcomeKind) string {
	own := residueCanary.FindString(input)
	texts := got.Message + got.Stderr + string(got.Output) + strings.Join(said, "\n")
	for _, canary := range residueCanary.FindAllString(texts, -1) {
		if canary != own {
			return "it has found " + canary
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[got.Kind]++
	if !slices.Contains(want, got.Kind) || strings.Contains(got.Message, "found") {
		return fmt.Sprintf("it ended as %s, want %v", got.Kind, want)
	}
	if got.Kind != Complete {
		return ""
	}
	var found residueReport
	if err := json.Unmarshal(got.Output, &found); err != nil {
		return err.Error()
	}
	return r.judge(where, found)
}

// judge says what is wrong about the state in which a task was, and about the values that it has got.
func (r *engineResidue) judge(where int, said residueReport) string {
	pool := places[where].pool
	if state, ok := r.states[pool]; ok && state != said.State {
		return fmt.Sprintf("it found the state\n%s\nanother task of a pool like its own found\n%s", said.State, state)
	}
	r.states[pool] = said.State
	if hash := fmt.Sprint("hash ", said.Hash); r.states["hash"] == "" {
		r.states["hash"] = hash
	} else if r.states["hash"] != hash {
		return "strings have another hash than in another task: " + hash
	}
	for name, value := range said.Values {
		if name == "time" {
			seconds, _ := value.(float64)
			if off := time.Since(time.UnixMilli(int64(seconds * 1000))); off < -time.Second || off > time.Minute {
				return fmt.Sprintf("its clock is %v behind", off)
			}
			continue
		}
		key := fmt.Sprintf("%s is %v", name, value)
		if r.values[key] {
			return "two tasks have the same value: " + key
		}
		r.values[key] = true
	}
	return ""
}

// look looks for canaries in the memory of idle instances.
func (r *engineResidue) look(t *testing.T) {
	t.Helper()
	for _, p := range r.module.allPools() {
		p.mu.Lock()
		for _, i := range p.idle {
			for _, memory := range i.memories {
				if canary := canaryIn(memory.contents()); canary != "" {
					t.Errorf("an idle instance has %s in its memory", canary)
				}
			}
		}
		p.mu.Unlock()
	}
}

// canaryIn finds a canary in a memory; the word alone is in the handler's source. It is much faster than the expression.
func canaryIn(memory []byte) string {
	const word, digits = "canary-", 6
	for {
		at := bytes.Index(memory, []byte(word))
		if at < 0 || at+len(word)+digits > len(memory) {
			return ""
		}
		if found := memory[at : at+len(word)+digits]; residueCanary.Match(found) {
			return string(found)
		}
		memory = memory[at+len(word):]
	}
}

// isFound holds the handler and look to what they are there for: in an instance that is not reset both find what the task
// before has left.
func (r *engineResidue) isFound(t *testing.T) {
	t.Helper()
	p, c := r.module.Bind(Profile{Tenant: "acme"}), Call{}
	i, _, ended := p.acquire(t.Context(), &c, time.Now())
	if ended != nil {
		t.Fatalf("%+v", ended)
	}
	run := func(input string) Outcome {
		c.Input = []byte(input)
		now := time.Now()
		once := p.newRun(t.Context(), &c, p.limits, nil, abi.Running, now)
		var err error
		i, _, err = p.invoke(once, &c, i, now, (*instance).callTask)
		return once.finish(err)
	}
	complete(t, run(residueText(2, 1, "complete")))
	if canaryIn(i.memories[0].contents()) == "" {
		t.Error("there is no canary in the memory of an instance without a reset")
	}
	if got := run(residueText(0, 1, "complete")); got.Kind == Complete || !strings.Contains(got.Message, "canary-000033 in a global") {
		t.Errorf("outcome = %+v without a reset, want a canary found", got)
	}
	p.release(i, false, 0, time.Now())
}
