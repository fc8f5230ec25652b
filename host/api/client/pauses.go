package client

import (
	"context"
	"net/url"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// pauses implements admin.Pauses.
type pauses struct{ client *Client }

// Pauses returns the pauses of the tenant.
func (c *Client) Pauses() admin.Pauses { return pauses{c} }

func (p pauses) List(ctx context.Context) ([]manage.Pause, error) {
	var list api.List[manage.Pause]
	err := p.client.do(ctx, get(&list, "pauses"))
	return list.Items, err
}

func (p pauses) Pause(ctx context.Context, one manage.Pause) error {
	return p.change(ctx, one, "pause")
}

func (p pauses) Resume(ctx context.Context, one manage.Pause) error {
	one.Reason = ""
	return p.change(ctx, one, "resume")
}

func (p pauses) change(ctx context.Context, one manage.Pause, action string) error {
	if err := one.Validate(); err != nil {
		return err
	}
	what := post(nil, action)
	switch {
	case one.Queue != "":
		what.path = []string{"queues", one.Queue, action}
	case one.Plugin != "":
		what.path = []string{"plugins", one.Plugin, action}
	}
	what.query = url.Values{}
	if one.Accepting {
		what.query.Set("accepting", "true")
	}
	if one.Key != "" {
		what.query.Set("key", one.Key)
	}
	if one.Reason != "" {
		what.query.Set("reason", one.Reason)
	}
	return p.client.do(ctx, what)
}

func (p pauses) PauseSchedule(ctx context.Context, id string) error {
	_, err := p.client.schedule(ctx, id, post(nil, "pause"))
	return err
}

func (p pauses) ResumeSchedule(ctx context.Context, id string) error {
	_, err := p.client.schedule(ctx, id, post(nil, "resume"))
	return err
}
