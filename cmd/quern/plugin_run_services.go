package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/spf13/pflag"

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
	secrets *os.Root // of the tenant; nil if there are none
}

func (o *serviceOptions) open() (*outside, error) {
	config, err := o.host.egress()
	if err != nil {
		return nil, err
	}
	s := &outside{}
	if o.secrets != "" {
		if s.secrets, err = os.OpenRoot(o.secrets); err != nil {
			return nil, usagef("secrets %q: is no folder that can be read: name the one that holds %s/NAME", o.secrets, queue.DefaultTenant)
		}
	}
	s.http = egress.New(config)
	return s, nil
}

func (s *outside) close() {
	s.http.Close()
	if s.secrets != nil {
		_ = s.secrets.Close()
	}
}

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
		set.Secrets = memory.Secrets{Names: granted.Secrets, Read: s.secret}
	}
	if granted.Enqueue == nil {
		return set, func() []service.Child { return nil }
	}
	enqueuer := memory.NewEnqueuer(localID, func(c service.Child) error { return checkChild(granted.Enqueue, c) })
	set.Enqueue = enqueuer
	return set, enqueuer.Children
}

// checkChild refuses what a host would refuse.
func checkChild(grant *plugins.EnqueueGrant, c service.Child) error {
	if err := queue.ValidQueue(c.Queue); err != nil {
		return fmt.Errorf("%w: %w", service.ErrInvalid, trimInvalid(err))
	}
	if !grant.Allows(c.Queue) {
		return fmt.Errorf("%w: the queue %q: add it to capabilities.enqueue.queues", service.ErrDenied, c.Queue)
	}
	child := queue.Child{Queue: c.Queue, Spec: queue.Spec{Parameters: c.Body, Options: queue.Options{
		ID: cmp.Or(c.ID, localID), Key: c.Key, Labels: c.Labels, Priority: c.Priority, Delay: c.Delay, At: c.At,
		Retry: queue.Retry{MaxAttempts: c.MaxAttempts}, Timeout: c.Timeout, Unique: (*queue.Unique)(c.Unique),
	}}}
	if err := child.Validate(); err != nil {
		return fmt.Errorf("%w: %w", service.ErrInvalid, trimInvalid(err))
	}
	return nil
}

// maxSecret bounds a secret, in bytes, as a host does.
const maxSecret = 64 << 10

// secret reads one as a host does: a last newline, as an editor leaves it, does not belong to it.
func (s *outside) secret(name string) ([]byte, error) {
	if s.secrets == nil {
		return nil, fmt.Errorf("%w: there are no secrets: give the folder by --secrets", service.ErrNotFound)
	}
	file, err := s.secrets.Open(path.Join(queue.DefaultTenant, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", service.ErrNotFound, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	defer func() { _ = file.Close() }()
	value, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	switch n := len(value); {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	case n > maxSecret:
		return nil, fmt.Errorf("%w: the secret %q has more than %d bytes", service.ErrTooBig, name, maxSecret)
	case n > 0 && value[n-1] == '\n':
		value = value[:n-1]
	}
	return value, nil
}
