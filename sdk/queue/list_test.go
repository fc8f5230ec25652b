package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// spread puts tasks of every state into a queue and returns their IDs by state, in the order in
// which List shows them.
func (w *world) spread(t testing.TB, queue string) map[Status][]string {
	t.Helper()
	q, now := w.Queue(queue), 0
	enqueue := func(prefix string, n int) (ids []string) {
		for i := range n {
			now++
			w.store.clock = fmt.Sprintf("17%08d.000000", now)
			ids = append(ids, w.enqueue(t, queue, "", Options{ID: fmt.Sprint(prefix, i)}))
		}
		return ids
	}
	take := func(node *Node, start bool, n int) (holds []Claim) {
		for range n {
			got := w.reserve(t, node, queue, start)
			holds = append(holds, Claim{ID: got.ID, Run: got.Run})
		}
		return holds
	}
	ids := make(map[Status][]string)
	node := w.node(t, queue)
	ids[Complete] = enqueue("complete", 3)
	for _, hold := range take(node, true, 3) {
		w.settle(t, node, queue, Settlement{Claim: hold})
	}
	ids[Failed] = enqueue("failed", 3)
	for _, hold := range take(node, true, 3) {
		w.settle(t, node, queue, Settlement{Claim: hold, Failure: &Failure{Message: "no"}})
	}
	ids[Started] = enqueue("started", 3)
	take(node, true, 3)
	ids[Reserved] = enqueue("reserved", 3)
	take(node, false, 3)
	ids[Pending] = enqueue("pending", 3)
	for _, status := range []Status{Complete, Failed, Reserved, Pending} { // newest first
		slices.Reverse(ids[status])
	}
	for i := range 3 {
		id := must[string](t)(q.Enqueue(w.ctx, nil, Options{ID: fmt.Sprint("scheduled", i), At: time.Unix(1900000000+int64(i), 0)}))
		ids[Scheduled] = append(ids[Scheduled], id)
	}
	return ids
}

func idsOf(tasks []*Task) []string {
	ids := make([]string, len(tasks))
	for i, task := range tasks {
		ids[i] = task.ID
	}
	return ids
}

func TestListByState(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		want := w.spread(t, "q")
		w.enqueue(t, "another", "", Options{})
		q := w.Queue("q")
		list := func(options ListOptions) []*Task { return must[[]*Task](t)(q.List(w.ctx, options)) }
		for _, status := range Statuses() {
			tasks := list(ListOptions{Status: status})
			if got := idsOf(tasks); !slices.Equal(got, want[status]) {
				t.Errorf("%s: %v, want %v", status, got, want[status])
			}
			for _, task := range tasks {
				if task.Status != status || task.Queue != "q" || task.Created.IsZero() {
					t.Errorf("%s: %+v", status, task)
				}
			}
			if n := must[int64](t)(q.Count(w.ctx, status)); n != 3 {
				t.Errorf("%d tasks %s, want 3", n, status)
			}
			// In pages of two, and beyond the end.
			var pages []string
			for offset := 0; offset < 6; offset += 2 {
				pages = append(pages, idsOf(list(ListOptions{Status: status, Offset: offset, Limit: 2}))...)
			}
			if !slices.Equal(pages, want[status]) {
				t.Errorf("%s in pages: %v, want %v", status, pages, want[status])
			}
		}
		all := idsOf(list(ListOptions{}))
		if len(all) != 18 || all[17] != "complete0" || all[16] != "complete1" {
			t.Errorf("all, newest first: %v", all)
		}
		if got := idsOf(list(ListOptions{Offset: 16, Limit: 5})); !slices.Equal(got, all[16:]) {
			t.Errorf("the last page of all: %v", got)
		}
		failed := list(ListOptions{Status: Failed, Limit: 1})[0]
		if failed.Failure().Message != "no" || failed.FinishedAt.IsZero() || failed.Run != 1 || failed.Plugin != "p" {
			t.Errorf("a summary: %+v", failed)
		}
	})
}

