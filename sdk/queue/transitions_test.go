package queue

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestLifeOfATask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "hello", Options{Key: "k", Labels: map[string]string{"a": "b"}, Parent: "p"})
		w.depth(t, "q", map[Status]int64{Pending: 1})
		task := w.task(t, id)
		if task.Status != Pending || string(task.Parameters) != "hello" || task.Key != "k" || task.Labels["a"] != "b" ||
			task.Parent != "p" || task.Run != 0 || task.Queue != "q" || !task.Created.Equal(task.Updated) {
			t.Errorf("enqueued task: %+v", task)
		}
		if age := time.Since(task.Created); age < -time.Minute || age > time.Minute {
			t.Errorf("created %s ago", age)
		}

		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		if got.ID != id || string(got.Parameters) != "hello" || got.Run != 1 || got.Large || !got.Created.Equal(task.Created) ||
			got.Key != "k" || got.Parent != "p" || got.Last.Reason != "" {
			t.Errorf("reserved %+v", got)
		}
		w.depth(t, "q", map[Status]int64{Started: 1})
		task = w.task(t, id)
		if task.Status != Started || task.Node != node.ID() || task.PID != node.pid || task.Plugin != "p" || task.Digest != "sha256:0" {
			t.Errorf("started task: %+v", task)
		}

		errs, err := node.Settle(w.ctx, "q", []Settlement{{Claim: Claim{ID: id, Run: got.Run}, Result: []byte("done")}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		w.depth(t, "q", map[Status]int64{Complete: 1})
		task = w.task(t, id)
		if task.Status != Complete || string(task.Result) != "done" || task.Attempts != 1 || task.FinishedAt.IsZero() || task.Node != node.ID() {
			t.Errorf("finished task: %+v", task)
		}
		stats := must[Stats](t)(w.Queue("q").Stats(w.ctx))
		if stats.Totals["enqueued"] != 1 || stats.Totals["complete"] != 1 || stats.Listeners != 1 {
			t.Errorf("stats: %+v", stats)
		}
		if err := w.Queue("q").Delete(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Task(w.ctx, id); !errors.Is(err, ErrNoTask) {
			t.Errorf("deleted task: %v", err)
		}
		w.depth(t, "q", nil)
		if n := must[int64](t)(w.rdb.ZCard(w.ctx, w.keys.index("q")).Result()); n != 0 {
			t.Errorf("%d entries left in the index", n)
		}
	})
}

func TestEnqueueTwiceWritesOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		specs := []Spec{{Parameters: []byte("1"), Options: Options{ID: "same"}}, {Parameters: []byte("2")}}
		first := must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		specs[0].Parameters = []byte("other")
		specs[1].ID = first[1].ID
		second := must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		for i := range specs {
			if first[i].Existed || !second[i].Existed || second[i].Taken != (i == 0) || first[i].ID != second[i].ID {
				t.Errorf("receipts %+v, then %+v", first[i], second[i])
			}
		}
		if got := w.task(t, "same"); string(got.Parameters) != "1" {
			t.Errorf("the repeat wrote %q", got.Parameters)
		}
		w.depth(t, "q", map[Status]int64{Pending: 2})
		w.rdb.Set(w.ctx, w.keys.task("key"), "", 0)
		for queue, specs := range map[string][]Spec{"other": {{Options: Options{ID: "same"}}}, "q": {{Options: Options{ID: "key"}}}} {
			if got := must[[]Receipt](t)(w.Queue(queue).EnqueueMany(w.ctx, specs))[0]; !got.Existed || !got.Taken {
				t.Errorf("what has the ID is the task: %+v", got)
			}
		}
	})
}

func TestOrderIsFirstInFirstOut(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var specs []Spec
		for i := range 500 {
			specs = append(specs, Spec{Parameters: fmt.Appendf(nil, "%d", i)})
		}
		must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		node := w.node(t, "q")
		next := 0
		for next < len(specs) {
			batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 170}})[0]
			if batch.Err != nil || len(batch.Tasks) == 0 {
				t.Fatal(next, batch.Err)
			}
			for _, task := range batch.Tasks {
				if string(task.Parameters) != fmt.Sprint(next) {
					t.Fatalf("task %d is %q", next, task.Parameters)
				}
				next++
			}
		}
		w.depth(t, "q", map[Status]int64{Reserved: 500})
	})
}

