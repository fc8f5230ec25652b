package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

// tried makes release 8 of the plugin mail a new canary, as a push does.
func (w *world) tried(t testing.TB) {
	t.Helper()
	key := w.Store().Keys.Release("mail")
	if err := w.rdb.HSet(w.ctx, key, "7", "{}", "8", "{}", "serving", "7", "canary", "8", "8 first", "3 - -").Err(); err != nil {
		t.Fatal(err)
	}
}

// take reserves tasks of the canary, release 8, to which all tasks go. Its module is that of release 7.
func (w *world) take(t testing.TB, node *listen.Node, count int) []listen.Reservation {
	t.Helper()
	same := canaryHere
	same.Digest, same.FailurePolicy = "sha256:7", listen.FailurePolicy{}
	request := stagedRequest("q", &release.Stage{Share: release.Share{Steps: []release.Step{{Percent: 100}}}}, same)
	request.Count = count
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{request})[0]
	if reply.Err != nil {
		t.Fatal(reply.Err)
	}
	if (len(reply.Tasks) == 0) != slices.Equal(reply.Lacking, []int{8}) {
		t.Fatalf("reserved %+v", reply)
	}
	return reply.Tasks
}

// deaths returns how many deaths count for a release of mail.
func (w *world) deaths(number int) int {
	text := w.rdb.HGet(w.ctx, w.Store().Keys.Release("mail"), fmt.Sprint(number, " deaths")).Val()
	return len(strings.Fields(text)) / 2
}

// A new canary that ends each host at its first task ends two, and then nobody takes its tasks for a minute. The deaths
// count for its number: the release that serves has the same module.
func TestDeadlyCanaryEndsTwoHosts(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.tried(t)
		for i := range 4 {
			w.enqueue(t, "q", "x", queue.Options{ID: fmt.Sprint("t", i)})
		}
		for death := range 2 {
			doomed := w.node(t, "q")
			if got := w.take(t, doomed, 1); len(got) != 1 || w.task(t, got[0].ID).Release != 8 {
				t.Fatalf("after %d deaths a host reserved %+v", death, got)
			}
			if got := w.take(t, w.node(t, "q"), 4); len(got) != 0 {
				t.Errorf("beside a host that tries the canary another one reserved %+v", got)
			}
			w.die(t, doomed)
			w.at(float64(10 * (death + 1)))
			must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, doomed.ID(), 0))
			must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
			if w.deaths(8) != death+1 || w.deaths(7) != 0 {
				t.Errorf("%d deaths count for the canary, and %d for the release that serves", w.deaths(8), w.deaths(7))
			}
		}
		if got := w.take(t, w.node(t, "q"), 4); len(got) != 0 {
			t.Errorf("after two deaths a host reserved %+v", got)
		}
		w.at(81) // hosts that only report a bad release
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		if got := w.take(t, w.node(t, "q"), 1); len(got) != 1 {
			t.Errorf("a minute later a host reserved %+v", got)
		}
	})
}

// When three tasks of a new canary have ended on the host that tries it, all hosts run them. A task that is given back,
// or whose host is gone, proves nothing.
func TestCanaryBeginsOnOneHost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.tried(t)
		first, second := w.node(t, "q"), w.node(t, "q")
		failed := &queue.Failure{Reason: queue.ReasonError}
		left := func(want string) {
			t.Helper()
			text := w.rdb.HGet(w.ctx, w.Store().Keys.Release("mail"), "8 first").Val()
			if left, _, _ := strings.Cut(text, " "); left != want {
				t.Errorf("the canary begins as %q, want %q", text, want)
			}
		}
		for i, s := range []listen.Settlement{
			{}, {Failure: failed}, {Failure: failed, Requeue: listen.RequeueRetry, Delay: 1e9 * 3600},
		} {
			w.enqueue(t, "q", "x", queue.Options{})
			given := w.take(t, second, 1)[0]
			if errs, err := second.Release(w.ctx, "q", []listen.Claim{given.Claim()}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
			left([]string{"3", "2", "1"}[i])
			got := w.take(t, first, 1)
			if w.enqueue(t, "q", "x", queue.Options{}); len(w.take(t, second, 1)) != 0 {
				t.Error("two hosts try the canary")
			}
			s.Claim = got[0].Claim()
			w.settle(t, first, "q", s)
			w.at(float64(2 * (i + 1)))
			must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
			w.completeAll(t)
		}
		for _, node := range []*listen.Node{first, second} {
			w.enqueue(t, "q", "x", queue.Options{})
			if len(w.take(t, node, 1)) != 1 {
				t.Error("a canary that has begun is not for all hosts")
			}
		}
		w.die(t, second)
		w.at(20)
		must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, second.ID(), 0))
		text := w.rdb.HGet(w.ctx, w.Store().Keys.Release("mail"), "8 deaths").Val()
		if text != w.Store().Clock {
			t.Errorf("the first crash of a task is noted as %q", text)
		}
	})
}

