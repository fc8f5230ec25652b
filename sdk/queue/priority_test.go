package queue

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestPriorities(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		step := 1
		if embedded(t) {
			step = 10
		}
		var want []string
		for p := 100; p >= 0; p -= step {
			want = append(want, fmt.Sprintf("%03d-0", p), fmt.Sprintf("%03d-1", p))
		}
		var specs []Spec
		for i := range 2 {
			for p := 0; p <= 100; p += step {
				specs = append(specs, Spec{Options: Options{ID: fmt.Sprintf("%03d-%d", p, i), Priority: &p}})
			}
		}
		must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		all := len(want)
		w.depth(t, "q", map[Status]int64{Pending: int64(all)})
		if task := w.task(t, "080-1"); task.Priority != 80 {
			t.Errorf("%+v", task)
		}
		if ids := w.waits(t, "q"); !slices.Equal(ids, []string{"050-0", "050-1"}) {
			t.Errorf("Python sees %v", ids)
		}
		listed := slices.Clone(want)
		slices.Reverse(listed)
		var pages []string
		for offset := 0; offset < 210; offset += 7 {
			pages = append(pages, idsOf(must[[]*Task](t)(w.Queue("q").List(w.ctx, ListOptions{Status: Pending, Offset: offset, Limit: 7})))...)
		}
		if !slices.Equal(pages, listed) {
			t.Errorf("listed are %v", pages)
		}
		node := w.node(t, "q")
		order := func(what string) []Claim {
			t.Helper()
			holds := w.reserveMany(t, node, "q", all, true)
			for i, hold := range holds {
				if hold.ID != want[i] {
					t.Fatalf("%s: %d is %s, want %s", what, i, hold.ID, want[i])
				}
			}
			if n := w.rdb.SCard(w.ctx, w.store.keys.started("q")).Val(); n != int64(all) {
				t.Errorf("%s: %d have started", what, n)
			}
			return holds
		}
		holds := order("enqueued")
		slices.Reverse(holds)
		if errs, err := node.Release(w.ctx, "q", holds); errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err)
		}
		order("released")
		w.die(t, node)
		must[Reclaimed](t)(w.Fleet().Reclaim(w.ctx, node.id, 0))
		node = w.node(t, "q")
		holds = order("reclaimed")
		var settlements []Settlement
		for _, hold := range holds {
			settlements = append(settlements, Settlement{Claim: hold, Failure: &Failure{}, Requeue: RequeueRetry, Delay: time.Second})
		}
		if errs, err := node.Settle(w.ctx, "q", settlements); errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err)
		}
		w.depth(t, "q", map[Status]int64{Scheduled: int64(all)})
		w.at(1)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		holds = order("retried and due")
		for i := range settlements {
			settlements[i] = Settlement{Claim: holds[i], Failure: &Failure{}}
		}
		if errs, err := node.Settle(w.ctx, "q", settlements); errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err)
		}
		for _, id := range want {
			if err := w.Queue("q").Retry(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		order("retried by hand")
		node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}}) // which finds that no list holds anything
		if levels := w.rdb.SMembers(w.ctx, w.store.keys.priorities("q")).Val(); len(levels) != 0 {
			t.Errorf("%v are left", levels)
		}
	})
}

func TestPrioritiesThatAreNone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, p := range []int{-1, 101} {
			if _, err := w.Queue("q").Enqueue(w.ctx, nil, Options{Priority: &p}); !errors.Is(err, ErrInvalid) {
				t.Errorf("%d: %v", p, err)
			}
		}
		high := 80
		w.enqueue(t, "q", "", Options{ID: "cancelled", Priority: &high})
		if _, err := w.Queue("q").Cancel(w.ctx, "cancelled"); err != nil || w.rdb.LLen(w.ctx, w.store.keys.level("080", "q")).Val() != 0 {
			t.Error(err)
		}
		// What somebody writes there by hand counts for nothing, and blocks nothing.
		w.rdb.SAdd(w.ctx, w.store.keys.priorities("q"), "050", "50", "abc", "", "090", "999", "0x1", "nan")
		w.rdb.Set(w.ctx, w.store.keys.level("090", "q"), "x", 0)
		ninety := 90
		w.enqueue(t, "q", "", Options{ID: "ninety", Priority: &ninety})
		w.enqueue(t, "q", "", Options{ID: "plain"})
		w.depth(t, "q", map[Status]int64{Pending: 2, Failed: 1})
		if poll := must[Backlogs](t)(w.Fleet().Backlogs(w.ctx, []string{"q"})); poll.Queues[0].Pending != 2 {
			t.Errorf("%+v", poll)
		}
		if holds := w.reserveMany(t, w.node(t, "q"), "q", 2, true); holds[0].ID != "ninety" {
			t.Errorf("%v", holds)
		}
	})
}

