package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/worker"
)

func TestReserveDropsWhatCannotRun(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node, other := w.node(t, "q"), w.node(t, "q")
		finished := w.enqueue(t, "q", "", queue.Options{})
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(finished), "status", "failed")
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "missing")
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "wrongtype")
		w.rdb.Set(w.ctx, w.Store().Keys.Task("wrongtype"), "x", 0)
		held := w.enqueue(t, "q2", "", queue.Options{})
		w.reserve(t, other, "q2", true)
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q2"), held)
		// By hand, as documented: only the fields of Blueque's own README, and not even a status.
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("byhand"), "queue", "q", "parameters", "x")
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "byhand")
		// Popped by a Python listener that died before it wrote the hash, and put back by hand.
		popped := w.enqueue(t, "q", "", queue.Options{})
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(popped), "status", "reserved", "node", "gone_1")

		batches := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 10}, {Queue: "q2", Count: 10}})
		if batches[0].Err != nil || batches[1].Err != nil {
			t.Fatal(batches)
		}
		if batches[0].Dropped != 3 || len(batches[0].Tasks) != 2 || batches[0].Tasks[0].ID != "byhand" || batches[0].Tasks[1].ID != popped {
			t.Errorf("batch %+v", batches[0])
		}
		if batches[1].Dropped != 1 || len(batches[1].Tasks) != 0 {
			t.Errorf("a held task: %+v", batches[1])
		}
		if ids := must[[]string](t)(node.Held(w.ctx, "q")); len(ids) != 2 {
			t.Errorf("reserved list %v", ids)
		}
		if score, err := w.rdb.ZScore(w.ctx, w.Store().Keys.Index("q"), "byhand").Result(); err != nil || score < 1e9 {
			t.Errorf("the index has the task by hand at %v, %v", score, err)
		}
	})
}

// What an operator sees in MONITOR are Blueque's commands: each ID comes by RPOPLPUSH, and goes by LREM.
func TestCommandsAreThoseOfBlueque(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	const tasks = 100
	must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, make([]queue.Spec, tasks)))
	node := w.node(t, "q")
	w.rdb.ConfigResetStat(w.ctx)
	held := w.reserveMany(t, node, "q", tasks, true)
	settlements := make([]listen.Settlement, tasks)
	for i, claim := range held {
		settlements[i].Claim = claim
	}
	must[[]error](t)(node.Settle(w.ctx, "q", settlements))
	ran := must[string](t)(w.rdb.Info(w.ctx, "commandstats").Result())
	for _, command := range []string{"rpoplpush", "lrem"} {
		if want := fmt.Sprintf("cmdstat_%s:calls=%d,", command, tasks); !strings.Contains(ran, want) {
			t.Errorf("want %q in %s", want, ran)
		}
	}
	for _, other := range []string{"lrange", "ltrim", "lmove"} {
		if strings.Contains(ran, "cmdstat_"+other+":") {
			t.Errorf("want no %s: %s", other, ran)
		}
	}
}

// An entry that is left of an earlier time, because the list was too long to search, does not let a task skip its pause.
func TestReserveDropsOldEntriesOfWhatIsScheduled(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		hold := w.reserveMany(t, node, "q", 1, true)[0]
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{}, Requeue: listen.RequeueRetry, Delay: time.Minute})
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), id)
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
		if batch.Err != nil || len(batch.Tasks) != 0 || batch.Dropped != 1 {
			t.Errorf("%+v", batch)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Scheduled: 1})
		w.at(60)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		w.reserve(t, node, "q", true)

		// One that is due is in the list for good: Blueque may have died before it took it out of the set.
		w.at(70)
		due := w.enqueue(t, "q", "", queue.Options{Delay: time.Second})
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), due)
		w.at(80)
		if got := w.reserve(t, node, "q", true); got.ID != due {
			t.Errorf("reserved %s", got.ID)
		}
	})
}

// A held queue is left alone until its time, and not after Redis's clock was set back to before it was held.
func TestReserveLeavesHeldQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		w.enqueue(t, "q", "", queue.Options{})
		w.Store().Clock = "1700003600.000000"
		for _, wait := range []time.Duration{20 * time.Second, time.Second} { // the shorter one changes nothing
			if err := w.Queue("q").Hold(w.ctx, wait); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []struct {
			clock string
			held  bool
		}{{"1700003600.000000", true}, {"1700003619.900000", true}, {"1700000020.000000", false}, {"1700003621.000000", false}} {
			w.Store().Clock = at.clock
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
			if batch.Err != nil || (len(batch.Tasks) == 0) != at.held {
				t.Errorf("at %s: %+v", at.clock, batch)
			}
			for _, task := range batch.Tasks {
				if _, err := node.Release(w.ctx, "q", []listen.Claim{task.Claim()}); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.Store().Clock = "1700000000.000000"
		if err := w.Queue("q").Hold(w.ctx, time.Second); err != nil {
			t.Fatal(err)
		}
		if held := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "q"))[0].Held; held.Unix() != 1700000001 {
			t.Errorf("held until %s: one from before the clock was set back stays", held)
		}
	})
}

func TestReserveLeavesPausedQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{})
		w.rdb.SAdd(w.ctx, w.Store().Keys.Paused(), "q")
		batch := w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
		if batch.Err != nil || len(batch.Tasks) != 0 {
			t.Errorf("%+v", batch)
		}
		if stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx)); !stats.Paused {
			t.Error("not shown as paused")
		}
	})
}

