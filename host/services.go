package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// Services are what handlers may use beyond their tasks, as far as their manifests grant it. What is left out is
// denied.
type Services struct {
	// KV is the store of each tenant, by its name.
	KV map[string]*kv.Store
	// HTTP sends what handlers request.
	HTTP *egress.Client
	// Secrets is the folder of secrets: TENANT/NAME holds the value of those of which the host's grants say nothing. They
	// are read whenever a task asks for one.
	Secrets string
}

// of are the services of a task.
func (s *Services) of(t *task) service.Set {
	if t.version.Info().Kind != runtime.Handler {
		return service.Set{}
	}
	set := service.Set{Checkpoint: keeper{t}}
	asked, terms := &t.version.Manifest.Capabilities, t.version.Terms(t.served.tenant)
	granted := &terms.Capabilities
	if store := s.KV[t.served.tenant]; store != nil && len(asked.KV) > 0 {
		grants := make([]kv.Grant, len(granted.KV))
		for i, g := range granted.KV {
			grants[i] = kv.Grant(g)
		}
		set.KV = store.For(grants)
		if terms.Ceiling != nil {
			set.KV = boundedKV{set.KV, terms}
		}
	}
	if s.HTTP != nil && len(asked.HTTP) > 0 {
		if c := terms.Ceiling; c != nil {
			set.HTTP = s.HTTP.ForUnder(t.served.tenant, asked.HTTP, egress.Ceiling{Grants: c.HTTP, Place: terms.Place()})
		} else {
			set.HTTP = s.HTTP.For(t.served.tenant, asked.HTTP)
		}
	}
	if asked.Enqueue != nil {
		t.children = children{task: t, grant: cmp.Or(granted.Enqueue, &plugins.EnqueueGrant{}), left: NewAllowance(terms)}
		set.Enqueue, set.EnqueueAtOnce = &t.children, t.children.grant.AfterCall
		if terms.Ceiling != nil {
			set.Enqueue = boundedEnqueuer{set.Enqueue, terms, t.Depth}
		}
	}
	if len(asked.Secrets) > 0 {
		set.Secrets = vault{s.Secrets, t.served.tenant, terms}
	}
	return set
}

// keeper keeps a task's checkpoint in Redis.
type keeper struct{ task *task }

// Save implements service.Checkpoint.
func (k keeper) Save(ctx context.Context, value []byte) error {
	t := k.task
	if !sleep(ctx, t.saves.take(time.Now(), len(value))) {
		return context.Cause(ctx)
	}
	_, err := within(ctx, func() (struct{}, error) {
		return struct{}{}, t.tenant.node.Checkpoint(ctx, t.served.queue, t.Hold(), value)
	})
	switch {
	case errors.Is(err, queue.ErrLost), errors.Is(err, queue.ErrNoTask), errors.Is(err, queue.ErrLeaseLost):
		return fmt.Errorf("%w: %w", service.ErrLost, err)
	case queue.IsUnavailable(err):
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	default:
		return err
	}
}

// within does f, and waits for its end as long as ctx has not ended: go-redis looks only at
// its deadline while it reads, and a file at neither.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := f()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
