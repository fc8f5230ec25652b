package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// When is the condition that a task's dependencies must fulfil before the task runs.
type When string

// If the condition can no longer be fulfilled, the task fails at once with ReasonDependency. With WhenFailed, it is
// complete at once instead, without a run.
const (
	WhenComplete When = "complete" // the task runs when all dependencies are complete; the default
	WhenEnded    When = "ended"    // the task runs when all dependencies have ended, complete or failed
	WhenAny      When = "any"      // the task runs when one dependency is complete
	WhenFailed   When = "failed"   // the task runs when one dependency has failed
)

var whens = []When{WhenComplete, WhenEnded, WhenAny, WhenFailed}

// MaxDependencies is the maximum number of dependencies of a task.
const MaxDependencies = 10_000

const (
	// inlineDependencies is the maximum number of dependencies that are written in one call with their task. If a task
	// has more, later calls add all of them, up to blockDependencies each.
	inlineDependencies = 32
	blockDependencies  = 100
)

// After describes the dependencies of a task (the tasks that it waits for, or waited for) and how many of them have
// ended.
type After struct {
	When    When `json:"when" enum:"complete,ended,any,failed" doc:"What must become of them."`
	Open    bool `json:"open,omitempty" doc:"There may be more: it waits until it is closed."`
	Blocked bool `json:"blocked,omitempty" doc:"It waits for them, or failed for them."`
	Of      int  `json:"of" doc:"How many there are."`
	Ended   int  `json:"ended"`
	Failed  int  `json:"failed" doc:"Of those that ended: they failed, were cancelled or expired, or are gone."`
}

// parseAfter reads the field `after` of a task's hash. It returns nil if the field is missing or damaged.
func parseAfter(text string) *After {
	words := strings.Fields(text)
	if len(words) != 5 {
		return nil
	}
	a := &After{When: When(words[1]), Open: words[0] == "open", Blocked: words[0] != "released"}
	for i, n := range []*int{&a.Of, &a.Ended, &a.Failed} {
		*n, _ = strconv.Atoi(words[2+i])
	}
	return a
}

// validateAfter checks the options' dependencies.
func (o *Options) validateAfter() error {
	switch {
	case o.When != "" && !slices.Contains(whens, o.When):
		return fmt.Errorf("%w: when %q: use complete, ended, any or failed", ErrInvalid, o.When)
	case o.When != "" && len(o.After) == 0 && !o.Open:
		return fmt.Errorf("%w: when %q without tasks to wait for: name them, or leave it out", ErrInvalid, o.When)
	case len(o.After) > MaxDependencies:
		return fmt.Errorf("%w: %d tasks to wait for: at most %d", ErrInvalid, len(o.After), MaxDependencies)
	case o.ID != "" && slices.Contains(o.After, o.ID):
		return fmt.Errorf("%w: task %s is to wait for itself", ErrInvalid, o.ID)
	}
	for _, id := range o.After {
		if err := ValidID(id); err != nil {
			return err
		}
	}
	return nil
}

// Await adds dependencies to an open task, up to MaxDependencies in all. Dependencies that have ended already count at
// once. The call can be repeated: no dependency is added twice. The error is ErrDependency if a dependency does not
// exist or is open, ErrStatus if the task is not open (any more), and ErrNoTask if the queue has no such task.
func (q *Queue) Await(ctx context.Context, id string, after ...string) error {
	return q.await(ctx, id, after, false)
}

// Close closes an open task: no more dependencies can be added. The task can run as soon as its dependencies fulfil its
// When, which may be at once. Closing a closed task does nothing. The errors are the same as for Await.
func (q *Queue) Close(ctx context.Context, id string) error { return q.await(ctx, id, nil, true) }

func (q *Queue) await(ctx context.Context, id string, after []string, closes bool) error {
	if err := cmp.Or(ValidQueue(q.name), ValidID(id), (&Options{ID: id, After: after}).validateAfter()); err != nil {
		return err
	}
	for first := true; first || len(after) > 0; first = false {
		n := min(len(after), blockDependencies)
		last := closes && n == len(after)
		answer, err := q.client.store.Eval(ctx, store.NewCall("await", q.client.store.Keys.Task(id),
			store.Named(after[:n], q.client.store.Clock, q.name, id, store.Optional(last, "1"))...))
		if err == nil {
			err = store.Verdict(answer, id)
		}
		if err != nil {
			return dependencyError(store.Wrap("await task "+id, err))
		}
		after = after[n:]
	}
	return nil
}

// dependencyError turns a script's error reply DEPENDENCY into ErrDependency.
func dependencyError(err error) error {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		if why, ok := strings.CutPrefix(refusal.Error(), "DEPENDENCY "); ok {
			return fmt.Errorf("%w: %s", ErrDependency, why)
		}
	}
	return err
}
