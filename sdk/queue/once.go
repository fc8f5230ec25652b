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
)

// onceLife is how long EnqueueRequest remembers the IDs of a request and of its tasks, even if the tasks are deleted
// earlier.
const onceLife = 24 * time.Hour

// OnceID makes a task ID of a producer's own words, such as the source and ID of an event. The same words give the same
// ID in the same queue of a tenant.
func (q *Queue) OnceID(words ...string) string {
	sum := sha256.New()
	for _, word := range append([]string{q.client.Tenant(), q.name}, words...) {
		fmt.Fprintf(sum, "%d %s", len(word), word)
	}
	return "once-" + hex.EncodeToString(sum.Sum(nil)[:20])
}

// EnqueueRequest is EnqueueMany for all tasks of a request with this ID and content. The specs need IDs, which are
// remembered. If the ID belongs to a request with other content, it enqueues nothing and returns same = false. Such a
// request was enqueued within onceLife, or is being enqueued, or its tasks exist with other parameters. If the request
// is refused, its ID is free again. If Redis does not reply, it is unknown whether the request was enqueued, and the
// call can be repeated.
func (q *Queue) EnqueueRequest(ctx context.Context, id string, content []byte,
	specs []Spec,
) (receipts []Receipt, same bool, err error) {
	specs = slices.Clone(specs) // it belongs to the caller
	for i := range specs {
		specs[i].Once = onceLife
	}
	r := onceRequest{q.client.store, id, onceMark(content)}
	word, known, err := r.begin(ctx, specs)
	if err != nil || word == "other" {
		return nil, false, err
	}
	if len(known) > 0 { // these come first: if one is taken, the request must enqueue no other task
		receipts, err = q.EnqueueMany(ctx, known)
	}
	isTaken := func(r Receipt) bool { return r.Taken }
	if err == nil && !slices.ContainsFunc(receipts, isTaken) {
		receipts, err = q.EnqueueMany(ctx, specs)
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
		_, _ = r.tell(ended, "refused", specs) // if this fails, the ID is free when its key expires
	}
	return receipts, !taken, err
}

// onceRequest is a request whose progress once.lua records.
type onceRequest struct {
	store    *store.Store
	id, mark string
}

// begin records that the request is in progress. word is other, done or begun: see once.lua. If the request is new in
// Redis, known are those of its specs whose task or mark exists already.
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
	answer, err := r.store.Eval(ctx, store.Call{
		Script: store.AllScripts["once"], Keys: keys,
		Args: []any{what, r.mark, int(onceLife.Seconds())},
	})
	words, _ := answer.([]any)
	return words, store.Wrap("remember request "+r.id, err)
}

// onceMark returns a digest of parameters.
func onceMark(parameters []byte) string {
	sum := sha256.Sum256(parameters)
	return hex.EncodeToString(sum[:16])
}