func TestListLeavesOutParametersAndResults(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "large", Options{Labels: map[string]string{"a": "b"}})
		task := must[[]*Task](t)(w.Queue("q").List(w.ctx, ListOptions{}))[0]
		if task.Parameters != nil || task.Result != nil || task.Labels["a"] != "b" {
			t.Errorf("%+v", task)
		}
	})
}

func TestListLeavesOutWhatHasVanished(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		kept := w.enqueue(t, "q", "", Options{})
		gone := w.enqueue(t, "q", "", Options{})
		cancelled := w.enqueue(t, "q", "", Options{})
		w.rdb.Del(w.ctx, w.store.keys.task(gone))
		w.rdb.HSet(w.ctx, w.store.keys.task(cancelled), "status", "failed") // in a long backlog the entry stays
		w.rdb.HSet(w.ctx, w.store.keys.task("byhand"), "queue", "q")
		w.rdb.RPush(w.ctx, w.store.keys.pending("q"), "byhand")
		tasks := must[[]*Task](t)(w.Queue("q").List(w.ctx, ListOptions{Status: Pending}))
		if got := idsOf(tasks); !slices.Equal(got, []string{kept, "byhand"}) {
			t.Fatalf("%v", got)
		}
		if tasks[1].Status != Pending || tasks[1].Queue != "q" {
			t.Errorf("a task by hand: %+v", tasks[1])
		}
		if got := idsOf(must[[]*Task](t)(w.Queue("q").List(w.ctx, ListOptions{}))); !slices.Equal(got, []string{cancelled, kept}) {
			t.Errorf("all: %v", got)
		}
	})
}

// Pages that pass over tasks, and end early because of their bytes, have each other task once.
func TestListSkips(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var want []string
		for i := range 90 {
			id := fmt.Sprintf("task-%02d", i)
			w.enqueue(t, "q", "", Options{ID: id, Headers: map[string]string{"long": strings.Repeat("x", 1000)}})
			if i%3 > 0 {
				want = append(want, id)
			}
		}
		skip := func(id string) bool { return !slices.Contains(want, id) }
		var got []string
		for o := (ListOptions{Limit: 50, Bytes: 10_000, Skip: skip}); ; {
			page := must[TaskPage](t)(w.Queue("q").Page(w.ctx, o))
			for _, task := range page.Tasks {
				got = append(got, task.ID)
			}
			if o.Offset = page.Next; page.End {
				break
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%d tasks, want %d: %v", len(got), len(want), got)
		}
	})
}

func TestListRefuses(t *testing.T) {
	w := setup(t)
	for _, options := range []ListOptions{{Limit: -1}, {Limit: maxPage + 1}, {Offset: -1}, {Status: "succeeded"}} {
		if _, err := w.Queue("q").List(w.ctx, options); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", options, err)
		}
	}
	if _, err := w.Queue("no queue").List(w.ctx, ListOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no queue: %v", err)
	}
	if tasks, err := w.Queue("empty").List(w.ctx, ListOptions{Status: Started, Offset: 3}); len(tasks) != 0 || err != nil {
		t.Errorf("empty: %v, %v", tasks, err)
	}
}

func TestStats(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.spread(t, "q")
		w.node(t, "q", "other")
		stats := must[Stats](t)(w.Queue("q").Stats(w.ctx))
		for _, status := range Statuses() {
			if stats.Depth[status] != 3 {
				t.Errorf("%d tasks %s, want 3", stats.Depth[status], status)
			}
		}
		if stats.Listeners != 2 || stats.Paused {
			t.Errorf("%+v", stats)
		}
		totals := map[string]int64{"enqueued": 18, "complete": 3, "failed": 3, "failed:error": 3}
		if fmt.Sprint(stats.Totals) != fmt.Sprint(totals) {
			t.Errorf("totals %v, want %v", stats.Totals, totals)
		}
		// What a listener holds counts also after it has left the queue.
		leaver := w.node(t, "q")
		w.reserve(t, leaver, "q", false)
		if err := leaver.Leave(w.ctx); err != nil {
			t.Fatal(err)
		}
		if stats := must[Stats](t)(w.Queue("q").Stats(w.ctx)); stats.Depth[Reserved] != 4 || stats.Listeners != 2 {
			t.Errorf("after one has left: %+v", stats)
		}
		if _, err := w.Client.Stats(w.ctx, "q", "no queue"); !errors.Is(err, ErrInvalid) {
			t.Errorf("no queue: %v", err)
		}
		empty := must[[]Stats](t)(w.Client.Stats(w.ctx))
		if len(empty) != 0 {
			t.Errorf("of no queue: %+v", empty)
		}
	})
}

