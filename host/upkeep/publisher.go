package upkeep

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// publishInterval is how often one host of the fleet looks for publications that nobody works on. It is also the
	// length of that host's term.
	publishInterval = 10 * time.Second
	// shownTopics is the maximum number of topics of a tenant that have metric series.
	shownTopics = 100
)

// errNoMemory ends an attempt to publish; the host with the term tries again.
var errNoMemory = errors.New("no memory for a payload")

// Publisher makes the tasks of publications. If tasks of this session published with their completion, it makes the
// tasks of those publications at once. If dead publishers left publications, the Publisher of one host in the fleet
// makes their tasks. It also reads the topics for the metrics.
type Publisher struct {
	periodic.Duty
	*Config

	mu       sync.Mutex
	accepted []string // IDs of publications that tasks of this session published; guarded by mu

	topics  atomic.Pointer[[]listen.TopicCounts]
	counted time.Time // when topics were read; only the run under way uses it
}

// Topics lists the topics that were published to most recently, as of the last time that they were read.
func (p *Publisher) Topics() []listen.TopicCounts {
	if topics := p.topics.Load(); topics != nil {
		return *topics
	}
	return nil
}

// Accept makes the duty create the tasks of publications that Redis has just accepted.
func (p *Publisher) Accept(publications []*queue.Publication) {
	if len(publications) == 0 {
		return
	}
	p.mu.Lock()
	for _, publication := range publications {
		p.accepted = append(p.accepted, publication.ID)
	}
	p.mu.Unlock()
	p.Ask()
}

// RunOnce implements periodic.Worker.
func (p *Publisher) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	p.mu.Lock()
	mine := p.accepted
	p.accepted = nil
	p.mu.Unlock()
	if err := p.publish(ctx, mine); err != nil {
		return 0, 0, err // the host with the term handles the remaining ones
	}
	if time.Since(p.counted) > publishInterval/2 {
		if err := p.count(ctx); err != nil {
			return 0, 0, err
		}
	}
	leads, err := p.Node.TakeDuty(ctx, "publish", publishInterval)
	if err != nil || !leads {
		return 0, publishInterval, err
	}
	fleet := p.Fleet
	for more := true; more && err == nil; {
		var left []string
		if left, err = fleet.Unpublished(ctx); err == nil {
			err = p.publish(ctx, left)
		}
		if err == nil {
			err = fleet.PostponeUnpublished(ctx, left) // so that publications that fail do not stop the rest
		}
		more = len(left) == listen.MaxUnpublished
	}
	return 0, publishInterval, err
}

// count reads the topics that were published to most recently.
func (p *Publisher) count(ctx context.Context) error {
	topics, err := p.Fleet.BusyTopics(ctx, shownTopics)
	if err != nil {
		return err
	}
	p.topics.Store(&topics)
	p.counted = time.Now()
	return nil
}

// publish makes the tasks of publications, and stops when Redis cannot serve. A publication that cannot be published
// does not hold up the others.
func (p *Publisher) publish(ctx context.Context, ids []string) error {
	for _, id := range ids {
		err := p.publishOne(ctx, id)
		switch {
		case errors.Is(err, errNoMemory) && ctx.Err() == nil:
			continue
		case errors.Is(err, queue.ErrNoPublication): // somebody deleted the publication's hash
			err = p.Fleet.ForgetUnpublished(ctx, id)
		case err != nil && !queue.IsUnavailable(err) && ctx.Err() == nil:
			p.Health.Failed(opPublish, "", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publishOne makes the tasks of a publication, once there is memory for its payload.
func (p *Publisher) publishOne(ctx context.Context, id string) error {
	size, err := p.Fleet.PublicationSize(ctx, id)
	if err != nil {
		return err
	}
	memory, err := p.Borrow(ctx, size)
	if err != nil {
		return errNoMemory
	}
	defer memory.Give()
	return p.Client.Republish(ctx, id)
}
