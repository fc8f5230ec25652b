package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// What a host ran when it was killed runs elsewhere soon after its lease has ended.
func TestRecovery(t *testing.T) {
	beside(t)
	leases, fleets, kills := []time.Duration{2 * time.Second}, 1, 1
	if full { // twenty kills a lease
		leases, fleets, kills = []time.Duration{2 * time.Second, 10 * time.Second}, 4, 5
	}
	seed := newSeed(t)
	for _, lease := range leases {
		t.Run(lease.String(), func(t *testing.T) {
			beside(t)
			var mu sync.Mutex
			var took []time.Duration
			var group sync.WaitGroup
			for number := range fleets {
				f := newFleet(t, settings{
					hosts: 3, concurrency: 64, lease: lease, grace: time.Nanosecond,
					patience: time.Minute + time.Duration(kills)*10*lease,
				})
				random := newRandom(seed, uint64(number))
				group.Go(func() {
					for round := range kills {
						d, err := f.recover(random, round)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						took = append(took, d)
						mu.Unlock()
					}
				})
			}
			group.Wait()
			if len(took) == 0 {
				return
			}
			slices.Sort(took)
			t.Logf("seed %d: %v", seed, took)
			worst := took[len(took)-1]
			t.Logf("%d kills with a lease of %s: tasks ran elsewhere after %s (median), %s (worst)", len(took), lease,
				took[len(took)/2].Round(time.Millisecond), worst.Round(time.Millisecond))
			if bound := lease + time.Second; full && worst >= bound {
				t.Errorf("the slowest recovery took %s, want less than %s", worst, bound)
			}
		})
	}
}

// recover kills a host that runs new tasks, and measures how long it takes until the last of them runs
// elsewhere. It returns when all of them have ended: a task that two hosts died over would quarantine the plugin.
func (f *fleet) recover(random *rand.Rand, round int) (time.Duration, error) {
	var specs []queue.Spec
	for i := range 4 * len(f.hosts) {
		o := order{id: fmt.Sprintf("round-%d-%d", round, i), manner: "ok", takes: f.lease/3 + 5*time.Second}
		specs = append(specs, o.spec())
	}
	if _, err := f.client.Queue(queues[0]).EnqueueMany(f.ctx, specs); err != nil {
		return 0, err
	}
	before := make(map[*process][]string)
	if !until(f.ctx, func() bool {
		clear(before)
		count := 0
		for _, spec := range specs {
			if e, ok := f.journal.latest(spec.ID); ok {
				before[e.process] = append(before[e.process], spec.ID)
				count++
			}
		}
		return count == len(specs)
	}) {
		return 0, fmt.Errorf("round %d: the tasks never began", round)
	}
	sleep(f.ctx, between(random, 0, f.lease/3)) // a lease is renewed three times while it lasts
	victim := f.hosts[random.IntN(len(f.hosts))]
	for before[victim.process()] == nil {
		victim = f.hosts[random.IntN(len(f.hosts))]
	}
	held := before[victim.process()]
	died := time.Now()
	victim.kill()
	var last time.Time
	if !until(f.ctx, func() bool {
		for _, id := range held {
			e, _ := f.journal.latest(id)
			if e.process.host == victim {
				return false
			}
			if e.started.After(last) {
				last = e.started
			}
		}
		return true
	}) {
		return 0, fmt.Errorf("round %d: not all of %d tasks ran elsewhere within %s", round, len(held), time.Since(died))
	}
	if err := victim.start(); err != nil {
		return 0, err
	}
	if !until(f.ctx, func() bool { return victim.process().serves(queues...) }) {
		return 0, fmt.Errorf("round %d: the host did not come back", round)
	}
	if !until(f.ctx, func() bool {
		return !slices.ContainsFunc(specs, func(spec queue.Spec) bool {
			e, _ := f.journal.latest(spec.ID)
			return e.outcome == ""
		})
	}) {
		return 0, fmt.Errorf("round %d: not all tasks ended", round)
	}
	return last.Sub(died), nil
}
