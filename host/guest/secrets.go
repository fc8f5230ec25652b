package guest

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

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
)

// secrets are those of one task.
type secrets struct {
	task    *Task
	dir     string // of secrets; "" for none
	missing *missingSecrets
}

// Secret implements service.Secrets. A secret that cannot be read is logged once, until it can be read again.
func (s *secrets) Secret(ctx context.Context, name string) ([]byte, error) {
	t := s.task
	value, err := service.Await(ctx, func() ([]byte, error) { // the folder may be on another machine
		return readSecret(t.Permissions, s.dir, t.Tenant, name)
	})
	if errors.Is(err, service.ErrDenied) || ctx.Err() != nil {
		return value, err
	}
	if s.missing.note(t.Tenant+"/"+name, err != nil) {
		t.Logger.Warn("a secret cannot be read, tasks that ask for it go without", "secret", name, "plugin", t.Plugin, "error", err)
	}
	return value, err
}

// missingSecrets are the secrets that could not be read, of all tasks.
type missingSecrets struct {
	mu    sync.Mutex
	known map[string]bool // by tenant and name; guarded by mu
}

// note notes whether a secret is missing, and tells whether that is new.
func (m *missingSecrets) note(secret string, missing bool) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !missing {
		delete(m.known, secret)
		return false
	}
	news = !m.known[secret]
	m.known[secret] = true
	return news
}

// readSecret reads a secret where the host's grants define it, else in the folder of secrets, "" for none.
func readSecret(permissions *manifest.Permissions, dir, tenant, name string) ([]byte, error) {
	if err := permissions.DenySecret(name); err != nil {
		return nil, err
	}
	if !slices.Contains(permissions.Capabilities.Secrets, name) {
		return nil, deniedSecret(name)
	}
	if secret, ok := permissions.Secrets[name]; ok {
		value, err := secret.Read()
		return value, unreadable(name, err)
	}
	if dir == "" {
		return nil, noSecretsFolder()
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
	value, err := manifest.ReadSecret(file)
	return value, unreadable(name, err)
}

// unreadable makes the error of reading a secret one of package service; nil stays nil.
func unreadable(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, manifest.ErrNoSecret), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", service.ErrNotFound, err)
	case errors.Is(err, manifest.ErrSecretTooBig):
		return fmt.Errorf("%w: the secret %q: %w", service.ErrTooBig, name, err)
	default:
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
}
