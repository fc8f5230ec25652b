package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		a, b := queue.Spec{Options: queue.Options{ID: q.OnceID("event", "s", "1"), Once: queue.OnceLife}}, queue.Spec{Options: queue.Options{ID: q.OnceID("event", "s", "2"), Once: queue.OnceLife}}
		if got := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{a, a})); got[0].Existed || !got[1].Existed {
			t.Errorf("the same twice: %+v", got)
		}
		if _, err := q.Cancel(w.ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		if err := q.Delete(w.ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		got := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{a, b}))
		if got[0] != (queue.Receipt{ID: a.ID, Existed: true}) || got[1] != (queue.Receipt{ID: b.ID}) {
			t.Errorf("a deleted one and a new one: %+v", got)
		}
		if _, err := w.Task(w.ctx, a.ID); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("the deleted task is back: %v", err)
		}
		if life := w.rdb.TTL(w.ctx, w.Store().Keys.Once(a.ID)).Val(); life <= 0 || life > queue.OnceLife {
			t.Errorf("it is remembered for %s", life)
		}
		if err := listen.NewRelayClient(w.Client).ForgetOnce(w.ctx, []string{a.ID, "none"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if life := w.rdb.TTL(w.ctx, w.Store().Keys.Once(a.ID)).Val(); life <= 0 || life > time.Minute {
			t.Errorf("it is remembered for %s more", life)
		}
	})
}

// Another body under the ID of a task does not become the one that is remembered.
func TestOnceRemembersTheTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "one", queue.Options{ID: "k"}) // whose producer died before it was remembered
		for _, c := range []struct {
			body  string
			taken bool
		}{{"two", true}, {"two", true}, {"one", false}, {"two", true}} {
			got := must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{{Parameters: []byte(c.body), Options: queue.Options{ID: "k", Once: time.Hour}}}))
			if got[0].Taken != c.taken || !c.taken && !got[0].Existed {
				t.Errorf("%s: %+v, want taken %t", c.body, got[0], c.taken)
			}
		}
	})
}

// What was refused is not remembered: it may be sent again.
func TestRefusedIsNotOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		if err := q.SetLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		specs := []queue.Spec{{Options: queue.Options{ID: "a", Once: time.Hour}}, {Options: queue.Options{ID: "b", Once: time.Hour}}}
		if _, err := q.EnqueueMany(w.ctx, specs); !errors.Is(err, queue.ErrQueueFull) {
			t.Fatalf("%v, want ErrQueueFull", err)
		}
		if err := q.SetLimit(w.ctx, 0); err != nil {
			t.Fatal(err)
		}
		if got := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, specs)); got[0].Existed || got[1].Existed {
			t.Errorf("%+v", got)
		}
	})
}

// A remembered ID is no new task for what a new task needs: room in the queue, dependencies, one more queue. Its task is
// remembered by the write that makes it, with whatever options.
func TestOnceIsNoNewTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		w.enqueue(t, "r", "", queue.Options{ID: "first"})
		one := []queue.Spec{{Options: queue.Options{ID: "one", Once: time.Hour, Delay: time.Hour, After: []string{"first"}}}}
		if got := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, one)); got[0].Existed {
			t.Fatalf("%+v", got)
		}
		for _, id := range []string{"one", "first"} {
			w.rdb.Del(w.ctx, w.Store().Keys.Task(id))
		}
		w.rdb.ZRem(w.ctx, w.Store().Keys.Queues(), "q")
		w.rdb.HSet(w.ctx, w.Store().Keys.Limits(), "q", 1, ".", 1)
		two := queue.Spec{Options: queue.Options{ID: "two", Once: time.Hour}}
		for range 2 {
			if got := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, one)); !got[0].Existed || got[0].Taken {
				t.Errorf("%+v", got)
			}
		}
		if _, err := q.EnqueueMany(w.ctx, []queue.Spec{two}); !errors.Is(err, queue.ErrQueueFull) && !errors.Is(err, queue.ErrManyQueues) {
			t.Errorf("a new task: %v", err)
		}
		for _, o := range []queue.Options{{Once: time.Hour}, {ID: "a", Once: -1}} {
			if _, err := q.Enqueue(w.ctx, nil, o); !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("%+v: %v, want ErrInvalid", o, err)
			}
		}
	})
}

