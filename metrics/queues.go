package metrics

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

const (
	// sampleTimeout bounds one read of Redis, and so the delay of a scrape.
	sampleTimeout = 2 * time.Second
	// samplePause is the minimum time from the end of one read to the next.
	samplePause = 3 * time.Second
	// sampleLife is how long a sample is shown while Redis does not answer.
	sampleLife = 30 * time.Second
)

// errNoSample is the cause with which the context of a read ends.
var errNoSample = errors.New("no answer before the scrape's time-out")

// QueueSample is the state of one queue in Redis.
type QueueSample struct {
	Tenant, Queue string
	// Depth is the number of tasks by state: scheduled (until a time), blocked (until other tasks have ended), pending,
	// reserved, started, complete, failed. States without tasks can be left out.
	Depth map[string]int64
	// OldestPendingAge is 0 if no task is pending.
	OldestPendingAge time.Duration
	Listeners        int64
	// Quarantined is why the plugin version that serves the queue here is quarantined, "crashes" or "failures"; "": it is
	// not.
	Quarantined string
	Paused      bool
	// DeadLetters is the number of dead letters that wait in the queue; nil if no manifest of a plugin here names the
	// queue as dead.
	DeadLetters *int64
}

type pair struct{ tenant, queue string }

// queueSampler keeps the last sample of the queues. At a scrape it takes a new one, by a read of Redis, if the last
// read is samplePause ago.
type queueSampler struct {
	failed func() // counts a failed read

	mu     sync.Mutex // guards all fields below
	source func(context.Context) ([]QueueSample, error)
	// The plugin of each served queue. These queues have series even if Redis does not know them.
	served map[pair]string
	look   <-chan struct{} // closed when the running call of source ends or is overdue; nil if no call runs
	looked time.Time       // when the last call of source ended
	sample map[pair]QueueSample
	absent map[string]bool // served tenants without a sample
	taken  time.Time       // when sample was taken; zero before the first
}

// CollectQueues sets the source of the queue gauges. A scrape calls source in a separate goroutine, at most once in
// three seconds and never twice at a time. The context of the call ends after two seconds: then the scrape goes on
// without source, which must return. If source returns both samples and an error, a tenant without samples has no
// series. Without a source the gauges have no series.
func (m *Metrics) CollectQueues(source func(context.Context) ([]QueueSample, error)) {
	m.sampler.mu.Lock()
	defer m.sampler.mu.Unlock()
	m.sampler.source = source
}

// serve records the plugin of a served queue, and reports whether the queue or its plugin is new.
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
		emit(queueQuarantined, 0, "", "", "") // as vacant does for other families
		for _, f := range []*family{queuePaused, queueDeadLetters} {
			emit(f, 0, "", "")
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
		if s.Quarantined != "" {
			emit(queueQuarantined, 1, at.tenant, at.queue, s.Quarantined)
		}
		if s.Paused {
			emit(queuePaused, 1, at.tenant, at.queue)
		}
		if s.DeadLetters != nil {
			emit(queueDeadLetters, float64(*s.DeadLetters), at.tenant, at.queue)
		}
	}
}

// refresh starts a call of source if one is due. It waits until the running call has ended or is overdue. The call has
// its own goroutine, so that a late one does not delay the scrape of the other families.
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

// keep stores the result of a call of source, and so ends the call.
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

// current returns the last sample. For served queues that Redis does not know, it has empty samples. It returns nil if
// the sample is too old.
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
		shown[pair{}] = QueueSample{} // as vacant does for other families
	}
	return shown
}
