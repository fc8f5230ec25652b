package api

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/quern-project/quern/sdk/queue"
)

// Quota is a limit of a tenant, and how much of the limit is used.
type Quota struct {
	Kind  string  `json:"kind" enum:"queue,bucket" doc:"queue: tasks that wait in it, against its limit; bucket: bytes that handlers keep in it, against the most that a plugin of a live host may write."`
	Name  string  `json:"name"`
	Used  int64   `json:"used"`
	Limit int64   `json:"limit"`
	Share float64 `json:"share" doc:"Used by limit; 1 is full."`
}

// maxQuotas is the maximum number of quotas in an answer. The answer has the fullest ones.
const maxQuotas = 100

func (s *service) describeQuotas() {
	add(s, looking("/tenants/{tenant}/quotas", "list-quotas",
		"List what the tenant uses of its limits, the fullest 100 first"),
		func(ctx context.Context, in *InTenant) (*ListOf[Quota], error) {
			quotas, err := s.tenants[in.Tenant].quotas(ctx, principal(ctx).reads())
			return listed(quotas[:min(len(quotas), maxQuotas)], err)
		})
}

// quotas returns the quotas of queues and, if reads is true, of buckets. The fullest comes first.
func (t *tenant) quotas(ctx context.Context, reads bool) ([]Quota, error) {
	limits, err := t.Limits(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(limits))
	stats, err := t.Stats(ctx, names...)
	if err != nil {
		return nil, err
	}
	quotas := make([]Quota, 0, len(names))
	for i, name := range names {
		depth := stats[i].Depth
		quotas = append(quotas, Quota{
			Kind: "queue", Name: name, Used: depth[queue.Pending] + depth[queue.Scheduled],
			Limit: limits[name],
		})
	}
	if reads && t.KV != nil {
		buckets, err := t.Buckets(ctx)
		if err != nil && len(buckets) == 0 {
			return nil, err // none was read; otherwise a damaged bucket must not hide the others
		}
		for _, b := range buckets {
			if b.Quota > 0 {
				quotas = append(quotas, Quota{Kind: "bucket", Name: b.Bucket, Used: b.Bytes, Limit: b.Quota})
			}
		}
	}
	for i := range quotas {
		quotas[i].Share = float64(quotas[i].Used) / float64(quotas[i].Limit)
	}
	slices.SortStableFunc(quotas, func(a, b Quota) int { return cmp.Compare(b.Share, a.Share) })
	return quotas, nil
}
