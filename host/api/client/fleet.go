package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Clock returns the time of the server's Redis.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	var tenant api.TenantNow
	err := c.do(ctx, get(&tenant))
	return admin.Moment(tenant.Time), err
}

// Tenants lists the tenants that the token's holder may see.
func (c *Client) Tenants(ctx context.Context) (names []string, err error) {
	what := get(nil, "tenants")
	what.above = true
	list, err := all[api.TenantInfo](ctx, c, what)
	for _, t := range list {
		names = append(names, t.Tenant)
	}
	return names, err
}

// Queues returns the number of listeners of each queue of the tenant, by the queue's name.
func (c *Client) Queues(ctx context.Context) (map[string]int64, error) {
	list, err := all[admin.Queue](ctx, c, get(nil, "queues"))
	queues := make(map[string]int64, len(list))
	for _, q := range list {
		queues[q.Queue] = q.Listeners
	}
	return queues, err
}

// QueueCounts counts the tasks of the named queues, in the order of names. If nobody has used a queue, its counts are
// 0.
func (c *Client) QueueCounts(ctx context.Context, names []string) ([]admin.Queue, error) {
	if len(names) == 1 {
		q, err := c.queue(names[0]).show(ctx, nil)
		return []admin.Queue{q}, err
	}
	list, err := all[admin.Queue](ctx, c, get(nil, "queues"))
	byName := make(map[string]admin.Queue, len(list))
	for _, q := range list {
		byName[q.Queue] = q
	}
	counts := make([]admin.Queue, len(names))
	for i, name := range names {
		counts[i] = withError(byName[name], c, name)
	}
	return counts, err
}

// withError sets the name, the tenant and Err of a queue. q is the zero Queue if the answer does not have the queue.
func withError(q admin.Queue, c *Client, name string) admin.Queue {
	q.Tenant, q.Queue = c.Tenant(), name
	if q.Error != "" {
		q.Err = errors.New(q.Error)
	}
	return q
}

// AuditEntries reads the newest entries of the audit log, at most limit.
func (c *Client) AuditEntries(ctx context.Context, limit int64) ([]admin.AuditEntry, error) {
	entries := []admin.AuditEntry{}
	what := get(nil, "audit")
	what.query = url.Values{"limit": {fmt.Sprint(min(limit, pageSize))}}
	err := pages(ctx, c, what, func(page []admin.AuditEntry) bool {
		entries = append(entries, page...)
		return int64(len(entries)) < limit
	})
	return entries[:min(int64(len(entries)), limit)], err
}

// Nodes lists the listeners, sorted by ID.
func (c *Client) Nodes(ctx context.Context) ([]admin.Node, error) {
	return all[admin.Node](ctx, c, get(nil, "nodes"))
}

// Leased lists at most limit listeners that have a lease: see admin.Direct.Leased.
func (c *Client) Leased(ctx context.Context, limit int) ([]admin.Node, error) {
	return first[admin.Node](ctx, c, "nodes", "leased", limit)
}

// Plugins lists the plugins that live hosts published.
func (c *Client) Plugins(ctx context.Context) ([]admin.Plugin, error) {
	return all[admin.Plugin](ctx, c, get(nil, "plugins"))
}

// Findings returns what the doctor finds in tenants and their Redis, each finding once.
func (c *Client) Findings(ctx context.Context, tenants ...string) ([]doctor.Finding, error) {
	findings := []doctor.Finding{}
	for _, tenant := range tenants {
		var list api.List[doctor.Finding]
		what := get(&list, "tenants", tenant, "findings")
		what.above, what.wait = true, actTimeout-answerTimeout
		if err := c.do(ctx, what); err != nil {
			return nil, err
		}
		for _, f := range list.Items {
			// Tenants that share a Redis have its findings in common.
			if !slices.ContainsFunc(findings, func(other doctor.Finding) bool { return reflect.DeepEqual(other, f) }) {
				findings = append(findings, f)
			}
		}
	}
	return findings, nil
}

