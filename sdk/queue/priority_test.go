package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
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
		var specs []queue.Spec
		for i := range 2 {
			for p := 0; p <= 100; p += step {
				specs = append(specs, queue.Spec{Options: queue.Options{ID: fmt.Sprintf("%03d-%d", p, i), Priority: &p}})
			}
		}
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		all := len(want)
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: int64(all)})
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
			pages = append(pages, idsOf(must[[]*queue.Task](t)(manage.New(w.Client).Queue("q").List(w.ctx, manage.ListOptions{Status: queue.Pending, Offset: offset, Limit: 7})))...)
		}
		if !slices.Equal(pages, listed) {
			t.Errorf("listed are %v", pages)
		}
		node := w.node(t, "q")
		order := func(what string) []listen.Claim {
			t.Helper()
			holds := w.reserveMany(t, node, "q", all, true)
			for i, hold := range holds {
				if hold.ID != want[i] {
					t.Fatalf("%s: %d is %s, want %s", what, i, hold.ID, want[i])
				}
			}
			if n := w.rdb.SCard(w.ctx, w.Store().Keys.Started("q")).Val(); n != int64(all) {
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
		must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0))
		node = w.node(t, "q")
		holds = order("reclaimed")
		var settlements []listen.Settlement
		for _, hold := range holds {
			settlements = append(settlements, listen.Settlement{Claim: hold, Failure: &queue.Failure{}, Requeue: listen.RequeueRetry, Delay: time.Second})
		}
		if errs, err := node.Settle(w.ctx, "q", settlements); errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Scheduled: int64(all)})
		w.at(1)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		holds = order("retried and due")
		for i := range settlements {
			settlements[i] = listen.Settlement{Claim: holds[i], Failure: &queue.Failure{}}
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
		node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}}) // which finds that no list holds anything
		if levels := w.rdb.SMembers(w.ctx, w.Store().Keys.Priorities("q")).Val(); len(levels) != 0 {
			t.Errorf("%v are left", levels)
		}
	})
}

func TestPrioritiesThatAreNone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, p := range []int{-1, 101} {
			if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{Priority: &p}); !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("%d: %v", p, err)
			}
		}
		high := 80
		w.enqueue(t, "q", "", queue.Options{ID: "cancelled", Priority: &high})
		if _, err := w.Queue("q").Cancel(w.ctx, "cancelled"); err != nil || w.rdb.LLen(w.ctx, w.Store().Keys.Level("080", "q")).Val() != 0 {
			t.Error(err)
		}
		// What somebody writes there by hand counts for nothing, and blocks nothing.
		w.rdb.SAdd(w.ctx, w.Store().Keys.Priorities("q"), "050", "50", "abc", "", "090", "999", "0x1", "nan")
		w.rdb.Set(w.ctx, w.Store().Keys.Level("090", "q"), "x", 0)
		ninety := 90
		w.enqueue(t, "q", "", queue.Options{ID: "ninety", Priority: &ninety})
		w.enqueue(t, "q", "", queue.Options{ID: "plain"})
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 2, queue.Failed: 1})
		if poll := must[listen.Backlogs](t)(listen.NewFleet(w.Client).Backlogs(w.ctx, []string{"q"})); poll.Queues[0].Pending != 2 {
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
		want := func(queue string) listen.ReserveRequest {
			return listen.ReserveRequest{Queue: queue, Count: 4, Start: true, MaxRunning: most, Fleet: queues}
		}
		for i := range tasks {
			w.enqueue(t, queues[i%2], "", queue.Options{})
		}
		running := func() int64 {
			var counts []*redis.IntCmd
			_, err := w.rdb.TxPipelined(w.ctx, func(p redis.Pipeliner) error { // of one moment
				for _, queue := range queues {
					counts = append(counts, p.SCard(w.ctx, w.Store().Keys.Started(queue)))
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			return counts[0].Val() + counts[1].Val()
		}
		dying := w.node(t, queues...)
		if batch := dying.Reserve(w.ctx, []listen.ReserveRequest{want("a"), want("b")}); len(batch[0].Tasks) != 4 || len(batch[1].Tasks) != 1 {
			t.Errorf("%+v", batch)
		}
		live := w.node(t, queues...)
		if batch := live.Reserve(w.ctx, []listen.ReserveRequest{want("b")})[0]; len(batch.Tasks) != 0 || batch.Err != nil || batch.Passed != 0 {
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
				for w.rdb.LLen(w.ctx, w.Store().Keys.Complete("a")).Val()+w.rdb.LLen(w.ctx, w.Store().Keys.Complete("b")).Val() < int64(tasks) && w.ctx.Err() == nil {
					var requests []listen.SettleRequest
					for i, batch := range node.Reserve(w.ctx, []listen.ReserveRequest{want("a"), want("b")}) {
						if n := running(); n > int64(most) {
							t.Errorf("%d run", n)
						}
						var settlements []listen.Settlement
						for _, task := range batch.Tasks {
							settlements = append(settlements, listen.Settlement{Claim: listen.Claim{ID: task.ID, Run: task.Run}})
						}
						requests = append(requests, listen.SettleRequest{Queue: queues[i], Settlements: settlements, Wake: queues})
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
		w.depth(t, "a", map[queue.Status]int64{queue.Complete: int64(tasks / 2)})
		w.depth(t, "b", map[queue.Status]int64{queue.Complete: int64(tasks / 2)})
	})
}

func TestALetterHasThePriorityOfItsTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, p := range []int{0, 50, 90} {
			name := fmt.Sprint("q", p)
			dead := name + "-dead"
			id := w.enqueue(t, name, "x", queue.Options{Priority: &p})
			w.failWithLetter(t, name, dead, queue.ReasonTrap)
			letter := w.task(t, w.task(t, id).DeadID)
			list := w.Store().Keys.Level(fmt.Sprintf("%03d", p), dead)
			if p == queue.DefaultPriority {
				list = w.Store().Keys.Pending(dead)
			}
			if ids := w.rdb.LRange(w.ctx, list, 0, -1).Val(); letter.Priority != p || !slices.Equal(ids, []string{letter.ID}) {
				t.Errorf("of %d the letter has %d, and there wait %v", p, letter.Priority, ids)
			}
			if done, err := w.Queue(dead).Cancel(w.ctx, letter.ID); !done || err != nil {
				t.Errorf("%v, %v", done, err)
			}
			w.depth(t, dead, map[queue.Status]int64{queue.Failed: 1})
		}
	})
}