func TestBytesThatAreNotText(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, value := range map[string][]byte{
			"jpeg": {0xff, 0xd8, 0xff, 0xe0, 0, 1}, "nul": {0}, "empty": {}, "marker": []byte("quern:bytes:1:abc"),
			"text": []byte("grüße"), "large text": []byte(strings.Repeat("x", inlineBytes+1)),
			"large bytes": bytes.Repeat([]byte{0xff}, inlineBytes+1),
		} {
			queue := strings.ReplaceAll(name, " ", "-")
			id := w.enqueue(t, queue, string(value), Options{})
			if got := w.task(t, id); !bytes.Equal(got.Parameters, value) {
				t.Errorf("%s: parameters %q", name, got.Parameters)
			}
			hash := must[map[string]string](t)(w.rdb.HGetAll(w.ctx, w.keys.task(id)).Result())
			for field, text := range hash {
				if strings.ToValidUTF8(text, "") != text {
					t.Errorf("%s: field %s is not UTF-8: %q", name, field, text)
				}
			}
			node := w.node(t, queue)
			got := w.reserve(t, node, queue, true)
			if got.Large != (len(value) > inlineBytes) {
				t.Errorf("%s: large is %v", name, got.Large)
			}
			parameters := got.Parameters
			if got.Large {
				parameters = must[[]byte](t)(w.Parameters(w.ctx, id))
			}
			if !bytes.Equal(parameters, value) {
				t.Errorf("%s: reserved with %d bytes, want %d", name, len(parameters), len(value))
			}
			if errs, err := node.Settle(w.ctx, queue, []Settlement{{Claim: Claim{ID: id, Run: got.Run}, Result: value}}); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
			if got := w.task(t, id); !bytes.Equal(got.Result, value) || got.Status != Complete {
				t.Errorf("%s: result %q", name, got.Result)
			}
			if err := w.Queue(queue).Delete(w.ctx, id); err != nil {
				t.Error(err)
			}
			if n := must[int64](t)(w.rdb.Exists(w.ctx, w.keys.task(id), w.keys.bytes(id)).Result()); n != 0 {
				t.Errorf("%s: %d keys left", name, n)
			}
		}
	})
}

func TestSettleProvesTheHold(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		settle := func(node *Node, run int64, result string) error {
			errs, err := node.Settle(w.ctx, "q", []Settlement{{Claim: Claim{ID: id, Run: run}, Result: []byte(result)}})
			if err != nil {
				t.Fatal(err)
			}
			return errs[0]
		}
		other := w.node(t, "q")
		if err := settle(other, got.Run, "stolen"); !errors.Is(err, ErrLost) {
			t.Errorf("another node: %v", err)
		}
		if err := settle(node, got.Run+1, "stale"); !errors.Is(err, ErrLost) {
			t.Errorf("another run: %v", err)
		}
		if w.task(t, id).Status != Started {
			t.Error("a settle that was refused changed the task")
		}
		if err := settle(node, got.Run, "first"); err != nil {
			t.Fatal(err)
		}
		if err := settle(node, got.Run, "repeat"); err != nil {
			t.Errorf("a repeat: %v", err)
		}
		if task := w.task(t, id); string(task.Result) != "first" || task.Attempts != 1 {
			t.Errorf("after the repeat: %q, %d attempts", task.Result, task.Attempts)
		}
		w.depth(t, "q", map[Status]int64{Complete: 1})
		if err := w.Queue("q").Delete(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := settle(node, got.Run, "late"); !errors.Is(err, ErrNoTask) {
			t.Errorf("a deleted task: %v", err)
		}
		if n := must[int64](t)(w.rdb.Exists(w.ctx, w.keys.task(id)).Result()); n != 0 {
			t.Error("a late settle wrote a deleted task")
		}
	})
}

