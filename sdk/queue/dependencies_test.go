package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// advance tells all dependents what became of what they wait for.
func advance(ctx context.Context, c *queue.Client) error {
	_, err := blocks(func() (listen.Block, error) { return listen.NewFleet(c).Advance(ctx) })
	return err
}

func (w *world) advance(t testing.TB) {
	t.Helper()
	if err := advance(w.ctx, w.Client); err != nil {
		t.Fatal(err)
	}
}

// after enqueues a task that waits for others.
func (w *world) after(t testing.TB, id string, when queue.When, ids ...string) {
	t.Helper()
	w.enqueue(t, "q", "own", queue.Options{ID: id, After: ids, When: when})
}

// run completes the next task of the queue, or fails it, and returns its parameters.
func (w *world) run(t testing.TB, node *listen.Node, id, result string, failure *queue.Failure) string {
	t.Helper()
	got := w.reserve(t, node, "q", true)
	if got.ID != id {
		t.Fatalf("reserved %s, want %s", got.ID, id)
	}
	w.settle(t, node, "q", listen.Settlement{Claim: got.Claim(), Result: []byte(result), Failure: failure})
	w.advance(t)
	return string(got.Parameters)
}

// is checks status and reason of tasks, "scheduled" for one that is blocked.
func (w *world) is(t testing.TB, want map[string]string) {
	t.Helper()
	for id, state := range want {
		task := w.task(t, id)
		if got := strings.TrimSpace(string(task.Status) + " " + string(task.Reason)); got != state {
			t.Errorf("%s is %s, want %s (%+v, %s)", id, got, state, task.After, task.Error)
		}
	}
}

func TestAChain(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "a", queue.Options{ID: "a"})
		w.enqueue(t, "q", "", queue.Options{ID: "b", After: []string{"a"}})
		w.enqueue(t, "q", "c", queue.Options{ID: "c", After: []string{"b"}})
		w.enqueue(t, "q", "", queue.Options{ID: "d", After: []string{"b", "c"}})
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1, queue.Scheduled: 3})
		node := w.node(t, "q")
		for _, step := range [][3]string{{"a", "a", "1"}, {"b", "1", "\xff\x00"}, {"c", "c", "3"}, {"d", "", "4"}} {
			if stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx)); stats.Depth[queue.Pending] != 1 || stats.Blocked != int64('d'-step[0][0]) {
				t.Errorf("before %s: %+v", step[0], stats)
			}
			if got := w.run(t, node, step[0], step[2], nil); got != step[1] {
				t.Errorf("parameters of %s are %q, want %q", step[0], got, step[1])
			}
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 4})
		if got := *w.task(t, "d").After; got != (queue.After{When: queue.WhenComplete, Of: 2, Ended: 2}) {
			t.Errorf("%+v", got)
		}
		got := must[[]listen.Dependency](t)(manage.New(w.Client).Dependencies(w.ctx, "d", 0, 10))
		if want := []listen.Dependency{{ID: "b", End: "complete", Size: 2}, {ID: "c", End: "complete", Size: 1}}; !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if result := must[[]byte](t)(w.Result(w.ctx, "b", 2)); string(result) != "\xff\x00" {
			t.Errorf("result %q", result)
		}
		if _, err := w.Result(w.ctx, "b", 1); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("a result of two bytes: %v", err)
		}
		// What has ended counts at once.
		w.after(t, "e", queue.WhenComplete, "a", "d")
		w.after(t, "f", queue.WhenFailed, "a", "d")
		w.after(t, "g", queue.WhenAny, "a", "e")
		w.is(t, map[string]string{"e": "pending", "f": "complete", "g": "pending"})
		for _, id := range []string{"a", "b", "c", "d", "f"} {
			if err := w.Queue("q").Delete(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		w.advance(t)
		if left := must[[]string](t)(w.rdb.Keys(w.ctx, w.Tenant()+"_*_[abcdf]").Result()); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// What becomes of a dependent when its two dependencies end.
func TestWhen(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		wants := map[string][4]string{ // after: one complete; both; one failed; both
			string(queue.WhenComplete): {"scheduled", "pending", "failed dependency", "failed dependency"},
			string(queue.WhenEnded):    {"scheduled", "pending", "scheduled", "pending"},
			string(queue.WhenAny):      {"pending", "pending", "scheduled", "failed dependency"},
			string(queue.WhenFailed):   {"scheduled", "complete", "pending", "pending"},
		}
		node := w.node(t, "p")
		for when, want := range wants {
			for i, failure := range []*queue.Failure{nil, {}} {
				one, two, id := fmt.Sprint("1", when, i), fmt.Sprint("2", when, i), fmt.Sprint(when, i)
				w.enqueue(t, "p", "", queue.Options{ID: one})
				w.enqueue(t, "p", "", queue.Options{ID: two})
				w.after(t, id, queue.When(when), one, two)
				for n := range 2 {
					w.settle(t, node, "p", listen.Settlement{Claim: new(w.reserve(t, node, "p", true)).Claim(), Failure: failure})
					w.advance(t)
					w.is(t, map[string]string{id: want[2*i+n]})
				}
			}
		}
	})
}

