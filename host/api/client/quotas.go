package client

import (
	"context"
	"net/http"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// quotas implements admin.Quotas.
type quotas struct{ client *Client }

// Quotas reads the quotas of the tenant, the limits of its queues and the quotas of its buckets: the fullest 1,000.
func (q quotas) Quotas(ctx context.Context) ([]admin.Quota, error) {
	var page struct{ Items []admin.Quota }
	err := q.client.do(ctx, get(&page, "quotas"))
	return page.Items, err
}

// SetQuotas changes quotas of the tenant; an empty value removes one.
func (q quotas) SetQuotas(ctx context.Context, changes manage.Quotas) error {
	what := call{method: http.MethodPatch, path: []string{"quotas"}, body: map[string]any{"quotas": changes}}
	return q.client.do(ctx, what)
}