func TestFailKeepsTheCause(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		code := 3
		failure := Failure{Reason: ReasonError, Message: "bad \xff byte", ExitCode: &code, Stderr: strings.Repeat("é", 4000)}
		errs, err := node.Settle(w.ctx, "q", []Settlement{{Claim: Claim{ID: id, Run: got.Run}, Failure: &failure}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		task := w.task(t, id)
		read := task.Failure()
		if task.Status != Failed || task.Reason != ReasonError || read.Message != "bad � byte" || *read.ExitCode != 3 {
			t.Errorf("failed task: %+v, %+v", task, read)
		}
		if len(read.Stderr) > maxFailureText || !strings.HasPrefix(read.Stderr, "é") {
			t.Errorf("stderr has %d bytes", len(read.Stderr))
		}
		stats := must[Stats](t)(w.Queue("q").Stats(w.ctx))
		if stats.Totals["failed"] != 1 || stats.Totals["failed:error"] != 1 {
			t.Errorf("totals %v", stats.Totals)
		}
	})
}

func TestReleaseGivesBackToTheFront(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range 5 {
			w.enqueue(t, "q", fmt.Sprint(i), Options{ID: fmt.Sprintf("id%d", i)})
		}
		node := w.node(t, "q")
		batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 3, Start: true}})[0]
		var held []Claim
		for i := len(batch.Tasks) - 1; i >= 0; i-- {
			held = append(held, Claim{ID: batch.Tasks[i].ID, Run: batch.Tasks[i].Run})
		}
		errs, err := node.Release(w.ctx, "q", held)
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
		w.depth(t, "q", map[Status]int64{Pending: 5})
		task := w.task(t, "id0")
		if task.Status != Pending || task.Node != "" || task.PID != 0 || task.Attempts != 0 {
			t.Errorf("released task: %+v", task)
		}
		again := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 5}})[0]
		for i, got := range again.Tasks {
			if got.ID != fmt.Sprintf("id%d", i) {
				t.Errorf("task %d is %s", i, got.ID)
			}
		}
		if errs, _ := node.Release(w.ctx, "q", held[:1]); !errors.Is(errs[0], ErrLost) {
			t.Errorf("a stale release: %v", errs)
		}
	})
}

func TestScheduleAndDue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.clock = "1700000000.000000"
		q := w.Queue("q")
		soon := must[string](t)(q.Enqueue(w.ctx, nil, Options{Delay: 10 * time.Second}))
		later := must[string](t)(q.Enqueue(w.ctx, nil, Options{At: time.Unix(1700000020, 500000000)}))
		past := must[string](t)(q.Enqueue(w.ctx, nil, Options{At: time.Unix(1600000000, 0)}))
		w.depth(t, "q", map[Status]int64{Scheduled: 2, Pending: 1})
		if task := w.task(t, later); task.Status != Scheduled || !task.ETA.Equal(time.Unix(1700000020, 500000000)) {
			t.Errorf("scheduled: %+v", task)
		}
		if task := w.task(t, past); task.Status != Pending {
			t.Errorf("scheduled in the past: %+v", task)
		}
		poll := must[Backlogs](t)(w.Fleet().Backlogs(w.ctx, []string{"q", "none"}))
		if !poll.Queues[0].NextETA.Equal(time.Unix(1700000010, 0)) || poll.Queues[0].Pending != 1 || poll.Queues[1].Pending != 0 {
			t.Errorf("poll: %+v", poll)
		}
		for _, step := range []struct {
			clock string
			moved int
		}{{"1700000009.999999", 0}, {"1700000010.000000", 1}, {"1700000020.499999", 0}, {"1700000021.000000", 1}} {
			w.clock = step.clock
			if moved := must[int](t)(enqueueDue(w.ctx, q)); moved != step.moved {
				t.Errorf("at %s moved %d, want %d", step.clock, moved, step.moved)
			}
		}
		if task := w.task(t, soon); task.Status != Pending || !task.Updated.Equal(time.Unix(1700000010, 0)) {
			t.Errorf("due task: %+v", task)
		}
		w.depth(t, "q", map[Status]int64{Pending: 3})
	})
}

