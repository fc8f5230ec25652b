package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/sdk/queue"
)

// Node is a listener: a host, a worker, or one of Python.
type Node struct {
	Listener   string                   `json:"listener"`
	Tenant     string                   `json:"tenant"`
	Kind       string                   `json:"kind" doc:"quern, go, python, or webhook: what delivers webhooks."`
	Version    string                   `json:"version,omitempty"`
	LeaseEnds  float64                  `json:"lease_ends,omitempty" doc:"Missing: it has no lease, or its tasks are being reclaimed."`
	Alive      bool                     `json:"alive" doc:"Its lease has not ended, or it is a Python listener, of which nobody knows."`
	Draining   bool                     `json:"draining"`
	Slots      *int                     `json:"slots,omitempty"`
	SlotsInUse *int                     `json:"slots_in_use,omitempty" doc:"By tasks of all tenants."`
	Running    map[string]queue.Running `json:"running,omitempty" doc:"What runs of this tenant on a host, by queue."`
	Queues     []string                 `json:"queues"`
	Holds      map[string][]string      `json:"holds" doc:"The newest tasks that it holds, started or not, by queue."`
	Name       string                   `json:"name,omitempty" doc:"Of its host."`
	Uptime     float64                  `json:"uptime_seconds,omitempty"`
	Address    string                   `json:"address,omitempty" doc:"Of the host's metrics."`
	Memory     int64                    `json:"memory,omitempty" doc:"Bytes that all of its running tasks together may have."`
	Reserved   int64                    `json:"memory_reserved,omitempty" doc:"Bytes of it that are reserved now, for running tasks of all tenants and beside them."`
	WaitsFor   []string                 `json:"waits_for_memory,omitempty" doc:"The queues for whose next task it has no memory now."`
	Off        []webhook.Off            `json:"destinations_off,omitempty" doc:"Destinations of webhooks that it has switched off; their deliveries wait."`
}

// Reclaimed is what became of the tasks of a dead listener.
type Reclaimed struct {
	Listener  string `json:"listener"`
	Returned  int    `json:"returned" doc:"To the front of their queues."`
	Scheduled int    `json:"scheduled" doc:"For later: several hosts died while they ran."`
	Failed    int    `json:"failed" doc:"Too many hosts died, or they must not run twice."`
	Dropped   int    `json:"dropped" doc:"The listener had lost them already."`
}

// Released are versions of plugins whose quarantine ended.
type Released struct {
	Plugin string `json:"plugin"`
	Digest string `json:"digest"`
}

// Quarantine is a version of a plugin that no host runs.
type Quarantine struct {
	Plugin    string   `json:"plugin"`
	Digest    string   `json:"digest"`
	Listeners []string `json:"listeners" doc:"The hosts that its tasks ended."`
	Until     float64  `json:"until" doc:"When it ends by itself."`
}

