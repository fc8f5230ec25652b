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

const maxCheckpoint = 1 << 20 // bytes

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
	task  string
	check func(child service.Child) error

	mu       sync.Mutex
	children []service.Child // guarded by mu
}

// NewEnqueuer makes the one of a task, by its ID. check refuses what is not granted, means nothing, or is too much, by an
// error as service.Enqueuer has it.
func NewEnqueuer(task string, check func(child service.Child) error) *Enqueuer {
	return &Enqueuer{task: task, check: check}
}

// Enqueue implements service.Enqueuer. A task without an ID gets that of the task that enqueues it with its number, so
// that it is the same in every run. Nothing is looked for that may be the same by its ID or uniqueness.
func (e *Enqueuer) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if err := e.check(child); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
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
