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
	proxy.CutReplies(1, w.store.keys.pending("q"))
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

// The second of three writes is done, in whole or from its beginning, without an answer: all IDs are known, and the repeat of all
// fills up what is missing.
func TestEnqueueManyAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	q := w.Queue("q")
	specs := make([]Spec, 5*writeTasks/2)
	for i := range specs {
		specs[i].Parameters = fmt.Appendf(nil, "%d", i)
	}
	specs[3*writeTasks/2].Key = "here"
	proxy.CutReplies(1, "here")
	receipts, err := q.EnqueueMany(w.ctx, specs)
	if !IsUnavailable(err) || proxy.Cuts() != 1 || len(receipts) != len(specs) {
		t.Fatalf("%v, %d replies cut, %d receipts", err, proxy.Cuts(), len(receipts))
	}
	for i := range specs {
		specs[i].ID = receipts[i].ID
	}
	done := 0
	for _, receipt := range must[[]Receipt](t)(q.EnqueueMany(w.ctx, specs)) {
		if receipt.ID != specs[done].ID || !receipt.Existed {
			break
		}
		done++
	}
	if done <= 3*writeTasks/2 || done > 2*writeTasks || done%blockTasks != 0 {
		t.Errorf("%d tasks were there before the repeat", done)
	}
	past.depth(t, "q", map[Status]int64{Pending: int64(len(specs))})
}

func TestSettleAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	for i, settlement := range []Settlement{{Result: []byte("first")}, {Failure: &Failure{Reason: ReasonTrap}}} {
		queue := fmt.Sprintf("q%d", i)
		id := past.enqueue(t, queue, "", Options{})
		node, hold := w.held(t, queue)
		settlement.Claim = hold
		cuts := proxy.Cuts()
		proxy.CutReplies(1, hold.ID)
		if _, err := node.Settle(w.ctx, queue, []Settlement{settlement}); !IsUnavailable(err) || proxy.Cuts() != cuts+1 {
			t.Fatalf("%v, %d replies cut", err, proxy.Cuts()-cuts)
		}
		before := past.rdb.HGetAll(w.ctx, w.store.keys.task(id)).Val()
		w.settle(t, node, queue, settlement)
		w.settle(t, node, queue, Settlement{Claim: hold, Result: []byte("another word")}) // too late to say so
		if after := past.rdb.HGetAll(w.ctx, w.store.keys.task(id)).Val(); fmt.Sprint(before) != fmt.Sprint(after) {
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
	if _, err := node.Release(w.ctx, "q", []Claim{hold}); !IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("%v, %d replies cut", err, proxy.Cuts())
	}
	errs, err := node.Release(w.ctx, "q", []Claim{hold})
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
	hold := Claim{ID: got.ID, Run: got.Run}
	proxy.CutReplies(1, got.ID)
	if _, err := node.Start(w.ctx, "q", hold); !IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Fatalf("%v, %d replies cut", err, proxy.Cuts())
	}
	if _, err := node.Start(w.ctx, "q", hold); err != nil {
		t.Errorf("the repeat: %v", err)
	}
	past.depth(t, "q", map[Status]int64{Started: 1})
}

func TestRegisterAndLeaveAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listeners := func() int64 { return must[map[string]int64](t)(past.Queues(past.ctx))["q"] }
	node := w.node(t)
	proxy.CutReplies(1, w.store.keys.listeners("q"))
	if err := node.Register(w.ctx, "q"); !IsUnavailable(err) || proxy.Cuts() != 1 || listeners() != 1 {
		t.Fatalf("%v, %d replies cut, %d listeners", err, proxy.Cuts(), listeners())
	}
	if err := node.Register(w.ctx, "q"); err != nil || listeners() != 1 {
		t.Errorf("registered again: %v, %d listeners", err, listeners())
	}
	proxy.CutReplies(1, w.store.keys.listeners("q"))
	if err := node.Leave(w.ctx); !IsUnavailable(err) || proxy.Cuts() != 2 || listeners() != 0 {
		t.Fatalf("%v, %d replies cut, %d listeners", err, proxy.Cuts(), listeners())
	}
	if err := node.Leave(w.ctx); err != nil || listeners() != 0 {
		t.Errorf("left again: %v, %d listeners", err, listeners())
	}
	if n := past.rdb.ZCard(past.ctx, w.store.keys.nodes()).Val(); n != 0 {
		t.Errorf("%d leases left", n)
	}
}

// Several reserves in one round trip, and the answers of none or not of all come: nothing is known of
// the others, and their tasks are found.
func TestReserveOfManyAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	var wants []ReserveRequest
	node := w.node(t, "a", "b", "c")
	for _, queue := range []string{"a", "b", "c"} {
		past.enqueue(t, queue, queue, Options{ID: queue})
		wants = append(wants, ReserveRequest{Queue: queue, Count: 1, Start: true})
	}
	proxy.CutReplies(1, w.store.keys.reserved("c", node.ID()))
	if batches := node.Reserve(w.ctx, wants); batches[2].Err == nil || proxy.Cuts() != 1 {
		t.Fatalf("%+v, %d replies cut", batches, proxy.Cuts())
	}
	for _, queue := range []string{"a", "b", "c"} {
		ids := must[[]string](t)(node.Held(w.ctx, queue))
		batch := node.Adopt(w.ctx, ReserveRequest{Queue: queue, Start: true}, ids)
		if batch.Err != nil || len(batch.Tasks) != 1 || string(batch.Tasks[0].Parameters) != queue || batch.Tasks[0].Run != 1 {
			t.Errorf("queue %s: %+v", queue, batch)
		}
		past.depth(t, queue, map[Status]int64{Started: 1})
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
			if err := call(); !IsUnavailable(err) {
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
		spec := Spec{Options: Options{ID: fmt.Sprintf("id%03d", i)}}
		persistent("enqueue", spec.ID, func() error {
			_, err := w.Queue("q").EnqueueMany(w.ctx, []Spec{spec})
			return err
		})
	}
	want := ReserveRequest{Queue: "q", Count: 1, Start: true}
	runs := make(map[string]int)
	for done := 0; done < tasks; {
		var got Reservation
		proxy.CutReplies(1, w.store.keys.reserved("q", node.id))
		batch := node.Reserve(w.ctx, []ReserveRequest{want})[0]
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
		s := Settlement{Claim: Claim{ID: got.ID, Run: got.Run}}
		if runs[got.ID] == 1 && done%3 == 0 {
			s.Failure, s.Requeue = &Failure{}, RequeueRetry
		} else {
			done++
		}
		persistent("settle", got.ID, func() error {
			errs, err := node.Settle(w.ctx, "q", []Settlement{s})
			return errors.Join(append(errs, err)...)
		})
	}
	if cuts := proxy.Cuts(); cuts < 250 {
		t.Errorf("%d replies were cut", cuts)
	}
	past.depth(t, "q", map[Status]int64{Complete: tasks})
	seen := make(map[string]bool)
	for _, id := range past.rdb.LRange(past.ctx, past.store.keys.complete("q"), 0, -1).Val() {
		if task := past.task(t, id); seen[id] || task.Attempts != runs[id] {
			t.Errorf("%s: %d attempts, %d runs, seen %v", id, task.Attempts, runs[id], seen[id])
		}
		seen[id] = true
	}
}
