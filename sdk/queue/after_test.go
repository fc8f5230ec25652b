package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// A task waits only for tasks that exist, and so for none that waits for it.
func TestUnusableDependencies(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		w.enqueue(t, "q", "", queue.Options{ID: "open", Open: true})
		for _, specs := range [][]queue.Spec{
			{{Options: queue.Options{ID: "x", After: []string{"none"}}}},
			{{Options: queue.Options{ID: "x", After: []string{"open"}}}},
			{{Options: queue.Options{ID: "y"}}, {Options: queue.Options{ID: "x", After: []string{"y", "z"}}}, {Options: queue.Options{ID: "z"}}},
			{{Options: queue.Options{ID: "y", Open: true}}, {Options: queue.Options{ID: "x", After: []string{"y"}}}},
		} {
			if _, err := q.EnqueueMany(w.ctx, specs); !errors.Is(err, queue.ErrDependency) {
				t.Errorf("%+v: %v", specs, err)
			}
		}
		for _, ids := range [][]string{{"none"}, {"open"}} {
			if err := q.Await(w.ctx, "open", ids...); !errors.Is(err, queue.ErrDependency) && !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("%s: %v", ids, err)
			}
		}
		for _, options := range []queue.Options{
			{ID: "x", After: []string{"x"}},
			{After: []string{"a b"}},
			{When: queue.WhenAny},
			{When: "all", After: []string{"open"}},
			{After: make([]string, queue.MaxDependencies+1)},
		} {
			if _, err := q.Enqueue(w.ctx, nil, options); !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("%.100v: %v", options, err)
			}
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Scheduled: 1})
		receipts := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{
			{Options: queue.Options{ID: "y"}}, {Options: queue.Options{ID: "x", After: []string{"y"}}}, {Options: queue.Options{ID: "z", After: []string{"x", "y", "x"}}},
		}))
		if receipts[2].Existed || w.task(t, "z").After.Of != 2 {
			t.Errorf("%+v, %+v", receipts, w.task(t, "z").After)
		}
		if err := q.Await(w.ctx, "z", "open"); !errors.Is(err, queue.ErrStatus) {
			t.Error(err)
		}
		if err := q.Close(w.ctx, "none"); !errors.Is(err, queue.ErrNoTask) {
			t.Error(err)
		}
	})
}

// Callers whose writes go together do not share a refusal.
func TestARefusedDependencyIsOneCallers(t *testing.T) {
	w := setup(t)
	errs := make(chan error)
	for i := range 40 {
		go func() {
			options := queue.Options{ID: fmt.Sprint(i)}
			if i%4 == 0 {
				options.After = []string{"none"}
			}
			_, err := w.Queue("q").Enqueue(w.ctx, nil, options)
			if errors.Is(err, queue.ErrDependency) != (i%4 == 0) {
				err = fmt.Errorf("task %d: %w", i, err)
			} else {
				err = nil
			}
			errs <- err
		}()
	}
	for range 40 {
		if err := receive(t, "an answer", errs); err != nil {
			t.Error(err)
		}
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: 30})
}

// An open task is a batch: it gets dependencies until it is closed, shows how far they are, and runs last.
func TestABatch(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q, node := w.Queue("q"), w.node(t, "q")
		w.enqueue(t, "q", "report", queue.Options{ID: "batch", Open: true, When: queue.WhenEnded})
		specs, ids := make([]queue.Spec, 250), make([]string, 250)
		for i := range specs {
			ids[i] = fmt.Sprint("t", i)
			specs[i].ID = ids[i]
		}
		must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, specs))
		w.settle(t, node, "q", listen.Settlement{Claim: new(w.reserve(t, node, "q", true)).Claim()})
		for range 2 { // it may be repeated
			if err := q.Await(w.ctx, "batch", ids...); err != nil {
				t.Fatal(err)
			}
		}
		for range 249 {
			w.settle(t, node, "q", listen.Settlement{Claim: new(w.reserve(t, node, "q", true)).Claim(), Failure: &queue.Failure{}})
		}
		w.advance(t)
		if got := *w.task(t, "batch").After; got != (queue.After{When: queue.WhenEnded, Open: true, Blocked: true, Of: 250, Ended: 250, Failed: 249}) {
			t.Errorf("%+v", got)
		}
		for range 2 {
			if err := q.Close(w.ctx, "batch"); err != nil {
				t.Fatal(err)
			}
		}
		w.enqueue(t, "q", "", queue.Options{ID: "late"})
		if err := q.Await(w.ctx, "batch", "late"); !errors.Is(err, queue.ErrStatus) {
			t.Errorf("a late one: %v", err)
		}
		if err := q.Await(w.ctx, "batch", ids...); err != nil {
			t.Errorf("a repeat: %v", err)
		}
		w.is(t, map[string]string{"batch": "pending"})
		page := must[[]listen.Dependency](t)(manage.New(w.Client).Dependencies(w.ctx, "batch", 100, 100))
		if len(page) != 100 || page[0] != (listen.Dependency{ID: "t100", End: "failed", Size: 0}) || page[99].ID != "t199" {
			t.Errorf("%+v", page)
		}
		// An empty batch has nothing to wait for.
		w.enqueue(t, "q", "", queue.Options{ID: "empty", Open: true})
		if err := q.Close(w.ctx, "empty"); err != nil {
			t.Error(err)
		}
		w.is(t, map[string]string{"empty": "pending"})
	})
}

