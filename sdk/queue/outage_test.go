package queue

import (
	"errors"
	"fmt"
	"testing"
)

// In these tests Redis does what it was asked, and the answer is lost: what the caller does then, a
// repeat, must neither lose nor double anything.

func TestEnqueueAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	q := w.Queue("q")
	proxy.CutReplies(1, w.keys.pending("q"))
	id, err := q.Enqueue(w.ctx, []byte("x"), Options{})
	if id == "" || !IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("enqueued %q, %v, %d replies cut", id, err, proxy.Cuts())
	}
	receipts := must[[]Receipt](t)(q.EnqueueMany(w.ctx, []Spec{{Parameters: []byte("x"), Options: Options{ID: id}}}))
	if receipts[0].ID != id || !receipts[0].Existed {
		t.Errorf("the repeat: %+v", receipts)
	}
	past.depth(t, "q", map[Status]int64{Pending: 1})
	if total := must[Stats](t)(past.Queue("q").Stats(past.ctx)).Totals["enqueued"]; total != 1 {
		t.Errorf("counted %d", total)
	}
}

// The second of three blocks is done without an answer: all IDs are known, and the repeat of all
// fills up what is missing.
func TestEnqueueManyAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	q := w.Queue("q")
	specs := make([]Spec, 2500)
	for i := range specs {
		specs[i].Parameters = fmt.Appendf(nil, "%d", i)
	}
	specs[1500].Key = "here"
	proxy.CutReplies(1, "here")
	receipts, err := q.EnqueueMany(w.ctx, specs)
	if !IsUnavailable(err) || proxy.Cuts() != 1 || len(receipts) != len(specs) {
		t.Fatalf("%v, %d replies cut, %d receipts", err, proxy.Cuts(), len(receipts))
	}
	past.depth(t, "q", map[Status]int64{Pending: 2000})
	for i := range specs {
		specs[i].ID = receipts[i].ID
	}
	again := must[[]Receipt](t)(q.EnqueueMany(w.ctx, specs))
	for i, receipt := range again {
		if receipt.ID != receipts[i].ID || receipt.Existed != (i < 2000) {
			t.Fatalf("task %d: %+v", i, receipt)
		}
	}
	past.depth(t, "q", map[Status]int64{Pending: 2500})
}

func TestSettleAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	for i, settlement := range []Settlement{{Result: []byte("first")}, {Failure: &Failure{Reason: ReasonTrap}}} {
		queue := fmt.Sprintf("q%d", i)
		id := past.enqueue(t, queue, "", Options{})
		node, hold := w.held(t, queue)
		settlement.Hold = hold
		cuts := proxy.Cuts()
		proxy.CutReplies(1, hold.ID)
		if _, err := node.Settle(w.ctx, queue, []Settlement{settlement}); !IsUnavailable(err) || proxy.Cuts() != cuts+1 {
			t.Fatalf("%v, %d replies cut", err, proxy.Cuts()-cuts)
		}
		before := past.rdb.HGetAll(w.ctx, w.keys.task(id)).Val()
		w.settle(t, node, queue, settlement)
		w.settle(t, node, queue, Settlement{Hold: hold, Result: []byte("another word")}) // too late to say so
		if after := past.rdb.HGetAll(w.ctx, w.keys.task(id)).Val(); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("the repeat wrote: %v, then %v", before, after)
		}
		want := map[Status]int64{Complete: 1}
		if settlement.Failure != nil {
			want = map[Status]int64{Failed: 1}
		}
		past.depth(t, queue, want)
		totals := must[Stats](t)(past.Queue(queue).Stats(w.ctx)).Totals
		if totals["complete"]+totals["failed"] != 1 {
			t.Errorf("counted %v", totals)
		}
	}
}

func TestReleaseAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	past.enqueue(t, "q", "", Options{})
	node, hold := w.held(t, "q")
	proxy.CutReplies(1, hold.ID)
	if _, err := node.Release(w.ctx, "q", []Hold{hold}); !IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("%v, %d replies cut", err, proxy.Cuts())
	}
	errs, err := node.Release(w.ctx, "q", []Hold{hold})
	if err != nil || !errors.Is(errs[0], ErrLost) { // it is nobody's now
		t.Errorf("the repeat: %v, %v", errs, err)
	}
	past.depth(t, "q", map[Status]int64{Pending: 1})
}

func TestStartAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	past.enqueue(t, "q", "", Options{})
	node := w.node(t, "q")
	got := w.reserve(t, node, "q", false)
	hold := Hold{ID: got.ID, Run: got.Run}
	proxy.CutReplies(1, got.ID)
	if err := node.Start(w.ctx, "q", hold); !IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("%v, %d replies cut", err, proxy.Cuts())
	}
	if err := node.Start(w.ctx, "q", hold); err != nil {
		t.Errorf("the repeat: %v", err)
	}
	past.depth(t, "q", map[Status]int64{Started: 1})
}

func TestRegisterAndLeaveAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listeners := func() int64 { return must[map[string]int64](t)(past.Queues(past.ctx))["q"] }
	node := w.node(t)
	proxy.CutReplies(1, w.keys.listeners("q"))
	if err := node.Register(w.ctx, "q"); !IsUnavailable(err) || proxy.Cuts() != 1 || listeners() != 1 {
		t.Fatalf("%v, %d replies cut, %d listeners", err, proxy.Cuts(), listeners())
	}
	if err := node.Register(w.ctx, "q"); err != nil || listeners() != 1 {
		t.Errorf("registered again: %v, %d listeners", err, listeners())
	}
	proxy.CutReplies(1, w.keys.listeners("q"))
	if err := node.Leave(w.ctx); !IsUnavailable(err) || proxy.Cuts() != 2 || listeners() != 0 {
		t.Fatalf("%v, %d replies cut, %d listeners", err, proxy.Cuts(), listeners())
	}
	if err := node.Leave(w.ctx); err != nil || listeners() != 0 {
		t.Errorf("left again: %v, %d listeners", err, listeners())
	}
	if n := past.rdb.ZCard(past.ctx, w.keys.nodes()).Val(); n != 0 {
		t.Errorf("%d leases left", n)
	}
}

// Several reserves in one round trip, and the answers of none or not of all come: nothing is known of
// the others, and their tasks are found.
func TestReserveOfManyAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	var wants []Want
	node := w.node(t, "a", "b", "c")
	for _, queue := range []string{"a", "b", "c"} {
		past.enqueue(t, queue, queue, Options{ID: queue})
		wants = append(wants, Want{Queue: queue, Count: 1, Start: true})
	}
	proxy.CutReplies(1, w.keys.reserved("c", node.ID()))
	if batches := node.Reserve(w.ctx, wants); batches[2].Err == nil || proxy.Cuts() != 1 {
		t.Fatalf("%+v, %d replies cut", batches, proxy.Cuts())
	}
	for _, queue := range []string{"a", "b", "c"} {
		ids := must[[]string](t)(node.Held(w.ctx, queue))
		batch := node.Adopt(w.ctx, Want{Queue: queue, Start: true}, ids)
		if batch.Err != nil || len(batch.Tasks) != 1 || string(batch.Tasks[0].Parameters) != queue || batch.Tasks[0].Run != 1 {
			t.Errorf("queue %s: %+v", queue, batch)
		}
		past.depth(t, queue, map[Status]int64{Started: 1})
	}
}