func TestOldestPendingAge(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		age := func(clock string) time.Duration {
			w.store.clock = clock
			return must[Stats](t)(q.Stats(w.ctx)).OldestPendingAge
		}
		w.store.clock = "1700000000.000000"
		if got := age("1700000000.000000"); got != 0 {
			t.Errorf("of an empty queue: %s", got)
		}
		w.enqueue(t, "q", "", Options{Delay: 10 * time.Second})
		if got := age("1700000009.000000"); got != 0 {
			t.Errorf("of a scheduled task: %s", got)
		}
		w.store.clock = "1700000012.000000"
		must[int](t)(enqueueDue(w.ctx, q))
		w.enqueue(t, "q", "", Options{})
		if got := age("1700000013.500000"); got != 3500*time.Millisecond {
			t.Errorf("since it was due: %s, want 3.5s", got)
		}
		w.reserve(t, w.node(t, "q"), "q", false)
		if got := age("1700000013.500000"); got != 1500*time.Millisecond {
			t.Errorf("of the second: %s, want 1.5s", got)
		}
		if got := age("1600000000.000000"); got != 0 {
			t.Errorf("with a clock that went back: %s", got)
		}
		w.rdb.RPush(w.ctx, w.store.keys.pending("q"), "missing")
		if got := age("1700000013.500000"); got != 0 {
			t.Errorf("of an ID without a task: %s", got)
		}
	})
}

// A task of one queue is no business of another: nothing of it may change there.
func TestAnotherQueuesTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		pending, finished := w.enqueue(t, "right", "", Options{}), w.enqueue(t, "right", "", Options{})
		if _, err := w.Queue("right").Cancel(w.ctx, finished); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Queue("wrong").Cancel(w.ctx, pending); !errors.Is(err, ErrNoTask) {
			t.Errorf("cancel: %v", err)
		}
		if err := w.Queue("wrong").Delete(w.ctx, finished); !errors.Is(err, ErrNoTask) {
			t.Errorf("delete: %v", err)
		}
		w.depth(t, "right", map[Status]int64{Pending: 1, Failed: 1})
		w.depth(t, "wrong", nil)
		if w.task(t, pending).Status != Pending || w.task(t, finished).Status != Failed {
			t.Error("the tasks have changed")
		}
		// A task by hand may not name its queue.
		w.rdb.HSet(w.ctx, w.store.keys.task("byhand"), "parameters", "x")
		w.rdb.LPush(w.ctx, w.store.keys.pending("right"), "byhand")
		if _, err := w.Queue("right").Cancel(w.ctx, "byhand"); err != nil {
			t.Error(err)
		}
		if err := w.Queue("right").Delete(w.ctx, "byhand"); err != nil {
			t.Error(err)
		}
		w.depth(t, "right", map[Status]int64{Pending: 1, Failed: 1})
	})
}

func TestCancelInALongBacklog(t *testing.T) {
	t.Parallel()
	w := setupOwn(t) // which is slow for a while
	w.ballast(w.store.keys.pending("q"))
	id := w.enqueue(t, "q", "", Options{})
	if _, err := w.Queue("q").Cancel(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	// The entry is left where it is, and dropped when its turn comes.
	w.depth(t, "q", map[Status]int64{Pending: searched + 1, Failed: 1})
	w.rdb.LTrim(w.ctx, w.store.keys.pending("q"), 0, 0)
	batch := w.node(t, "q").Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]
	if batch.Err != nil || batch.Dropped != 1 || len(batch.Tasks) != 0 {
		t.Errorf("%+v", batch)
	}
}
