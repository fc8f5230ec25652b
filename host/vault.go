package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/service"
)

// vault is the secrets that a plugin may read of a tenant.
type vault struct {
	dir, tenant string
	terms       *plugins.Terms
}

// Secret implements service.Secrets.
func (v vault) Secret(ctx context.Context, name string) ([]byte, error) {
	return within(ctx, func() ([]byte, error) { // the folder may be on another machine
		return FindSecret(v.terms, v.dir, v.tenant, name)
	})
}

// missingSecrets says in the log that a secret is missing: once, until it is there again.
type missingSecrets struct {
	mu    sync.Mutex
	known map[string]bool // the missing ones, by tenant and name, as granted; guarded by mu
}

// noticed are the secrets of a task, with what is missing of them noted.
type noticed struct {
	service.Secrets
	task    *task
	missing *missingSecrets
}

// Secret implements service.Secrets.
func (n noticed) Secret(ctx context.Context, name string) ([]byte, error) {
	value, err := n.Secrets.Secret(ctx, name)
	if errors.Is(err, service.ErrDenied) || ctx.Err() != nil {
		return value, err
	}
	if n.missing.note(n.task.served.tenant+"/"+name, err != nil) {
		n.task.tenant.logger.Warn("a secret cannot be read, tasks that ask for it go without", "secret", name,
			"plugin", n.task.version.Name, "error", err)
	}
	return value, err
}

// note books whether a secret is missing, and tells whether it was there before.
func (m *missingSecrets) note(at string, missing bool) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !missing {
		delete(m.known, at)
		return false
	}
	news = !m.known[at]
	m.known[at] = true
	return news
}

// FindSecret is a secret as a plugin on these terms gets it, errors being those of service.Secrets. What the host's grants
// say of it goes before what the folder of secrets has, "" for none.
func FindSecret(terms *plugins.Terms, dir, tenant, name string) ([]byte, error) {
	if err := terms.DenySecret(name); err != nil {
		return nil, err
	}
	if !slices.Contains(terms.Capabilities.Secrets, name) {
		return nil, fmt.Errorf("%w: the manifest does not grant the secret %q: add it to capabilities.secrets", service.ErrDenied, name)
	}
	if secret, ok := terms.Secrets[name]; ok {
		value, err := secret.Read()
		return value, unreadable(name, err)
	}
	return readSecret(dir, tenant, name)
}

// readSecret reads a tenant's secret from a folder of secrets, "" for none.
func readSecret(dir, tenant, name string) ([]byte, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: there is no folder of secrets: give it by --secrets", service.ErrNotFound)
	}
	root, err := os.OpenRoot(dir) // no link leads out of it
	if err != nil {
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(path.Join(tenant, name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its other end
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer func() { _ = file.Close() }()
	value, err := plugins.ReadSecret(file)
	return value, unreadable(name, err)
}

// unreadable is why a secret cannot be read, as an error of a service; nil if it can be.
func unreadable(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, plugins.ErrNoSecret), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", service.ErrNotFound, err)
	case errors.Is(err, plugins.ErrSecretTooBig):
		return fmt.Errorf("%w: the secret %q: %w", service.ErrTooBig, name, err)
	default:
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
}
