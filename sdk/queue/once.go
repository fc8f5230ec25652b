package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

// OnceLife is for how long EnqueueOnce remembers an ID, also when its task is deleted earlier.
const OnceLife = 24 * time.Hour

// OnceID is the ID of a task that a producer's own words name, such as the source and ID of an event: the same words in the same
// queue of a tenant give the same ID.
func (q *Queue) OnceID(words ...string) string {
	sum := sha256.New()
	for _, word := range append([]string{q.client.Tenant(), q.name}, words...) {
		fmt.Fprintf(sum, "%d %s", len(word), word)
	}
	return "once-" + hex.EncodeToString(sum.Sum(nil)[:20])
}

// EnqueueOnce is EnqueueMany for specs that all have IDs; ErrInvalid otherwise. It enqueues none that it enqueued within OnceLife, or of which the task
// exists; the receipt has Taken if that one had other parameters. It may be repeated; two at the same time double nothing as long as
// the task exists.
func (q *Queue) EnqueueOnce(ctx context.Context, specs []Spec) ([]Receipt, error) {
	c := q.client
	for _, s := range specs {
		if err := ValidID(s.ID); err != nil { // all without one would be the same task
			return nil, err
		}
	}
	seen, err := store.Pipelined(ctx, c.store, specs, func(p redis.Pipeliner, s Spec) *redis.StringCmd {
		return p.Get(ctx, c.store.Keys.Once(s.ID))
	})
	if err != nil && !store.IsNil(err) {
		return nil, fmt.Errorf("enqueue in %q: %w", q.name, err)
	}
	receipts := make([]Receipt, len(specs))
	var fresh []Spec
	var at []int // their places in specs
	for i, spec := range specs {
		mark, err := seen[i].Result() // empty: from an earlier version
		switch {
		case store.IsNil(err):
			fresh, at = append(fresh, spec), append(at, i)
			continue
		case err != nil:
			return nil, fmt.Errorf("enqueue in %q: %w", q.name, err)
		}
		receipts[i] = Receipt{ID: spec.ID, Existed: true, Taken: mark != "" && mark != onceMark(spec.Parameters)}
	}
	written, err := q.EnqueueMany(ctx, fresh)
	var marked []Spec // what has another body is not the one to remember
	for i, receipt := range written {
		if receipts[at[i]] = receipt; !receipt.Taken {
			marked = append(marked, fresh[i])
		}
	}
	if err != nil {
		return receipts, err
	}
	// After the tasks: if the mark came first and nothing followed, the task would be lost.
	_, err = store.Pipelined(ctx, c.store, marked, func(p redis.Pipeliner, s Spec) *redis.StatusCmd {
		return p.Set(ctx, c.store.Keys.Once(s.ID), onceMark(s.Parameters), OnceLife)
	})
	return receipts, store.Wrap(fmt.Sprintf("remember tasks of %q", q.name), err)
}

// EnqueueRequest is EnqueueOnce for all the tasks of a request, of which what is the content and id the ID. It returns false, and
// enqueues nothing, if the ID is that of a request with another content: one that was enqueued within OnceLife, or is being enqueued,
// or one with other parameters whose tasks exist. The ID of a request that is refused is free again; if it is not known what became of
// the request, because Redis did not answer, it may be repeated.
func (q *Queue) EnqueueRequest(ctx context.Context, id string, what []byte, specs []Spec) (receipts []Receipt, same bool, err error) {
	r := onceRequest{q.client.store, id, onceMark(what)}
	word, known, err := r.begin(ctx, specs)
	if err != nil || word == "other" {
		return nil, false, err
	}
	if len(known) > 0 { // first: another request must not bring further ones
		receipts, err = q.EnqueueOnce(ctx, known)
	}
	isTaken := func(r Receipt) bool { return r.Taken }
	if err == nil && !slices.ContainsFunc(receipts, isTaken) {
		receipts, err = q.EnqueueOnce(ctx, specs)
	}
	taken := err == nil && slices.ContainsFunc(receipts, isTaken)
	if taken {
		receipts = nil
	}
	if word == "done" {
		return receipts, !taken, err
	}
	_, replied := store.Answered(err)
	ended := context.WithoutCancel(ctx)
	switch {
	case taken:
		_, err = r.tell(ended, "refused", nil)
	case err == nil || errors.Is(err, ErrNotReplicated):
		_, lost := r.tell(ended, "done", nil)
		err = cmp.Or(err, lost)
	case replied || !IsUnavailable(err) && ctx.Err() == nil:
		_, _ = r.tell(ended, "refused", specs) // else the ID is free when it expires
	}
	return receipts, !taken, err
}

// onceRequest is a request that once.lua notes.
type onceRequest struct {
	store    *store.Store
	id, mark string
}

// begin notes that the request is under way. word is other, done or begun; known are those of its tasks that are known although the
// request is not.
func (r *onceRequest) begin(ctx context.Context, specs []Spec) (word string, known []Spec, err error) {
	answer, err := r.tell(ctx, "begin", specs)
	if err != nil || len(answer) == 0 {
		return "", nil, err
	}
	for _, place := range answer[1:] {
		known = append(known, specs[store.AsInt(place)])
	}
	word, _ = answer[0].(string)
	return word, known, nil
}

// tell runs once.lua.
func (r *onceRequest) tell(ctx context.Context, what string, specs []Spec) ([]any, error) {
	keys := []string{r.store.Keys.Once(r.id)}
	for i := range specs {
		keys = append(keys, r.store.Keys.Task(specs[i].ID), r.store.Keys.Once(specs[i].ID))
	}
	answer, err := r.store.Eval(ctx, store.Call{store.AllScripts["once"], keys, []any{what, r.mark, int(OnceLife.Seconds())}})
	words, _ := answer.([]any)
	return words, store.Wrap("remember request "+r.id, err)
}

// onceMark tells parameters from others.
func onceMark(parameters []byte) string {
	sum := sha256.Sum256(parameters)
	return hex.EncodeToString(sum[:16])
}
