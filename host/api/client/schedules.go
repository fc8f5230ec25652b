package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

// Schedules lists the schedules, sorted by ID.
func (c *Client) Schedules(ctx context.Context) ([]admin.Schedule, error) {
	return all[admin.Schedule](ctx, c, get(nil, "schedules"))
}

// Schedule reads a schedule. The error is queue.ErrNoSchedule if there is none with that ID.
func (c *Client) Schedule(ctx context.Context, id string) (admin.Schedule, error) {
	return c.schedule(ctx, id, get(nil))
}

// schedule makes a call below the path of the schedule id. The answer to the call is the schedule.
func (c *Client) schedule(ctx context.Context, id string, what call) (shape admin.Schedule, err error) {
	if err := queue.ValidSchedule(id); err != nil {
		return shape, err
	}
	what.path = append([]string{"schedules", id}, what.path...)
	what.into = &shape
	return shape, c.do(ctx, what)
}

// PutSchedule stores a schedule, or changes the schedule with the same ID. If missing is true, it leaves an existing
// schedule as it is.
func (c *Client) PutSchedule(ctx context.Context, s queue.Schedule, missing bool) (queue.Put, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	what := call{
		method: http.MethodPut, body: admin.ScheduleBodyOf(&s),
		query: url.Values{"missing": {fmt.Sprint(missing)}},
	}
	shape, err := c.schedule(ctx, s.ID, what)
	return queue.Put(shape.Put), err
}

// DeleteSchedule deletes a schedule if the schedule has this owner. If owner is empty, the schedule may have any.
func (c *Client) DeleteSchedule(ctx context.Context, id, owner string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: []string{"schedules", id}, query: url.Values{"owner": {owner}}})
}

// RunSchedule enqueues a task of the schedule now, and returns its ID.
func (c *Client) RunSchedule(ctx context.Context, id string) (string, error) {
	if err := queue.ValidSchedule(id); err != nil {
		return "", err
	}
	var got api.Receipt
	err := c.do(ctx, post(&got, "schedules", id, "run"))
	return got.ID, err
}

// SyncSchedules makes the given schedules the only ones of an owner. If dry is true, it changes nothing.
func (c *Client) SyncSchedules(ctx context.Context, owner string, all []queue.Schedule,
	dry bool,
) (queue.ScheduleSync, error) {
	var in api.SyncSchedules
	in.Body.Schedules = make([]admin.NamedSchedule, len(all))
	for i := range all {
		in.Body.Schedules[i] = admin.NamedSchedule{ID: all[i].ID, ScheduleBody: admin.ScheduleBodyOf(&all[i])}
	}
	var got api.ScheduleSync
	err := c.do(ctx, call{
		method: http.MethodPut, path: []string{"schedules"}, body: in.Body, into: &got.Body,
		query: url.Values{"owner": {owner}, "dry_run": {fmt.Sprint(dry)}},
	})
	return queue.ScheduleSync(got.Body), err
}