func TestInBlocks(t *testing.T) {
	w := setup(t)
	w.clock = "1700000000.000000"
	var specs []Spec
	for i := range 2100 {
		specs = append(specs, Spec{Parameters: fmt.Appendf(nil, "%d", i), Options: Options{Delay: time.Second}})
	}
	receipts := must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
	// What was cancelled by hand or deleted is dropped, not moved.
	w.rdb.HSet(w.ctx, w.keys.task(receipts[0].ID), "status", "failed")
	w.rdb.Del(w.ctx, w.keys.task(receipts[1].ID))
	w.clock = "1700000001.000000"
	if moved := must[int](t)(enqueueDue(w.ctx, w.Queue("q"))); moved != 2098 {
		t.Errorf("moved %d", moved)
	}
	w.depth(t, "q", map[Status]int64{Pending: 2098})
}

func TestDueDropsWhatIsGone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.clock = "1700000000.000000"
		cancelled := w.enqueue(t, "q", "", Options{Delay: time.Second})
		deleted := w.enqueue(t, "q", "", Options{Delay: time.Second})
		w.enqueue(t, "q", "", Options{Delay: time.Second})
		w.rdb.HSet(w.ctx, w.keys.task(cancelled), "status", "failed")
		w.rdb.Del(w.ctx, w.keys.task(deleted))
		w.clock = "1700000001.000000"
		if moved := must[int](t)(enqueueDue(w.ctx, w.Queue("q"))); moved != 1 {
			t.Errorf("moved %d", moved)
		}
		w.depth(t, "q", map[Status]int64{Pending: 1})
	})
}

func TestStatsBesideADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "whole", "", Options{})
		w.rdb.Set(w.ctx, w.keys.pending("damaged"), "x", 0)
		stats := must[[]Stats](t)(w.Client.Stats(w.ctx, "damaged", "whole"))
		if stats[0].Err == nil || !strings.Contains(stats[0].Err.Error(), w.keys.pending("damaged")) {
			t.Errorf("damaged: %v does not name the key", stats[0].Err)
		}
		if stats[1].Err != nil || stats[1].Depth[Pending] != 1 {
			t.Errorf("whole: %+v", stats[1])
		}
		if _, err := w.Queue("damaged").Count(w.ctx, Pending); err == nil {
			t.Error("counting a damaged queue is no error")
		}
	})
}

func TestReserveDropsWhatCannotRun(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node, other := w.node(t, "q"), w.node(t, "q")
		finished := w.enqueue(t, "q", "", Options{})
		w.rdb.HSet(w.ctx, w.keys.task(finished), "status", "failed")
		w.rdb.LPush(w.ctx, w.keys.pending("q"), "missing")
		w.rdb.LPush(w.ctx, w.keys.pending("q"), "wrongtype")
		w.rdb.Set(w.ctx, w.keys.task("wrongtype"), "x", 0)
		held := w.enqueue(t, "q2", "", Options{})
		w.reserve(t, other, "q2", true)
		w.rdb.LPush(w.ctx, w.keys.pending("q2"), held)
		// By hand, as documented: only the fields of Blueque's own README, and not even a status.
		w.rdb.HSet(w.ctx, w.keys.task("byhand"), "queue", "q", "parameters", "x")
		w.rdb.LPush(w.ctx, w.keys.pending("q"), "byhand")
		// Popped by a Python listener that died before it wrote the hash, and put back by hand.
		popped := w.enqueue(t, "q", "", Options{})
		w.rdb.HSet(w.ctx, w.keys.task(popped), "status", "reserved", "node", "gone_1")

		batches := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 10}, {Queue: "q2", Count: 10}})
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
		if score, err := w.rdb.ZScore(w.ctx, w.keys.index("q"), "byhand").Result(); err != nil || score < 1e9 {
			t.Errorf("the index has the task by hand at %v, %v", score, err)
		}
	})
}

