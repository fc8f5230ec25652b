package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// Each publication makes exactly one task for each of its three subscribers, whatever dies while it is published and while its
// tasks run, and each task is run to its end.
func TestPublications(t *testing.T) {
	beside(t)
	count, length, rest, redisRest := 100, 4*time.Second, 500*time.Millisecond, 2*time.Second
	s := settings{hosts: 3, concurrency: 16, lease: 2 * time.Second, grace: time.Second, patience: 3 * time.Minute}
	if full {
		count, length = 4000, time.Minute
		s.concurrency, s.patience = 48, 10*time.Minute
	}
	seed := newSeed(t)
	plan := newPlan(seed, s, victims(t), length, rest, redisRest)
	t.Logf("QUERN_CHAOS_SEED=%d:", seed)
	for _, one := range plan {
		t.Log(one)
	}
	f := newFleet(t, s)
	for _, name := range queues {
		if _, err := f.client.Subscribe(f.ctx, queue.Subscription{ID: name, Topic: "orders.*", Queue: name}); err != nil {
			t.Fatal(err)
		}
	}
	through := newProxy(t, f.redis.Addr())
	p := newProducers(f, through)
	begun := time.Now()
	var publishing sync.WaitGroup
	for first := range 4 {
		publishing.Go(func() {
			for i := first; i < count; i += 4 {
				if !sleep(f.ctx, time.Until(begun.Add(length*time.Duration(i)/time.Duration(count)))) {
					return
				}
				p.publish(f, fmt.Sprintf("publication-%05d", i))
			}
		})
	}
	f.suffer(plan, through)
	publishing.Wait()
	f.settled(count * len(queues))

	ends := make(map[string]int)
	for i := range count {
		id := fmt.Sprintf("publication-%05d", i)
		publication, err := f.client.Publication(f.ctx, id)
		if err != nil || publication.State != queue.PublicationDone || publication.Subscribers != len(queues) {
			t.Errorf("%s: %+v, %v", id, publication, err)
			continue
		}
		tasks, err := f.client.PublicationTasks(f.ctx, id, 0, 10)
		if err != nil || len(tasks) != len(queues) {
			t.Errorf("%s: %+v, %v", id, tasks, err)
		}
		for _, task := range tasks {
			if task.Queue != task.Subscription || !task.Status.Finished() || task.Status == queue.Failed && task.Reason != queue.ReasonCrashed {
				t.Errorf("%s: %+v", id, task)
			}
			ends[string(task.Status)]++
		}
	}
	if stats, err := f.client.Stats(f.ctx, queues...); err != nil {
		t.Error(err)
	} else {
		for i, s := range stats {
			if n := s.Depth[queue.Complete] + s.Depth[queue.Failed]; n != int64(count) {
				t.Errorf("%s: %d tasks, want %d", queues[i], n, count)
			}
		}
	}
	t.Logf("%d publications, %d calls repeated, %d of them had been done; tasks: %v", count, p.repeats.Load(), p.done.Load(), ends)
	f.leave()
}

// publish repeats a publication under the same ID until Redis has answered that it is there.
func (p *producers) publish(f *fleet, id string) {
	for {
		got, err := p.client.Publish(f.ctx, "orders.made", fmt.Appendf(nil, "5 ok %s", id), queue.PublishOptions{ID: id})
		if err == nil {
			if got.Existed {
				p.done.Add(1)
			}
			return
		}
		p.repeats.Add(1)
		if !sleep(f.ctx, 50*time.Millisecond) {
			return
		}
	}
}
