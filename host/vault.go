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
	revealed    *revealed // gets what it answers
}

// Secret implements service.Secrets. What the host's grants say of a secret goes before what the folder has.
func (v vault) Secret(_ context.Context, name string) ([]byte, error) {
	if err := v.terms.DenySecret(name); err != nil {
		return nil, err
	}
	if !slices.Contains(v.terms.Capabilities.Secrets, name) {
		return nil, fmt.Errorf("%w: the manifest does not grant the secret %q: add it to capabilities.secrets", service.ErrDenied, name)
	}
	value, err := v.read(name)
	switch {
	case err == nil:
		v.revealed.add(name, value)
		return value, nil
	case errors.Is(err, service.ErrUnavailable):
		return nil, err
	case errors.Is(err, plugins.ErrNoSecret), errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", service.ErrNotFound, err)
	case errors.Is(err, plugins.ErrSecretTooBig):
		return nil, fmt.Errorf("%w: the secret %q: %w", service.ErrTooBig, name, err)
	default:
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
}

// read finds the value.
func (v vault) read(name string) ([]byte, error) {
	if secret, ok := v.terms.Secrets[name]; ok {
		return secret.Read()
	}
	if v.dir == "" {
		return nil, fmt.Errorf("%w: this host has no folder of secrets: give it by --secrets, or name the secret in --grants", plugins.ErrNoSecret)
	}
	root, err := os.OpenRoot(v.dir) // no link leads out of it
	if err != nil {
		return nil, fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(path.Join(v.tenant, name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its other end
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return plugins.ReadSecret(file)
}