// Bucket is a bucket of handlers.
type Bucket struct {
	Tenant string `json:"tenant"`
	Bucket string `json:"bucket"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	Quota  int64  `json:"quota,omitempty" doc:"Bytes: the most that a plugin of a live host may write; missing: none may."`
}

// Buckets lists the buckets of the tenant's handlers. If one is damaged, it returns the others and an error.
func (t *Reader) Buckets(ctx context.Context) ([]Bucket, error) {
	buckets, err := t.Store.Buckets(ctx)
	if err != nil && len(buckets) == 0 {
		return nil, err
	}
	serving, unknown := host.Plugins(ctx, t.Client)
	quotas := make(map[string]int64) // the largest of the plugins that live hosts serve
	for _, p := range serving {
		if p.Grants == nil {
			continue
		}
		for _, bucket := range p.Grants.KV {
			quotas[bucket.Bucket] = max(quotas[bucket.Bucket], bucket.Quota)
		}
	}
	all := make([]Bucket, len(buckets))
	for i, b := range buckets {
		all[i] = Bucket{t.Tenant(), b.Name, b.Keys, b.Bytes, quotas[b.Name]}
	}
	return all, errors.Join(err, unknown)
}

// AuditEntry is an action of a person or program.
type AuditEntry struct {
	ID     string  `json:"id"`
	Time   float64 `json:"time"`
	Who    string  `json:"who"`
	Action string  `json:"action" doc:"The operation's ID in this document."`
	On     string  `json:"on,omitempty"`
	From   string  `json:"from"`
	Status int     `json:"status" doc:"Of the answer."`
	Detail string  `json:"detail,omitempty"`
}

// NewAuditEntry shows an entry of the audit log.
func NewAuditEntry(e queue.AuditEntry) AuditEntry {
	return AuditEntry{e.ID, stamp(e.Time), e.Who, e.Action, e.On, e.From, e.Status, e.Detail}
}

// InNode is in every path below a listener.
type InNode struct {
	InTenant
	Listener string `path:"listener" maxLength:"400"`
}

// InBucket is in every path below a bucket.
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
		func(ctx context.Context, in *list) (*ListOf[Node], error) {
			if in.Leased {
				return listed(s.tenants[in.Tenant].Leased(ctx, in.Limit))
			}
			nodes, err := s.tenants[in.Tenant].Nodes(ctx)
			return cut(nodes, in.Paging, func(n Node) string { return n.Listener }), err
		})
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/nodes/{listener}/drain", "drain-node", "Tell a host or worker to take no more tasks of the tenant, finish the running ones, and end"),
		func(ctx context.Context, in *InNode) (*struct{}, error) {
			return nil, s.tenants[in.Tenant].Fleet.Drain(ctx, in.Listener)
		})
	type reclaim struct {
		InNode
		MaxCrashes int `query:"max_crashes" minimum:"1" default:"3" doc:"A task fails once this many hosts died while they ran it."`
	}
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/nodes/{listener}/reclaim", "reclaim-node", "Requeue all tasks of a dead listener. Make sure that a Python listener's process has ended, or its tasks run twice"),
		func(ctx context.Context, in *reclaim) (*Of[Reclaimed], error) {
			got, err := s.tenants[in.Tenant].Fleet.ReclaimNode(ctx, in.Listener, in.MaxCrashes)
			if errors.Is(err, queue.ErrStatus) {
				err = typed("status", failed(http.StatusConflict, "listener %s is alive, its lease runs: drain it, or wait until its lease is over", in.Listener))
			}
			return &Of[Reclaimed]{Reclaimed{in.Listener, got.Returned, got.Scheduled, got.Failed, got.Dropped}}, err
		})
	add(s, looking("/tenants/{tenant}/plugins", "list-plugins", "List the plugins of live hosts with versions, digests, what serves them, and why some are refused"),
		func(ctx context.Context, in *TenantPage) (*ListOf[host.Plugin], error) {
			list, err := host.Plugins(ctx, s.tenants[in.Tenant].Client)
			return cut(list, in.Paging, host.Plugin.Name), err
		})
	type release struct {
		InTenant
		Plugin string `path:"plugin" maxLength:"200"`
		Digest string `query:"digest" maxLength:"80" doc:"Only this version; missing: all."`
	}
	add(s, looking("/tenants/{tenant}/quarantines", "list-quarantines", "List the versions of plugins that no host runs because their tasks ended several hosts"),
		func(ctx context.Context, in *InTenant) (*ListOf[Quarantine], error) {
			read, err := s.tenants[in.Tenant].Fleet.Quarantines(ctx)
			list := make([]Quarantine, len(read))
			for i, q := range read {
				list[i] = Quarantine{q.Plugin, q.Digest, q.Listeners, stamp(q.Until)}
			}
			return listed(list, err)
		})
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/plugins/{plugin}/release", "release-plugin", "End the quarantine of a plugin whose tasks ended several hosts"),
		func(ctx context.Context, in *release) (*ListOf[Released], error) {
			return listed(s.tenants[in.Tenant].release(ctx, in.Plugin, in.Digest))
		})
	s.describeStore()
	s.describeQuotas()
	add(s, acting(Admin, http.MethodGet, "/tenants/{tenant}/audit", "read-audit", "Read who did what, newest first: about the last 10,000 actions"),
		func(ctx context.Context, in *TenantPage) (*ListOf[AuditEntry], error) {
			entries, err := s.tenants[in.Tenant].AuditLog(ctx, in.Cursor, int64(in.Limit)+1)
			out := &ListOf[AuditEntry]{List[AuditEntry]{Items: []AuditEntry{}}}
			for i, e := range entries {
				if i == in.Limit {
					out.Body.Next = entries[i-1].ID
					break
				}
				out.Body.Items = append(out.Body.Items, NewAuditEntry(e))
			}
			return out, err
		})
}

// nodeFields are what Node shows of what a listener published.
var nodeFields = []string{
	"version", "slots", "slots_in_use", "running", "name", "started", "clock", "address", "memory", "memory_reserved", "waits_for_memory", "destinations_off", "queues",
}

// Nodes lists the listeners of the tenant, by ID.
func (t *Reader) Nodes(ctx context.Context) ([]Node, error) {
	nodes, err := t.Fleet.Nodes(ctx, nodeFields...)
	if err != nil {
		return nil, err
	}
	return t.nodes(ctx, nodes)
}

// Leased lists at most that many listeners with a lease, the last to renew it first, without the tasks that they hold, and with
// the queues that they name themselves.
func (t *Reader) Leased(ctx context.Context, most int) ([]Node, error) {
	nodes, err := t.Fleet.Leased(ctx, most, nodeFields...)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		_ = json.Unmarshal([]byte(nodes[i].About["queues"]), &nodes[i].Queues) // what is no list is none
	}
	return t.nodes(ctx, nodes)
}

func (t *Reader) nodes(ctx context.Context, nodes []queue.NodeInfo) ([]Node, error) {
	now, err := t.Clock(ctx)
	shapes := make([]Node, len(nodes))
	for i, n := range nodes {
		number := func(name string) *int {
			if value, err := strconv.Atoi(n.About[name]); err == nil {
				return &value
			}
			return nil
		}
		shapes[i] = Node{
			Listener: n.ID, Tenant: t.Tenant(), Kind: n.Kind, Version: n.About["version"], LeaseEnds: stamp(n.LeaseEnd),
			Alive: n.LeaseEnd.After(now) || n.Kind == queue.KindPython, Draining: n.Draining,
			Slots: number("slots"), SlotsInUse: number("slots_in_use"), Queues: append([]string{}, n.Queues...), Holds: n.Holds,
			Name: n.About["name"], Uptime: uptime(n), Address: n.About["address"],
			Memory: asInt(n.About["memory"]), Reserved: asInt(n.About["memory_reserved"]),
		}
		_ = json.Unmarshal([]byte(n.About["waits_for_memory"]), &shapes[i].WaitsFor) // none of a listener that publishes none
		_ = json.Unmarshal([]byte(n.About["running"]), &shapes[i].Running)
		if shapes[i].Alive {
			_ = json.Unmarshal([]byte(n.About["destinations_off"]), &shapes[i].Off) // of those that deliver webhooks
		}
	}
	return shapes, err
}

// asInt reads what a host published; 0 if it is no number.
func asInt(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// uptime is for how many seconds a host runs, by its own clock; 0 if that is not known.
func uptime(n queue.NodeInfo) float64 {
	started, err := strconv.ParseFloat(n.About["started"], 64)
	clock, missing := strconv.ParseFloat(n.About["clock"], 64)
	if err != nil || missing != nil {
		return 0
	}
	return math.Round(clock - started)
}

func (t *tenant) release(ctx context.Context, plugin, digest string) ([]Released, error) {
	quarantines, err := t.Fleet.Quarantines(ctx)
	if err != nil {
		return nil, err
	}
	released := []Released{}
	for _, q := range quarantines {
		if q.Plugin != plugin || digest != "" && q.Digest != digest {
			continue
		}
		if err := t.Fleet.EndQuarantine(ctx, q.Plugin, q.Digest); err != nil {
			return released, err
		}
		released = append(released, Released{q.Plugin, q.Digest})
	}
	if len(released) == 0 {
		return nil, notFound("tenant %s has no quarantined plugin %q %s: list them with GET /v1/tenants/%s/plugins", t.Tenant(), plugin, digest, t.Tenant())
	}
	return released, nil
}

// describeStore is what may be read of the buckets of handlers.
func (s *service) describeStore() {
	add(s, revealing("/tenants/{tenant}/kv", "list-buckets", "List the buckets of handlers"),
		func(ctx context.Context, in *TenantPage) (*ListOf[Bucket], error) {
			t := s.tenants[in.Tenant]
			all, err := t.Buckets(ctx)
			if err != nil && (len(all) == 0 || queue.IsUnavailable(err)) {
				return nil, err // else one damaged bucket does not hide the others
			}
			out := cut(all, in.Paging, func(b Bucket) string { return b.Bucket })
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
			keys, err := s.tenants[in.Tenant].Store.List(ctx, in.Bucket, in.Prefix, in.Cursor, in.Limit)
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
			value, err := s.tenants[in.Tenant].Store.Get(ctx, in.Bucket, in.Key)
			if err != nil {
				return nil, err
			}
			return raw(value), nil
		})
}