// A task that was tried again on its host and then ends this host proves nothing, although its first attempt has ended.
func TestRetriedTaskEndsItsHost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.tried(t)
		doomed := w.node(t, "q")
		w.enqueue(t, "q", "x", queue.Options{})
		retry := listen.Settlement{Failure: &queue.Failure{Reason: queue.ReasonError}, Requeue: listen.RequeueRetry}
		retry.Claim = w.take(t, doomed, 1)[0].Claim()
		w.settle(t, doomed, "q", retry)
		if len(w.take(t, doomed, 1)) != 1 {
			t.Fatal("the task is not tried again")
		}
		w.die(t, doomed)
		w.at(10)
		must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, doomed.ID(), 0))
		if len(w.take(t, w.node(t, "q"), 1)) != 1 {
			t.Fatal("no other host takes the task")
		}
		text := w.rdb.HGet(w.ctx, w.Store().Keys.Release("mail"), "8 first").Val()
		if left, _, _ := strings.Cut(text, " "); left != "2" {
			t.Errorf("the canary begins as %q, want 2 tasks left", text)
		}
	})
}

// A task names the release that runs it, and its history those that ran it. Other tasks name none.
func TestTaskNamesItsRelease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		retry := listen.Settlement{Failure: &queue.Failure{Reason: queue.ReasonError}, Requeue: listen.RequeueRetry}
		id := w.enqueue(t, "q", "x", queue.Options{})
		retry.Claim = w.take(t, node, 1)[0].Claim()
		if got := w.task(t, id); got.Release != 8 || got.Version != "0.8" {
			t.Errorf("the task runs on %+v", got)
		}
		w.settle(t, node, "q", retry)
		if got := w.task(t, id); got.Release != 0 {
			t.Errorf("a task that waits has release %d", got.Release)
		}
		reply := node.Reserve(w.ctx, []listen.ReserveRequest{{
			Queue: "q", Count: 1, Start: true, Plugin: "mail", Digest: "sha256:9", Version: "0.9",
		}})[0]
		if w.task(t, id).Release != 0 || w.rdb.HExists(w.ctx, w.Store().Keys.Task(id), "release").Val() {
			t.Error("a plugin without releases has one")
		}
		w.settle(t, node, "q", listen.Settlement{Claim: reply.Tasks[0].Claim()})
		history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id)))
		if len(history) != 2 || history[0].Release != 8 || history[0].Version != "0.8" || history[0].Digest != "sha256:7" ||
			history[1].Release != 0 {
			t.Errorf("the history is %+v", history)
		}
	})
}

// The crash before counts for the version and for the release that ran then, also if the version has a name.
func TestCrashBeforeCounts(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.tried(t)
		w.rdb.HDel(w.ctx, w.Store().Keys.Release("mail"), "8 first")
		w.enqueue(t, "q", "x", queue.Options{})
		die := func(second float64, request listen.ReserveRequest) {
			t.Helper()
			node := w.node(t, "q")
			if reply := node.Reserve(w.ctx, []listen.ReserveRequest{request})[0]; len(reply.Tasks) != 1 {
				t.Fatalf("reserved %+v", reply)
			}
			w.die(t, node)
			w.at(second)
			must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 1000))
		}
		request := listen.ReserveRequest{
			Queue: "q", Count: 1, Start: true, Plugin: "mail", Digest: "sha256:7", Version: "0.7", Release: 7,
			FailurePolicy: listen.FailurePolicy{MaxCrashes: 1000},
		}
		die(10, request)
		if w.deaths(7) != 0 {
			t.Error("the first crash of a task counts")
		}
		die(20, request)
		if w.deaths(7) != 2 {
			t.Errorf("%d deaths count for release 7, want 2", w.deaths(7))
		}
		text := w.rdb.HGet(w.ctx, w.Store().Keys.Crashes(), "mail sha256:7").Val()
		if len(strings.Fields(text)) != 5 {
			t.Errorf("%q counts for the version, want two deaths", text)
		}
		w.at(30)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		request.Release = 8
		die(40, request)
		if w.deaths(8) != 1 {
			t.Errorf("%d deaths count for release 8, want that which ran it", w.deaths(8))
		}
	})
}