// Each end of a dependency is told, whoever ends it.
func TestEveryEndIsTold(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		second := 0.0
		pass := func(seconds float64) {
			second += seconds
			w.at(second)
		}
		pass(0)
		q := w.Queue("q")
		ends := map[string]func(){
			"cancelled": func() { must[bool](t)(q.Cancel(w.ctx, "cancelled")) },
			"expired": func() {
				pass(2)
				must[int](t)(expire(w.ctx, q, 0, ""))
			},
			"crashed": func() {
				node := w.node(t, "q")
				if got := w.reserve(t, node, "q", true); got.ID != "crashed" {
					t.Fatal(got)
				}
				w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 0, Member: node.ID()})
				must[listen.Reclaimed](t)(w.reclaimQueue(w.ctx, node.ID(), "q", 1, false))
			},
			"failed": func() {
				node := w.node(t, "q")
				w.settle(t, node, "q", listen.Settlement{Claim: new(w.reserve(t, node, "q", true)).Claim(), Failure: &queue.Failure{}})
			},
			"deleted": func() { // before anybody was told
				node := w.node(t, "q")
				w.settle(t, node, "q", listen.Settlement{Claim: new(w.reserve(t, node, "q", true)).Claim()})
				if err := q.Delete(w.ctx, "deleted"); err != nil {
					t.Fatal(err)
				}
			},
			"removed": func() { w.rdb.Del(w.ctx, w.Store().Keys.Task("removed")) },
			"python": func() {
				w.rdb.HSet(w.ctx, w.Store().Keys.Task("python"), "status", "complete", "result", "r")
			},
		}
		for name, end := range ends {
			options := queue.Options{ID: name}
			if name == "expired" {
				options.Retry.MaxAge = time.Second
			}
			w.enqueue(t, "q", "", options)
			for _, when := range queue.Whens {
				w.after(t, name+"."+string(when), when, name)
			}
			end()
			w.advance(t)
			want := map[string]string{"complete": "failed dependency", "ended": "pending", "failed": "pending", "any": "failed dependency"}
			switch name {
			case "deleted":
				want = map[string]string{"complete": "pending", "ended": "pending", "failed": "complete", "any": "pending"}
			case "python", "removed":
				w.is(t, map[string]string{name + ".complete": "scheduled", name + ".ended": "scheduled"})
				pass(6)
				must[listen.Block](t)(listen.NewFleet(q.Client()).Recheck(w.ctx, q.Name()))
			}
			if name == "python" {
				want = map[string]string{"complete": "pending", "ended": "pending", "failed": "complete", "any": "pending"}
			}
			for when, state := range want {
				w.is(t, map[string]string{name + "." + when: state})
			}
			if failed := w.task(t, name+".complete"); failed.Status == queue.Failed && !strings.Contains(failed.Error, "task "+name+", which it waited for,") {
				t.Errorf("error %s", failed.Error)
			}
			w.rdb.Del(w.ctx, w.Store().Keys.Pending("q")) // so that the next one is first
		}
	})
}