// An entry that is left of an earlier time, because the list was too long to search, does not let a task skip its pause.
func TestReserveDropsOldEntriesOfWhatIsScheduled(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		hold := w.reserveMany(t, node, "q", 1, true)[0]
		w.settle(t, node, "q", Settlement{Claim: hold, Failure: &Failure{}, Requeue: RequeueRetry, Delay: time.Minute})
		w.rdb.LPush(w.ctx, w.keys.pending("q"), id)
		batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]
		if batch.Err != nil || len(batch.Tasks) != 0 || batch.Dropped != 1 {
			t.Errorf("%+v", batch)
		}
		w.depth(t, "q", map[Status]int64{Scheduled: 1})
		w.at(60)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		w.reserve(t, node, "q", true)

		// One that is due is in the list for good: Blueque may have died before it took it out of the set.
		w.at(70)
		due := w.enqueue(t, "q", "", Options{Delay: time.Second})
		w.rdb.LPush(w.ctx, w.keys.pending("q"), due)
		w.at(80)
		if got := w.reserve(t, node, "q", true); got.ID != due {
			t.Errorf("reserved %s", got.ID)
		}
	})
}

func TestReserveLeavesPausedQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		w.rdb.SAdd(w.ctx, w.keys.paused(), "q")
		batch := w.node(t, "q").Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]
		if batch.Err != nil || len(batch.Tasks) != 0 {
			t.Errorf("%+v", batch)
		}
		if stats := must[Stats](t)(w.Queue("q").Stats(w.ctx)); !stats.Paused {
			t.Error("not shown as paused")
		}
	})
}

func TestAdoptFindsALostReply(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "x", Options{})
		node := w.node(t, "q")
		lost := w.reserve(t, node, "q", true) // as if the reply had not come
		ids := must[[]string](t)(node.Held(w.ctx, "q"))
		batch := node.Adopt(w.ctx, ReserveRequest{Queue: "q", Start: true}, ids)
		if batch.Err != nil || len(batch.Tasks) != 1 || batch.Tasks[0].Run != lost.Run || string(batch.Tasks[0].Parameters) != "x" {
			t.Fatalf("adopted %+v", batch)
		}
		// Somebody else has it: the entry goes, the task stays as it is.
		w.rdb.HSet(w.ctx, w.keys.task(id), "node", "other_1")
		w.rdb.LPush(w.ctx, w.keys.reserved("q", "other_1"), id)
		batch = node.Adopt(w.ctx, ReserveRequest{Queue: "q", Start: true}, ids)
		if batch.Err != nil || len(batch.Tasks) != 0 || batch.Dropped != 1 {
			t.Errorf("another's: %+v", batch)
		}
	})
}

func TestReserveOfANodeThatLeft(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		if err := node.Leave(w.ctx); err != nil {
			t.Fatal(err)
		}
		// One that was long on its way: nobody would ever find what it took.
		if batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]; !errors.Is(batch.Err, ErrLeaseLost) {
			t.Errorf("reserved %+v", batch)
		}
		w.depth(t, "q", map[Status]int64{Pending: 1})
	})
}

// A reserve that broke off leaves its task in the list alone: the list is the truth.
func TestAdoptFindsAHalfReservedTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "x", Options{})
		node := w.node(t, "q")
		w.rdb.LMove(w.ctx, w.keys.pending("q"), w.keys.reserved("q", node.ID()), "right", "left")
		batch := node.Adopt(w.ctx, ReserveRequest{Queue: "q", Start: true, Plugin: "p", Digest: "sha256:1"}, []string{id})
		if batch.Err != nil || len(batch.Tasks) != 1 || batch.Dropped != 0 || string(batch.Tasks[0].Parameters) != "x" {
			t.Fatalf("adopted %+v", batch)
		}
		errs, err := node.Settle(w.ctx, "q", []Settlement{{Claim: Claim{ID: id, Run: batch.Tasks[0].Run}}})
		if err != nil || errs[0] != nil {
			t.Error(errs, err)
		}
		w.depth(t, "q", map[Status]int64{Complete: 1})
	})
}

