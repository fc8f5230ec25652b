package api

import (
	"context"

	"github.com/quern-project/quern/sdk/queue/manage"
)

func (s *service) describeUsage() {
	type days struct {
		InTenant
		From string `query:"from" format:"date" doc:"The first day, in UTC; missing: the first of the month of to."`
		To   string `query:"to" format:"date" doc:"The last day, in UTC; missing: today."`
	}
	add(s, looking("/tenants/{tenant}/usage", "list-usage",
		"List by day what the tasks that hosts ran have used: runs, fuel, processor time, bytes. Days without tasks are left out"),
		func(ctx context.Context, in *days) (*ListOf[manage.Usage], error) {
			return listed(s.tenants[in.Tenant].Usage(ctx, in.From, in.To))
		})
}
