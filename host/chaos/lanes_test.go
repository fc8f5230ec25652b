package chaos

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

//go:embed testdata/lane.c
var laneSource string

const (
	// laned is the queue of tasks with a concurrency key, and widest how many of a key that has a label's value may run at
	// once. Of other keys it is one.
	laned  = "lanes"
	widest = 3
	// laneManifest gives tasks with a label their key. The tasks of keys of their own have that in their options.
	laneManifest = `name: lane
queues: [lanes]
concurrency: {key: labels.customer, max: 3, per_host: 8}
limits: {memory: 1MiB, input: 4KiB, output: 4KiB}
retry: {max_attempts: 1000, base: 50ms, min: 50ms, max: 500ms}
capabilities: {http: [{host: "URL", methods: [POST]}]}
config: {url: "URL"}
`
)

// lanes are the reports of guests with a concurrency key: when each begins, and when it ends. Guests report over HTTP, so neither
// Redis nor the hosts' logs have a part in the order.
type lanes struct {
	url    string
	mu     sync.Mutex
	events []laneEvent                   // in the order in which they came; guarded by mu
	begun  map[*process]map[string]int64 // the last run of each task that began in a process; guarded by mu
	runs   map[string]int64              // the runs of tokens; guarded by mu
}

// laneEvent is one that a guest told. Each run has a token of its own.
type laneEvent struct {
	task, token string
	enters      bool
}

func newLanes(t testing.TB) *lanes {
	t.Helper()
	l := &lanes{begun: make(map[*process]map[string]int64), runs: make(map[string]int64)}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/") // /enter/TASK/TOKEN
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, laneEvent{task: parts[2], token: parts[3], enters: parts[1] == "enter"})
	}))
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// heard learns from the log which run of its task a token is.
func (l *lanes) heard(p *process, line logLine) {
	token, named := strings.CutPrefix(line.Line, "token ")
	if line.Queue != laned || !named && line.Message != "task started" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if named {
		l.runs[token] = l.begun[p][line.TaskID]
		return
	}
	if l.begun[p] == nil {
		l.begun[p] = make(map[string]int64)
	}
	l.begun[p][line.TaskID] = line.Run
}

// serve has the fleet serve the queue, and returns when new tasks get the keys of their labels.
func (l *lanes) serve(f *fleet) {
	f.t.Helper()
	f.put("lane", strings.ReplaceAll(laneManifest, "URL", l.url), runtimetest.BuildCHandler(f.t, laneSource))
	f.serve(laned)
	f.eventually("the queue has its rule", func() bool {
		return f.rdb.HExists(f.ctx, key("limits"), "concurrency "+laned).Val()
	})
}

// newLaneOrders draws tasks with concurrency keys: with one task of a key at a time, and with more.
func newLaneOrders(random *rand.Rand, count int, ways ...manner) []order {
	orders := make([]order, count)
	for i := range orders {
		o := order{
			id: fmt.Sprintf("lane-%05d", i), queue: laned, manner: ways[random.IntN(len(ways))], takes: between(random, 0, 60*time.Millisecond),
			lane: fmt.Sprintf("one-%02d", random.IntN(max(4, count/100))),
		}
		if random.IntN(8) == 0 { // long enough for a fault to hit it
			o.takes = between(random, 200*time.Millisecond, 800*time.Millisecond)
		}
		if i%2 == 0 {
			o.lane, o.wide = fmt.Sprintf("wide-%02d", random.IntN(max(2, count/300))), true
		}
		orders[i] = o
	}
	return orders
}

