package queue_test

import (
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func TestExpire(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		high := 80
		for _, c := range []struct {
			queue   string
			options queue.Options
			age     time.Duration // the manifest's
			at      float64       // when it has not yet expired; a second later it has
		}{
			{"age", queue.Options{Retry: queue.Retry{MaxAge: 10 * time.Second}}, 0, 9.5},
			{"age-from-eta", queue.Options{Delay: 20 * time.Second, Retry: queue.Retry{MaxAge: 10 * time.Second}}, 0, 29.5},
			{"deadline", queue.Options{Deadline: time.Unix(1700000005, 0)}, 0, 4.5},
			{"deadline-first", queue.Options{Deadline: time.Unix(1700000005, 0), Retry: queue.Retry{MaxAge: 10 * time.Second}}, 0, 4.5},
			{"age-first", queue.Options{Deadline: time.Unix(1700000050, 0), Retry: queue.Retry{MaxAge: 10 * time.Second}}, 0, 9.5},
			{"scheduled", queue.Options{Delay: time.Hour, Deadline: time.Unix(1700000005, 0)}, 0, 4.5},
			{"priority", queue.Options{Priority: &high, Retry: queue.Retry{MaxAge: 10 * time.Second}}, 0, 9.5},
			{"manifest", queue.Options{}, 10 * time.Second, 9.5},
			{"own-before-manifest", queue.Options{Retry: queue.Retry{MaxAge: 20 * time.Second}}, 10 * time.Second, 19.5},
		} {
			w.at(0)
			q := w.Queue(c.queue)
			if err := q.Pause(w.ctx); err != nil { // it matters not
				t.Fatal(err)
			}
			id := w.enqueue(t, c.queue, "", c.options)
			ended := w.waiting(t, id)
			w.at(c.at)
			if n := must[int](t)(expire(w.ctx, q, c.age, "")); n != 0 {
				t.Errorf("%s: %d expired too early", c.queue, n)
			}
			w.at(c.at + 1)
			if n := must[int](t)(expire(w.ctx, q, c.age, "")); n != 1 {
				t.Errorf("%s: %d expired", c.queue, n)
			}
			if task := w.task(t, id); task.Status != queue.Failed || task.Reason != queue.ReasonExpired || task.Failure().Reason != queue.ReasonExpired {
				t.Errorf("%s: %+v", c.queue, task)
			}
			w.depth(t, c.queue, map[queue.Status]int64{queue.Failed: 1})
			if got := receive(t, "the end of Wait", ended); got.err != nil {
				t.Errorf("%s: %v", c.queue, got.err)
			}
			if n := w.rdb.Exists(w.ctx, w.Store().Keys.Expiry(c.queue)).Val(); n != 0 {
				t.Errorf("%s: entries are left", c.queue)
			}
		}
	})
}

// What is past its time is not reserved either, whoever looks first.
func TestReserveOfWhatHasExpired(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.enqueue(t, "q", "", queue.Options{ID: "own", Retry: queue.Retry{MaxAge: 10 * time.Second}})
		w.enqueue(t, "q", "", queue.Options{ID: "manifest"})
		w.enqueue(t, "q", "", queue.Options{ID: "own-long", Retry: queue.Retry{MaxAge: time.Hour}})
		w.enqueue(t, "young", "", queue.Options{})
		batch := w.node(t, "young").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "young", Count: 9, MaxAge: 10 * time.Second}})[0]
		if len(batch.Tasks) != 1 || batch.Tasks[0].Expires.Unix() != 1700000010 {
			t.Errorf("a manifest limits the age of %+v", batch)
		}
		w.at(11)
		batch = w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 9, MaxAge: 10 * time.Second}})[0]
		if batch.Err != nil || len(batch.Tasks) != 1 || batch.Tasks[0].ID != "own-long" || batch.Passed != 2 {
			t.Errorf("%+v", batch)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Failed: 2, queue.Reserved: 1})
		// By hand it has its time again, from now on.
		if err := w.Queue("q").Retry(w.ctx, "manifest"); err != nil {
			t.Fatal(err)
		}
		if n := must[int](t)(expire(w.ctx, w.Queue("q"), 10*time.Second, "")); n != 0 {
			t.Errorf("%d expired that was just retried", n)
		}
		batch = w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 9, MaxAge: 10 * time.Second}})[0]
		if len(batch.Tasks) != 1 || batch.Tasks[0].Expires.Unix() != 1700000021 {
			t.Errorf("%+v", batch)
		}
	})
}

