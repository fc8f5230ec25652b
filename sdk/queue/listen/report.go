package listen

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Report is an entry of a list of reports: a task with Options.Report has ended.
type Report struct{ Entry, Task string }

// Reports reads up to 1,000 reports of a list, the oldest first. If there is none, it waits for one, up to the time
// given. A task that ends again, after a retry by hand, is reported again. A report stays until ForgetReports. The end
// of a task that a Python listener ran is reported when the task is purged.
func (f *Fleet) Reports(ctx context.Context, name string, wait time.Duration) ([]Report, error) {
	s := f.client.Store()
	answer, err := s.RDB.XRead(ctx, &redis.XReadArgs{
		Streams: []string{s.Keys.Reports(name), "0"}, Count: store.PageTasks, Block: wait,
	}).Result()
	if err != nil && !store.IsNil(err) {
		return nil, store.Wrap("read reports "+name, err)
	}
	var reports []Report
	for _, stream := range answer {
		for _, message := range stream.Messages {
			id, _ := message.Values["task"].(string)
			reports = append(reports, Report{message.ID, id})
		}
	}
	return reports, nil
}

// ForgetReports removes reports from a list.
func (f *Fleet) ForgetReports(ctx context.Context, name string, reports []Report) error {
	if len(reports) == 0 {
		return nil
	}
	s := f.client.Store()
	entries := make([]string, len(reports))
	for i, report := range reports {
		entries[i] = report.Entry
	}
	return store.Wrap("remove reports "+name, s.RDB.XDel(ctx, s.Keys.Reports(name), entries...).Err())
}
