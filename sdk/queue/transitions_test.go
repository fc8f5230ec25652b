package queue_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func TestLifeOfATask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "hello", queue.Options{Key: "k", Labels: map[string]string{"a": "b"}, Parent: "p"})
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
		task := w.task(t, id)
		if task.Status != queue.Pending || string(task.Parameters) != "hello" || task.Key != "k" || task.Labels["a"] != "b" ||
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
		w.depth(t, "q", map[queue.Status]int64{queue.Started: 1})
		task = w.task(t, id)
		if task.Status != queue.Started || task.Node != node.ID() || task.PID != os.Getpid() || task.Plugin != "p" || task.Digest != "sha256:0" {
			t.Errorf("started task: %+v", task)
		}

		errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: listen.Claim{ID: id, Run: got.Run}, Result: []byte("done")}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
		task = w.task(t, id)
		if task.Status != queue.Complete || string(task.Result) != "done" || task.Attempts != 1 || task.FinishedAt.IsZero() || task.Node != node.ID() {
			t.Errorf("finished task: %+v", task)
		}
		stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx))
		if stats.Totals["enqueued"] != 1 || stats.Totals["complete"] != 1 || stats.Listeners != 1 {
			t.Errorf("stats: %+v", stats)
		}
		if err := w.Queue("q").Delete(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Task(w.ctx, id); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("deleted task: %v", err)
		}
		w.depth(t, "q", nil)
		if n := must[int64](t)(w.rdb.ZCard(w.ctx, w.Store().Keys.Index("q")).Result()); n != 0 {
			t.Errorf("%d entries left in the index", n)
		}
	})
}

func TestEnqueueTwiceWritesOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		specs := []queue.Spec{{Parameters: []byte("1"), Options: queue.Options{ID: "same"}}, {Parameters: []byte("2")}}
		first := must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		specs[0].Parameters = []byte("other")
		specs[1].ID = first[1].ID
		second := must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		for i := range specs {
			if first[i].Existed || !second[i].Existed || second[i].Taken != (i == 0) || first[i].ID != second[i].ID {
				t.Errorf("receipts %+v, then %+v", first[i], second[i])
			}
		}
		if got := w.task(t, "same"); string(got.Parameters) != "1" {
			t.Errorf("the repeat wrote %q", got.Parameters)
		}
		if id, err := w.Queue("q").Enqueue(w.ctx, []byte("1"), queue.Options{ID: "same"}); id != "same" || err != nil {
			t.Errorf("the same once more: %q, %v", id, err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 2})
		w.rdb.Set(w.ctx, w.Store().Keys.Task("key"), "", 0)
		for name, specs := range map[string][]queue.Spec{"other": {{Options: queue.Options{ID: "same"}}}, "q": {{Options: queue.Options{ID: "key"}}}} {
			if got := must[[]queue.Receipt](t)(w.Queue(name).EnqueueMany(w.ctx, specs))[0]; !got.Existed || !got.Taken {
				t.Errorf("what has the ID is the task: %+v", got)
			}
			id, err := w.Queue(name).Enqueue(w.ctx, specs[0].Parameters, specs[0].Options)
			if id != specs[0].ID || !errors.Is(err, queue.ErrExists) || !strings.Contains(err.Error(), "choose another ID") {
				t.Errorf("the ID is another's: %q, %v", id, err)
			}
		}
	})
}

