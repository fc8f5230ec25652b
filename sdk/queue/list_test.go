package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// spread puts tasks of every state into a queue and returns their IDs by state, in the order in
// which List shows them.
func (w *world) spread(t testing.TB, name string) map[queue.Status][]string {
	t.Helper()
	q, now := w.Queue(name), 0
	enqueue := func(prefix string, n int) (ids []string) {
		for i := range n {
			now++
			w.Store().Clock = fmt.Sprintf("17%08d.000000", now)
			ids = append(ids, w.enqueue(t, name, "", queue.Options{ID: fmt.Sprint(prefix, i)}))
		}
		return ids
	}
	take := func(node *listen.Node, start bool, n int) (holds []listen.Claim) {
		for range n {
			got := w.reserve(t, node, name, start)
			holds = append(holds, listen.Claim{ID: got.ID, Run: got.Run})
		}
		return holds
	}
	ids := make(map[queue.Status][]string)
	node := w.node(t, name)
	ids[queue.Complete] = enqueue("complete", 3)
	for _, hold := range take(node, true, 3) {
		w.settle(t, node, name, listen.Settlement{Claim: hold})
	}
	ids[queue.Failed] = enqueue("failed", 3)
	for _, hold := range take(node, true, 3) {
		w.settle(t, node, name, listen.Settlement{Claim: hold, Failure: &queue.Failure{Message: "no"}})
	}
	ids[queue.Started] = enqueue("started", 3)
	take(node, true, 3)
	ids[queue.Reserved] = enqueue("reserved", 3)
	take(node, false, 3)
	ids[queue.Pending] = enqueue("pending", 3)
	for _, status := range []queue.Status{queue.Complete, queue.Failed, queue.Reserved, queue.Pending} { // newest first
		slices.Reverse(ids[status])
	}
	for i := range 3 {
		id := must[string](t)(q.Enqueue(w.ctx, nil, queue.Options{ID: fmt.Sprint("scheduled", i), At: time.Unix(1900000000+int64(i), 0)}))
		ids[queue.Scheduled] = append(ids[queue.Scheduled], id)
	}
	return ids
}

func idsOf(tasks []*queue.Task) []string {
	ids := make([]string, len(tasks))
	for i, task := range tasks {
		ids[i] = task.ID
	}
	return ids
}

func TestListByState(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		want := w.spread(t, "q")
		w.enqueue(t, "another", "", queue.Options{})
		q := w.Queue("q")
		list := func(options manage.ListOptions) []*queue.Task {
			return must[[]*queue.Task](t)(manage.QueueOf(q).List(w.ctx, options))
		}
		for _, status := range queue.Statuses() {
			tasks := list(manage.ListOptions{Status: status})
			if got := idsOf(tasks); !slices.Equal(got, want[status]) {
				t.Errorf("%s: %v, want %v", status, got, want[status])
			}
			for _, task := range tasks {
				if task.Status != status || task.Queue != "q" || task.Created.IsZero() {
					t.Errorf("%s: %+v", status, task)
				}
			}
			if n := must[int64](t)(manage.QueueOf(q).Count(w.ctx, status)); n != 3 {
				t.Errorf("%d tasks %s, want 3", n, status)
			}
			// In pages of two, and beyond the end.
			var pages []string
			for offset := 0; offset < 6; offset += 2 {
				pages = append(pages, idsOf(list(manage.ListOptions{Status: status, Offset: offset, Limit: 2}))...)
			}
			if !slices.Equal(pages, want[status]) {
				t.Errorf("%s in pages: %v, want %v", status, pages, want[status])
			}
		}
		all := idsOf(list(manage.ListOptions{}))
		if len(all) != 18 || all[17] != "complete0" || all[16] != "complete1" {
			t.Errorf("all, newest first: %v", all)
		}
		if got := idsOf(list(manage.ListOptions{Offset: 16, Limit: 5})); !slices.Equal(got, all[16:]) {
			t.Errorf("the last page of all: %v", got)
		}
		failed := list(manage.ListOptions{Status: queue.Failed, Limit: 1})[0]
		if failed.Failure().Message != "no" || failed.FinishedAt.IsZero() || failed.Run != 1 || failed.Plugin != "p" {
			t.Errorf("a summary: %+v", failed)
		}
	})
}

func TestListLeavesOutParametersAndResults(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "large", queue.Options{Labels: map[string]string{"a": "b"}})
		task := must[[]*queue.Task](t)(manage.New(w.Client).Queue("q").List(w.ctx, manage.ListOptions{}))[0]
		if task.Parameters != nil || task.Result != nil || task.Labels["a"] != "b" {
			t.Errorf("%+v", task)
		}
	})
}

