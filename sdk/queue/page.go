package queue

import (
	"context"
	"fmt"
)

// Page is List for callers that read page after page. read counts the entries that it read, including tasks that have vanished
// since: fewer than Limit is the end of the list. It ignores Labels and Match.
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
