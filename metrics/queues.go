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
	// sampleTimeout bounds a look at Redis, and so what it can add to a scrape.
	sampleTimeout = 2 * time.Second
	// samplePause is the least time between two looks, however many scrape.
	samplePause = 3 * time.Second
	// sampleLife is how long a sample is shown when Redis does not answer.
	sampleLife = 30 * time.Second
)

// errNoSample ends a look's context.
var errNoSample = errors.New("no answer before the scrape's time-out")

// QueueSample is what Redis says of one queue.
type QueueSample struct {
	Tenant, Queue string
	// Depth is the number of tasks by state: scheduled, pending, reserved, started, complete, failed.
	// A state that is missing has none.
	Depth map[string]int64
	// OldestPendingAge is 0 when nothing is pending.
	OldestPendingAge time.Duration
	Listeners        int64
	// Quarantined says that the version of the plugin that serves the queue here is quarantined.
	Quarantined bool
}

type pair struct{ tenant, queue string }

// queueCollector makes the gauges of queues at the scrape.
type queueCollector struct {
	depth, age, listeners, quarantined *prometheus.Desc
	failed                             func() // counts a look that failed

	mu     sync.Mutex // guards all below
	source func(context.Context) ([]QueueSample, error)
	served map[pair]struct{} // queues that have series though Redis has no word of them
	look   *look             // under way, else nil
	looked time.Time         // when the last look ended
	sample map[pair]QueueSample
	absent map[string]bool // tenants of which the sample should tell and does not
	taken  time.Time       // when sample was taken; zero before the first
}

// look is one question to the source.
type look struct {
	done    chan struct{}   // closed by the look when it has ended
	overdue <-chan struct{} // closed after sampleTimeout
}

func newQueueCollector(failed func()) *queueCollector {
	return &queueCollector{
		depth:     desc(queueDepth),
		age:       desc(queueOldestPendingAge),
		listeners: desc(queueListeners), quarantined: desc(queueQuarantined),
		failed: failed,
		served: map[pair]struct{}{},
	}
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
	ch <- c.depth
	ch <- c.age
	ch <- c.listeners
	ch <- c.quarantined
}

// Collect is part of prometheus.Collector.
func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	c.refresh()
	for at, s := range c.current() {
		gauge := func(d *prometheus.Desc, value float64, more ...string) {
			labels := append([]string{at.tenant, at.queue}, more...)
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
		}
		for _, state := range states {
			gauge(c.depth, float64(s.Depth[state]), state)
		}
		gauge(c.age, max(0, s.OldestPendingAge).Seconds())
		gauge(c.listeners, float64(s.Listeners))
		quarantined := 0.0
		if s.Quarantined {
			quarantined = 1
		}
		gauge(c.quarantined, quarantined)
	}
}

// refresh sees to it that a look is under way if one is due, and waits for the one under way until
// it has ended or is overdue.
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

// start asks the source in a goroutine that ends with it: a source that is late must not hold up
// the scrape, which has the rest of the catalogue to bring.
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

// current returns what is to be shown: the sample, if there is one that is not too old, with the
// served queues that it does not have.
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
