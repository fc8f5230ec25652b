package chaos

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	// graves is the queue of dead letters, which nobody serves.
	graves = "graves"
	// relaying is the queue of a plugin that publishes what it gets with the completion of its task.
	relaying      = "relay"
	relayManifest = `limits: {memory: 1MiB, input: 4KiB, output: 4KiB}
retry: {max_attempts: 3, base: 50ms, min: 50ms, max: 500ms}
capabilities: {publish: {topics: [orders.relayed], after: complete}}
`
	// crowded is a topic with a subscriber more than one call writes tasks for, and their queue, which nobody serves.
	crowded, crowd = "crowded", 1001
)

//go:embed testdata/relay.c
var relaySource string

// publications are what TestPublications publishes.
type publications struct {
	*producers
	fleet    *fleet
	receiver *receiver
	names    []string // the queues of the subscribers
	count    int      // publications to them, every other one by a handler
	large    int      // publications to the crowd
	left     atomic.Int64
}

// Each publication makes exactly one task for each of its four subscribers, whatever dies while it is published, by a producer or
// with the completion of a handler's task, and while its tasks run, and each task is run to its end: one is a webhook, whose
// receiver takes each publication at least once, always with the same ID. Some make the tasks of all queues fail for good: those
// of one subscriber leave a dead letter each. Others have more subscribers than one call writes tasks for, and producers that do
// not try again what has begun.
func TestPublications(t *testing.T) {
	beside(t)
	p := &publications{count: 100, large: 4, names: append(slices.Clone(queues), hooking)}
	length, rest, redisRest := 4*time.Second, 500*time.Millisecond, 2*time.Second
	s := settings{hosts: 3, concurrency: 16, lease: 2 * time.Second, grace: time.Second, patience: 3 * time.Minute}
	if full {
		p.count, p.large, length = 4000, 40, time.Minute
		s.concurrency, s.patience = 48, 10*time.Minute
	}
	seed := newSeed(t)
	plan := newPlan(seed, s, victims(t), length, rest, redisRest)
	t.Logf("QUERN_CHAOS_SEED=%d:", seed)
	for _, one := range plan {
		t.Log(one)
	}
	f := newFleet(t, s)
	f.put(relaying, relayManifest, runtimetest.BuildCHandler(t, relaySource))
	f.serve(relaying)
	through := newProxy(t, f.address.addr())
	p.producers, p.fleet, p.receiver = newProducers(f, through), f, newReceiver(t, newRandom(seed, 102))
	p.subscribe()
	begun := time.Now()
	var publishing sync.WaitGroup
	for first := range 4 {
		publishing.Go(func() {
			for i := first; i < p.count && sleep(f.ctx, time.Until(begun.Add(length*time.Duration(i)/time.Duration(p.count)))); i += 4 {
				p.publish(i)
			}
		})
	}
	f.suffer(plan, through)
	publishing.Wait()
	f.settled(p.count*len(p.names), hooking)
	p.auditCrowd()
	p.receiver.Close() // when its last request has been answered
	ends := p.audit()
	t.Logf("the receiver was asked %d times", p.receiver.requests)
	t.Logf("%d publications, every other one by a handler, and %d to %d subscribers, of which hosts went on with %d; %d calls repeated, %d of them had been done; tasks: %v",
		p.count, p.large, crowd, p.left.Load(), p.repeats.Load(), p.done.Load(), ends)
	f.leave()
}

