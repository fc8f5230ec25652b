package listen

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// ConcurrencyRule gives a concurrency key to the tasks of a queue that have none themselves.
type ConcurrencyRule struct {
	// Key says what the key is: KeyQueue, the same for all tasks of the queue; KeyTask or KeyFair, that field of the
	// task; or KeyLabels and the name of a label. Tasks that lack it get no key.
	Key string
	Max int // how many tasks with the same key may run at once, at least 1
}

// The values of ConcurrencyRule.Key.
const (
	KeyQueue  = "queue"
	KeyTask   = "key"
	KeyFair   = "fair_key"
	KeyLabels = "labels."
)

// String returns the rule as scripts read it.
func (r ConcurrencyRule) String() string {
	key := r.Key
	if label, ok := strings.CutPrefix(key, KeyLabels); ok {
		name, _ := json.Marshal(label) // as in the labels of a task; a text can always be encoded
		key = "label " + string(name) + ":"
	}
	return fmt.Sprintf("%d %s", r.Max, key)
}

// The beginnings of the fields of NS_limits that contain a rule, and since when no live host has had it.
const (
	ruleField   = "concurrency "
	absentField = "absent "
)

// Rules are the concurrency rules of a tenant's queues in Redis.
type Rules struct{ store *store.Store }

// NewRules returns the rules of the client's tenant.
func NewRules(client *queue.Client) *Rules { return &Rules{client.Store()} }

// Of reads the rule of a queue as ConcurrencyRule.String returns it; "" if the queue has none.
func (r *Rules) Of(ctx context.Context, name string) (string, error) {
	c := r.store
	rule, err := c.RDB.HGet(ctx, c.Keys.Limits(), ruleField+name).Result()
	if store.IsNil(err) {
		err = nil
	}
	return rule, store.Wrap("read concurrency of "+name, err)
}

// All reads the rules of all queues, by queue, and not the other limits, which may be those of very many queues.
func (r *Rules) All(ctx context.Context) (map[string]string, error) {
	c := r.store
	rules := make(map[string]string)
	for cursor := uint64(0); ; {
		found, next, err := c.RDB.HScan(ctx, c.Keys.Limits(), cursor, ruleField+"*", 1000).Result()
		for pair := range slices.Chunk(found, 2) {
			rules[strings.TrimPrefix(pair[0], ruleField)] = pair[1]
		}
		if cursor = next; err != nil || cursor == 0 {
			return rules, store.Wrap("read concurrency of queues", err)
		}
	}
}

// Declare stores the rule of a queue, which tasks that are enqueued from then on follow. If missing is true,
// an existing rule stays.
func (r *Rules) Declare(ctx context.Context, name, rule string, missing bool) (queue.Put, error) {
	c := r.store
	is, err := r.Of(ctx, name)
	if err != nil {
		return "", err
	}
	if is == "" || is != rule && !missing {
		err = c.RDB.HSet(ctx, c.Keys.Limits(), ruleField+name, rule).Err()
	}
	if err == nil {
		err = c.RDB.HDel(ctx, c.Keys.Limits(), absentField+name).Err()
	}
	put := queue.PutChanged
	switch {
	case is == "":
		put = queue.PutNew
	case is == rule:
		put = queue.PutSame
	case missing:
		put = queue.PutKept
	}
	return put, store.Wrap("store concurrency of "+name, err)
}

// Note records whether any live host declares the rule of a queue. A rule that none has had for maxAbsence is deleted
// (0: never), and Note then returns true.
func (r *Rules) Note(ctx context.Context, name string, declared bool,
	maxAbsence time.Duration,
) (deleted bool, err error) {
	c := r.store
	field := absentField + name
	if declared {
		return false, store.Wrap("keep concurrency of "+name, c.RDB.HDel(ctx, c.Keys.Limits(), field).Err())
	}
	now, err := c.Now(ctx)
	if err == nil {
		err = c.RDB.HSetNX(ctx, c.Keys.Limits(), field, store.Seconds(now)).Err()
	}
	if err != nil || maxAbsence == 0 {
		return false, store.Wrap("mark concurrency of "+name+" as absent", err)
	}
	since, err := c.RDB.HGet(ctx, c.Keys.Limits(), field).Result()
	if err == nil && now.Sub(store.ParseSeconds(since)) >= maxAbsence {
		deleted = true
		err = c.RDB.HDel(ctx, c.Keys.Limits(), ruleField+name, field).Err()
	}
	return deleted && err == nil, store.Wrap("delete concurrency of "+name, err)
}
