package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// dependencies has the tasks that one task waited for. It belongs to the goroutine of the task's call until the call
// has ended.
type dependencies struct {
	host  Host
	known []service.Dependency // nil until they are read
}

// List implements service.Dependencies.
func (d *dependencies) List(ctx context.Context) ([]service.Dependency, error) {
	if d.known != nil {
		return d.known, nil
	}
	all, err := service.Await(ctx, func() ([]listen.Dependency, error) { return d.host.Dependencies(ctx) })
	if err != nil {
		return nil, unread(err)
	}
	d.known = make([]service.Dependency, len(all))
	for i, one := range all {
		d.known[i] = service.Dependency{ID: one.ID, End: cmp.Or(one.End, "waiting")}
	}
	return d.known, nil
}

// Result implements service.Dependencies.
func (d *dependencies) Result(ctx context.Context, id string) ([]byte, error) {
	list, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(one service.Dependency) bool { return one.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("%w: this task did not wait for %q: name it in `after` when this one is enqueued",
			service.ErrInvalid, id)
	}
	result, err := service.Await(ctx, func() ([]byte, error) { return d.host.Result(ctx, id, service.MaxBody) })
	if errors.Is(err, queue.ErrNoTask) {
		return nil, fmt.Errorf("%w: %s", service.ErrNotFound, d.withoutResult(ctx, list[i]))
	}
	return result, unread(err)
}

// withoutResult says why a dependency has no result, in one line. The test hosts of the SDKs say the same.
func (d *dependencies) withoutResult(ctx context.Context, one service.Dependency) string {
	switch one.End {
	case "failed":
		text := "task " + one.ID + " failed and has no result"
		failure, err := service.Await(ctx, func() (*queue.Failure, error) { return d.host.Failure(ctx, one.ID) })
		if err == nil && failure != nil {
			text += ": (" + failure.Word() + ") " + failure.Headline()
		}
		return text
	case "complete":
		return "task " + one.ID + " has no result any more"
	case "gone":
		return "task " + one.ID + " is deleted, and so is its result"
	}
	return "task " + one.ID + " has no result yet"
}

// unread explains the error of a call that reads another task. The error wraps service.ErrNotFound if that task is
// missing, and service.ErrTooBig if its result is too long. unread passes other errors to explain.
func unread(err error) error {
	switch {
	case errors.Is(err, queue.ErrNoTask):
		return fmt.Errorf("%w: %w", service.ErrNotFound, err)
	case errors.Is(err, queue.ErrInvalid):
		return fmt.Errorf("%w: %w", service.ErrTooBig, err)
	}
	return explain(err)
}
