package queue

import (
	"context"
	"fmt"
)

// Summary reads a task without its parameters and result: ErrNoTask if there is none.
func (c *Client) Summary(ctx context.Context, id string) (*Task, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	tasks, err := c.summaries(ctx, "", "", []string{id})
	if err == nil && len(tasks) == 0 {
		err = ErrNoTask
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", id, err)
	}
	return tasks[0], nil
}

// Page is List for who reads page after page: it also returns how many entries it read, of which some may have vanished. Fewer
// than the limit: the list has no more. It takes no Labels.
func (q *Queue) Page(ctx context.Context, options ListOptions) (tasks []*Task, read int, err error) {
	if options.Key != "" || options.Limit < 1 || options.Limit > maxPage || options.Offset < 0 {
		tasks, err = q.List(ctx, options)
		return tasks, len(tasks), err
	}
	if err := ValidQueue(q.name); err != nil {
		return nil, 0, err
	}
	ids, err := q.ids(ctx, options)
	if err == nil {
		tasks, err = q.client.summaries(ctx, q.name, options.Status, ids)
	}
	return tasks, len(ids), wrap(fmt.Sprintf("list tasks of %q", q.name), err)
}