// What is purged while others wait for it counts as it ended, whether they were told by then or not: nobody waits for ever, and
// nobody fails for it. Its result is gone, but for the task that has it as its parameters.
func TestPurgedDependencies(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "p")
		for _, told := range []string{"told", "untold"} {
			done, bad, late := told+".done", told+".bad", told+".late"
			for _, id := range []string{done, bad, late} {
				w.enqueue(t, "p", "", queue.Options{ID: id})
			}
			w.after(t, told+".complete", queue.WhenComplete, done, late)
			w.after(t, told+".ended", queue.WhenEnded, done, bad, late)
			w.after(t, told+".any", queue.WhenAny, bad, late)
			w.after(t, told+".failed", queue.WhenFailed, done, late)
			w.after(t, told+".doomed", queue.WhenComplete, bad, late)
			w.enqueue(t, "q", "", queue.Options{ID: told + ".heir", After: []string{done}})
			for _, failure := range []*queue.Failure{nil, {}} {
				claim := new(w.reserve(t, node, "p", true)).Claim()
				w.settle(t, node, "p", listen.Settlement{Claim: claim, Result: []byte("result of " + claim.ID), Failure: failure})
			}
			if told == "told" {
				w.advance(t)
			}
			if n := must[int](t)(manage.New(w.Client).Queue("p").Purge(w.ctx, listen.PurgeOptions{Everything: true})); n != 2 {
				t.Fatalf("purged %d tasks", n)
			}
			w.advance(t)
			w.is(t, map[string]string{
				told + ".complete": "scheduled", told + ".ended": "scheduled", told + ".any": "scheduled", told + ".failed": "scheduled",
				told + ".doomed": "failed dependency", told + ".heir": "pending",
			})
			if got := w.task(t, told+".heir"); string(got.Parameters) != "result of "+done {
				t.Errorf("parameters %q", got.Parameters)
			}
			if _, err := w.Result(w.ctx, done, 99); !errors.Is(err, queue.ErrNoTask) {
				t.Errorf("result of what was purged: %v", err)
			}
			w.settle(t, node, "p", listen.Settlement{Claim: new(w.reserve(t, node, "p", true)).Claim()})
			must[int](t)(manage.New(w.Client).Queue("p").Purge(w.ctx, listen.PurgeOptions{Everything: true}))
			w.advance(t)
			w.is(t, map[string]string{told + ".complete": "pending", told + ".ended": "pending", told + ".any": "pending", told + ".failed": "complete"})
			if got := *w.task(t, told+".ended").After; got != (queue.After{When: queue.WhenEnded, Of: 3, Ended: 3, Failed: 1}) {
				t.Errorf("%+v", got)
			}
			if stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx)); stats.Blocked != 0 {
				t.Errorf("%d still wait", stats.Blocked)
			}
		}
		if left := must[[]string](t)(w.rdb.Keys(w.ctx, w.Tenant()+"_children_*").Result()); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// A task may wait for very many, and very many for one: Redis does it in blocks.
func TestManyDependenciesAndDependents(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		n := queue.MaxDependencies
		if embedded(t) {
			n = 300
		}
		q := w.Queue("q")
		specs := []queue.Spec{{Options: queue.Options{ID: "first"}}}
		var middle []string
		for i := range n {
			middle = append(middle, fmt.Sprint("m", i))
			specs = append(specs, queue.Spec{Options: queue.Options{ID: middle[i], After: []string{"first"}}})
		}
		specs = append(specs, queue.Spec{Options: queue.Options{ID: "last", After: middle}}, queue.Spec{Options: queue.Options{ID: "end", After: []string{"last"}}})
		for range 2 {
			must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, specs))
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1, queue.Scheduled: int64(n) + 2})
		node := w.node(t, "q")
		w.run(t, node, "first", "", nil)
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1, queue.Pending: int64(n), queue.Scheduled: 2})
		for left := n; left > 0; {
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: listen.MaxReserve, Start: true}})[0]
			var settlements []listen.Settlement
			for i := range batch.Tasks {
				settlements = append(settlements, listen.Settlement{Claim: batch.Tasks[i].Claim()})
			}
			errs, err := node.Settle(w.ctx, "q", settlements)
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Fatal(err)
			}
			left -= len(settlements)
		}
		if got := *w.task(t, "last").After; got != (queue.After{When: queue.WhenComplete, Blocked: true, Of: n}) {
			t.Errorf("%+v", got)
		}
		w.advance(t)
		w.run(t, node, "last", "", nil)
		w.run(t, node, "end", "", nil)
	})
}