// audit: no key had more tasks inside at once than it may, and those of a key of one came in the order in which they were
// enqueued. A run whose task has begun another run since does not count: its host is dead, or does not know yet that it
// counts as dead.
func (l *lanes) audit(orders []order, most int) (wrong []string, fullest int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byID, place := make(map[string]order, len(orders)), make(map[string]int, len(orders))
	for i, o := range orders {
		byID[o.id], place[o.id] = o, i
	}
	blame := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	latest := make(map[string]int64)             // the highest run of each task that has entered
	last := make(map[string]string)              // the last task of each key
	inside := make(map[string]map[string]string) // the tokens of the tasks that are inside, by key
	dead, total := l.dead(), 0
	for _, e := range l.events {
		o, known := byID[e.task]
		run := l.runs[e.token]
		if !known || run == 0 {
			blame("a run %q of task %q is in no log", e.token, e.task)
			continue
		}
		within := inside[o.lane]
		if within == nil {
			within = make(map[string]string)
			inside[o.lane] = within
		}
		if !e.enters {
			if within[e.task] == e.token {
				delete(within, e.task)
				if !dead[e.token] {
					total--
				}
			}
			continue
		}
		if run < latest[e.task] {
			continue
		}
		if !dead[e.token] {
			total++
		}
		latest[e.task], within[e.task] = run, e.token
		if before := last[o.lane]; !o.wide && before != "" && place[before] > place[e.task] {
			blame("%s of %s entered after %s, which was enqueued later", e.task, o.lane, before)
		}
		last[o.lane] = e.task
		may := 1
		if o.wide {
			may = widest
			fullest = max(fullest, len(within))
		}
		if len(within) > may {
			blame("%s: %d tasks are inside when run %d of %s enters: %v", o.lane, len(within), run, e.task, within)
		}
		if most > 0 && total > most {
			blame("%d tasks are inside when run %d of %s enters, and %d may run", total, run, e.task, most)
		}
	}
	for _, o := range orders {
		if latest[o.id] == 0 {
			blame("%s never entered", o.id)
		}
	}
	return wrong, fullest
}

// dead returns the tokens of the runs that had not left when a later run of their task entered: their hosts counted as dead. Such
// a run has no slot of the tenant's any more from a time that guests do not see, although its task keeps its place in the lane.
func (l *lanes) dead() map[string]bool {
	dead, inside := make(map[string]bool), make(map[string]string)
	for _, e := range l.events {
		before := inside[e.task]
		switch {
		case !e.enters && before == e.token:
			delete(inside, e.task)
		case !e.enters:
		case before != "" && l.runs[before] > l.runs[e.token]:
			dead[e.token] = true
		default:
			if before != "" {
				dead[before] = true
			}
			inside[e.task] = e.token
		}
	}
	return dead
}

// The audit finds what it is there for, and lets a run pass that is not the last one of its task.
func TestLanesAudit(t *testing.T) {
	t.Parallel()
	orders := []order{{id: "a", lane: "one"}, {id: "b", lane: "one"}, {id: "c", lane: "wide", wide: true}}
	enter := func(task, token string) laneEvent { return laneEvent{task, token, true} }
	leave := func(task, token string) laneEvent { return laneEvent{task, token, false} }
	for name, one := range map[string]struct {
		events []laneEvent
		most   int
		wrong  string
	}{
		"in turn": {[]laneEvent{enter("c", "c1"), enter("a", "a1"), leave("a", "a1"), enter("b", "b1"), leave("b", "b1")}, 2, ""},
		"a run that counts as dead goes on": {[]laneEvent{
			enter("c", "c1"), enter("a", "a1"), enter("a", "a2"), leave("a", "a2"), enter("b", "b1"), leave("a", "a1"), leave("b", "b1"),
		}, 2, ""},
		"a run that counts as dead begins late": {[]laneEvent{
			enter("c", "c1"), enter("a", "a2"), leave("a", "a2"), enter("b", "b1"), enter("a", "a1"), leave("a", "a1"), leave("b", "b1"),
		}, 2, ""},
		"two at once":  {[]laneEvent{enter("c", "c1"), enter("a", "a1"), enter("b", "b1")}, 0, "one: 2 tasks are inside when run 1 of b enters"},
		"out of order": {[]laneEvent{enter("c", "c1"), enter("b", "b1"), leave("b", "b1"), enter("a", "a1")}, 0, "a of one entered after b"},
		"too many":     {[]laneEvent{enter("c", "c1"), enter("a", "a1"), leave("a", "a1"), enter("b", "b1")}, 1, "2 tasks are inside when run 1 of a"},
		"a task less":  {[]laneEvent{enter("a", "a1"), leave("a", "a1"), enter("b", "b1")}, 0, "c never entered"},
		"an unknown":   {[]laneEvent{enter("c", "c1"), enter("a", "?"), enter("a", "a1"), leave("a", "a1"), enter("b", "b1")}, 0, "is in no log"},
	} {
		l := &lanes{events: one.events, runs: map[string]int64{"a1": 1, "a2": 2, "b1": 1, "c1": 1}}
		wrong, _ := l.audit(orders, one.most)
		if text := strings.Join(wrong, "\n"); (text == "") != (one.wrong == "") || !strings.Contains(text, one.wrong) {
			t.Errorf("%s: %q, want %q", name, text, one.wrong)
		}
	}
}
