package metrics

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

const (
	// sampleTimeout bounds a look at Redis, and so the delay of a scrape.
	sampleTimeout = 2 * time.Second
	// samplePause is the least time from the end of one look at Redis to the next.
	samplePause = 3 * time.Second
	// sampleLife is how long a sample is shown while Redis does not answer.
	sampleLife = 30 * time.Second
)

// errNoSample is the cause when the context of a look ends.
var errNoSample = errors.New("no answer before the scrape's time-out")

// QueueSample is the state of one queue in Redis.
type QueueSample struct {
	Tenant, Queue string
	// Depth is the number of tasks by state: scheduled (until a time), blocked (until other tasks have ended), pending,
	// reserved, started, complete, failed. A missing state has none.
	Depth map[string]int64
	// OldestPendingAge is 0 if no task is pending.
	OldestPendingAge time.Duration
	Listeners        int64
	// Quarantined reports whether the plugin version that serves the queue here is quarantined.
	Quarantined bool
	Paused      bool
	// DeadLetters is how many dead letters wait in the queue; nil if no manifest of a plugin here names the queue as
	// dead.
	DeadLetters *int64
}

type pair struct{ tenant, queue string }

// queueSampler keeps the last sample of the queues, and takes a new one at a scrape.
type queueSampler struct {
	failed func() // counts a failed look

	mu     sync.Mutex // guards all below
	source func(context.Context) ([]QueueSample, error)
	served map[pair]string // the plugins of queues with series even if Redis does not know them
	look   <-chan struct{} // closed when the running call of source ends or is overdue; nil if none runs
	looked time.Time       // when the last look ended
	sample map[pair]QueueSample
	absent map[string]bool // served tenants without a sample
	taken  time.Time       // when sample was taken; zero before the first
}

// CollectQueues sets the source of the queue gauges. A scrape calls it in a goroutine of its own, at most once in three
// seconds and never twice at a time. Its context ends after two seconds: then the scrape goes on without it, and the
// source must return. If the source returns samples and an error, a tenant without samples has no series. Without a
// source the gauges have no series.
func (m *Metrics) CollectQueues(source func(context.Context) ([]QueueSample, error)) {
	m.sampler.mu.Lock()
	defer m.sampler.mu.Unlock()
	m.sampler.source = source
}

// serve records the plugin of a served queue, and reports whether that is new.
func (q *queueSampler) serve(tenant, queue, plugin string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	is, served := q.served[pair{tenant, queue}]
	q.served[pair{tenant, queue}] = plugin
	return !served || is != plugin
}

func (q *queueSampler) forget(tenant, queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.served, pair{tenant, queue})
}

// emit makes the series of the queue gauges.
func (q *queueSampler) emit(emit emitter) {
	q.refresh()
	shown := q.current()
	if shown != nil {
		for _, f := range []*family{queueQuarantined, queuePaused, queueDeadLetters} {
			emit(f, 0, "", "") // as vacant does
		}
	}
	for at, s := range shown {
		for _, state := range states {
			if n := s.Depth[state]; n > 0 || state == "pending" {
				emit(queueDepth, float64(n), at.tenant, at.queue, state)
			}
		}
		emit(queueOldestPendingAge, s.OldestPendingAge.Seconds(), at.tenant, at.queue)
		emit(queueListeners, float64(s.Listeners), at.tenant, at.queue)
		if s.Quarantined {
			emit(queueQuarantined, 1, at.tenant, at.queue)
		}
		if s.Paused {
			emit(queuePaused, 1, at.tenant, at.queue)
		}
		if s.DeadLetters != nil {
			emit(queueDeadLetters, float64(*s.DeadLetters), at.tenant, at.queue)
		}
	}
}

// refresh starts a look if one is due, and waits until the running one has ended or is overdue. The look has a
// goroutine of its own, so that a late one does not delay the scrape of the other families.
func (q *queueSampler) refresh() {
	q.mu.Lock()
	if source := q.source; q.look == nil && source != nil && time.Since(q.looked) >= samplePause {
		ctx, cancel := context.WithTimeoutCause(context.Background(), sampleTimeout, errNoSample)
		q.look = ctx.Done()
		go func() {
			defer cancel()
			q.keep(source(ctx))
		}()
	}
	look := q.look
	q.mu.Unlock()
	if look != nil {
		<-look
	}
}

// keep stores the result of a look, which ends it.
func (q *queueSampler) keep(samples []QueueSample, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.look, q.looked = nil, time.Now()
	if err != nil {
		q.failed()
		if len(samples) == 0 {
			return
		}
	}
	q.taken = q.looked
	q.sample, q.absent = make(map[pair]QueueSample, len(samples)), make(map[string]bool)
	if err != nil {
		for at := range q.served {
			q.absent[at.tenant] = true
		}
	}
	for _, s := range samples {
		q.sample[pair{text(s.Tenant), text(s.Queue)}] = s
		delete(q.absent, text(s.Tenant))
	}
}

// current returns the sample, with empty ones for served queues that Redis does not know; nil if the sample is too old.
func (q *queueSampler) current() map[pair]QueueSample {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken.IsZero() || time.Since(q.taken) > sampleLife {
		return nil
	}
	shown := make(map[pair]QueueSample, len(q.sample)+len(q.served)+1)
	for at := range q.served {
		if !q.absent[at.tenant] {
			shown[at] = QueueSample{}
		}
	}
	maps.Copy(shown, q.sample)
	if len(shown) == 0 {
		shown[pair{}] = QueueSample{} // as vacant does
	}
	return shown
}