// Quarantines lists the quarantines of the tenant, sorted by plugin and digest.
func (c *Client) Quarantines(ctx context.Context) ([]admin.Quarantine, error) {
	var page api.List[admin.Quarantine]
	err := c.do(ctx, get(&page, "quarantines"))
	return page.Items, err
}

// Relays lists the databases whose rows become tasks.
func (c *Client) Relays(ctx context.Context) ([]listen.RelayState, error) {
	var page api.List[listen.RelayState]
	err := c.do(ctx, get(&page, "relays"))
	return page.Items, err
}

// ForgetRelay removes what Redis keeps of a source that is gone. The error is queue.ErrStatus if a relay leads it.
func (c *Client) ForgetRelay(ctx context.Context, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: []string{"relays", name}})
}

// EndQuarantine lets hosts run a version of a plugin again.
func (c *Client) EndQuarantine(ctx context.Context, plugin, digest string) error {
	what := post(nil, "plugins", plugin, "release")
	what.query = url.Values{"digest": {digest}}
	return c.do(ctx, what)
}

// Drain makes a listener take no more tasks, finish the running ones and end. The error is listen.ErrNoNode if no live
// listener has that ID.
func (c *Client) Drain(ctx context.Context, listener string) error {
	return c.do(ctx, post(nil, "nodes", listener, "drain"))
}

// ReclaimNode takes all tasks from a dead listener. The error is queue.ErrStatus if the listener is alive. A task fails
// once maxCrashes hosts have died while they ran it.
func (c *Client) ReclaimNode(ctx context.Context, listener string, maxCrashes int) (got admin.Reclaimed, err error) {
	what := post(&got, "nodes", listener, "reclaim")
	what.query = url.Values{"max_crashes": {fmt.Sprint(maxCrashes)}}
	return got, c.do(ctx, what)
}

// Buckets lists the buckets of the tenant's handlers.
func (c *Client) Buckets(ctx context.Context) ([]admin.Bucket, error) {
	return all[admin.Bucket](ctx, c, get(nil, "kv"))
}

// Keys lists at most limit keys of a bucket. The keys begin with prefix and are greater than the key in after.
func (c *Client) Keys(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	var page api.List[string]
	what := get(&page, "kv", bucket)
	what.query = url.Values{"prefix": {prefix}, "cursor": {after}, "limit": {fmt.Sprint(limit)}}
	err := c.do(ctx, what)
	return page.Items, err
}

// Value reads the bytes of a value.
func (c *Client) Value(ctx context.Context, bucket, key string) (value []byte, err error) {
	err = c.do(ctx, get(&value, "kv", bucket, key))
	return value, err
}

// queueHandle is a queue of the client's tenant.
type queueHandle struct {
	client *Client
	name   string
}

// Queue returns the queue with the given name.
func (c *Client) Queue(name string) admin.QueueHandle { return c.queue(name) }

func (c *Client) queue(name string) *queueHandle { return &queueHandle{c, name} }

// show reads the queue. If nobody has used the queue, its counts are 0.
func (q *queueHandle) show(ctx context.Context, query url.Values) (shape admin.Queue, err error) {
	if err := queue.ValidQueue(q.name); err != nil {
		return shape, err
	}
	what := get(&shape, "queues", q.name)
	what.query = query
	if err = q.client.do(ctx, what); errors.Is(err, admin.ErrNoQueue) {
		err = nil
	}
	return withError(shape, q.client, q.name), err
}

// SetLimit sets how many tasks may wait in the queue; 0 means any number.
func (q *queueHandle) SetLimit(ctx context.Context, limit int64) error {
	return q.limit(ctx, limit, false)
}

// SetRollingLimit is SetLimit for a queue that drops its oldest tasks when it is full.
func (q *queueHandle) SetRollingLimit(ctx context.Context, limit int64) error {
	return q.limit(ctx, limit, true)
}

