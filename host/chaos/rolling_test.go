package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// Hosts are restarted one after the other under load: no task fails, and only what does not end within
// the grace period runs twice.
func TestRollingRestart(t *testing.T) {
	beside(t)
	const grace = 2 * time.Second
	f := newFleet(t, settings{hosts: 3, concurrency: 16, lease: 2 * time.Second, grace: grace, patience: 2 * time.Minute})
	seed := newSeed(t)
	t.Logf("QUERN_CHAOS_SEED=%d", seed)
	stop := make(chan struct{})
	enqueued := make(chan []order, 1)
	go func() { enqueued <- f.load(newRandom(seed, 0), stop, 3*grace) }()
	rounds := 1
	if full {
		rounds = 3
	}
	for range rounds {
		for _, h := range f.hosts {
			f.eventually(h.name+" runs a long task", func() bool { return f.journal.running(h.process(), "long-") })
			began := time.Now()
			if err := h.terminate(); err != nil {
				t.Error(err)
			}
			f.journal.happened(happened{fault{kind: restarted, victim: h.name}, began, time.Now()})
			if code := h.process().shell.ProcessState.ExitCode(); code != 0 {
				t.Errorf("%s ended with %d:\n%s", h.name, code, h.process().tail())
			}
			if err := h.start(); err != nil {
				t.Fatal(err)
			}
			f.eventually(h.name+" serves again", func() bool { return h.process().serves(queues...) })
		}
	}
	close(stop)
	orders := <-enqueued
	f.settled(len(orders))
	l := f.audit(orders)
	l.complain()
	again := 0
	for _, o := range orders {
		runs := f.journal.of(o.id)
		again += len(runs) - 1
		for _, e := range runs[:max(0, len(runs)-1)] {
			if o.takes < grace {
				t.Errorf("task %s takes %s, but ran again after run %d, %s", o.id, o.takes, e.run, e.outcome)
			}
			if e.outcome != "released" {
				t.Errorf("task %s: run %d was %q, want released", o.id, e.run, e.outcome)
			}
		}
	}
	t.Logf("%d tasks over %d restarts; %d runs that the grace period was too short for", len(orders), rounds*len(f.hosts), again)
	f.leave()
}

// load enqueues a task every 10 ms until it is told to stop. One in fifty is long.
func (f *fleet) load(random *rand.Rand, stop <-chan struct{}, long time.Duration) (orders []order) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return orders
		case <-f.ctx.Done():
			return orders
		case <-ticker.C:
		}
		o := order{
			id: fmt.Sprintf("task-%05d", len(orders)), queue: queues[random.IntN(len(queues))], manner: "ok",
			takes: between(random, 0, 500*time.Millisecond),
		}
		if random.IntN(50) == 0 {
			o.id, o.takes = fmt.Sprintf("long-%05d", len(orders)), long
		}
		if _, err := f.client.Queue(o.queue).EnqueueMany(f.ctx, []queue.Spec{o.spec()}); err != nil {
			f.t.Error(err)
			return orders
		}
		orders = append(orders, o)
	}
}
