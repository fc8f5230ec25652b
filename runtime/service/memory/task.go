package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/quern-project/quern/runtime/service"
)

const (
	maxCheckpoint = 1 << 20 // bytes
	maxChildren   = 256     // of one task
	maxQueue      = 128     // bytes of a queue's name
	maxPriority   = 100
)

// Checkpoint is that of one task, and empty at first.
type Checkpoint struct {
	mu    sync.Mutex
	value []byte // guarded by mu
}

// Save implements service.Checkpoint.
func (c *Checkpoint) Save(ctx context.Context, value []byte) error {
	if len(value) > maxCheckpoint {
		return fmt.Errorf("%w: a checkpoint of %d bytes: it may have %d", service.ErrTooBig, len(value), maxCheckpoint)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value = append([]byte{}, value...)
	return nil
}

// Value is what was saved last; nil if nothing was.
func (c *Checkpoint) Value() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.value)
}

// Secrets are those of one plugin.
type Secrets struct {
	// Names are those that are granted.
	Names []string
	// Read answers the value of one that is granted; an error that wraps service.ErrNotFound if there is none.
	Read func(name string) ([]byte, error)
}

// Secret implements service.Secrets.
func (s Secrets) Secret(_ context.Context, name string) ([]byte, error) {
	if !slices.Contains(s.Names, name) {
		return nil, fmt.Errorf("%w: the manifest does not grant the secret %q: add it to capabilities.secrets", service.ErrDenied, name)
	}
	return s.Read(name)
}

// Enqueuer notes what one task enqueues, and enqueues nothing.
type Enqueuer struct {
	task   string
	grants func(queue string) bool

	mu       sync.Mutex
	children []service.Child // guarded by mu
}

// NewEnqueuer makes the one of a task, by its ID, which may enqueue to what the grants allow.
func NewEnqueuer(task string, grants func(queue string) bool) *Enqueuer {
	return &Enqueuer{task: task, grants: grants}
}

// Enqueue implements service.Enqueuer. A task without an ID gets that of the task that enqueues it with its number, so
// that it is the same in every run. What has the ID or the uniqueness of one before is that one.
func (e *Enqueuer) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if err := checkChild(&child); err != nil {
		return "", fmt.Errorf("enqueue to %q: %w", child.Queue, err)
	}
	if !e.grants(child.Queue) {
		return "", fmt.Errorf("%w: the queue %q is not granted: the manifest would say capabilities.enqueue: {queues: [%q]}",
			service.ErrDenied, child.Queue, child.Queue)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.IndexFunc(e.children, func(c service.Child) bool { return same(c, child) }); i >= 0 {
		return e.children[i].ID, nil
	}
	if len(e.children) == maxChildren {
		return "", fmt.Errorf("%w: a task may enqueue %d", service.ErrLimit, maxChildren)
	}
	if child.ID == "" {
		child.ID = e.task + "-" + strconv.Itoa(len(e.children)+1)
	}
	e.children = append(e.children, child)
	return child.ID, nil
}

// Children are what was enqueued, in that order, each with its ID.
func (e *Enqueuer) Children() []service.Child {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.children)
}

// same tells whether a child is what was enqueued before.
func same(before, child service.Child) bool {
	if child.ID != "" && child.ID == before.ID {
		return true
	}
	if before.Unique == nil || child.Unique == nil || before.Queue != child.Queue || before.Unique.Key != child.Unique.Key {
		return false
	}
	return child.Unique.Key != "" || bytes.Equal(before.Body, child.Body)
}

// checkChild refuses what no host takes; a host may refuse more.
func checkChild(c *service.Child) error {
	printable := func(r rune) bool { return r >= 0x21 && r <= 0x7e }
	switch {
	case c.Queue == "" || len(c.Queue) > maxQueue || !allRunes(c.Queue, printable):
		return fmt.Errorf("%w: a queue has 1 to %d printable ASCII characters without spaces", service.ErrInvalid, maxQueue)
	case c.Priority != nil && (*c.Priority < 0 || *c.Priority > maxPriority):
		return fmt.Errorf("%w: priority %d: use 0 to %d", service.ErrInvalid, *c.Priority, maxPriority)
	case c.Delay < 0:
		return fmt.Errorf("%w: delay %s: use 0s or more", service.ErrInvalid, c.Delay)
	case c.Delay > 0 && !c.At.IsZero():
		return fmt.Errorf("%w: both a delay and a time: use one of them", service.ErrInvalid)
	case c.MaxAttempts < 0:
		return fmt.Errorf("%w: %d attempts: use 1 or more", service.ErrInvalid, c.MaxAttempts)
	case c.Timeout < 0:
		return fmt.Errorf("%w: timeout %s: use more than 0s", service.ErrInvalid, c.Timeout)
	case c.Unique != nil && c.Unique.For < 0:
		return fmt.Errorf("%w: unique for %s: use 0s or more", service.ErrInvalid, c.Unique.For)
	}
	return nil
}

func allRunes(text string, is func(r rune) bool) bool {
	for _, r := range text {
		if !is(r) {
			return false
		}
	}
	return true
}