// What waits for a task that has ended needs no telling: the list of those that waited ends, however long the task is kept.
func TestDependentsOfAFinishedTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		w.enqueue(t, "q", "", queue.Options{ID: "first"})
		w.run(t, node, "first", "result", nil)
		listed := slices.Repeat([]any{"x"}, store.ListedChildren-1)
		if err := w.rdb.RPush(w.ctx, w.Store().Keys.Children("first"), listed...).Err(); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(t, "q", "", queue.Options{ID: id, After: []string{"first"}})
			if task := w.reserve(t, node, "q", true); task.ID != id || string(task.Parameters) != "result" {
				t.Errorf("%s has %q", task.ID, task.Parameters)
			}
		}
		if n := must[int64](t)(w.rdb.LLen(w.ctx, w.Store().Keys.Children("first")).Result()); n != store.ListedChildren {
			t.Errorf("%d are listed", n)
		}
	})
}

// A failure fails what waits for it, and that what waits for that. A retry by hand of the cause lets all wait again.
func TestRetryOfADependency(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q, node := w.Queue("q"), w.node(t, "q")
		for _, id := range []string{"a", "b"} {
			w.enqueue(t, "q", "", queue.Options{ID: id})
		}
		w.after(t, "c", queue.WhenComplete, "a", "b")
		w.after(t, "d", queue.WhenComplete, "c")
		w.after(t, "e", queue.WhenEnded, "d")
		w.run(t, node, "a", "", &queue.Failure{})
		w.run(t, node, "b", "", &queue.Failure{})
		w.is(t, map[string]string{"c": "failed dependency", "d": "failed dependency", "e": "pending"})
		for _, id := range []string{"c", "d"} {
			if err := q.Retry(w.ctx, id); !errors.Is(err, queue.ErrStatus) || !strings.Contains(err.Error(), "retry task ") {
				t.Errorf("retry of %s: %v", id, err)
			}
		}
		retry := func(id string) {
			t.Helper()
			if err := q.Retry(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			w.advance(t)
		}
		retry("a")
		w.is(t, map[string]string{"a": "pending", "c": "failed dependency", "d": "failed dependency"})
		retry("b")
		w.is(t, map[string]string{"c": "scheduled", "d": "scheduled", "e": "pending"})
		w.run(t, node, "e", "", nil)
		w.run(t, node, "a", "", nil)
		w.run(t, node, "b", "", nil)
		w.run(t, node, "c", "", nil)
		w.run(t, node, "d", "", nil)
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 5})

		// One that was cancelled while it waited waits again after its own retry.
		w.enqueue(t, "q", "", queue.Options{ID: "f"})
		w.after(t, "g", queue.WhenComplete, "f")
		must[bool](t)(q.Cancel(w.ctx, "g"))
		w.is(t, map[string]string{"g": "failed cancelled"})
		retry("g")
		w.is(t, map[string]string{"g": "scheduled"})
		must[bool](t)(q.Cancel(w.ctx, "g"))
		w.run(t, node, "f", "", nil)
		retry("g")
		w.run(t, node, "g", "", nil)
	})
}

