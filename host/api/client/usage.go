package client

import (
	"context"
	"net/url"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Usage reads by day what the tenant's tasks have used: see manage.Manager.Usage.
func (c *Client) Usage(ctx context.Context, from, to string) ([]manage.Usage, error) {
	var list api.List[manage.Usage]
	what := get(&list, "usage")
	what.query = url.Values{}
	for name, day := range map[string]string{"from": from, "to": to} {
		if day != "" {
			what.query.Set(name, day)
		}
	}
	err := c.do(ctx, what)
	return list.Items, err
}
