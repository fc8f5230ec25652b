package main

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/service/memory"
	"github.com/quern-project/quern/sdk/queue"
)

// serviceOptions are the flags of what handlers may use outside of this process when they run without a host. They are
// those of `quern serve`, so that a variable of the environment means the same to both.
type serviceOptions struct {
	host    hostOptions // of it, what a request by HTTP may do
	secrets string
}

func newServiceOptions(f *pflag.FlagSet) *serviceOptions {
	o := &serviceOptions{}
	f.StringSliceVar(&o.host.networks, "allow-networks", nil, "networks that a handler may reach by HTTP beside the public ones, such as 127.0.0.0/8 (default none)")
	f.StringVar(&o.host.proxy, "proxy", "", "`URL` of the proxy for what a handler sends by HTTP (default none, whatever the environment says)")
	f.StringVar(&o.secrets, "secrets", "", "`DIR` of secrets: "+queue.DefaultTenant+"/NAME holds the one that a manifest names (default none)")
	return o
}

// outside is what handlers may use outside of this process.
type outside struct {
	http    *egress.Client
	secrets string // their folder; "" for none
}

func (o *serviceOptions) open() (*outside, error) {
	config, err := o.host.egress()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(o.secrets); o.secrets != "" && (err != nil || !info.IsDir()) {
		return nil, usagef("secrets %q: is no folder that can be read: name the one that holds %s/NAME", o.secrets, queue.DefaultTenant)
	}
	return &outside{http: egress.New(config), secrets: o.secrets}, nil
}

func (s *outside) close() { s.http.Close() }

// services are those of one task, as far as the manifest grants them; what is kept is kept for this task alone. The
// function tells what it has enqueued.
func (s *outside) services(m *plugins.Manifest) (service.Set, func() []service.Child) {
	granted := &m.Capabilities
	set := service.Set{Checkpoint: &memory.Checkpoint{}, Config: m.Config}
	if len(granted.KV) > 0 {
		grants := make([]memory.Grant, len(granted.KV))
		for i, g := range granted.KV {
			grants[i] = memory.Grant{Bucket: g.Bucket, Write: g.Write, Quota: g.Quota}
		}
		set.KV = memory.NewStore().For(grants)
	}
	if len(granted.HTTP) > 0 {
		set.HTTP = s.http.For(queue.DefaultTenant, granted.HTTP)
	}
	if len(granted.Secrets) > 0 {
		set.Secrets = memory.Secrets{Names: granted.Secrets, Read: func(name string) ([]byte, error) {
			return host.ReadSecret(s.secrets, queue.DefaultTenant, name)
		}}
	}
	if granted.Enqueue == nil {
		return set, func() []service.Child { return nil }
	}
	enqueuer := memory.NewEnqueuer(localID, func(c service.Child) error {
		_, err := host.NewChild(granted.Enqueue, c)
		return err
	})
	set.Enqueue = enqueuer
	return set, enqueuer.Children
}
