package client

import (
	"context"
	"fmt"
	"net/url"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Tree reads a task with the tasks that it enqueued and the tasks that depend on it, and the same for each of these
// tasks.
func (c *Client) Tree(ctx context.Context, id string, o manage.TreeOptions) (*admin.TreeNode, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	root := &admin.TreeNode{}
	what := get(root, "tasks", id, "tree")
	what.query = url.Values{}
	for name, value := range map[string]int{"depth": o.Depth, "width": o.Width, "total": o.Total} {
		if value != 0 {
			what.query.Set(name, fmt.Sprint(value))
		}
	}
	if err := c.do(ctx, what); err != nil {
		return nil, err
	}
	root.Each(unmarked)
	return root, nil
}

// Dependencies reads at most limit of the tasks that a task waits for, or waited for. It skips the first from of them.
func (c *Client) Dependencies(ctx context.Context, id string, from, limit int) ([]listen.Dependency, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	var page api.List[listen.Dependency]
	what := get(&page, "tasks", id, "dependencies")
	what.query = url.Values{"offset": {fmt.Sprint(from)}, "limit": {fmt.Sprint(limit)}}
	err := c.do(ctx, what)
	return page.Items, err
}

// CancelFlow cancels a task and all tasks that wait for it. If whole is true, it cancels all tasks that are connected
// with the task by dependencies.
func (c *Client) CancelFlow(ctx context.Context, id string, whole bool) (manage.FlowCancelled, error) {
	var got api.FlowCancelled
	what := post(&got.Body, "tasks", id, "cancel-flow")
	what.query = url.Values{"whole": {fmt.Sprint(whole)}}
	err := c.do(ctx, what)
	return manage.FlowCancelled(got.Body), err
}

// Await adds dependencies to an open task.
func (q *queueHandle) Await(ctx context.Context, id string, after ...string) error {
	return q.await(ctx, id, after, false)
}

// Close closes an open task: from then on the task gets no more dependencies.
func (q *queueHandle) Close(ctx context.Context, id string) error { return q.await(ctx, id, nil, true) }

func (q *queueHandle) await(ctx context.Context, id string, after []string, closes bool) error {
	what := post(nil, "tasks", id, "await")
	what.body = map[string]any{"after": append([]string{}, after...), "close": closes}
	return q.client.do(ctx, what)
}