// What stands in a hash by hand may be a number to Lua and none to Redis.
func TestReserveWithOddTimes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		for _, created := range []string{"1795250000\n", " 1", "nan", "inf", "1e400", "0x10", "-1", "", "abc", strings.Repeat("9", 400)} {
			w.rdb.HSet(w.ctx, w.keys.task("odd"), "queue", "q", "status", "pending", "created", created)
			w.rdb.LPush(w.ctx, w.keys.pending("q"), "odd")
			if got := w.reserve(t, node, "q", true); got.ID != "odd" {
				t.Errorf("created %q: reserved %+v", created, got)
			}
			if errs, err := node.Settle(w.ctx, "q", []Settlement{{Claim: Claim{ID: "odd", Run: 1}}}); err != nil || errs[0] != nil {
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
		id := w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		batch := node.Adopt(w.ctx, ReserveRequest{Queue: "q", Start: true, Plugin: "p", Digest: "sha256:1"}, []string{id})
		if batch.Err != nil || len(batch.Tasks) != 1 {
			t.Fatalf("adopted %+v", batch)
		}
		if task := w.task(t, id); task.Digest != "sha256:1" {
			t.Errorf("digest %s, but another version runs it", task.Digest)
		}
		w.depth(t, "q", map[Status]int64{Started: 1})
	})
}

func TestLeaveOfADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "a", "b", "c")
		w.rdb.Del(w.ctx, w.keys.listeners("b"))
		w.rdb.Set(w.ctx, w.keys.listeners("b"), "x", 0)
		if err := node.Leave(w.ctx); err == nil {
			t.Error("leaving a damaged queue is no error")
		}
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); got["a"] != 0 || got["c"] != 0 {
			t.Errorf("listeners of the other queues: %v", got)
		}
	})
}

func TestSettleBesideADamagedTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		w.enqueue(t, "q", "", Options{ID: "damaged"})
		w.enqueue(t, "q", "", Options{ID: "whole"})
		batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 2, Start: true}})[0]
		w.rdb.Del(w.ctx, w.keys.task("damaged"))
		w.rdb.Set(w.ctx, w.keys.task("damaged"), "x", 0)
		var settlements []Settlement
		for _, task := range batch.Tasks {
			settlements = append(settlements, Settlement{Claim: Claim{ID: task.ID, Run: task.Run}})
		}
		errs, err := node.Settle(w.ctx, "q", settlements)
		if err != nil || !errors.Is(errs[0], ErrNoTask) || errs[1] != nil {
			t.Errorf("settled: %v, %v", errs, err)
		}
		w.depth(t, "q", map[Status]int64{Complete: 1})
	})
}

func TestCancelWaitingTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		pending := w.enqueue(t, "q", "", Options{})
		scheduled := w.enqueue(t, "q", "", Options{Delay: time.Hour})
		for _, id := range []string{pending, scheduled} {
			if _, err := q.Cancel(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			if task := w.task(t, id); task.Status != Failed || task.Reason != ReasonCancelled || task.Failure().Reason != ReasonCancelled {
				t.Errorf("cancelled: %+v", task)
			}
		}
		w.depth(t, "q", map[Status]int64{Failed: 2})
		if _, err := q.Cancel(w.ctx, pending); !errors.Is(err, ErrStatus) {
			t.Errorf("twice: %v", err)
		}
		if _, err := q.Cancel(w.ctx, "none"); !errors.Is(err, ErrNoTask) {
			t.Errorf("no task: %v", err)
		}
		running := w.enqueue(t, "q", "", Options{})
		w.reserve(t, w.node(t, "q"), "q", true)
		if err := q.Delete(w.ctx, running); !errors.Is(err, ErrStatus) {
			t.Errorf("delete of a running task: %v", err)
		}
	})
}

func TestRegisterCountsOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "a", "b", "a")
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); got["a"] != 1 || got["b"] != 1 {
			t.Errorf("listeners %v", got)
		}
		if _, err := node.Renew(w.ctx, map[string]string{"version": "1"}); err != nil {
			t.Fatal(err)
		}
		end := must[float64](t)(w.rdb.ZScore(w.ctx, w.keys.nodes(), node.ID()).Result())
		if left := end - float64(time.Now().Unix()); left < 5 || left > 15 {
			t.Errorf("the lease ends in %v s", left)
		}
		if ttl := must[time.Duration](t)(w.rdb.TTL(w.ctx, w.keys.node(node.ID())).Result()); ttl < time.Second || ttl > time.Minute {
			t.Errorf("the node hash lives %s", ttl)
		}
		for range 2 {
			if err := node.Leave(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); got["a"] != 0 || got["b"] != 0 {
			t.Errorf("listeners after leaving twice %v", got)
		}
		if _, err := node.Renew(w.ctx, nil); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("renewing after leaving: %v", err)
		}
	})
}

func TestLeavingWithAHeldTaskStaysKnown(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", false)
		if err := node.Leave(w.ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := w.rdb.ZScore(w.ctx, w.keys.nodes(), node.ID()).Result(); err != nil {
			t.Errorf("the node is forgotten while it holds a task: %v", err)
		}
	})
}

// A call that needs a key of another type writes nothing, also for its other tasks.
func TestMistypedKeysChangeNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		plain, keyed := Spec{Options: Options{ID: "id"}}, Spec{Options: Options{Key: "k"}}
		for queue, with := range map[string]struct {
			damaged string
			specs   []Spec
		}{
			"a": {w.keys.index("a"), []Spec{plain}},
			"b": {w.keys.scheduled("b"), []Spec{plain}}, // from which no task is reserved
			"c": {w.keys.expiry("c"), []Spec{plain}},
			"d": {w.keys.keyed("d"), []Spec{plain, keyed}},
		} {
			w.rdb.Set(w.ctx, with.damaged, "x", 0)
			_, err := w.Queue(queue).EnqueueMany(w.ctx, with.specs)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), with.damaged) || !strings.Contains(err.Error(), "expected a zset") {
				t.Errorf("error %v does not name the key %s and the type", err, with.damaged)
			}
			if n := must[int64](t)(w.rdb.Exists(w.ctx, w.keys.task("id"), w.keys.pending(queue), w.keys.queues()).Result()); n != 0 {
				t.Errorf("%d keys were written", n)
			}
		}
	})
}

func TestDuty(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a, b := w.Node(), w.Node()
		take := func(n *Node) bool { return must[bool](t)(n.TakeDuty(w.ctx, "due", time.Minute)) }
		if !take(a) || take(b) {
			t.Error("a duty was taken twice, or not at all")
		}
		if err := b.YieldDuty(w.ctx, "due"); err != nil || take(b) {
			t.Error("another's duty was given back", err)
		}
		if err := a.YieldDuty(w.ctx, "due"); err != nil || !take(b) {
			t.Error("a duty that was given back cannot be taken", err)
		}
	})
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	if err := w.Prepare(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.rdb.ScriptFlush(w.ctx)
	w.enqueue(t, "q", "", Options{})
	w.rdb.ScriptFlush(w.ctx)
	stats := must[[]Stats](t)(w.Client.Stats(w.ctx, "q", "q", "r"))
	if stats[0].Depth[Pending] != 1 || stats[1].Depth[Pending] != 1 || stats[2].Depth[Pending] != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func TestNewerProtocolIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := w.Prepare(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.rdb.Set(w.ctx, w.keys.version(), "2", 0)
		if err := w.Prepare(w.ctx); !errors.Is(err, ErrVersion) {
			t.Errorf("%v", err)
		}
	})
}

func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	a := setupOwn(t)
	b := must[*Client](t)(NewFromRedis(a.rdb, Config{Tenant: a.Tenant() + "-b"}))
	a.enqueue(t, "q", "", Options{ID: "same"})
	if _, err := b.Task(a.ctx, "same"); !errors.Is(err, ErrNoTask) {
		t.Errorf("%v", err)
	}
	node := b.Node()
	if err := node.Join(a.ctx); err != nil {
		t.Fatal(err)
	}
	batch := node.Reserve(a.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]
	if len(batch.Tasks) != 0 || batch.Err != nil {
		t.Errorf("%+v", batch)
	}
	if _, err := b.Queue("q").Enqueue(a.ctx, nil, Options{ID: "same"}); err != nil {
		t.Error(err)
	}
	a.depth(t, "q", map[Status]int64{Pending: 1})
}

