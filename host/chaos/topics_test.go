package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// Each publication makes exactly one task for each of its four subscribers, whatever dies while it is published and while its
// tasks run, and each task is run to its end: one is a webhook, whose receiver takes each publication at least once, always with
// the same ID. Some make the tasks of all queues fail for good: those of one subscriber leave a dead letter each.
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
	receiver := newReceiver(t, newRandom(seed, 102))
	subscriptions, names := []queue.Subscription{receiver.subscription()}, append(slices.Clone(queues), hooking)
	for _, name := range queues {
		subscriptions = append(subscriptions, queue.Subscription{ID: name, Topic: "orders.*", Queue: name, Dead: map[string]string{"gamma": graves}[name]})
	}
	for _, one := range subscriptions {
		if _, err := f.client.Subscribe(f.ctx, one); err != nil {
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
	f.settled(count*len(names), hooking)

	receiver.Close() // when its last request has been answered

	ends, failed := make(map[string]int), 0
	for i := range count {
		id := fmt.Sprintf("publication-%05d", i)
		publication, err := f.client.Publication(f.ctx, id)
		if err != nil || publication.State != queue.PublicationDone || publication.Subscribers != len(names) {
			t.Errorf("%s: %+v, %v", id, publication, err)
			continue
		}
		tasks, err := f.client.PublicationTasks(f.ctx, id, 0, 10)
		if err != nil || len(tasks) != len(names) {
			t.Errorf("%s: %+v, %v", id, tasks, err)
		}
		for _, task := range tasks {
			if strings.TrimPrefix(task.Queue, queue.WebhookQueues) != task.Subscription || !task.Status.Finished() ||
				task.Status == queue.Failed && task.Reason != queue.ReasonCrashed && (task.Queue == hooking || !failing(id)) {
				t.Errorf("%s: %+v", id, task)
			}
			if task.Subscription == hooked && (task.Status != queue.Complete || receiver.taken[task.ID+" "+payloadOf(id)] == 0) {
				t.Errorf("%s: the receiver did not take it: %+v", id, task)
			}
			ends[string(task.Status)]++
			if task.Queue == "gamma" && task.Status == queue.Failed {
				failed++
			}
		}
	}
	if stats, err := f.client.Stats(f.ctx, names...); err != nil {
		t.Error(err)
	} else {
		for i, s := range stats {
			if n := s.Depth[queue.Complete] + s.Depth[queue.Failed]; n != int64(count) {
				t.Errorf("%s: %d tasks, want %d", names[i], n, count)
			}
		}
	}
	if letters, err := f.client.Queue(graves).Count(f.ctx, queue.Pending); err != nil || letters < int64(failed) {
		t.Errorf("%d dead letters of %d tasks that failed, %v", letters, failed, err)
	}
	if len(receiver.taken) != count {
		t.Errorf("the receiver took %d, of %d publications", len(receiver.taken), count)
	}
	t.Logf("the receiver was asked %d times", receiver.requests)
	t.Logf("%d publications, %d calls repeated, %d of them had been done; tasks: %v", count, p.repeats.Load(), p.done.Load(), ends)
	f.leave()
}

// graves is the queue of dead letters, which nobody serves.
const graves = "graves"

// failing tells whether the tasks of a publication fail: every tenth does.
func failing(publication string) bool { return strings.HasSuffix(publication, "7") }

func payloadOf(publication string) string {
	if failing(publication) {
		return "5 never " + publication
	}
	return "5 ok " + publication
}

// publish repeats a publication under the same ID until Redis has answered that it is there.
func (p *producers) publish(f *fleet, id string) {
	for {
		got, err := p.client.Publish(f.ctx, "orders.made", []byte(payloadOf(id)), queue.PublishOptions{ID: id})
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