func TestBytesThatAreNotText(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, value := range map[string][]byte{
			"jpeg": {0xff, 0xd8, 0xff, 0xe0, 0, 1}, "nul": {0}, "empty": {}, "marker": []byte("quern:bytes:1:abc"),
			"text": []byte("grüße"), "large text": []byte(strings.Repeat("x", listen.MaxInline+1)),
			"large bytes": bytes.Repeat([]byte{0xff}, listen.MaxInline+1),
		} {
			target := strings.ReplaceAll(name, " ", "-")
			id := w.enqueue(t, target, string(value), queue.Options{})
			if got := w.task(t, id); !bytes.Equal(got.Parameters, value) {
				t.Errorf("%s: parameters %q", name, got.Parameters)
			}
			hash := must[map[string]string](t)(w.rdb.HGetAll(w.ctx, w.Store().Keys.Task(id)).Result())
			for field, text := range hash {
				if strings.ToValidUTF8(text, "") != text {
					t.Errorf("%s: field %s is not UTF-8: %q", name, field, text)
				}
			}
			node := w.node(t, target)
			got := w.reserve(t, node, target, true)
			if got.Large != (len(value) > listen.MaxInline) {
				t.Errorf("%s: large is %v", name, got.Large)
			}
			parameters := got.Parameters
			if got.Large {
				parameters = must[[]byte](t)(w.Parameters(w.ctx, id, math.MaxInt64))
			}
			if !bytes.Equal(parameters, value) {
				t.Errorf("%s: reserved with %d bytes, want %d", name, len(parameters), len(value))
			}
			if errs, err := node.Settle(w.ctx, target, []listen.Settlement{{Claim: listen.Claim{ID: id, Run: got.Run}, Result: value}}); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
			if got := w.task(t, id); !bytes.Equal(got.Result, value) || got.Status != queue.Complete {
				t.Errorf("%s: result %q", name, got.Result)
			}
			if err := w.Queue(target).Delete(w.ctx, id); err != nil {
				t.Error(err)
			}
			if n := must[int64](t)(w.rdb.Exists(w.ctx, w.Store().Keys.Task(id), w.Store().Keys.Bytes(id)).Result()); n != 0 {
				t.Errorf("%s: %d keys left", name, n)
			}
		}
	})
}

func TestSettleProvesTheHold(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		settle := func(node *listen.Node, run int64, result string) error {
			errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: listen.Claim{ID: id, Run: run}, Result: []byte(result)}})
			if err != nil {
				t.Fatal(err)
			}
			return errs[0]
		}
		other := w.node(t, "q")
		if err := settle(other, got.Run, "stolen"); !errors.Is(err, queue.ErrLost) {
			t.Errorf("another node: %v", err)
		}
		if err := settle(node, got.Run+1, "stale"); !errors.Is(err, queue.ErrLost) {
			t.Errorf("another run: %v", err)
		}
		if w.task(t, id).Status != queue.Started {
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
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
		if err := w.Queue("q").Delete(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := settle(node, got.Run, "late"); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("a deleted task: %v", err)
		}
		if n := must[int64](t)(w.rdb.Exists(w.ctx, w.Store().Keys.Task(id)).Result()); n != 0 {
			t.Error("a late settle wrote a deleted task")
		}
	})
}

func TestFailKeepsTheCause(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		code := 3
		failure := queue.Failure{Reason: queue.ReasonError, Message: "bad \xff byte", ExitCode: &code, Stderr: strings.Repeat("é", 4000)}
		errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: listen.Claim{ID: id, Run: got.Run}, Failure: &failure}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		task := w.task(t, id)
		read := task.Failure()
		if task.Status != queue.Failed || task.Reason != queue.ReasonError || read.Message != "bad � byte" || *read.ExitCode != 3 {
			t.Errorf("failed task: %+v, %+v", task, read)
		}
		if len(read.Stderr) > queue.MaxFailureText || !strings.HasPrefix(read.Stderr, "é") {
			t.Errorf("stderr has %d bytes", len(read.Stderr))
		}
		stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx))
		if stats.Totals["failed"] != 1 || stats.Totals["failed:error"] != 1 {
			t.Errorf("totals %v", stats.Totals)
		}
	})
}