func TestAtMaxmemory(t *testing.T) { onServers(t, atMaxmemory) }

func atMaxmemory(t *testing.T, w *world) {
	node := w.node(t, "q")
	for range 4 {
		w.enqueue(t, "q", "x", Options{})
	}
	got, back := w.reserve(t, node, "q", true), w.reserve(t, node, "q", true)
	// Less than it holds already: it is full, whatever buffers come and go.
	if err := w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Queue("q").Enqueue(w.ctx, nil, Options{ID: "late"}); !IsUnavailable(err) {
		t.Errorf("enqueue: %v", err)
	}
	if n := must[int64](t)(w.rdb.Exists(w.ctx, w.keys.task("late")).Result()); n != 0 {
		t.Error("a refused enqueue wrote something")
	}
	if batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]; !IsUnavailable(batch.Err) {
		t.Errorf("reserve: %+v", batch)
	}
	if _, err := node.Renew(w.ctx, map[string]string{"version": "1"}); err != nil {
		t.Errorf("renew: %v", err)
	}
	errs, err := node.Settle(w.ctx, "q", []Settlement{{Claim: Claim{ID: got.ID, Run: got.Run}, Result: []byte("done")}})
	if err != nil || errs[0] != nil {
		t.Errorf("settle: %v %v", err, errs)
	}
	errs, err = node.Release(w.ctx, "q", []Claim{{ID: back.ID, Run: back.Run}})
	if err != nil || errs[0] != nil {
		t.Errorf("release: %v %v", err, errs)
	}
	if _, err := w.Queue("q").Cancel(w.ctx, back.ID); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if err := w.Queue("q").Delete(w.ctx, got.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := node.Leave(w.ctx); err != nil {
		t.Errorf("leave: %v", err)
	}
	w.depth(t, "q", map[Status]int64{Pending: 2, Failed: 1})
}

// What Redis cannot do now is not a fault of the call, whatever Redis wraps around it.
func TestRefusalsOfRedisPass(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		w.enqueue(t, "q", "", Options{})
		refused := func(name string) {
			_, err := w.Queue("q").Enqueue(w.ctx, nil, Options{})
			_, renewing := node.Renew(w.ctx, nil)
			for what, err := range map[string]error{
				"enqueue": err, "join": w.Client.Node().Join(w.ctx), "register": node.Register(w.ctx, "other"), "renew": renewing,
				"reserve": node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0].Err,
			} {
				if !IsUnavailable(err) {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
		}
		w.rdb.ConfigSet(w.ctx, "min-replicas-to-write", "1")
		refused("no replicas")
		w.rdb.ConfigSet(w.ctx, "min-replicas-to-write", "0")
		w.rdb.ReplicaOf(w.ctx, "127.0.0.1", "1")
		refused("a replica")
		w.rdb.ReplicaOf(w.ctx, "no", "one")
		w.reserve(t, node, "q", true)
		if err := w.rdb.Eval(w.ctx, "return redis.call('LPUSH', KEYS[1])", []string{"k"}).Err(); err == nil || IsUnavailable(err) {
			t.Errorf("a call that can never be done: %v", err)
		}
	})
}

func TestPublishForbidden(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	if err := w.rdb.Do(w.ctx, "ACL", "SETUSER", "quiet", "on", ">pw", "~*", "resetchannels", "+@all", "-publish").Err(); err != nil {
		t.Fatal(err)
	}
	options := *w.rdb.Options()
	options.Username, options.Password = "quiet", "pw"
	rdb := redis.NewClient(&options)
	defer rdb.Close()
	quiet := must[*Client](t)(NewFromRedis(rdb, Config{Tenant: w.Tenant()}))
	if _, err := quiet.Queue("q").Enqueue(w.ctx, nil, Options{}); err != nil {
		t.Error(err)
	}
	w.depth(t, "q", map[Status]int64{Pending: 1})
}
