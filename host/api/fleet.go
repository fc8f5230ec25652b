package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// InNode has the path parameters of every operation on a listener.
type InNode struct {
	InTenant
	Listener string `path:"listener" maxLength:"400"`
}

// InBucket has the path parameters of every operation on a bucket.
type InBucket struct {
	InTenant
	Bucket string `path:"bucket" maxLength:"1024"`
}

func (s *service) describeFleet() {
	type list struct {
		TenantPage
		Leased bool `query:"leased" doc:"Those with a lease, the last to renew it first, in one page and without the tasks that they hold: quick however many queues there are."`
	}
	add(s, looking("/tenants/{tenant}/nodes", "list-nodes", "List the listeners with the tasks that they hold"),
		func(ctx context.Context, in *list) (*ListOf[admin.Node], error) {
			if in.Leased {
				return listed(s.tenants[in.Tenant].Leased(ctx, in.Limit))
			}
			nodes, err := s.tenants[in.Tenant].Nodes(ctx)
			return cut(nodes, in.Paging, func(n admin.Node) string { return n.Listener }), err
		})
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/nodes/{listener}/drain", "drain-node",
		"Tell a host or worker to take no more tasks of the tenant, finish the running ones, and end"),
		func(ctx context.Context, in *InNode) (*struct{}, error) {
			return nil, s.tenants[in.Tenant].Manager.Drain(ctx, in.Listener)
		})
	type reclaim struct {
		InNode
		MaxCrashes int `query:"max_crashes" minimum:"1" default:"3" doc:"A task fails once this many hosts died while they ran it."`
	}
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/nodes/{listener}/reclaim", "reclaim-node",
		"Requeue all tasks of a dead listener. Make sure that a Python listener's process has ended, or its tasks run twice"),
		func(ctx context.Context, in *reclaim) (*Of[admin.Reclaimed], error) {
			got, err := s.tenants[in.Tenant].ReclaimNode(ctx, in.Listener, in.MaxCrashes)
			if errors.Is(err, queue.ErrStatus) {
				err = typed("status", failed(http.StatusConflict,
					"listener %s is alive, its lease runs: drain it, or wait until its lease is over", in.Listener))
			}
			return &Of[admin.Reclaimed]{got}, err
		})
	add(s, looking("/tenants/{tenant}/plugins", "list-plugins",
		"List the plugins of live hosts with versions, digests, what serves them, and why some are refused"),
		func(ctx context.Context, in *TenantPage) (*ListOf[admin.Plugin], error) {
			list, err := s.tenants[in.Tenant].Plugins(ctx)
			return cut(list, in.Paging, admin.Plugin.Name), err
		})
	type release struct {
		InTenant
		Plugin string `path:"plugin" maxLength:"200"`
		Digest string `query:"digest" maxLength:"80" doc:"Only this version; missing: all."`
	}
	add(s, looking("/tenants/{tenant}/quarantines", "list-quarantines",
		"List the versions of plugins that no host runs because their tasks ended several hosts or failed in a row"),
		func(ctx context.Context, in *InTenant) (*ListOf[admin.Quarantine], error) {
			return listed(s.tenants[in.Tenant].Quarantines(ctx))
		})
	add(s, looking("/tenants/{tenant}/relays", "list-relays",
		"List the databases whose rows become tasks, and the relays that lead them"),
		func(ctx context.Context, in *InTenant) (*ListOf[listen.RelayState], error) {
			return listed(s.tenants[in.Tenant].Relays(ctx))
		})
	type relay struct {
		InTenant
		Relay string `path:"relay" maxLength:"1024"`
	}
	add(s, acting(Admin, http.MethodDelete, "/tenants/{tenant}/relays/{relay}", "forget-relay",
		"Remove what Redis keeps of a database whose rows became tasks, and that is gone"),
		func(ctx context.Context, in *relay) (*struct{}, error) {
			err := s.tenants[in.Tenant].ForgetRelay(ctx, in.Relay)
			if errors.Is(err, queue.ErrStatus) {
				err = typed("status", failed(http.StatusConflict, "%s", err))
			}
			return nil, err
		})
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/plugins/{plugin}/release", "release-plugin",
		"End the quarantine of a plugin, also that of its circuit breaker"),
		func(ctx context.Context, in *release) (*ListOf[admin.Released], error) {
			return listed(s.tenants[in.Tenant].release(ctx, in.Plugin, in.Digest))
		})
	s.describeStore()
	s.describeQuotas()
	s.describeReleases()
	add(s, acting(Admin, http.MethodGet, "/tenants/{tenant}/audit", "read-audit",
		"Read who did what, newest first: about the last 10,000 actions"),
		func(ctx context.Context, in *TenantPage) (*ListOf[admin.AuditEntry], error) {
			entries, err := s.tenants[in.Tenant].AuditLog(ctx, in.Cursor, int64(in.Limit)+1)
			out := &ListOf[admin.AuditEntry]{List[admin.AuditEntry]{Items: []admin.AuditEntry{}}}
			for i, e := range entries {
				if i == in.Limit {
					out.Body.Next = entries[i-1].ID
					break
				}
				out.Body.Items = append(out.Body.Items, admin.NewAuditEntry(e))
			}
			return out, err
		})
}

