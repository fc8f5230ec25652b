package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// serviceOptions are the flags for the services of handlers that run without a host. `quern serve` has the same flags, so
// that an environment variable means the same to both.
type serviceOptions struct {
	flags          *pflag.FlagSet
	host           hostOptions // only its options for HTTP
	secrets        string
	grants, tenant string
}

func newServiceOptions(f *pflag.FlagSet) *serviceOptions {
	o := &serviceOptions{flags: f}
	f.StringSliceVar(&o.host.networks, "allow-networks", nil, "networks that a handler may reach by HTTP beside the public ones, such as 127.0.0.0/8 (default none)")
	f.Var((*urlValue)(&o.host.proxy), "proxy", "`URL` of the proxy for what a handler sends by HTTP (default none, whatever the environment says)")
	f.StringVar(&o.secrets, "secrets", "", "`DIR` of secrets: TENANT/NAME holds the one that a manifest names (default none)")
	grantsOfTenantFlags(f, &o.grants, &o.tenant)
	return o
}

// outside is what handlers share outside of this process.
type outside struct {
	http    *egress.Client
	secrets string // their folder; "" for none
	grants  *manifest.Grants
	tenant  string
}

func (o *serviceOptions) open() (*outside, error) {
	config, err := o.host.egress(o.flags)
	if err != nil {
		return nil, err
	}
	grants, err := loadGrantsOf(o.flags, o.grants, o.tenant)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(o.secrets); o.secrets != "" && (err != nil || !info.IsDir()) {
		return nil, usagef("%s %q: is no folder that can be read: name the one that holds %s/NAME", origin(o.flags.Lookup("secrets")), o.secrets, o.tenant)
	}
	return &outside{http: egress.New(config), secrets: o.secrets, grants: grants, tenant: o.tenant}, nil
}

func (s *outside) close() { s.http.Close() }

// localHost makes the services of one plugin's tasks on this machine, with the buckets in an embedded Redis.
type localHost struct {
	services *guest.Services
	tenant   string
	embedded *miniredis.Miniredis // nil if the manifest grants no bucket
	rdb      redis.UniversalClient
}

// openHost starts the embedded Redis if the manifest grants a bucket; close stops it.
func (s *outside) openHost(granted *manifest.Capabilities) (*localHost, error) {
	h := &localHost{tenant: s.tenant}
	config := guest.Config{HTTP: s.http, Secrets: s.secrets}
	if len(granted.KV) > 0 {
		h.embedded = miniredis.NewMiniRedis()
		password := rand.Text() // other users of this machine reach the port
		h.embedded.RequireAuth(password)
		if err := h.embedded.StartAddr("127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("start embedded Redis: %w", err)
		}
		var err error
		if h.rdb, err = queue.Connect("redis://:" + password + "@" + h.embedded.Addr() + "/0"); err != nil {
			h.embedded.Close()
			return nil, err
		}
		config.KV = map[string]*kv.Store{s.tenant: kv.New(h.rdb, s.tenant)}
	}
	h.services = guest.New(config)
	return h, nil
}

func (h *localHost) close() {
	if h.embedded != nil {
		_ = h.rdb.Close()
		h.embedded.Close()
	}
}

// begin makes the services of a task, whose buckets are empty.
func (h *localHost) begin(permissions *manifest.Permissions, asked *manifest.Capabilities) (service.Services, *localTask) {
	if h.embedded != nil {
		h.embedded.FlushAll()
	}
	t := &localTask{}
	services, children := h.services.For(guest.Task{ID: localID, Tenant: h.tenant, Asked: asked, Permissions: permissions, Host: t})
	if t.children = children; children != nil {
		services.Enqueue = numberedChildren{t}
	}
	return services, t
}

// localTask is the guest.Host of a task, and notes what the task enqueues.
type localTask struct {
	children *guest.Children // nil if the task may not enqueue
	atOnce   []queue.Child
}

// enqueued are the task's children in their order.
func (t *localTask) enqueued() []queue.Child { return append(t.atOnce, t.children.Waiting()...) }

// numberedChildren numbers children, so that their IDs are the same in every run.
type numberedChildren struct{ *localTask }

func (t numberedChildren) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if child.ID == "" {
		child.ID = fmt.Sprintf("%s-%d", localID, len(t.enqueued())+1)
	}
	return t.children.Enqueue(ctx, child)
}

// SaveCheckpoint implements guest.Host: no other run would load the value.
func (*localTask) SaveCheckpoint(context.Context, []byte) error { return nil }

// AdmitQueue implements guest.Host.
func (*localTask) AdmitQueue(string) error { return nil }

// Enqueue implements guest.Host.
func (t *localTask) Enqueue(_ context.Context, child queue.Child) (string, error) {
	t.atOnce = append(t.atOnce, child)
	return child.ID, nil
}
