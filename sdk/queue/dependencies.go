package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

// When is what must become of its dependencies before a task runs.
type When string

// A task that can never run any more fails with ReasonDependency, at once.
const (
	WhenComplete When = "complete" // all are complete; it fails when one has failed. The default
	WhenEnded    When = "ended"    // all have ended, however
	WhenAny      When = "any"      // one is complete; it fails when all have failed
	WhenFailed   When = "failed"   // one has failed; if all are complete it is too, without having run
)

var whens = []When{WhenComplete, WhenEnded, WhenAny, WhenFailed}

// MaxDependencies is how many tasks one task may wait for.
const MaxDependencies = 10_000

const (
	// inlineDependencies is the most dependencies of a task that are written with it, and blockDependencies those of one script.
	inlineDependencies = 32
	blockDependencies  = 100
)

// After is how far the dependencies of a task are: the tasks that it waits for, or waited for.
type After struct {
	When    When `json:"when" enum:"complete,ended,any,failed" doc:"What must become of them."`
	Open    bool `json:"open,omitempty" doc:"There may be more: it waits until it is closed."`
	Blocked bool `json:"blocked,omitempty" doc:"It waits for them, or failed for them."`
	Of      int  `json:"of" doc:"How many there are."`
	Ended   int  `json:"ended"`
	Failed  int  `json:"failed" doc:"Of those that ended: they failed, were cancelled or expired, or are gone."`
}

// parseAfter reads the field after; nil if there is none, or it is damaged.
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

// validate checks the options' dependencies.
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

// Await adds dependencies to an open task, up to MaxDependencies in all: those that ended already count at once. It may be
// repeated: what the task waits for already is not added again. ErrDependency if one does not exist, ErrStatus if the task is not
// open (any more), ErrNoTask if the queue has no such task.
func (q *Queue) Await(ctx context.Context, id string, after ...string) error {
	return q.await(ctx, id, after, false)
}

// Close ends the dependencies of an open task: it runs when they have ended as it asks, which may be now. Closing it again does
// nothing. The errors are those of Await.
func (q *Queue) Close(ctx context.Context, id string) error { return q.await(ctx, id, nil, true) }

func (q *Queue) await(ctx context.Context, id string, after []string, closes bool) error {
	if err := cmp.Or(ValidQueue(q.name), ValidID(id), (&Options{ID: id, After: after}).validateAfter()); err != nil {
		return err
	}
	for first := true; first || len(after) > 0; first = false {
		n := min(len(after), blockDependencies)
		last := closes && n == len(after)
		answer, err := q.client.store.Eval(ctx, store.NewCall("await", q.client.store.Keys.Task(id), store.Named(after[:n], q.client.store.Clock, q.name, id, store.Optional(last, "1"))...))
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

// dependencyError makes a script's refusal ErrDependency.
func dependencyError(err error) error {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		if why, ok := strings.CutPrefix(refusal.Error(), "DEPENDENCY "); ok {
			return fmt.Errorf("%w: %s", ErrDependency, why)
		}
	}
	return err
}