func (t *tenant) release(ctx context.Context, plugin, digest string) ([]admin.Released, error) {
	quarantines, err := t.Quarantines(ctx)
	if err != nil {
		return nil, err
	}
	released := []admin.Released{}
	for _, q := range quarantines {
		if q.Plugin != plugin || digest != "" && q.Digest != digest {
			continue
		}
		if err := t.Manager.EndQuarantine(ctx, q.Plugin, q.Digest); err != nil {
			return released, err
		}
		released = append(released, admin.Released{Plugin: q.Plugin, Digest: q.Digest})
	}
	if len(released) == 0 {
		return nil, notFound("tenant %s has no quarantined plugin %q %s: list them with GET /v1/tenants/%s/quarantines",
			t.Tenant(), plugin, digest, t.Tenant())
	}
	return released, nil
}

// describeStore registers the operations that read the buckets of handlers.
func (s *service) describeStore() {
	add(s, revealing("/tenants/{tenant}/kv", "list-buckets", "List the buckets of handlers"),
		func(ctx context.Context, in *TenantPage) (*ListOf[admin.Bucket], error) {
			t := s.tenants[in.Tenant]
			all, err := t.Buckets(ctx)
			if err != nil && (len(all) == 0 || queue.IsUnavailable(err)) {
				return nil, err // none was read; otherwise a damaged bucket must not hide the others
			}
			out := cut(all, in.Paging, func(b admin.Bucket) string { return b.Bucket })
			if err != nil {
				out.Body.Error = s.hidden("list-buckets", err)
			}
			return out, nil
		})
	type listKeys struct {
		InBucket
		Prefix string `query:"prefix" maxLength:"1024" doc:"Only keys with this prefix."`
		Paging
	}
	add(s, revealing("/tenants/{tenant}/kv/{bucket}", "list-keys", "List the keys of a bucket"),
		func(ctx context.Context, in *listKeys) (*ListOf[string], error) {
			keys, err := s.tenants[in.Tenant].KV.List(ctx, in.Bucket, in.Prefix, in.Cursor, in.Limit)
			out := &ListOf[string]{List[string]{Items: append([]string{}, keys...)}}
			if len(keys) == in.Limit {
				out.Body.Next = keys[len(keys)-1]
			}
			return out, err
		})
	type inKey struct {
		InBucket
		Key string `path:"key" maxLength:"1024"`
	}
	add(s, revealing("/tenants/{tenant}/kv/{bucket}/{key}", "show-value", "The bytes of a value"),
		func(ctx context.Context, in *inKey) (*Bytes, error) {
			if err := s.reserve(ctx, valueAnswer(kv.MaxValue)); err != nil {
				return nil, err
			}
			value, err := s.tenants[in.Tenant].KV.Get(ctx, in.Bucket, in.Key)
			if err != nil {
				return nil, err
			}
			return raw(value), nil
		})
}
