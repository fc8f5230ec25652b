package guest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// flowing is a Host of a task that waited for others. Each answers its result or an error.
type flowing struct {
	accepting
	away  bool
	lists int
}

func (f *flowing) Dependencies(context.Context) ([]listen.Dependency, error) {
	if f.lists++; f.away {
		return nil, context.DeadlineExceeded
	}
	return []listen.Dependency{{ID: "full", End: "complete"}, {ID: "large", End: "complete"}, {ID: "purged", End: "complete"}, {ID: "late"}, {ID: "failed", End: "failed"}, {ID: "silent", End: "failed"}, {ID: "gone", End: "gone"}}, nil
}

func (f *flowing) Result(_ context.Context, id string, most int64) ([]byte, error) {
	switch {
	case f.away:
		return nil, context.DeadlineExceeded
	case id == "full" && most == service.MaxBody:
		return []byte("result"), nil
	case id == "large":
		return nil, queue.ErrInvalid
	}
	return nil, queue.ErrNoTask
}

func (f *flowing) Failure(_ context.Context, id string) (*queue.Failure, error) {
	if id == "silent" {
		return nil, queue.ErrNoTask
	}
	return &queue.Failure{Reason: queue.ReasonError, Message: "no ink\nat line 3"}, nil
}

// A task that reads the result of a dependency without one learns why there is none.
func TestWithoutResult(t *testing.T) {
	t.Parallel()
	d := &dependencies{host: &flowing{}}
	for id, want := range map[string]string{
		"failed": "not found: task failed failed and has no result: (error) no ink…",
		"silent": "not found: task silent failed and has no result",
		"purged": "not found: task purged has no result any more",
		"gone":   "not found: task gone is deleted, and so is its result",
		"late":   "not found: task late has no result yet",
	} {
		if _, err := d.Result(t.Context(), id); !errors.Is(err, service.ErrNotFound) || err.Error() != want {
			t.Errorf("result of %s: %v, want %s", id, err, want)
		}
	}
}

// A run reads its dependencies once, when Redis answers, and no other task's result.
func TestDependencies(t *testing.T) {
	t.Parallel()
	host := &flowing{away: true}
	d := &dependencies{host: host}
	ctx := t.Context()
	if _, err := d.List(ctx); !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("without Redis: %v", err)
	}
	if _, err := d.Result(ctx, "full"); !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("without Redis: %v", err)
	}
	host.away, host.lists = false, 0
	for id, want := range map[string]error{
		"full": nil, "large": service.ErrTooBig, "purged": service.ErrNotFound, "late": service.ErrNotFound, "other": service.ErrInvalid, "": service.ErrInvalid,
	} {
		if result, err := d.Result(ctx, id); !errors.Is(err, want) || want == nil && string(result) != "result" {
			t.Errorf("result of %q: %q, %v, want %v", id, result, err, want)
		}
	}
	want := []service.Dependency{{ID: "full", End: "complete"}, {ID: "large", End: "complete"}, {ID: "purged", End: "complete"}, {ID: "late", End: "waiting"}, {ID: "failed", End: "failed"}, {ID: "silent", End: "failed"}, {ID: "gone", End: "gone"}}
	if got, err := d.List(ctx); !slices.Equal(got, want) || err != nil || host.lists != 1 {
		t.Errorf("%+v, %v, read %d times", got, err, host.lists)
	}
	host.away = true
	if _, err := d.Result(ctx, "full"); !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("without Redis: %v", err)
	}
}