// A delay, an age and a deadline of a task that waits for others.
func TestTimesOfADependent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q, node := w.Queue("q"), w.node(t, "q")
		enqueue := func(id string, options queue.Options) {
			options.ID, options.After = id, []string{"a"}
			w.enqueue(t, "q", "", options)
		}
		w.enqueue(t, "q", "", queue.Options{ID: "a"})
		enqueue("delayed", queue.Options{Delay: time.Minute})
		enqueue("aged", queue.Options{Retry: queue.Retry{MaxAge: 10 * time.Second}})
		enqueue("plain", queue.Options{})
		enqueue("late", queue.Options{Deadline: time.Unix(1700000020, 0)})
		w.at(30)
		if n := must[int](t)(expire(w.ctx, q, time.Second, "")); n != 2 { // late, and a by the manifest's age
			t.Errorf("%d expired", n)
		}
		w.is(t, map[string]string{"a": "failed expired", "late": "failed expired", "aged": "scheduled", "delayed": "scheduled"})
		if err := q.Retry(w.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		w.advance(t)
		w.is(t, map[string]string{"aged": "scheduled", "late": "failed expired"})
		w.run(t, node, "a", "", nil)
		w.is(t, map[string]string{"aged": "pending", "delayed": "scheduled", "plain": "pending"})
		if got := must[int](t)(enqueueDue(w.ctx, q)); got != 0 {
			t.Errorf("%d are due", got)
		}
		w.at(41)
		must[int](t)(expire(w.ctx, q, 0, ""))
		w.is(t, map[string]string{"aged": "failed expired"})
		w.at(61)
		if got := must[int](t)(enqueueDue(w.ctx, q)); got != 1 {
			t.Errorf("%d are due", got)
		}
		w.is(t, map[string]string{"plain": "pending"}) // the manifest's age of a plain one counts from when it need not wait
		w.at(39)
		if got := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, MaxAge: 10 * time.Second}})[0]; len(got.Tasks) != 1 || got.Tasks[0].ID != "plain" {
			t.Errorf("reserved %+v", got)
		}
		w.at(61)
		w.run(t, node, "delayed", "", nil)
	})
}

// What waits for a task gets its result, however many there are, also if somebody deletes or purges the task at once, or a Python
// listener completed it and told nobody.
func TestNoneMissesAResult(t *testing.T) {
	t.Parallel()
	const dependents = 1500
	for what, forget := range map[string]func(w *world, t *testing.T, id string) error{
		"delete": func(w *world, _ *testing.T, id string) error { return w.Queue("q").Delete(w.ctx, id) },
		"purge": func(w *world, _ *testing.T, _ string) error {
			_, err := manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true})
			return err
		},
		"delete after a Python listener": func(w *world, t *testing.T, id string) error {
			w.rdb.ZRem(w.ctx, w.Store().Keys.Ended(), id) // which notes nothing
			return w.Queue("q").Delete(w.ctx, id)
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := setup(t)
			id := w.enqueue(t, "q", "", queue.Options{})
			waits := must[[]queue.Receipt](t)(w.Queue("waits").EnqueueMany(w.ctx, slices.Repeat([]queue.Spec{{Options: queue.Options{After: []string{id}}}}, dependents)))
			node, hold := w.held(t, "q")
			w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("result")})
			if err := forget(w, t, id); err != nil {
				t.Fatal(err)
			}
			for _, one := range []int{0, 1, dependents / 2, dependents - 1} {
				if task := must[*queue.Task](t)(w.Task(w.ctx, waits[one].ID)); task.Status != queue.Pending || string(task.Parameters) != "result" {
					t.Errorf("task %d is %s with the parameters %q", one, task.Status, task.Parameters)
				}
			}
			if _, err := w.Task(w.ctx, id); !errors.Is(err, queue.ErrNoTask) {
				t.Errorf("the task: %v, want it gone", err)
			}
		})
	}
}

// A task whose parameters were to be a result that is deleted does not run without.
func TestNoneRunsWithoutItsInput(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for what, late := range map[string]func(id string) error{
			"open":    func(id string) error { return w.Queue("q").Close(w.ctx, id) },
			"retried": func(id string) error { return w.Queue("q").Retry(w.ctx, id) },
		} {
			first := what + "-first"
			end := func(failure *queue.Failure) {
				t.Helper()
				node, hold := w.held(t, "a")
				w.settle(t, node, "a", listen.Settlement{Claim: hold, Result: []byte("result"), Failure: failure})
				w.advance(t)
			}
			w.enqueue(t, "a", "", queue.Options{ID: first})
			id := w.enqueue(t, "q", "", queue.Options{After: []string{first}, Open: what == "open", Unique: &queue.Unique{Key: what}})
			if what == "retried" { // it failed, and cannot wait again, because another one has its uniqueness
				end(&queue.Failure{})
				w.enqueue(t, "q", "other", queue.Options{ID: "other", Unique: &queue.Unique{Key: what}})
				w.retry(t, "a", first)
			}
			end(nil)
			w.delete(t, "a", first)
			if what == "retried" {
				node, hold := w.held(t, "q")
				w.settle(t, node, "q", listen.Settlement{Claim: hold})
			}
			if err := late(id); err != nil {
				t.Fatal(err)
			}
			if task := w.task(t, id); task.Status != queue.Failed || task.Reason != queue.ReasonDependency || !strings.Contains(task.Error, "task "+first+", which was to be its parameters, is deleted") {
				t.Errorf("%s: it is %s: %s", what, task.Status, task.Error)
			}
		}
	})
}

