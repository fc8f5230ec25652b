package queue

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
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
		if n := must[int64](t)(w.rdb.ZCard(w.ctx, w.store.keys.index("q")).Result()); n != 0 {
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
		w.rdb.Set(w.ctx, w.store.keys.task("key"), "", 0)
		for queue, specs := range map[string][]Spec{"other": {{Options: Options{ID: "same"}}}, "q": {{Options: Options{ID: "key"}}}} {
			if got := must[[]Receipt](t)(w.Queue(queue).EnqueueMany(w.ctx, specs))[0]; !got.Existed || !got.Taken {
				t.Errorf("what has the ID is the task: %+v", got)
			}
		}
	})
}

func TestBytesThatAreNotText(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, value := range map[string][]byte{
			"jpeg": {0xff, 0xd8, 0xff, 0xe0, 0, 1}, "nul": {0}, "empty": {}, "marker": []byte("quern:bytes:1:abc"),
			"text": []byte("grüße"), "large text": []byte(strings.Repeat("x", MaxInline+1)),
			"large bytes": bytes.Repeat([]byte{0xff}, MaxInline+1),
		} {
			queue := strings.ReplaceAll(name, " ", "-")
			id := w.enqueue(t, queue, string(value), Options{})
			if got := w.task(t, id); !bytes.Equal(got.Parameters, value) {
				t.Errorf("%s: parameters %q", name, got.Parameters)
			}
			hash := must[map[string]string](t)(w.rdb.HGetAll(w.ctx, w.store.keys.task(id)).Result())
			for field, text := range hash {
				if strings.ToValidUTF8(text, "") != text {
					t.Errorf("%s: field %s is not UTF-8: %q", name, field, text)
				}
			}
			node := w.node(t, queue)
			got := w.reserve(t, node, queue, true)
			if got.Large != (len(value) > MaxInline) {
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
			if n := must[int64](t)(w.rdb.Exists(w.ctx, w.store.keys.task(id), w.store.keys.bytes(id)).Result()); n != 0 {
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
		if n := must[int64](t)(w.rdb.Exists(w.ctx, w.store.keys.task(id)).Result()); n != 0 {
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

// What was deleted or has finished, by the hand of another client, is not due.
func TestDueDropsWhatIsGone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.store.clock = "1700000000.000000"
		cancelled := w.enqueue(t, "q", "", Options{Delay: time.Second})
		deleted := w.enqueue(t, "q", "", Options{Delay: time.Second})
		w.enqueue(t, "q", "", Options{Delay: time.Second})
		w.rdb.HSet(w.ctx, w.store.keys.task(cancelled), "status", "failed")
		w.rdb.Del(w.ctx, w.store.keys.task(deleted))
		w.store.clock = "1700000001.000000"
		if moved := must[int](t)(enqueueDue(w.ctx, w.Queue("q"))); moved != 1 {
			t.Errorf("moved %d", moved)
		}
		w.depth(t, "q", map[Status]int64{Pending: 1})
	})
}

func TestScheduleAndDue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.store.clock = "1700000000.000000"
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
			w.store.clock = step.clock
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
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		specs := make([]Spec, 2100)
		if embedded(t) {
			specs = specs[:210]
		}
		for i := range specs {
			specs[i] = Spec{Parameters: fmt.Appendf(nil, "%d", i), Options: Options{Delay: time.Second}}
		}
		receipts := must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		// What was cancelled by hand or deleted is dropped, not moved.
		w.rdb.HSet(w.ctx, w.store.keys.task(receipts[0].ID), "status", "failed")
		w.rdb.Del(w.ctx, w.store.keys.task(receipts[1].ID))
		w.at(1)
		if moved := must[int](t)(enqueueDue(w.ctx, w.Queue("q"))); moved != len(specs)-2 {
			t.Errorf("moved %d", moved)
		}
		w.depth(t, "q", map[Status]int64{Pending: int64(len(specs) - 2)})
	})
}
