package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// manner is how a task ends.
type manner string

// manners are all there are, with what must become of such a task and what its hash counts then.
var manners = map[manner]struct {
	status                queue.Status
	attempts, reschedules int
}{
	"ok":    {status: queue.Complete, attempts: 1},
	"fail":  {status: queue.Failed, attempts: maxAttempts},
	"trap":  {status: queue.Failed, attempts: maxAttempts},
	"never": {status: queue.Failed, attempts: 1},
	"later": {status: queue.Failed, attempts: 1, reschedules: maxReschedules},
	// Those of testdata/lane.c.
	"slip":  {status: queue.Complete, attempts: 2},
	"yield": {status: queue.Complete, attempts: 1, reschedules: 1},
	// What never runs, because of what it waits for.
	unmet:     {status: queue.Failed},
	skipped:   {status: queue.Complete},
	cancelled: {status: queue.Failed}, // it may have run until then
}

const unmet, skipped, cancelled manner = "unmet", "skipped", "cancelled"

// order is a task that a producer wants done.
type order struct {
	id     string
	queue  string
	manner manner
	takes  time.Duration
	delay  time.Duration
	after  []string // what it waits for
	when   queue.When
	open   bool   // it is told so only when it is there, as the task of a batch
	lane   string // its concurrency key; "" for none
	wide   bool   // the key is that of a label
}

func (o order) spec() queue.Spec {
	parameters := fmt.Sprintf("%d %s %s", o.takes.Milliseconds(), o.manner, o.id)
	options := queue.Options{ID: o.id, Delay: o.delay, After: o.after, When: o.when, Open: o.open}
	if o.open {
		options.After = nil
	}
	if o.wide {
		options.Labels = map[string]string{"customer": o.lane}
	} else {
		options.ConcurrencyKey = o.lane
	}
	return queue.Spec{Parameters: []byte(parameters), Options: options}
}

// newOrders draws tasks: most of them are short and go well.
func newOrders(random *rand.Rand, count int) []order {
	orders := make([]order, count)
	for i := range orders {
		o := order{id: fmt.Sprintf("task-%05d", i), queue: queues[random.IntN(len(queues))], manner: "ok"}
		switch n := random.IntN(100); {
		case n < 4:
			o.manner = "fail"
		case n < 8:
			o.manner = "later"
		case n < 10:
			o.manner = "trap"
		case n < 12:
			o.manner = "never"
		}
		switch n := random.IntN(100); {
		case n < 50:
			o.takes = between(random, 0, 20*time.Millisecond)
		case n < 90:
			o.takes = between(random, 20*time.Millisecond, 200*time.Millisecond)
		case n < 98:
			o.takes = between(random, 200*time.Millisecond, time.Second)
		default:
			o.takes = between(random, time.Second, 2*time.Second)
		}
		if random.IntN(10) == 0 {
			o.delay = between(random, 0, 2*time.Second)
		}
		orders[i] = o
	}
	return orders
}

// producers enqueue orders at an even pace.
type producers struct {
	client *queue.Client
	// repeats counts the calls whose answer did not come, done those of them that had done their work.
	repeats, done atomic.Int64
}

// newProducers connects to Redis through a proxy.
func newProducers(f *fleet, through *proxy) *producers {
	f.t.Helper()
	client, err := queue.New(through.url(), queue.Config{Tenant: tenant})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = client.Close() })
	return &producers{client: client}
}

// produce shares the orders among four producers and returns when all are accepted.
func (p *producers) produce(ctx context.Context, orders []order, length time.Duration) error {
	const count = 4
	begun := time.Now()
	errs := make(chan error, count)
	var group sync.WaitGroup
	for first := range count {
		group.Go(func() {
			for i := first; i < len(orders); i += count {
				due := begun.Add(length * time.Duration(i) / time.Duration(len(orders)))
				if err := p.enqueue(ctx, due, orders[i]); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}

// enqueue repeats an order under the same ID until Redis has answered that it is there.
func (p *producers) enqueue(ctx context.Context, due time.Time, o order) error {
	sleep(ctx, time.Until(due))
	q := p.client.Queue(o.queue)
	err := p.insist(ctx, func() error {
		receipts, err := q.EnqueueMany(ctx, []queue.Spec{o.spec()})
		if err == nil && receipts[0].Existed {
			p.done.Add(1)
		}
		return err
	})
	if o.open {
		for part := range slices.Chunk(o.after, 20) {
			err = errors.Join(err, p.insist(ctx, func() error { return q.Await(ctx, o.id, part...) }))
		}
		err = errors.Join(err, p.insist(ctx, func() error { return q.Close(ctx, o.id) }))
	}
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", o.id, err)
	}
	return nil
}

// insist repeats a call until Redis has answered that it is done.
func (p *producers) insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		p.repeats.Add(1)
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%w, last: %w", ctx.Err(), err)
		}
	}
}
