package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

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
	seen, err := pipelined(ctx, &c.store, specs, func(p redis.Pipeliner, s Spec) *redis.StringCmd {
		return p.Get(ctx, c.keys.once(s.ID))
	})
	if err != nil && !isNil(err) {
		return nil, fmt.Errorf("enqueue in %q: %w", q.name, err)
	}
	receipts := make([]Receipt, len(specs))
	var fresh []Spec
	var at []int // their places in specs
	for i, spec := range specs {
		mark, err := seen[i].Result() // empty: from an earlier version
		switch {
		case isNil(err):
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
	_, err = pipelined(ctx, &c.store, marked, func(p redis.Pipeliner, s Spec) *redis.StatusCmd {
		return p.Set(ctx, c.keys.once(s.ID), onceMark(s.Parameters), OnceLife)
	})
	return receipts, wrap(fmt.Sprintf("remember tasks of %q", q.name), err)
}

// SameOnce remembers for OnceLife what an ID stands for, such as all of a request, and tells whether it stood for the same before, if it
// did for anything.
func (q *Queue) SameOnce(ctx context.Context, id string, what []byte) (bool, error) {
	key, mark := q.client.keys.once(id), onceMark(what)
	if err := q.client.rdb.SetNX(ctx, key, mark, OnceLife).Err(); err != nil {
		return false, wrap("remember "+id, err)
	}
	is, err := q.client.rdb.Get(ctx, key).Result()
	return is == mark, wrap("read what "+id+" is", err)
}

// onceMark tells parameters from others.
func onceMark(parameters []byte) string {
	sum := sha256.Sum256(parameters)
	return hex.EncodeToString(sum[:16])
}