func TestListLeavesOutWhatHasVanished(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		kept := w.enqueue(t, "q", "", queue.Options{})
		gone := w.enqueue(t, "q", "", queue.Options{})
		cancelled := w.enqueue(t, "q", "", queue.Options{})
		w.rdb.Del(w.ctx, w.Store().Keys.Task(gone))
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(cancelled), "status", "failed") // in a long backlog the entry stays
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("byhand"), "queue", "q")
		w.rdb.RPush(w.ctx, w.Store().Keys.Pending("q"), "byhand")
		tasks := must[[]*queue.Task](t)(manage.New(w.Client).Queue("q").List(w.ctx, manage.ListOptions{Status: queue.Pending}))
		if got := idsOf(tasks); !slices.Equal(got, []string{kept, "byhand"}) {
			t.Fatalf("%v", got)
		}
		if tasks[1].Status != queue.Pending || tasks[1].Queue != "q" {
			t.Errorf("a task by hand: %+v", tasks[1])
		}
		if got := idsOf(must[[]*queue.Task](t)(manage.New(w.Client).Queue("q").List(w.ctx, manage.ListOptions{}))); !slices.Equal(got, []string{cancelled, kept}) {
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
			w.enqueue(t, "q", "", queue.Options{ID: id, Headers: map[string]string{"long": strings.Repeat("x", 1000)}})
			if i%3 > 0 {
				want = append(want, id)
			}
		}
		skip := func(id string) bool { return !slices.Contains(want, id) }
		var got []string
		for o := (manage.ListOptions{Limit: 50, Bytes: 10_000, Skip: skip}); ; {
			page := must[manage.TaskPage](t)(manage.New(w.Client).Queue("q").Page(w.ctx, o))
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
	for _, options := range []manage.ListOptions{{Limit: -1}, {Limit: store.MaxPage + 1}, {Offset: -1}, {Status: "succeeded"}} {
		if _, err := manage.New(w.Client).Queue("q").List(w.ctx, options); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%+v: %v", options, err)
		}
	}
	if _, err := manage.New(w.Client).Queue("no queue").List(w.ctx, manage.ListOptions{}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("no queue: %v", err)
	}
	if tasks, err := manage.New(w.Client).Queue("empty").List(w.ctx, manage.ListOptions{Status: queue.Started, Offset: 3}); len(tasks) != 0 || err != nil {
		t.Errorf("empty: %v, %v", tasks, err)
	}
}

func TestStats(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.spread(t, "q")
		w.node(t, "q", "other")
		stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx))
		for _, status := range queue.Statuses() {
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
		if stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx)); stats.Depth[queue.Reserved] != 4 || stats.Listeners != 2 {
			t.Errorf("after one has left: %+v", stats)
		}
		if _, err := manage.New(w.Client).Stats(w.ctx, "q", "no queue"); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("no queue: %v", err)
		}
		empty := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx))
		if len(empty) != 0 {
			t.Errorf("of no queue: %+v", empty)
		}
	})
}

func TestOldestPendingAge(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		age := func(clock string) time.Duration {
			w.Store().Clock = clock
			return must[manage.Stats](t)(manage.QueueOf(q).Stats(w.ctx)).OldestPendingAge
		}
		w.Store().Clock = "1700000000.000000"
		if got := age("1700000000.000000"); got != 0 {
			t.Errorf("of an empty queue: %s", got)
		}
		w.enqueue(t, "q", "", queue.Options{Delay: 10 * time.Second})
		if got := age("1700000009.000000"); got != 0 {
			t.Errorf("of a scheduled task: %s", got)
		}
		w.Store().Clock = "1700000012.000000"
		must[int](t)(enqueueDue(w.ctx, q))
		w.enqueue(t, "q", "", queue.Options{})
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
		w.rdb.RPush(w.ctx, w.Store().Keys.Pending("q"), "missing")
		if got := age("1700000013.500000"); got != 0 {
			t.Errorf("of an ID without a task: %s", got)
		}
	})
}

// A task of one queue is no business of another: nothing of it may change there.
func TestAnotherQueuesTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		pending, finished := w.enqueue(t, "right", "", queue.Options{}), w.enqueue(t, "right", "", queue.Options{})
		if _, err := w.Queue("right").Cancel(w.ctx, finished); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Queue("wrong").Cancel(w.ctx, pending); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("cancel: %v", err)
		}
		if err := w.Queue("wrong").Delete(w.ctx, finished); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("delete: %v", err)
		}
		w.depth(t, "right", map[queue.Status]int64{queue.Pending: 1, queue.Failed: 1})
		w.depth(t, "wrong", nil)
		if w.task(t, pending).Status != queue.Pending || w.task(t, finished).Status != queue.Failed {
			t.Error("the tasks have changed")
		}
		// A task by hand may not name its queue.
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("byhand"), "parameters", "x")
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("right"), "byhand")
		if _, err := w.Queue("right").Cancel(w.ctx, "byhand"); err != nil {
			t.Error(err)
		}
		if err := w.Queue("right").Delete(w.ctx, "byhand"); err != nil {
			t.Error(err)
		}
		w.depth(t, "right", map[queue.Status]int64{queue.Pending: 1, queue.Failed: 1})
	})
}

func TestCancelInALongBacklog(t *testing.T) {
	t.Parallel()
	w := setupOwn(t) // which is slow for a while
	w.ballast(w.Store().Keys.Pending("q"))
	id := w.enqueue(t, "q", "", queue.Options{})
	if _, err := w.Queue("q").Cancel(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	// The entry is left where it is, and dropped when its turn comes.
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: store.Searched + 1, queue.Failed: 1})
	w.rdb.LTrim(w.ctx, w.Store().Keys.Pending("q"), 0, 0)
	batch := w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
	if batch.Err != nil || batch.Dropped != 1 || len(batch.Tasks) != 0 {
		t.Errorf("%+v", batch)
	}
}
