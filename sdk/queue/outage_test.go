package queue_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// In these tests Redis does what it was asked, and the answer is lost: what the caller does then, a
// repeat, must neither lose nor double anything.

func TestEnqueueAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	q := w.Queue("q")
	proxy.CutReplies(1, w.Store().Keys.Pending("q"))
	id, err := q.Enqueue(w.ctx, []byte("x"), queue.Options{})
	if id == "" || !queue.IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("enqueued %q, %v, %d replies cut", id, err, proxy.Cuts())
	}
	receipts := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{{Parameters: []byte("x"), Options: queue.Options{ID: id}}}))
	if receipts[0].ID != id || !receipts[0].Existed {
		t.Errorf("the repeat: %+v", receipts)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
	if total := must[manage.Stats](t)(manage.New(past.Client).Queue("q").Stats(past.ctx)).Totals["enqueued"]; total != 1 {
		t.Errorf("counted %d", total)
	}
}

// The second of three writes is done, in whole or from its beginning, without an answer: all IDs are known, and the repeat of all
// fills up what is missing.
func TestEnqueueManyAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	q := w.Queue("q")
	specs := make([]queue.Spec, 5*queue.WriteTasks/2)
	for i := range specs {
		specs[i].Parameters = fmt.Appendf(nil, "%d", i)
	}
	specs[3*queue.WriteTasks/2].Key = "here"
	proxy.CutReplies(1, "here")
	receipts, err := q.EnqueueMany(w.ctx, specs)
	if !queue.IsUnavailable(err) || proxy.Cuts() != 1 || len(receipts) != len(specs) {
		t.Fatalf("%v, %d replies cut, %d receipts", err, proxy.Cuts(), len(receipts))
	}
	for i := range specs {
		specs[i].ID = receipts[i].ID
	}
	done := 0
	for _, receipt := range must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, specs)) {
		if receipt.ID != specs[done].ID || !receipt.Existed {
			break
		}
		done++
	}
	if done <= 3*queue.WriteTasks/2 || done > 2*queue.WriteTasks || done%store.BlockTasks != 0 {
		t.Errorf("%d tasks were there before the repeat", done)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Pending: int64(len(specs))})
}

func TestSettleAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	for i, settlement := range []listen.Settlement{{Result: []byte("first")}, {Failure: &queue.Failure{Reason: queue.ReasonTrap}}} {
		name := fmt.Sprintf("q%d", i)
		id := past.enqueue(t, name, "", queue.Options{})
		node, hold := w.held(t, name)
		settlement.Claim = hold
		cuts := proxy.Cuts()
		proxy.CutReplies(1, hold.ID)
		if _, err := node.Settle(w.ctx, name, []listen.Settlement{settlement}); !queue.IsUnavailable(err) || proxy.Cuts() != cuts+1 {
			t.Fatalf("%v, %d replies cut", err, proxy.Cuts()-cuts)
		}
		before := past.rdb.HGetAll(w.ctx, w.Store().Keys.Task(id)).Val()
		w.settle(t, node, name, settlement)
		w.settle(t, node, name, listen.Settlement{Claim: hold, Result: []byte("another word")}) // too late to say so
		if after := past.rdb.HGetAll(w.ctx, w.Store().Keys.Task(id)).Val(); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("the repeat wrote: %v, then %v", before, after)
		}
		want := map[queue.Status]int64{queue.Complete: 1}
		if settlement.Failure != nil {
			want = map[queue.Status]int64{queue.Failed: 1}
		}
		past.depth(t, name, want)
		totals := must[manage.Stats](t)(manage.New(past.Client).Queue(name).Stats(w.ctx)).Totals
		if totals["complete"]+totals["failed"] != 1 {
			t.Errorf("counted %v", totals)
		}
	}
}

func TestReleaseAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	past.enqueue(t, "q", "", queue.Options{})
	node, hold := w.held(t, "q")
	proxy.CutReplies(1, hold.ID)
	if _, err := node.Release(w.ctx, "q", []listen.Claim{hold}); !queue.IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("%v, %d replies cut", err, proxy.Cuts())
	}
	errs, err := node.Release(w.ctx, "q", []listen.Claim{hold})
	if err != nil || !errors.Is(errs[0], queue.ErrLost) { // it is nobody's now
		t.Errorf("the repeat: %v, %v", errs, err)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
}

func TestStartAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	past.enqueue(t, "q", "", queue.Options{})
	node := w.node(t, "q")
	got := w.reserve(t, node, "q", false)
	hold := listen.Claim{ID: got.ID, Run: got.Run}
	proxy.CutReplies(1, got.ID)
	if _, err := node.Start(w.ctx, "q", hold); !queue.IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("%v, %d replies cut", err, proxy.Cuts())
	}
	if _, err := node.Start(w.ctx, "q", hold); err != nil {
		t.Errorf("the repeat: %v", err)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Started: 1})
}

func TestRegisterAndLeaveAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listeners := func() int64 { return must[map[string]int64](t)(past.Queues(past.ctx))["q"] }
	node := w.node(t)
	proxy.CutReplies(1, w.Store().Keys.Listeners("q"))
	if err := node.Register(w.ctx, "q"); !queue.IsUnavailable(err) || proxy.Cuts() != 1 || listeners() != 1 {
		t.Fatalf("%v, %d replies cut, %d listeners", err, proxy.Cuts(), listeners())
	}
	if err := node.Register(w.ctx, "q"); err != nil || listeners() != 1 {
		t.Errorf("registered again: %v, %d listeners", err, listeners())
	}
	proxy.CutReplies(1, w.Store().Keys.Listeners("q"))
	if err := node.Leave(w.ctx); !queue.IsUnavailable(err) || proxy.Cuts() != 2 || listeners() != 0 {
		t.Fatalf("%v, %d replies cut, %d listeners", err, proxy.Cuts(), listeners())
	}
	if err := node.Leave(w.ctx); err != nil || listeners() != 0 {
		t.Errorf("left again: %v, %d listeners", err, listeners())
	}
	if n := past.rdb.ZCard(past.ctx, w.Store().Keys.Nodes()).Val(); n != 0 {
		t.Errorf("%d leases left", n)
	}
}

// Several reserves in one round trip, and the answers of none or not of all come: nothing is known of
// the others, and their tasks are found.
func TestReserveOfManyAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	var wants []listen.ReserveRequest
	node := w.node(t, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		past.enqueue(t, name, name, queue.Options{ID: name})
		wants = append(wants, listen.ReserveRequest{Queue: name, Count: 1, Start: true})
	}
	proxy.CutReplies(1, w.Store().Keys.Reserved("c", node.ID()))
	if batches := node.Reserve(w.ctx, wants); batches[2].Err == nil || proxy.Cuts() != 1 {
		t.Fatalf("%+v, %d replies cut", batches, proxy.Cuts())
	}
	for _, name := range []string{"a", "b", "c"} {
		ids := must[[]string](t)(node.Held(w.ctx, name))
		batch := node.Adopt(w.ctx, listen.ReserveRequest{Queue: name, Start: true}, ids)
		if batch.Err != nil || len(batch.Tasks) != 1 || string(batch.Tasks[0].Parameters) != name || batch.Tasks[0].Run != 1 {
			t.Errorf("queue %s: %+v", name, batch)
		}
		past.depth(t, name, map[queue.Status]int64{queue.Started: 1})
	}
}

// A thousand lost answers of what moves tasks: none is doubled, none is stuck, none is wrongly told to be
// lost, and no list holds one twice.
func TestAThousandLostReplies(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), testLostReplies)
	}
}

func testLostReplies(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	const tasks = 85
	persistent := func(what string, cut string, call func() error) {
		t.Helper()
		proxy.CutReplies(1, cut)
		for range 10 {
			if err := call(); !queue.IsUnavailable(err) {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				return
			}
		}
		t.Fatalf("%s: Redis stays away", what)
	}
	node := w.node(t, "q")
	for i := range tasks {
		spec := queue.Spec{Options: queue.Options{ID: fmt.Sprintf("id%03d", i)}}
		persistent("enqueue", spec.ID, func() error {
			_, err := w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{spec})
			return err
		})
	}
	want := listen.ReserveRequest{Queue: "q", Count: 1, Start: true}
	runs := make(map[string]int)
	for done := 0; done < tasks; {
		var got listen.Reservation
		proxy.CutReplies(1, w.Store().Keys.Reserved("q", node.ID()))
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{want})[0]
		persistent("adopt", "none", func() error {
			if batch.Err != nil {
				ids, err := node.Held(w.ctx, "q")
				if err != nil {
					return err
				}
				batch = node.Adopt(w.ctx, want, ids)
			}
			return batch.Err
		})
		if len(batch.Tasks) != 1 || batch.Dropped != 0 {
			t.Fatalf("%+v", batch)
		}
		got = batch.Tasks[0]
		runs[got.ID]++
		s := listen.Settlement{Claim: listen.Claim{ID: got.ID, Run: got.Run}}
		if runs[got.ID] == 1 && done%3 == 0 {
			s.Failure, s.Requeue = &queue.Failure{}, listen.RequeueRetry
		} else {
			done++
		}
		persistent("settle", got.ID, func() error {
			errs, err := node.Settle(w.ctx, "q", []listen.Settlement{s})
			return errors.Join(append(errs, err)...)
		})
	}
	if cuts := proxy.Cuts(); cuts < 250 {
		t.Errorf("%d replies were cut", cuts)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Complete: tasks})
	seen := make(map[string]bool)
	for _, id := range past.rdb.LRange(past.ctx, past.Store().Keys.Complete("q"), 0, -1).Val() {
		if task := past.task(t, id); seen[id] || task.Attempts != runs[id] {
			t.Errorf("%s: %d attempts, %d runs, seen %v", id, task.Attempts, runs[id], seen[id])
		}
		seen[id] = true
	}
}
