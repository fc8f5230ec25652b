package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Quota is a limit of a tenant, and how much of the limit is used.
type Quota struct {
	Kind    string  `json:"kind" enum:"tenant,queue,bucket" doc:"tenant: a quota of the tenant, by its name; queue: tasks that wait in it, against its limit; bucket: bytes that handlers keep in it, against the most that a plugin of a live host may write."`
	Name    string  `json:"name"`
	Value   string  `json:"value,omitempty" doc:"Of a quota of the tenant: a number, or a rate such as 100/s burst 200."`
	Granted string  `json:"granted,omitempty" doc:"Of a quota of the tenant, its value in the hosts' file of grants; missing: the file does not have it. Another value was set by an operator."`
	Used    int64   `json:"used"`
	Limit   int64   `json:"limit" doc:"Of a rate its burst, of which used are missing; 0: it counts nothing, as weights and rates by key."`
	Share   float64 `json:"share" doc:"Used by limit; 1 is full."`
	Refused int64   `json:"refused,omitempty" doc:"How many tasks, or other things, this quota of the tenant refused so far."`
}

// ParseQuota checks a quota that a person wrote, and returns its value. Numbers of bytes need a unit.
func ParseQuota(name, text string) (string, error) {
	kind, _, err := manage.KindOf(name)
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", fmt.Errorf("%w: quota %s: give a value", queue.ErrInvalid, name)
	case kind.Form == manage.FormBytes:
		size, err := units.ParseSize(text)
		if err != nil {
			return "", fmt.Errorf("%w: quota %s: %w", queue.ErrInvalid, name, err)
		}
		text = strconv.FormatInt(size, 10)
	}
	normal, err := manage.Quotas{name: text}.Normal()
	return normal[name], err
}

// SetQuotas changes quotas of the tenant; an empty value removes one.
func (t *Direct) SetQuotas(ctx context.Context, changes manage.Quotas) error {
	return manage.SetQuotas(ctx, t.Client, changes)
}

// Quotas reads the quotas of the tenant, the limits of queues, and the quotas of buckets. The fullest comes first.
func (t *Direct) Quotas(ctx context.Context) ([]Quota, error) {
	uses, err := manage.QuotaUses(ctx, t.Client)
	if err != nil {
		return nil, err
	}
	quotas := make([]Quota, 0, len(uses))
	for _, use := range uses {
		quotas = append(quotas, Quota{
			Kind: "tenant", Name: use.Name, Value: use.Value, Granted: use.Granted, Used: use.Used, Limit: use.Limit,
			Refused: use.Refused,
		})
	}
	limits, err := t.Limits(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(limits))
	stats, err := t.Stats(ctx, names...)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		depth := stats[i].Depth
		quotas = append(quotas, Quota{
			Kind: "queue", Name: name, Used: depth[queue.Pending] + depth[queue.Scheduled], Limit: limits[name],
			Refused: stats[i].Totals["refused"] + stats[i].Totals["failed:"+string(manage.ReasonDropped)],
		})
	}
	var damaged error
	if t.KV != nil {
		var buckets []Bucket
		if buckets, damaged = t.Buckets(ctx); damaged != nil && len(buckets) > 0 {
			damaged = nil // a damaged bucket must not hide the others
		}
		for _, b := range buckets {
			if b.Quota > 0 {
				quotas = append(quotas, Quota{Kind: "bucket", Name: b.Bucket, Used: b.Bytes, Limit: b.Quota})
			}
		}
	}
	for i := range quotas {
		if quotas[i].Limit > 0 {
			quotas[i].Share = float64(quotas[i].Used) / float64(quotas[i].Limit)
		}
	}
	slices.SortStableFunc(quotas, func(a, b Quota) int { return cmp.Compare(b.Share, a.Share) })
	return quotas, errors.Join(damaged)
}