// However many nodes and queues: no more run than may, also after one has died.
func TestMaxRunning(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		most, tasks := 5, 60
		if embedded(t) {
			tasks = 20
		}
		queues := []string{"a", "b"}
		want := func(queue string) ReserveRequest {
			return ReserveRequest{Queue: queue, Count: 4, Start: true, MaxRunning: most, Fleet: queues}
		}
		for i := range tasks {
			w.enqueue(t, queues[i%2], "", Options{})
		}
		running := func() int64 {
			var counts []*redis.IntCmd
			_, err := w.rdb.TxPipelined(w.ctx, func(p redis.Pipeliner) error { // of one moment
				for _, queue := range queues {
					counts = append(counts, p.SCard(w.ctx, w.store.keys.started(queue)))
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			return counts[0].Val() + counts[1].Val()
		}
		dying := w.node(t, queues...)
		if batch := dying.Reserve(w.ctx, []ReserveRequest{want("a"), want("b")}); len(batch[0].Tasks) != 4 || len(batch[1].Tasks) != 1 {
			t.Errorf("%+v", batch)
		}
		live := w.node(t, queues...)
		if batch := live.Reserve(w.ctx, []ReserveRequest{want("b")})[0]; len(batch.Tasks) != 0 || batch.Err != nil || batch.Passed != 0 {
			t.Errorf("one more: %+v", batch)
		}
		w.reclaimFrom(t, dying)
		if n := running(); n != 0 {
			t.Errorf("%d run after the death", n)
		}
		var group sync.WaitGroup
		for range 3 {
			node := w.node(t, queues...)
			group.Go(func() {
				for w.rdb.LLen(w.ctx, w.store.keys.complete("a")).Val()+w.rdb.LLen(w.ctx, w.store.keys.complete("b")).Val() < int64(tasks) && w.ctx.Err() == nil {
					var requests []SettleRequest
					for i, batch := range node.Reserve(w.ctx, []ReserveRequest{want("a"), want("b")}) {
						if n := running(); n > int64(most) {
							t.Errorf("%d run", n)
						}
						var settlements []Settlement
						for _, task := range batch.Tasks {
							settlements = append(settlements, Settlement{Claim: Claim{ID: task.ID, Run: task.Run}})
						}
						requests = append(requests, SettleRequest{Queue: queues[i], Settlements: settlements, Wake: queues})
					}
					for _, reply := range node.SettleAll(w.ctx, requests) {
						if err := errors.Join(append(reply.Errs, reply.Err)...); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		group.Wait()
		w.depth(t, "a", map[Status]int64{Complete: int64(tasks / 2)})
		w.depth(t, "b", map[Status]int64{Complete: int64(tasks / 2)})
	})
}

func TestALetterHasThePriorityOfItsTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, p := range []int{0, 50, 90} {
			queue := fmt.Sprint("q", p)
			dead := queue + "-dead"
			id := w.enqueue(t, queue, "x", Options{Priority: &p})
			w.failWithLetter(t, queue, dead, ReasonTrap)
			letter := w.task(t, w.task(t, id).DeadID)
			list := w.store.keys.level(fmt.Sprintf("%03d", p), dead)
			if p == DefaultPriority {
				list = w.store.keys.pending(dead)
			}
			if ids := w.rdb.LRange(w.ctx, list, 0, -1).Val(); letter.Priority != p || !slices.Equal(ids, []string{letter.ID}) {
				t.Errorf("of %d the letter has %d, and there wait %v", p, letter.Priority, ids)
			}
			if done, err := w.Queue(dead).Cancel(w.ctx, letter.ID); !done || err != nil {
				t.Errorf("%v, %v", done, err)
			}
			w.depth(t, dead, map[Status]int64{Failed: 1})
		}
	})
}
