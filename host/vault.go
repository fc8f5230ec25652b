package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/service"
)

// vault is the secrets that a plugin may read of a tenant.
type vault struct {
	dir, tenant string
	terms       *plugins.Terms
	revealed    *Revealed // gets what it answers
}

// Secret implements service.Secrets. What the host's grants say of a secret goes before what the folder has.
func (v vault) Secret(ctx context.Context, name string) ([]byte, error) {
	if err := v.terms.DenySecret(name); err != nil {
		return nil, err
	}
	if !slices.Contains(v.terms.Capabilities.Secrets, name) {
		return nil, fmt.Errorf("%w: the manifest does not grant the secret %q: add it to capabilities.secrets", service.ErrDenied, name)
	}
	value, err := within(ctx, func() ([]byte, error) { return v.read(name) }) // the folder may be on another machine
	if err == nil {
		v.revealed.Add(name, value)
	}
	return value, err
}

// read finds the value.
func (v vault) read(name string) ([]byte, error) {
	if secret, ok := v.terms.Secrets[name]; ok {
		value, err := secret.Read()
		return value, unreadable(name, err)
	}
	return ReadSecret(v.dir, v.tenant, name)
}

// ReadSecret reads a tenant's secret from a folder of secrets, "" for none. Errors are those of service.Secrets.
func ReadSecret(dir, tenant, name string) ([]byte, error) {
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