func (q *queueHandle) limit(ctx context.Context, limit int64, drop bool) error {
	body := map[string]any{"limit": limit, "drop_oldest": drop}
	return q.client.do(ctx, call{method: http.MethodPut, path: []string{"queues", q.name, "limit"}, body: body})
}

// Limit returns how many tasks may wait in the queue; 0 means any number.
func (q *queueHandle) Limit(ctx context.Context) (int64, error) {
	shape, err := q.show(ctx, nil)
	return shape.Limit, err
}

// DeadLetters counts the dead letters that wait in the queue, and the queue's failed tasks whose dead letter nobody has
// handled.
func (q *queueHandle) DeadLetters(ctx context.Context) (waiting, failed int64, err error) {
	shape, err := q.show(ctx, url.Values{"dead_letters": {"true"}})
	if shape.DeadLetters != nil && shape.FailedWithDeadLetter != nil {
		waiting, failed = *shape.DeadLetters, *shape.FailedWithDeadLetter
	}
	return waiting, failed, err
}

// HasListener reports whether a live listener serves the queue.
func (q *queueHandle) HasListener(ctx context.Context) (bool, error) {
	if err := queue.ValidQueue(q.name); err != nil {
		return false, err
	}
	nodes, err := q.client.Nodes(ctx)
	return slices.ContainsFunc(nodes, func(n admin.Node) bool { return n.Alive && slices.Contains(n.Queues, q.name) }), err
}

// Cancel cancels a waiting task, or asks the host of a running task to stop it. done is false if the task was running.
func (q *queueHandle) Cancel(ctx context.Context, id string) (done bool, err error) {
	var got struct{ Ended bool }
	err = q.client.do(ctx, post(&got, "tasks", id, "cancel"))
	return got.Ended, err
}

// CancelWaiting cancels a task that waits.
func (q *queueHandle) CancelWaiting(ctx context.Context, id string) error {
	what := post(nil, "tasks", id, "cancel")
	what.query = queryOf(api.CancelTask{Waiting: true})
	return q.client.do(ctx, what)
}

// Delete deletes a finished task.
func (q *queueHandle) Delete(ctx context.Context, id string) error {
	return q.client.do(ctx, call{method: http.MethodDelete, path: []string{"tasks", id}})
}

// Purge deletes finished tasks, and returns their number.
func (q *queueHandle) Purge(ctx context.Context, o listen.PurgeOptions) (int, error) {
	query := queryOf(api.Purge{
		Status: string(o.Status), OlderThanSeconds: o.OlderThan.Seconds(), Keep: o.Keep, All: o.Everything,
		Foreign: o.Foreign,
	})
	for total := 0; ; {
		var got struct {
			Purged  int
			Partial bool
		}
		what := post(&got, "queues", q.name, "purge")
		what.query = query
		err := q.client.do(ctx, what)
		if total += got.Purged; err != nil || !got.Partial {
			return total, err
		}
	}
}

// BusiestQueues counts the tasks of at most limit queues: those with the most pending tasks of priority 50, or with the
// most listeners. all is the number of the tenant's queues.
func (c *Client) BusiestQueues(ctx context.Context, limit int) (queues []admin.Queue, all int64, err error) {
	var tenant api.TenantNow
	if err := c.do(ctx, get(&tenant)); err != nil {
		return nil, 0, err
	}
	queues, err = first[admin.Queue](ctx, c, "queues", "busiest", limit)
	for i, q := range queues {
		queues[i] = withError(q, c, q.Queue)
	}
	return queues, tenant.Queues, err
}

// first reads the first entries of a list, at most limit. option is a query parameter of the list that is set to true.
func first[T any](ctx context.Context, c *Client, list, option string, limit int) ([]T, error) {
	var page api.List[T]
	what := get(&page, list)
	what.query = url.Values{option: {"true"}, "limit": {fmt.Sprint(min(limit, pageSize))}}
	err := c.do(ctx, what)
	return page.Items, err
}