// asked are the tasks of a request with an ID, whose parameters are its content.
func asked(q *queue.Queue, id, content string, n int, options queue.Options) []queue.Spec {
	specs := make([]queue.Spec, n)
	for i := range specs {
		specs[i] = queue.Spec{Parameters: []byte(content), Options: options}
		specs[i].ID = q.OnceID(id, fmt.Sprint(i))
	}
	return specs
}

// A request that is refused leaves its ID to another one, and one that was enqueued does not.
func TestEnqueueRequest(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		send := func(id, content string, n int, options queue.Options) ([]queue.Receipt, bool, error) {
			return q.EnqueueRequest(w.ctx, id, []byte(content), asked(q, id, content, n, options))
		}
		limit := func(n int64) {
			if err := q.SetLimit(w.ctx, n); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range map[string]struct {
			options queue.Options
			limit   int64
			want    error
		}{
			"invalid":    {queue.Options{Headers: map[string]string{"BAD": "1"}}, 0, queue.ErrInvalid},
			"dependency": {queue.Options{After: []string{"nosuch"}}, 0, queue.ErrDependency},
			"full":       {queue.Options{}, 1, queue.ErrQueueFull},
		} {
			limit(c.limit)
			if _, _, err := send(name, "wrong", 2, c.options); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			limit(0)
			for i, content := range []string{"right", "wrong", "right"} {
				receipts, same, err := send(name, content, 2, queue.Options{})
				if right := content == "right"; err != nil || same != right || right && (len(receipts) != 2 || receipts[0].Existed != (i > 0) || receipts[1].Taken) {
					t.Errorf("%s, then %s: %+v, %t, %v", name, content, receipts, same, err)
				}
			}
		}

		limit(6 + store.BlockTasks) // so that the second block is refused
		if _, _, err := send("part", "one", 2*store.BlockTasks, queue.Options{}); !errors.Is(err, queue.ErrQueueFull) {
			t.Fatalf("%v, want ErrQueueFull", err)
		}
		limit(0)
		if _, same, err := send("part", "other", 1, queue.Options{}); same || err != nil {
			t.Errorf("another request after a part: %t, %v", same, err)
		}
		if receipts, same, err := send("part", "one", 2*store.BlockTasks, queue.Options{}); !same || err != nil || !receipts[0].Existed || receipts[store.BlockTasks].Existed {
			t.Errorf("the rest: %+v, %t, %v", receipts, same, err)
		}
	})
}

// As long as a task of a request exists its ID is for no other one, also when it is forgotten.
func TestForgottenRequest(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		for _, c := range []struct {
			content string
			n       int
			same    bool
		}{{"one", 1, true}, {"two", 1, false}, {"two", 2, false}, {"one", 1, true}, {"two", 2, false}} {
			w.rdb.Del(w.ctx, w.Store().Keys.Once("id"), w.Store().Keys.Once(q.OnceID("id", "0"))) // they expired
			receipts, same, err := q.EnqueueRequest(w.ctx, "id", []byte(c.content), asked(q, "id", c.content, c.n, queue.Options{}))
			if err != nil || same != c.same || !same && receipts != nil {
				t.Errorf("%+v: %+v, %t, %v", c, receipts, same, err)
			}
			if marked := w.rdb.Exists(w.ctx, w.Store().Keys.Once("id")).Val() == 1; marked != c.same {
				t.Errorf("%+v: it is remembered: %t", c, marked)
			}
		}
		if depth := must[manage.Stats](t)(manage.QueueOf(q).Stats(w.ctx)).Depth[queue.Pending]; depth != 1 {
			t.Errorf("%d tasks, want 1", depth)
		}
	})
}

