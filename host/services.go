package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// Services are what handlers may use beyond their tasks, as far as their manifests grant it. What is left out is
// denied.
type Services struct {
	// KV is the store of each tenant, by its name.
	KV map[string]*kv.Store
	// HTTP sends what handlers request.
	HTTP *egress.Client
	// Secrets is the folder of secrets: TENANT/NAME holds the value. They are read whenever a task asks for one.
	Secrets string
}

// of are the services of a task.
func (s *Services) of(t *task) service.Set {
	if t.version.Info().Kind != runtime.Handler {
		return service.Set{}
	}
	set := service.Set{Checkpoint: keeper{t}}
	granted := &t.version.Manifest.Capabilities
	if store := s.KV[t.served.tenant]; store != nil && len(granted.KV) > 0 {
		grants := make([]kv.Grant, len(granted.KV))
		for i, g := range granted.KV {
			grants[i] = kv.Grant(g)
		}
		set.KV = store.For(grants)
	}
	if s.HTTP != nil && len(granted.HTTP) > 0 {
		set.HTTP = s.HTTP.For(t.served.tenant, granted.HTTP)
	}
	if len(granted.Secrets) > 0 {
		set.Secrets = vault{s.Secrets, t.served.tenant, granted.Secrets}
	}
	return set
}

// keeper keeps a task's checkpoint in Redis.
type keeper struct{ task *task }

// Save implements service.Checkpoint.
func (k keeper) Save(ctx context.Context, value []byte) error {
	t := k.task
	err := within(ctx, func() error { return t.session.node.Checkpoint(ctx, t.served.queue, t.hold(), value) })
	switch {
	case errors.Is(err, queue.ErrLost), errors.Is(err, queue.ErrNoTask), errors.Is(err, queue.ErrLeaseLost):
		return fmt.Errorf("%w: %w", service.ErrLost, err)
	case queue.IsUnavailable(err):
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	default:
		return err
	}
}

// within does f, and waits for its end as long as ctx has not ended: go-redis does not look at that while it reads.
func within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxSecret bounds a secret, in bytes.
const maxSecret = 64 << 10

// vault is the part of the folder of secrets that a plugin may read.
type vault struct {
	dir, tenant string
	names       []string
}

// Secret implements service.Secrets. A last newline, as an editor leaves it, does not belong to the value.
func (v vault) Secret(_ context.Context, name string) ([]byte, error) {
	switch {
	case !slices.Contains(v.names, name):
		return nil, fmt.Errorf("%w: the manifest does not grant the secret %q: add it to capabilities.secrets", service.ErrDenied, name)
	case v.dir == "":
		return nil, fmt.Errorf("%w: this host has no secrets: give it the folder by --secrets", service.ErrNotFound)
	}
	root, err := os.OpenRoot(v.dir) // no link leads out of it
	if err != nil {
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	defer func() { _ = root.Close() }()
	file, err := root.Open(path.Join(v.tenant, name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", service.ErrNotFound, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	defer func() { _ = file.Close() }()
	value, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	case len(value) > maxSecret:
		return nil, fmt.Errorf("%w: the secret %q has more than %d bytes", service.ErrTooBig, name, maxSecret)
	}
	if n := len(value); n > 0 && value[n-1] == '\n' {
		value = value[:n-1]
	}
	return value, nil
}
