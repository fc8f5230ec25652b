package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// maxQuotas is the maximum number of quotas in an answer. The answer has the fullest ones.
const maxQuotas = 1000

// QuotasOf asks to change quotas of a tenant.
type QuotasOf struct {
	InTenant
	Body struct {
		Quotas map[string]string `json:"quotas" doc:"Values by name, such as tasks_waiting: 10000, rate: 100/s, rate:mail: 10/m burst 5, limit:stripe: 10/s charge refund; empty: the quota is removed."`
	}
}

func (s *service) describeQuotas() {
	add(s, looking("/tenants/{tenant}/quotas", "list-quotas",
		"List what the tenant uses of its limits, the fullest 1000 first"),
		func(ctx context.Context, in *InTenant) (*ListOf[admin.Quota], error) { return s.quotas(ctx, in.Tenant) })
	add(s, acting(Admin, http.MethodPatch, "/tenants/{tenant}/quotas", "set-quotas",
		"Change quotas of the tenant; only principals that may see all tenants do"),
		func(ctx context.Context, in *QuotasOf) (*ListOf[admin.Quota], error) {
			if err := notByItself(ctx, "set its own quotas"); err != nil {
				return nil, err
			}
			quotas := manage.Quotas(in.Body.Quotas)
			for _, name := range slices.Sorted(maps.Keys(quotas)) {
				callerOf(ctx).detail += fmt.Sprintf("%s=%s ", name, quotas[name])
				if quotas[name] == "" {
					continue
				}
				var err error
				if quotas[name], err = admin.ParseQuota(name, quotas[name]); err != nil {
					return nil, err
				}
			}
			if err := s.tenants[in.Tenant].SetQuotas(ctx, quotas); err != nil {
				return nil, err
			}
			return s.quotas(ctx, in.Tenant)
		})
}

// notByItself refuses a principal of certain tenants alone, because a tenant does not do that to itself.
func notByItself(ctx context.Context, what string) error {
	tenants := principal(ctx).Tenants
	if len(tenants) == 0 {
		return nil
	}
	return failed(http.StatusForbidden, "your token is of %s alone, and a tenant does not %s: ask for a token of all tenants",
		strings.Join(tenants, ", "), what)
}

// quotas reads the quotas of a tenant. Those of buckets are left out for principals that may not see what handlers
// wrote.
func (s *service) quotas(ctx context.Context, tenant string) (*ListOf[admin.Quota], error) {
	quotas, err := s.tenants[tenant].Quotas(ctx)
	if !principal(ctx).reads() {
		quotas = slices.DeleteFunc(quotas, func(q admin.Quota) bool { return q.Kind == "bucket" })
	}
	return listed(quotas[:min(len(quotas), maxQuotas)], err)
}
