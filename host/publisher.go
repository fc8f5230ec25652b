package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// publishInterval is how often one host of the fleet looks for publications that nobody goes on with.
const publishInterval = 10 * time.Second

// publisher makes the tasks of publications: of those that tasks of this session published with their completion, at once, and
// of those that dead publishers left, one host for the fleet.
type publisher struct {
	duty
	access *tenantAccess

	mu       sync.Mutex
	accepted []string // of this session; guarded by mu

	topics  atomic.Pointer[[]metrics.TopicSample] // for the metrics
	counted time.Time                             // when they were read; only the run under way uses it
}

// copies is how many times its payload a publication takes: read from Redis, for filters to look at, and on its way back.
const copies = 3

// leastCalls is enough for the largest publication of a handler, in bytes.
const leastCalls = copies * manifest.MaxPublicationBytes

// shownTopics is how many topics of a tenant have series.
const shownTopics = 100

// accept goes on with publications that were accepted just now.
func (p *publisher) accept(publications []*queue.Publication) {
	if len(publications) == 0 {
		return
	}
	p.mu.Lock()
	for _, publication := range publications {
		p.accepted = append(p.accepted, publication.ID)
	}
	p.mu.Unlock()
	p.ask()
}

func (p *publisher) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	p.mu.Lock()
	mine := p.accepted
	p.accepted = nil
	p.mu.Unlock()
	if err := p.publish(ctx, mine); err != nil {
		return 0, 0, err // whoever has the duty goes on with them
	}
	if time.Since(p.counted) > publishInterval/2 {
		if err := p.count(ctx); err != nil {
			return 0, 0, err
		}
	}
	leads, err := p.access.node.TakeDuty(ctx, "publish", publishInterval)
	if err != nil || !leads {
		return 0, publishInterval, err
	}
	fleet := listen.NewFleet(p.access.client)
	for more := true; more && err == nil; {
		var left []string
		if left, err = fleet.Unpublished(ctx); err == nil {
			err = p.publish(ctx, left)
		}
		if err == nil {
			err = fleet.PostponeUnpublished(ctx, left) // those that cannot be published keep no others from it
		}
		more = len(left) == listen.MaxUnpublished
	}
	return 0, publishInterval, err
}

// count reads what was published to the topics that were last published to.
func (p *publisher) count(ctx context.Context) error {
	topics, err := manage.New(p.access.client).BusyTopics(ctx, shownTopics)
	if err != nil {
		return err
	}
	samples := make([]metrics.TopicSample, len(topics))
	for i, t := range topics {
		samples[i] = metrics.TopicSample{Tenant: p.access.client.Tenant(), Topic: t.Name, Published: t.Published, Dropped: t.Dropped, Tasks: t.Tasks}
	}
	p.topics.Store(&samples)
	p.counted = time.Now()
	return nil
}

// publish makes tasks until Redis does not serve. One publication that cannot be published does not hold up the others.
func (p *publisher) publish(ctx context.Context, ids []string) error {
	for _, id := range ids {
		err := p.publishOne(ctx, id)
		switch {
		case errors.Is(err, service.ErrUnavailable) && ctx.Err() == nil: // of memory: the duty tries it again
			continue
		case errors.Is(err, queue.ErrNoPublication): // somebody deleted its hash
			err = listen.NewFleet(p.access.client).ForgetUnpublished(ctx, id)
		case err != nil && !queue.IsUnavailable(err) && ctx.Err() == nil:
			p.health.failed(opPublish, "", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publishOne makes the tasks of a publication, once there is memory for its payload.
func (p *publisher) publishOne(ctx context.Context, id string) error {
	size, err := manage.New(p.access.client).PublicationSize(ctx, id)
	if err != nil {
		return err
	}
	memory, err := p.access.borrow(ctx, p.access.calls, copies*size)
	if err != nil {
		return err
	}
	defer memory.Give()
	return p.access.client.Republish(ctx, id)
}