// Requests of one ID at a time: the first content counts until all of its requests are refused.
func TestRequestsAtATime(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		specs := asked(w.Queue("q"), "id", "one", 1, queue.Options{})
		one, two := queue.NewOnceRequest(w.Client, "id", "one"), queue.NewOnceRequest(w.Client, "id", "two")
		begin := func(r *queue.OnceRequest, want string) {
			t.Helper()
			if word, _, err := r.Begin(w.ctx, specs); err != nil || word != want {
				t.Errorf("%s, %v; want %s", word, err, want)
			}
			if life := w.rdb.TTL(w.ctx, w.Store().Keys.Once("id")).Val(); life <= 0 || life > queue.OnceLife {
				t.Errorf("it is remembered for %s", life)
			}
		}
		end := func(r *queue.OnceRequest, how string) {
			t.Helper()
			must[[]any](t)(r.Tell(w.ctx, how, specs))
		}
		begin(one, "begun")
		begin(two, "other")
		begin(one, "begun")
		end(one, "refused")
		begin(two, "other")
		end(one, "refused")
		begin(two, "begun")
		begin(two, "begun")
		end(two, "done")
		end(two, "refused") // the other of both
		begin(two, "done")
		begin(one, "other")
	})
}

// A request of which nobody knows what became keeps its ID.
func TestRequestWithoutAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, queuetest.Shared(t).URL())
	q := w.Queue("q")
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.rdb.AddHook(spy(func(cmds ...redis.Cmder) {
		for _, cmd := range cmds {
			if len(cmd.Args()) > 1 && cmd.Args()[1] == store.AllScripts["enqueue"].Hash() {
				cancel()
			}
		}
	}))
	if _, _, err := q.EnqueueRequest(ctx, "id", []byte("one"), asked(q, "id", "one", 1, queue.Options{})); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want context.Canceled", err)
	}
	for content, want := range map[string]bool{"two": false, "one": true} {
		if _, same, err := q.EnqueueRequest(w.ctx, "id", []byte(content), asked(q, "id", content, 1, queue.Options{})); same != want || err != nil {
			t.Errorf("%s: %t, %v", content, same, err)
		}
	}
}

func TestOnceID(t *testing.T) {
	w := setup(t)
	ids := map[string]bool{}
	for _, id := range []string{
		w.Queue("q").OnceID("a", "bc"), w.Queue("q").OnceID("ab", "c"), w.Queue("r").OnceID("a", "bc"), w.Queue("q").OnceID("a", "b", "c"),
	} {
		if ids[id] = true; queue.ValidID(id) != nil {
			t.Errorf("%q is no ID", id)
		}
	}
	if len(ids) != 4 || !ids[w.Queue("q").OnceID("a", "bc")] {
		t.Errorf("%v", ids)
	}
}

func TestPage(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(t, "q", "", queue.Options{ID: id})
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Task("b")) // vanished, and still in its lists
		if task := must[*queue.Task](t)(w.Summary(w.ctx, "a")); task.Queue != "q" || task.Status != queue.Pending || task.Parameters != nil {
			t.Errorf("%+v", task)
		}
		if _, err := w.Summary(w.ctx, "b"); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("%v, want ErrNoTask", err)
		}
		page := must[manage.TaskPage](t)(manage.QueueOf(q).Page(w.ctx, manage.ListOptions{Status: queue.Pending, Limit: 3}))
		if len(page.Tasks) != 2 || page.Read != 3 || page.End {
			t.Errorf("%+v; want 2 tasks of 3 entries", page)
		}
		if page = must[manage.TaskPage](t)(manage.QueueOf(q).Page(w.ctx, manage.ListOptions{Offset: 2, Limit: 3})); page.Read != 1 || !page.End {
			t.Errorf("the last page: %+v", page)
		}
		must[manage.TaskPage](t)(manage.QueueOf(q).Page(w.ctx, manage.ListOptions{})) // the default limit
		if _, err := manage.QueueOf(q).Page(w.ctx, manage.ListOptions{Limit: store.MaxPage + 1}); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("a limit too high: %v", err)
		}
	})
}