// What runs is left alone, and expires when it is to wait again, in a paused queue too.
func TestExpireLeavesWhatRuns(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", queue.Options{Retry: queue.Retry{MaxAge: 10 * time.Second}})
		node, hold := w.held(t, "q")
		w.at(20)
		if n := must[int](t)(expire(w.ctx, w.Queue("q"), time.Second, "")); n != 0 || w.task(t, id).Status != queue.Started {
			t.Errorf("%d expired", n)
		}
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{}, Requeue: listen.RequeueRetry, Delay: time.Hour})
		if look := must[listen.Backlogs](t)(listen.NewFleet(w.Client).Backlogs(w.ctx, []string{"q"})).Queues[0]; look.NextExpiry.Unix() != 1700000010 {
			t.Errorf("%+v", look)
		}
		if n := must[int](t)(expire(w.ctx, w.Queue("q"), 0, "")); n != 1 || w.task(t, id).Reason != queue.ReasonExpired {
			t.Errorf("%d expired", n)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Failed: 1})
	})
}

// Many, in blocks; and tasks with a time of their own, or none at all, before them in the list.
func TestExpireInBlocks(t *testing.T) {
	w := setup(t)
	w.at(0)
	var specs []queue.Spec
	for i := range 350 {
		specs = append(specs, queue.Spec{Options: queue.Options{Retry: queue.Retry{MaxAge: time.Duration(i%2) * time.Hour}}})
	}
	must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
	w.rdb.RPush(w.ctx, w.Store().Keys.Pending("q"), "gone", "gone-too")
	w.at(60)
	w.enqueue(t, "q", "", queue.Options{ID: "young"})
	// Those before them hide no more than a block.
	if n := must[int](t)(expire(w.ctx, w.Queue("q"), time.Minute-time.Second, "")); n < listen.ExpiryTasks/2-2 {
		t.Errorf("%d expired", n)
	}
	if w.task(t, "young").Status != queue.Pending {
		t.Error("a young task expired")
	}
	w.at(3601)
	must[int](t)(expire(w.ctx, w.Queue("q"), time.Minute, ""))
	w.depth(t, "q", map[queue.Status]int64{queue.Failed: 351, queue.Pending: 2})
}

// A deadline does not lift the age that the manifest allows.
func TestTheManifestsAgeBesideADeadline(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		far := queue.Options{Deadline: time.Unix(1700086400, 0)}
		for name, c := range map[string]struct {
			options queue.Options
			at      float64
			expires bool
		}{
			"old":   {far, 11, true},
			"young": {far, 9, false},
			"own":   {queue.Options{Deadline: far.Deadline, Retry: queue.Retry{MaxAge: time.Hour}}, 11, false},
		} {
			for _, by := range []string{"expire", "reserve"} {
				w.at(0)
				target := name + "-" + by
				id := w.enqueue(t, target, "", c.options)
				w.at(c.at)
				if by == "expire" {
					must[int](t)(expire(w.ctx, w.Queue(target), 10*time.Second, ""))
				} else {
					w.node(t, target).Reserve(w.ctx, []listen.ReserveRequest{{Queue: target, Count: 1, MaxAge: 10 * time.Second}})
				}
				task := w.task(t, id)
				if (task.Reason == queue.ReasonExpired) != c.expires {
					t.Errorf("%s, %s: %+v", name, by, task)
				}
				if name == "young" && by == "reserve" && task.Expires.Unix() != 1700000010 {
					t.Errorf("it expires at %s", task.Expires)
				}
			}
		}
	})
}

// A long list is not searched: the entry stays, and reserve drops it.
func TestExpireInALongList(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	w.at(0)
	w.ballast(w.Store().Keys.Pending("q"))
	id := w.enqueue(t, "q", "", queue.Options{Retry: queue.Retry{MaxAge: time.Second}})
	w.at(2)
	if n := must[int](t)(expire(w.ctx, w.Queue("q"), 0, "")); n != 1 || w.task(t, id).Reason != queue.ReasonExpired {
		t.Errorf("%d expired", n)
	}
	if ids := w.rdb.LRange(w.ctx, w.Store().Keys.Pending("q"), 0, 1).Val(); ids[0] != id || w.rdb.LLen(w.ctx, w.Store().Keys.Pending("q")).Val() != store.Searched+1 {
		t.Errorf("%v wait", ids)
	}
	w.rdb.LTrim(w.ctx, w.Store().Keys.Pending("q"), 0, 0)
	if batch := w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]; batch.Err != nil || len(batch.Tasks) != 0 || batch.Dropped != 1 {
		t.Errorf("%+v", batch)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Failed: 1})
}
