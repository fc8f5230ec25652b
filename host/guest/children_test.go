package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// answering is a Host that answers with errors, one after the other; then it does what it is asked.
type answering struct {
	accepting
	admit   error
	enqueue []error
	calls   int
}

func (a *answering) AdmitQueue(context.Context, string) error { return a.admit }
func (a *answering) Borrow(context.Context, int64) error      { return nil }
func (a *answering) Warn(string, ...any)                      {}

func (a *answering) Enqueue(ctx context.Context, child listen.Child) (string, error) {
	a.calls++
	if a.calls <= len(a.enqueue) {
		return "", a.enqueue[a.calls-1]
	}
	return a.accepting.Enqueue(ctx, child)
}

// enqueuing makes the children of a task with a grant such as "tasks: 2, after: call".
func enqueuing(t *testing.T, grant string, task Task) *Children {
	t.Helper()
	m, err := manifest.Parse("x.yaml", fmt.Appendf(nil, "capabilities: {enqueue: {queues: [\"mail.*\"], %s}}\n", grant))
	if err != nil {
		t.Fatal(err)
	}
	task.Asked, task.Permissions = &m.Capabilities, manifest.NewPermissions(&m, nil, "acme", nil)
	_, children, _ := New(Config{}).For(task)
	return children
}

// A child that is refused does not count; one that may exist does.
func TestChildrenAreCounted(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("%w: no connection", service.ErrUnavailable)
	host := &answering{admit: fmt.Errorf("%w: 7 queues", service.ErrLimit)}
	c := enqueuing(t, "tasks: 2, bytes: 1KiB, depth: 3, after: call", Task{ID: "parent", Depth: 2, Host: host})
	enqueue := func(want error, child service.Child) {
		t.Helper()
		if _, err := c.Enqueue(t.Context(), child); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	mail := service.Child{Queue: "mail.out"}
	enqueue(service.ErrLimit, mail) // of queues
	host.admit, host.enqueue = nil, []error{queue.ErrQueueFull, queue.ErrDamaged, away, away}
	enqueue(service.ErrQuota, mail)
	enqueue(service.ErrDenied, service.Child{Queue: "bills"})
	enqueue(service.ErrInvalid, service.Child{Queue: "mail.a b"})
	enqueue(service.ErrInvalid, service.Child{Queue: "mail.out", MaxAttempts: -1})
	enqueue(service.ErrLimit, service.Child{Queue: "mail.out", Body: make([]byte, 1<<10)})
	enqueue(service.ErrUnavailable, mail) // nobody knows whether it exists: it counts
	enqueue(service.ErrUnavailable, mail) // after a second call
	if _, err := c.Enqueue(t.Context(), mail); err == nil || !strings.Contains(err.Error(), "a task may enqueue 2 tasks: raise capabilities.enqueue.tasks") {
		t.Error(err)
	}
	if host.calls != 4 || c.Waiting() != nil {
		t.Errorf("%d calls, %d children wait", host.calls, len(c.Waiting()))
	}
}

// A chain of tasks ends at the depth that is granted. Children know their parent.
func TestDepth(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]error{0: nil, 2: nil, 3: service.ErrLimit} {
		c := enqueuing(t, "depth: 3", Task{ID: "parent", Depth: depth, Host: accepting{}})
		id, err := c.Enqueue(t.Context(), service.Child{Queue: "mail.out"})
		if !errors.Is(err, want) {
			t.Errorf("depth %d: %v", depth, err)
		}
		if want != nil {
			continue
		}
		if child := c.Waiting()[0]; child.ID != id || child.Parent != "parent" || child.Depth != depth+1 || child.Headers != nil {
			t.Errorf("depth %d: %+v", depth, child)
		}
	}
}

// A child is of its parent's trace unless the handler names another one, and has no other headers of its parent.
func TestChildrenInheritTheTrace(t *testing.T) {
	t.Parallel()
	const trace, other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-ffffffffffffffffffffffffffffffff-b7ad6b7169203331-01"
	parent := map[string]string{"traceparent": trace, "tracestate": "a=1", "x-id": "7"}
	for name, c := range map[string]struct{ parent, asked, want map[string]string }{
		"none":      {nil, nil, nil},
		"untraced":  {map[string]string{"tracestate": "a=1", "x-id": "7"}, map[string]string{"x": "1"}, map[string]string{"x": "1"}},
		"trace":     {parent, nil, map[string]string{"traceparent": trace, "tracestate": "a=1"}},
		"others":    {parent, map[string]string{"x": "1"}, map[string]string{"traceparent": trace, "tracestate": "a=1", "x": "1"}},
		"own state": {parent, map[string]string{"tracestate": "b=2"}, map[string]string{"traceparent": trace, "tracestate": "a=1"}},
		"own trace": {parent, map[string]string{"traceparent": other}, map[string]string{"traceparent": other}},
	} {
		children := enqueuing(t, "", Task{ID: "parent", Headers: c.parent, Host: accepting{}})
		if _, err := children.Enqueue(t.Context(), service.Child{Queue: "mail.out", Headers: c.asked}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := children.Waiting()[0].Headers; !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	children := enqueuing(t, "", Task{ID: "parent", Host: accepting{}})
	if _, err := children.Enqueue(t.Context(), service.Child{Queue: "mail.out", Headers: map[string]string{"X-Id": "7"}}); !errors.Is(err, service.ErrInvalid) ||
		!strings.Contains(err.Error(), "lower case: x-id") {
		t.Error(err)
	}
}

// The errors of saving a checkpoint are those of package service.
func TestCheckpointErrors(t *testing.T) {
	t.Parallel()
	for from, want := range map[error]error{
		nil: nil, queue.ErrLost: service.ErrLost, queue.ErrNoTask: service.ErrLost, listen.ErrLeaseLost: service.ErrLost,
		context.DeadlineExceeded: context.DeadlineExceeded,
	} {
		c := &checkpoint{host: failing{err: from}}
		if err := c.Save(t.Context(), nil); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", from, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c := &checkpoint{host: failing{}}
	for range 20 {
		if err := c.Save(ended, make([]byte, 1<<20)); err == nil {
			continue
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

type failing struct {
	accepting
	err error
}

func (f failing) SaveCheckpoint(context.Context, []byte) error { return f.err }