func TestReleaseGivesBackToTheFront(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range 5 {
			w.enqueue(t, "q", fmt.Sprint(i), queue.Options{ID: fmt.Sprintf("id%d", i)})
		}
		node := w.node(t, "q")
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 3, Start: true}})[0]
		var held []listen.Claim
		for i := len(batch.Tasks) - 1; i >= 0; i-- {
			held = append(held, listen.Claim{ID: batch.Tasks[i].ID, Run: batch.Tasks[i].Run})
		}
		errs, err := node.Release(w.ctx, "q", held)
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 5})
		task := w.task(t, "id0")
		if task.Status != queue.Pending || task.Node != "" || task.PID != 0 || task.Attempts != 0 {
			t.Errorf("released task: %+v", task)
		}
		again := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 5}})[0]
		for i, got := range again.Tasks {
			if got.ID != fmt.Sprintf("id%d", i) {
				t.Errorf("task %d is %s", i, got.ID)
			}
		}
		if errs, _ := node.Release(w.ctx, "q", held[:1]); !errors.Is(errs[0], queue.ErrLost) {
			t.Errorf("a stale release: %v", errs)
		}
	})
}

// What was deleted or has finished, by the hand of another client, is not due.
func TestDueDropsWhatIsGone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Clock = "1700000000.000000"
		cancelled := w.enqueue(t, "q", "", queue.Options{Delay: time.Second})
		deleted := w.enqueue(t, "q", "", queue.Options{Delay: time.Second})
		w.enqueue(t, "q", "", queue.Options{Delay: time.Second})
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(cancelled), "status", "failed")
		w.rdb.Del(w.ctx, w.Store().Keys.Task(deleted))
		w.Store().Clock = "1700000001.000000"
		if moved := must[int](t)(enqueueDue(w.ctx, w.Queue("q"))); moved != 1 {
			t.Errorf("moved %d", moved)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
	})
}

func TestScheduleAndDue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Clock = "1700000000.000000"
		q := w.Queue("q")
		soon := must[string](t)(q.Enqueue(w.ctx, nil, queue.Options{Delay: 10 * time.Second}))
		later := must[string](t)(q.Enqueue(w.ctx, nil, queue.Options{At: time.Unix(1700000020, 500000000)}))
		past := must[string](t)(q.Enqueue(w.ctx, nil, queue.Options{At: time.Unix(1600000000, 0)}))
		w.depth(t, "q", map[queue.Status]int64{queue.Scheduled: 2, queue.Pending: 1})
		if task := w.task(t, later); task.Status != queue.Scheduled || !task.ETA.Equal(time.Unix(1700000020, 500000000)) {
			t.Errorf("scheduled: %+v", task)
		}
		if task := w.task(t, past); task.Status != queue.Pending {
			t.Errorf("scheduled in the past: %+v", task)
		}
		poll := must[listen.Backlogs](t)(listen.NewFleet(w.Client).Backlogs(w.ctx, []string{"q", "none"}))
		if !poll.Queues[0].NextETA.Equal(time.Unix(1700000010, 0)) || poll.Queues[0].Pending != 1 || poll.Queues[1].Pending != 0 {
			t.Errorf("poll: %+v", poll)
		}
		for _, step := range []struct {
			clock string
			moved int
		}{{"1700000009.999999", 0}, {"1700000010.000000", 1}, {"1700000020.499999", 0}, {"1700000021.000000", 1}} {
			w.Store().Clock = step.clock
			if moved := must[int](t)(enqueueDue(w.ctx, q)); moved != step.moved {
				t.Errorf("at %s moved %d, want %d", step.clock, moved, step.moved)
			}
		}
		if task := w.task(t, soon); task.Status != queue.Pending || !task.Updated.Equal(time.Unix(1700000010, 0)) {
			t.Errorf("due task: %+v", task)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 3})
	})
}

func TestInBlocks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		specs := make([]queue.Spec, 2100)
		if embedded(t) {
			specs = specs[:210]
		}
		for i := range specs {
			specs[i] = queue.Spec{Parameters: fmt.Appendf(nil, "%d", i), Options: queue.Options{Delay: time.Second}}
		}
		receipts := must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		// What was cancelled by hand or deleted is dropped, not moved.
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(receipts[0].ID), "status", "failed")
		w.rdb.Del(w.ctx, w.Store().Keys.Task(receipts[1].ID))
		w.at(1)
		if moved := must[int](t)(enqueueDue(w.ctx, w.Queue("q"))); moved != len(specs)-2 {
			t.Errorf("moved %d", moved)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: int64(len(specs) - 2)})
	})
}