// subscribe makes the subscriptions; those of the crowd by hand, at once.
func (p *publications) subscribe() {
	f := p.fleet
	f.t.Helper()
	all := []queue.Subscription{p.receiver.subscription()}
	for _, name := range queues {
		all = append(all, queue.Subscription{ID: name, Topic: "orders.*", Queue: name, Dead: map[string]string{"gamma": graves}[name]})
	}
	_, err := f.rdb.Pipelined(f.ctx, func(pipe redis.Pipeliner) error {
		for i := range crowd {
			id := fmt.Sprintf("%s-%04d", crowded, i)
			pipe.HSet(f.ctx, key("subscriptions"), id, fmt.Sprintf(`{"id": %q, "topic": %q, "queue": %[2]q, "active": true}`, id, crowded))
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, one := range all {
		if _, err := f.client.Subscribe(f.ctx, one); err != nil {
			f.t.Fatal(err)
		}
	}
}

func publicationID(i int) string { return fmt.Sprintf("publication-%05d", i) }

// failing tells whether the tasks of a publication fail: every tenth does.
func failing(publication string) bool { return strings.HasSuffix(publication, "7") }

func payloadOf(publication string) string {
	if failing(publication) {
		return "5 never " + publication
	}
	return "5 ok " + publication
}

// publish repeats the i-th publication under the same ID, or the task whose handler publishes it, until Redis has answered that it
// is there. Beside some there is one to the crowd.
func (p *publications) publish(i int) {
	ctx, id := p.fleet.ctx, publicationID(i)
	_ = p.insist(ctx, func() error { // the audit misses what did not come
		if i%2 == 1 {
			_, err := p.client.Queue(relaying).Enqueue(ctx, []byte(payloadOf(id)), queue.Options{ID: "relay-" + id})
			return err
		}
		got, err := p.client.Publish(ctx, "orders.made", []byte(payloadOf(id)), queue.PublishOptions{ID: id})
		if err == nil && got.Existed {
			p.done.Add(1)
		}
		return err
	})
	every := p.count / p.large
	if i%every != 0 {
		return
	}
	id = fmt.Sprintf("%s-%d", crowded, i/every)
	_ = p.insist(ctx, func() error {
		_, err := p.client.Publish(ctx, crowded, nil, queue.PublishOptions{ID: id})
		if err == nil {
			return nil
		}
		if kept, failed := p.fleet.client.Publication(ctx, id); failed == nil { // the rest is the hosts'
			if kept.State != queue.PublicationDone {
				p.left.Add(1)
			}
			return nil
		}
		return err
	})
}

// auditCrowd: each publication to the crowd has one task for each subscriber, also those whose producers gave up.
func (p *publications) auditCrowd() {
	f := p.fleet
	f.t.Helper()
	f.eventually("all of the crowd have their tasks", func() bool {
		for i := range p.large {
			publication, err := f.client.Publication(f.ctx, fmt.Sprintf("%s-%d", crowded, i))
			if err != nil || publication.State != queue.PublicationDone || publication.Subscribers != crowd {
				return false
			}
		}
		return true
	})
	if n, err := manage.New(f.client).Queue(crowded).Count(f.ctx, queue.Pending); err != nil || n != int64(p.large*crowd) {
		f.t.Errorf("the crowd has %d tasks, %v, want %d", n, err, p.large*crowd)
	}
	for i := range p.large {
		tasks, err := manage.New(f.client).PublicationTasks(f.ctx, fmt.Sprintf("%s-%d", crowded, i), 0, crowd+1)
		if err != nil || len(tasks) != crowd || slices.ContainsFunc(tasks, func(task manage.PublishedTask) bool { return task.Status != queue.Pending }) {
			f.t.Errorf("%d tasks of publication %d, %v", len(tasks), i, err)
		}
	}
}

// audit counts how the tasks of the other publications ended.
func (p *publications) audit() map[string]int {
	f := p.fleet
	f.t.Helper()
	ends, failed := make(map[string]int), 0
	for i := range p.count {
		id := publicationID(i)
		publication, err := f.client.Publication(f.ctx, id)
		if err != nil || publication.State != queue.PublicationDone || publication.Subscribers != len(p.names) {
			f.t.Errorf("%s: %+v, %v", id, publication, err)
			continue
		}
		tasks, err := manage.New(f.client).PublicationTasks(f.ctx, id, 0, 10)
		if err != nil || len(tasks) != len(p.names) {
			f.t.Errorf("%s: %+v, %v", id, tasks, err)
		}
		for _, task := range tasks {
			if strings.TrimPrefix(task.Queue, queue.WebhookQueues) != task.Subscription || !task.Status.Finished() ||
				task.Status == queue.Failed && task.Reason != queue.ReasonCrashed && (task.Queue == hooking || !failing(id)) {
				f.t.Errorf("%s: %+v", id, task)
			}
			if task.Subscription == hooked && (task.Status != queue.Complete || p.receiver.taken[task.ID+" "+payloadOf(id)] == 0) {
				f.t.Errorf("%s: the receiver did not take it: %+v", id, task)
			}
			ends[string(task.Status)]++
			if task.Queue == "gamma" && task.Status == queue.Failed {
				failed++
			}
		}
	}
	names, counts := slices.Concat(p.names, []string{relaying}), make(map[string]int64)
	stats, err := manage.New(f.client).Stats(f.ctx, names...)
	if err != nil {
		f.t.Fatal(err)
	}
	for i, s := range stats {
		counts[names[i]] = s.Depth[queue.Complete] + s.Depth[queue.Failed]
	}
	for _, name := range p.names {
		if counts[name] != int64(p.count) {
			f.t.Errorf("%s: %d tasks, want %d", name, counts[name], p.count)
		}
	}
	if complete := stats[len(stats)-1].Depth[queue.Complete]; complete != int64(p.count/2) || counts[relaying] != complete {
		f.t.Errorf("%d tasks published and %d failed, want %d", complete, counts[relaying]-complete, p.count/2)
	}
	if letters, err := manage.New(f.client).Queue(graves).Count(f.ctx, queue.Pending); err != nil || letters < int64(failed) {
		f.t.Errorf("%d dead letters of %d tasks that failed, %v", letters, failed, err)
	}
	if len(p.receiver.taken) != p.count {
		f.t.Errorf("the receiver took %d, of %d publications", len(p.receiver.taken), p.count)
	}
	return ends
}