func TestAdoptFindsALostReply(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "x", queue.Options{})
		node := w.node(t, "q")
		lost := w.reserve(t, node, "q", true) // as if the reply had not come
		ids := must[[]string](t)(node.Held(w.ctx, "q"))
		batch := node.Adopt(w.ctx, listen.ReserveRequest{Queue: "q", Start: true}, ids)
		if batch.Err != nil || len(batch.Tasks) != 1 || batch.Tasks[0].Run != lost.Run || string(batch.Tasks[0].Parameters) != "x" {
			t.Fatalf("adopted %+v", batch)
		}
		// Somebody else has it: the entry goes, the task stays as it is.
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "node", "other_1")
		w.rdb.LPush(w.ctx, w.Store().Keys.Reserved("q", "other_1"), id)
		batch = node.Adopt(w.ctx, listen.ReserveRequest{Queue: "q", Start: true}, ids)
		if batch.Err != nil || len(batch.Tasks) != 0 || batch.Dropped != 1 {
			t.Errorf("another's: %+v", batch)
		}
	})
}

// A reserve that broke off leaves its task in the list alone: the list is the truth.
func TestAdoptFindsAHalfReservedTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "x", queue.Options{})
		node := w.node(t, "q")
		w.rdb.LMove(w.ctx, w.Store().Keys.Pending("q"), w.Store().Keys.Reserved("q", node.ID()), "right", "left")
		batch := node.Adopt(w.ctx, listen.ReserveRequest{Queue: "q", Start: true, Plugin: "p", Digest: "sha256:1"}, []string{id})
		if batch.Err != nil || len(batch.Tasks) != 1 || batch.Dropped != 0 || string(batch.Tasks[0].Parameters) != "x" {
			t.Fatalf("adopted %+v", batch)
		}
		errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: listen.Claim{ID: id, Run: batch.Tasks[0].Run}}})
		if err != nil || errs[0] != nil {
			t.Error(errs, err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
	})
}

// What stands in a hash by hand may be a number to Lua and none to Redis.
func TestReserveWithOddTimes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		for _, created := range []string{"1795250000\n", " 1", "nan", "inf", "1e400", "0x10", "-1", "", "abc", strings.Repeat("9", 400)} {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task("odd"), "queue", "q", "status", "pending", "created", created)
			w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "odd")
			if got := w.reserve(t, node, "q", true); got.ID != "odd" {
				t.Errorf("created %q: reserved %+v", created, got)
			}
			if errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: listen.Claim{ID: "odd", Run: 1}}}); err != nil || errs[0] != nil {
				t.Errorf("created %q: %v %v", created, errs, err)
			}
			if err := w.Queue("q").Delete(w.ctx, "odd"); err != nil {
				t.Errorf("created %q: %v", created, err)
			}
		}
	})
}

func TestAdoptWritesWhatRunsIt(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		batch := node.Adopt(w.ctx, listen.ReserveRequest{Queue: "q", Start: true, Plugin: "p", Digest: "sha256:1"}, []string{id})
		if batch.Err != nil || len(batch.Tasks) != 1 {
			t.Fatalf("adopted %+v", batch)
		}
		if task := w.task(t, id); task.Digest != "sha256:1" {
			t.Errorf("digest %s, but another version runs it", task.Digest)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Started: 1})
	})
}

// A server that has lost its last second hands out the same run of a task again, to the same listener: only the later one holds it.
func TestClaimsOfOneRunDiffer(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		former := w.reserveMany(t, node, "q", 1, true)[0]
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "pending", "run", 0)
		w.rdb.LRem(w.ctx, w.Store().Keys.Reserved("q", node.ID()), 0, id)
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), id)
		later := w.reserveMany(t, node, "q", 1, true)[0]
		if later.Run != former.Run {
			t.Fatalf("run %d, then %d, want the same", former.Run, later.Run)
		}
		for range 2 { // before the later one has ended, and after
			errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: former, Result: []byte("former")}})
			if err != nil || !errors.Is(errs[0], queue.ErrLost) {
				t.Errorf("the former one: %v, %v, want %v", errs, err, queue.ErrLost)
			}
			if _, err := node.Start(w.ctx, "q", former); !errors.Is(err, queue.ErrLost) {
				t.Errorf("the former one starts: %v", err)
			}
			w.settle(t, node, "q", listen.Settlement{Claim: later, Result: []byte("later")})
		}
	})
}

// The same for workers in Go, whose tasks start after they are reserved.
func TestProcessorsOfOneRunDiffer(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		listener := must[*worker.Listener](t)(worker.NewListener(w.ctx, w.Client, "q"))
		var processors []*worker.Processor
		for range 2 {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "pending", "run", 0)
			w.rdb.HDel(w.ctx, w.Store().Keys.Task(id), "started_at")
			w.rdb.Del(w.ctx, w.Store().Keys.Reserved("q", listener.ID()), w.Store().Keys.Pending("q"))
			w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), id)
			w.at(float64(1 + len(processors)))
			processor := worker.NewProcessor(w.Client, must[*queue.Task](t)(listener.TryListen(w.ctx)))
			for range 2 { // the answer may be lost
				must[[]byte](t)(processor.Start(w.ctx, 0))
			}
			processors = append(processors, processor)
		}
		if err := processors[0].Complete(w.ctx, []byte("former")); !errors.Is(err, queue.ErrLost) {
			t.Errorf("the former one: %v, want %v", err, queue.ErrLost)
		}
		if err := processors[1].Complete(w.ctx, []byte("later")); err != nil || string(w.task(t, id).Result) != "later" {
			t.Errorf("%v, %q", err, w.task(t, id).Result)
		}
	})
}
