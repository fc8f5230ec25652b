package client

import (
	"context"
	"fmt"
	"net/url"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

// Tree reads a task with what came of it.
func (c *Client) Tree(ctx context.Context, id string, o queue.TreeOptions) (*queue.TreeNode, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	var root api.TreeNode
	what := get(&root, "tasks", id, "tree")
	what.query = url.Values{}
	for name, value := range map[string]int{"depth": o.Depth, "width": o.Width, "total": o.Total} {
		if value != 0 {
			what.query.Set(name, fmt.Sprint(value))
		}
	}
	if err := c.do(ctx, what); err != nil {
		return nil, err
	}
	return root.Tree(), nil
}

// CancelFlow cancels a task and all that wait for it, or all that is connected with it.
func (c *Client) CancelFlow(ctx context.Context, id string, whole bool) (queue.FlowCancelled, error) {
	var got api.FlowCancelled
	what := post(&got.Body, "tasks", id, "cancel-flow")
	what.query = url.Values{"whole": {fmt.Sprint(whole)}}
	err := c.do(ctx, what)
	return queue.FlowCancelled(got.Body), err
}

// Await adds tasks to those that an open task waits for.
func (q *Queue) Await(ctx context.Context, id string, after ...string) error {
	return q.await(ctx, id, after, false)
}

// Close ends the dependencies of an open task.
func (q *Queue) Close(ctx context.Context, id string) error { return q.await(ctx, id, nil, true) }

func (q *Queue) await(ctx context.Context, id string, after []string, closes bool) error {
	what := post(nil, "tasks", id, "await")
	what.body = map[string]any{"after": append([]string{}, after...), "close": closes}
	return q.client.do(ctx, what)
}
