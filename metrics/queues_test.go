package metrics

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A tenant of which the source cannot tell has no series, and the others have theirs.
func TestQueueGaugesOfOtherTenants(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	m.QueueServed("acme", "q", "p")
	m.QueueServed("beta", "q", "p")
	m.CollectQueues(func(context.Context) ([]QueueSample, error) {
		return []QueueSample{{Tenant: "acme", Queue: "q", Listeners: 3}}, errors.New("a key of beta is of another type")
	})
	want := `
# HELP quern_queue_listeners Listeners of the queue: Quern hosts and others.
# TYPE quern_queue_listeners gauge
quern_queue_listeners{queue="q",tenant="acme"} 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "quern_queue_listeners"); err != nil {
		t.Error(err)
	}
}

// empty is a source whose Redis knows no queue.
func empty(context.Context) ([]QueueSample, error) { return nil, nil }

// counting is a source whose n-th answer is n listeners, or an error while down.
type counting struct {
	looks atomic.Int64
	down  atomic.Bool
}

func (s *counting) read(context.Context) ([]QueueSample, error) {
	n := s.looks.Add(1)
	if s.down.Load() {
		return nil, errors.New("connection refused")
	}
	return []QueueSample{{Tenant: "acme", Queue: "q", Listeners: n}}, nil
}

// listeners returns what a scrape shows as listeners of acme's q, -1 when it shows nothing.
func listeners(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	for _, f := range gather(t, reg) {
		if f.GetName() == "quern_queue_listeners" {
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == "q" {
					return m.GetGauge().GetValue()
				}
			}
		}
	}
	return -1
}

func scrapeErrors(m *Metrics) float64 {
	return testutil.ToFloat64(m.vecs[redisErrors].counter.WithLabelValues(opScrape))
}

// pass lets the bubble's clock run.
func pass(d time.Duration) { <-time.After(d) }

func TestQueueGauges(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	m.QueueServed("acme", "idle", "idle")
	m.CollectQueues(func(context.Context) ([]QueueSample, error) {
		return []QueueSample{
			{
				Tenant: "acme", Queue: "q", Depth: map[string]int64{"pending": 3, "no such state": 7},
				OldestPendingAge: 1500 * time.Millisecond, Listeners: 2,
			},
			{Tenant: "acme", Queue: "odd\xff"},
			{Tenant: "acme", Queue: "odd\xfe", OldestPendingAge: -time.Second},
		}, nil
	})
	const want = `
		# HELP quern_queue_listeners Listeners of the queue: Quern hosts and others.
		# TYPE quern_queue_listeners gauge
		quern_queue_listeners{queue="idle",tenant="acme"} 0
		quern_queue_listeners{queue="odd�",tenant="acme"} 0
		quern_queue_listeners{queue="q",tenant="acme"} 2
		# HELP quern_queue_oldest_pending_age_seconds Age of the oldest pending task of the queue, 0 if none is pending.
		# TYPE quern_queue_oldest_pending_age_seconds gauge
		quern_queue_oldest_pending_age_seconds{queue="idle",tenant="acme"} 0
		quern_queue_oldest_pending_age_seconds{queue="odd�",tenant="acme"} 0
		quern_queue_oldest_pending_age_seconds{queue="q",tenant="acme"} 1.5
	`
	err := testutil.GatherAndCompare(reg, strings.NewReader(want),
		"quern_queue_listeners", "quern_queue_oldest_pending_age_seconds")
	if err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "quern_queue_depth"); err != nil || n != 3 {
		t.Errorf("quern_queue_depth has %d series (%v), want that of pending for each of 3 queues", n, err)
	}
}

func TestQueueGaugesWithoutSource(t *testing.T) {
	t.Parallel()
	_, reg := setup(t)
	if n, err := testutil.GatherAndCount(reg, "quern_queue_listeners"); err != nil || n != 0 {
		t.Errorf("quern_queue_listeners has %d series (%v) before there is a source, want none", n, err)
	}
}

func TestSampleIsCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, reg := setup(t)
		var source counting
		m.CollectQueues(source.read)
		for i := range 5 { // at 0, 1, 2, 3 and 4 s
			if got, want := listeners(t, reg), float64(1+i/3); got != want {
				t.Errorf("after %d s a scrape shows answer %v, want %v", i, got, want)
			}
			pass(time.Second)
		}
	})
}

func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, reg := setup(t)
		var source counting
		m.CollectQueues(source.read)
		if got := listeners(t, reg); got != 1 {
			t.Fatalf("a scrape shows answer %v, want 1", got)
		}

		source.down.Store(true)
		pass(sampleLife)
		if got := listeners(t, reg); got != 1 || scrapeErrors(m) != 1 {
			t.Errorf("after 30 s without Redis: answer %v and %v errors, want the last answer, 1, and 1 error", got, scrapeErrors(m))
		}
		if listeners(t, reg); scrapeErrors(m) != 1 {
			t.Errorf("a scrape at once after a failed one asked Redis again")
		}
		pass(samplePause)
		if got := listeners(t, reg); got != -1 || scrapeErrors(m) != 2 {
			t.Errorf("after 33 s without Redis: answer %v and %v errors, want no answer and 2 errors", got, scrapeErrors(m))
		}
		if got := testutil.ToFloat64(m.slots); got != 0 {
			t.Errorf("slots = %v, want the rest of the catalogue to be there", got)
		}

		source.down.Store(false)
		pass(samplePause)
		if got := listeners(t, reg); got != 4 {
			t.Errorf("when Redis is back a scrape shows answer %v, want the fourth", got)
		}
	})
}

// A source that keeps to its context delays a scrape by the time-out at most; one that does not
// holds up the first scrape alone, and no second look is begun beside it.
func TestSlowSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, reg := setup(t)
		var looks atomic.Int64
		release := make(chan struct{})
		m.CollectQueues(func(ctx context.Context) ([]QueueSample, error) {
			if looks.Add(1) > 1 {
				return nil, nil
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errNoSample) {
				t.Errorf("the look was ended by %v", context.Cause(ctx))
			}
			<-release
			return nil, ctx.Err()
		})
		scrape := func() time.Duration {
			begin := time.Now()
			gather(t, reg)
			return time.Since(begin)
		}

		if took := scrape(); took != sampleTimeout {
			t.Errorf("a scrape took %v, want the time-out, %v", took, sampleTimeout)
		}
		pass(time.Minute)
		if took := scrape(); took != 0 || looks.Load() != 1 {
			t.Errorf("while a look is overdue a scrape took %v and there were %d looks, want no wait and 1", took, looks.Load())
		}
		close(release)
		synctest.Wait()
		if scrapeErrors(m) != 1 {
			t.Errorf("%v errors were counted, want 1", scrapeErrors(m))
		}
		pass(samplePause)
		if scrape(); looks.Load() != 2 {
			t.Errorf("%d looks, want a second one after the first ended", looks.Load())
		}
	})
}

func TestSingleFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, reg := setup(t)
		var looks atomic.Int64
		m.CollectQueues(func(context.Context) ([]QueueSample, error) {
			pass(time.Second)
			return []QueueSample{{Tenant: "acme", Queue: "q", Listeners: looks.Add(1)}}, nil
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got := listeners(t, reg); got != 1 {
					t.Errorf("a scrape shows answer %v, want 1", got)
				}
			})
		}
		wg.Wait()
		if looks.Load() != 1 {
			t.Errorf("10 scrapes at a time asked Redis %d times, want once", looks.Load())
		}
	})
}