func (w *world) retry(t *testing.T, queue, id string) {
	t.Helper()
	if err := w.Queue(queue).Retry(w.ctx, id); err != nil {
		t.Fatal(err)
	}
}

func (w *world) delete(t *testing.T, queue, id string) {
	t.Helper()
	if err := w.Queue(queue).Delete(w.ctx, id); err != nil {
		t.Fatal(err)
	}
}

// A task ends, runs again and ends in another way: what waits for it learns the second end, also one that a Python listener wrote.
func TestToldAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		python := func(id string) {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "complete", "result", "of python")
			w.rdb.LRem(w.ctx, w.Store().Keys.Pending("q"), 0, id)
			w.rdb.LPush(w.ctx, w.Store().Keys.Complete("q"), id)
		}
		w.enqueue(t, "q", "", queue.Options{ID: "a"})
		w.enqueue(t, "q", "", queue.Options{ID: "b", After: []string{"a"}})
		c := w.enqueue(t, "waits", "", queue.Options{After: []string{"b"}})
		w.failNext(t, "q")
		w.advance(t)
		w.retry(t, "q", "a")
		node, hold := w.held(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold})
		w.advance(t)
		python("b")
		w.delete(t, "q", "b")
		if task := w.task(t, c); task.Status != queue.Pending || string(task.Parameters) != "of python" {
			t.Errorf("after b: %s with %q", task.Status, task.Parameters)
		}

		w.enqueue(t, "q", "", queue.Options{ID: "fixed"})
		late := w.enqueue(t, "waits", "", queue.Options{After: []string{"fixed"}})
		w.rdb.Del(w.ctx, w.Store().Keys.Task("fixed"), w.Store().Keys.Pending("q"))
		w.enqueue(t, "q", "", queue.Options{ID: "fixed"})
		node, hold = w.held(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("of the new one")})
		w.delete(t, "q", "fixed")
		if task := w.task(t, late); task.Status != queue.Pending || string(task.Parameters) != "of the new one" {
			t.Errorf("after fixed: %s with %q", task.Status, task.Parameters)
		}
	})
}

// What waits for a task that is deleted and enqueued again waits for the new one.
func TestWaitsForTheTaskThatExists(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		former := w.enqueue(t, "q", "", queue.Options{ID: "fixed"})
		early := w.enqueue(t, "waits", "", queue.Options{After: []string{former}})
		node, hold := w.held(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("former")})
		w.rdb.Del(w.ctx, w.Store().Keys.Task(former)) // as Blueque's client does; ours tells what waits
		again := w.enqueue(t, "q", "", queue.Options{ID: "fixed"})
		late := w.enqueue(t, "waits", "", queue.Options{After: []string{again}})
		w.advance(t)
		for _, id := range []string{early, late} {
			if task := must[*queue.Task](t)(w.Task(w.ctx, id)); task.Status != queue.Scheduled {
				t.Errorf("it is %s before what it waits for has run", task.Status)
			}
		}
		hold = w.reserveMany(t, node, "q", 1, true)[0]
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("later")})
		w.advance(t)
		for _, id := range []string{early, late} {
			if task := must[*queue.Task](t)(w.Task(w.ctx, id)); task.Status != queue.Pending || string(task.Parameters) != "later" {
				t.Errorf("it is %s with the parameters %q", task.Status, task.Parameters)
			}
		}
	})
}