// What is to wait for a task of which another one has the uniqueness waits for that one.
func TestDependentsOfWhatIsUnique(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q, node := w.Queue("q"), w.node(t, "q")
		unique := &queue.Unique{Key: "u"}
		w.enqueue(t, "q", "", queue.Options{ID: "first", Unique: unique})
		var others []string
		for i := range queue.InlineDependencies + 1 {
			others = append(others, w.enqueue(t, "other", "", queue.Options{ID: fmt.Sprint("o", i)}))
		}
		receipts := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{
			{Options: queue.Options{ID: "second", Unique: unique}},
			{Options: queue.Options{ID: "next", After: []string{"second"}}},
			{Options: queue.Options{ID: "many", After: append(others, "second")}},
			{Options: queue.Options{ID: "last", After: []string{"second", "many"}, When: queue.WhenAny}},
		}))
		if receipts[0] != (queue.Receipt{ID: "first", Existed: true}) {
			t.Errorf("%+v", receipts)
		}
		for id, want := range map[string]string{"next": "first", "many": "first", "last": "first"} {
			all := must[[]listen.Dependency](t)(listen.NewFleet(w.Client).AllDependencies(w.ctx, id))
			if !slices.ContainsFunc(all, func(d listen.Dependency) bool { return d.ID == want }) {
				t.Errorf("%s waits for %v", id, all)
			}
		}
		w.is(t, map[string]string{"next": "scheduled", "many": "scheduled", "last": "scheduled"})
		w.run(t, node, "first", "", nil)
		w.is(t, map[string]string{"next": "pending", "many": "scheduled", "last": "pending"})
		// So it is with the tasks of a task.
		w.enqueue(t, "p", "", queue.Options{ID: "parent"})
		w.enqueue(t, "q", "", queue.Options{ID: "third", Unique: unique})
		parent := w.node(t, "p")
		w.settle(t, parent, "p", listen.Settlement{Claim: new(w.reserve(t, parent, "p", true)).Claim(), Children: []listen.Child{
			{Queue: "q", Spec: queue.Spec{Options: queue.Options{ID: "fourth", Unique: unique}}},
			{Queue: "q", Spec: queue.Spec{Options: queue.Options{ID: "same", After: []string{"fourth"}}}},
			{Queue: "p", Spec: queue.Spec{Options: queue.Options{ID: "elsewhere", After: []string{"fourth"}}}},
		}})
		for _, id := range []string{"same", "elsewhere"} {
			if all := must[[]listen.Dependency](t)(listen.NewFleet(w.Client).AllDependencies(w.ctx, id)); len(all) != 1 || all[0] != (listen.Dependency{ID: "third"}) {
				t.Errorf("%s waits for %v", id, all)
			}
		}
		// Of another's task nothing is changed.
		w.enqueue(t, "q", "", queue.Options{ID: "open", Unique: &queue.Unique{Key: "v"}, Open: true})
		must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{{Options: queue.Options{ID: "closed", Unique: &queue.Unique{Key: "v"}, After: others}}}))
		if got := *w.task(t, "open").After; got != (queue.After{When: queue.WhenComplete, Open: true, Blocked: true}) {
			t.Errorf("%+v", got)
		}
	})
}

// A batch has a bound, however many calls make it.
func TestALargeBatch(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		w.enqueue(t, "q", "", queue.Options{ID: "batch", Open: true})
		w.enqueue(t, "q", "", queue.Options{ID: "a"})
		w.enqueue(t, "q", "", queue.Options{ID: "b"})
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("batch"), "after", fmt.Sprintf("open complete %d 0 0", queue.MaxDependencies-1))
		if err := q.Await(w.ctx, "batch", "a", "b"); !errors.Is(err, queue.ErrDependency) {
			t.Error(err)
		}
		if err := q.Await(w.ctx, "batch", "a"); err != nil {
			t.Error(err)
		}
	})
}

// Uniqueness holds while a task waits for others, ends when it fails for them, and is taken again.
func TestUniqueDependents(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q, node := w.Queue("q"), w.node(t, "q")
		unique := func(id string, after ...string) queue.Receipt {
			t.Helper()
			return must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{{Options: queue.Options{ID: id, After: after, Unique: &queue.Unique{Key: "k"}}}}))[0]
		}
		w.enqueue(t, "q", "", queue.Options{ID: "a"})
		unique("b", "a")
		if got := unique("c", "a"); got.ID != "b" {
			t.Errorf("%+v", got)
		}
		w.run(t, node, "a", "", &queue.Failure{})
		w.is(t, map[string]string{"b": "failed dependency"})
		if got := unique("d"); got.ID != "d" {
			t.Errorf("%+v", got)
		}
		if err := q.Retry(w.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		w.advance(t)
		w.is(t, map[string]string{"b": "failed dependency"}) // another task has its uniqueness
	})
}
