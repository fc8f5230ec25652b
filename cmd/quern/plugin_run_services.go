package main

import (
	"cmp"
	"os"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/service/memory"
)

// serviceOptions are the flags of what handlers may use outside of this process when they run without a host. They are
// those of `quern serve`, so that a variable of the environment means the same to both.
type serviceOptions struct {
	flags          *pflag.FlagSet
	host           hostOptions // of it, what a request by HTTP may do
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

// outside is what handlers may use outside of this process.
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

// services are those of one task, as far as the terms grant them; what is kept is kept for this task alone. The
// function tells what it has enqueued.
func (s *outside) services(terms *manifest.Permissions, asked *manifest.Capabilities) (service.Set, func() []service.Child) {
	granted := &terms.Capabilities
	set := service.Set{Checkpoint: &memory.Checkpoint{}, Config: terms.Config}
	if len(asked.KV) > 0 {
		grants := make([]memory.Grant, len(granted.KV))
		for i, g := range granted.KV {
			grants[i] = memory.Grant{Bucket: g.Bucket, Write: g.Write, Quota: g.Quota}
		}
		set.KV = memory.NewStore().ForUnder(grants, terms.DenyBucket)
	}
	if len(asked.HTTP) > 0 {
		set.HTTP = s.requests(terms, asked.HTTP)
	}
	if len(asked.Secrets) > 0 {
		set.Secrets = memory.Secrets{Names: asked.Secrets, Read: func(name string) ([]byte, error) {
			return host.FindSecret(terms, s.secrets, s.tenant, name)
		}}
	}
	if asked.Enqueue == nil {
		return set, func() []service.Child { return nil }
	}
	grant, left := cmp.Or(granted.Enqueue, &manifest.EnqueueGrant{}), host.NewAllowance(terms)
	enqueuer := memory.NewEnqueuer(localID, func(c service.Child) error {
		if err := terms.DenyQueue(c.Queue); err != nil {
			return err
		}
		child, err := host.NewChild(grant, c, localID)
		if err != nil {
			return err
		}
		return left.Take(&child)
	})
	set.Enqueue = enqueuer
	return set, enqueuer.Children
}

func (s *outside) requests(terms *manifest.Permissions, asked []egress.Grant) service.HTTP {
	if c := terms.Ceiling; c != nil {
		return s.http.ForUnder(s.tenant, asked, egress.Ceiling{Grants: c.HTTP, Place: terms.Place()})
	}
	return s.http.For(s.tenant, asked)
}
