package metrics

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// sampleTimeout bounds a look at Redis, and so the delay of a scrape.
	sampleTimeout = 2 * time.Second
	// samplePause is the least time between two looks.
	samplePause = 3 * time.Second
	// sampleLife is how long a sample is shown while Redis does not answer.
	sampleLife = 30 * time.Second
)

// errNoSample ends a look's context.
var errNoSample = errors.New("no answer before the scrape's time-out")

// QueueSample is the state of one queue in Redis.
type QueueSample struct {
	Tenant, Queue string
	// Depth is the number of tasks by state: scheduled, pending, reserved, started, complete, failed. A missing state
	// has none.
	Depth map[string]int64
	// OldestPendingAge is 0 if no task is pending.
	OldestPendingAge time.Duration
	Listeners        int64
	// Quarantined reports whether the plugin version that serves the queue here is quarantined.
	Quarantined bool
}

type pair struct{ tenant, queue string }

// queueCollector makes the gauges of queues at the scrape.
type queueCollector struct {
	descs  [queueQuarantined + 1]*prometheus.Desc // by row
	failed func()                                 // counts a failed look

	mu     sync.Mutex // guards all below
	source func(context.Context) ([]QueueSample, error)
	served map[pair]struct{} // queues with series even if Redis does not know them
	look   *look             // the running one, or nil
	looked time.Time         // when the last look ended
	sample map[pair]QueueSample
	absent map[string]bool // served tenants without a sample
	taken  time.Time       // when sample was taken; zero before the first
}

// look is one call of the source.
type look struct {
	done    chan struct{}   // closed by the look at its end
	overdue <-chan struct{} // closed after sampleTimeout
}

func newQueueCollector(failed func()) *queueCollector {
	c := &queueCollector{failed: failed, served: map[pair]struct{}{}}
	for row := range c.descs {
		c.descs[row] = desc(row)
	}
	return c
}

func (c *queueCollector) serve(tenant, queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served[pair{tenant, queue}] = struct{}{}
}

func (c *queueCollector) forget(tenant, queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.served, pair{tenant, queue})
}

func (c *queueCollector) use(source func(context.Context) ([]QueueSample, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.source = source
}

// Describe is part of prometheus.Collector.
func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	c.refresh()
	for at, s := range c.current() {
		gauge := func(row int, value float64, more ...string) {
			labels := append([]string{at.tenant, at.queue}, more...)
			ch <- prometheus.MustNewConstMetric(c.descs[row], prometheus.GaugeValue, value, labels...)
		}
		for _, state := range states {
			gauge(queueDepth, float64(s.Depth[state]), state)
		}
		gauge(queueOldestPendingAge, max(0, s.OldestPendingAge).Seconds())
		gauge(queueListeners, float64(s.Listeners))
		gauge(queueQuarantined, oneIf(s.Quarantined))
	}
}

// refresh starts a look if one is due, and waits until the running one has ended or is overdue.
func (c *queueCollector) refresh() {
	c.mu.Lock()
	if c.look == nil && c.source != nil && time.Since(c.looked) >= samplePause {
		c.look = c.start(c.source)
	}
	l := c.look
	c.mu.Unlock()
	if l == nil {
		return
	}
	select {
	case <-l.done:
	case <-l.overdue:
	}
}

// start calls the source in a goroutine, so that a late one does not delay the scrape of the other families.
func (c *queueCollector) start(source func(context.Context) ([]QueueSample, error)) *look {
	ctx, cancel := context.WithTimeoutCause(context.Background(), sampleTimeout, errNoSample)
	l := &look{done: make(chan struct{}), overdue: ctx.Done()}
	go func() {
		defer cancel()
		defer close(l.done)
		samples, err := source(ctx)

		c.mu.Lock()
		defer c.mu.Unlock()
		c.look, c.looked = nil, time.Now()
		if err != nil {
			c.failed()
			if len(samples) == 0 {
				return
			}
		}
		c.taken = c.looked
		c.sample, c.absent = make(map[pair]QueueSample, len(samples)), make(map[string]bool)
		if err != nil {
			for at := range c.served {
				c.absent[at.tenant] = true
			}
		}
		for _, s := range samples {
			c.sample[pair{text(s.Tenant), text(s.Queue)}] = s
			delete(c.absent, text(s.Tenant))
		}
	}()
	return l
}

// current returns the sample, unless it is too old, with the served queues that it does not have.
func (c *queueCollector) current() map[pair]QueueSample {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken.IsZero() || time.Since(c.taken) > sampleLife {
		return nil
	}
	shown := make(map[pair]QueueSample, len(c.sample)+len(c.served)+1)
	for at := range c.served {
		if !c.absent[at.tenant] {
			shown[at] = QueueSample{}
		}
	}
	maps.Copy(shown, c.sample)
	if len(shown) == 0 {
		shown[pair{}] = QueueSample{} // as vacancy does
	}
	return shown
}
