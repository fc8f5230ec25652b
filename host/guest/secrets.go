package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// secrets reads the secrets of one task.
type secrets struct {
	task     *Task
	services *Services
}

// Secret implements service.Secrets. A secret that cannot be read is logged once, until it can be read again.
func (s *secrets) Secret(ctx context.Context, name string) ([]byte, error) {
	t, missing := s.task, &s.services.missing
	value, err := service.Await(ctx, func() ([]byte, error) { // the folder may be on another machine
		if err := t.Permissions.DenySecret(name); err != nil {
			return nil, err
		}
		return ReadSecret(s.services.config.Secrets, t.Tenant, name, t.Permissions.Secrets)
	})
	if errors.Is(err, service.ErrDenied) || ctx.Err() != nil {
		return value, err
	}
	if err == nil {
		missing.Delete(t.Tenant + "/" + name)
	} else if _, known := missing.LoadOrStore(t.Tenant+"/"+name, true); !known {
		t.Host.Warn("a secret cannot be read, tasks that ask for it go without", "secret", name, "error", err)
	}
	return value, err
}

// ReadSecret reads a secret of a tenant. A secret that the host's grants define comes from there, any other from dir,
// the folder of secrets. dir is "" if there is no such folder.
func ReadSecret(dir, tenant, name string, granted map[string]manifest.Secret) ([]byte, error) {
	if secret, ok := granted[name]; ok {
		value, err := secret.Read()
		return value, unreadable(name, err)
	}
	if dir == "" {
		return nil, fmt.Errorf("%w: there is no folder of secrets: give it by --secrets", service.ErrNotFound)
	}
	if strings.ContainsRune(name, '/') { // the name would lead into another folder
		return nil, fmt.Errorf("%w: secret %q: use a name without a slash", service.ErrInvalid, name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer func() { _ = root.Close() }()
	own, err := root.OpenRoot(tenant) // no link leads out of this folder, not even to another tenant
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer func() { _ = own.Close() }()
	file, err := own.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would otherwise wait
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer func() { _ = file.Close() }()
	value, err := manifest.ReadSecret(file)
	return value, unreadable(name, err)
}

// PayloadKeys reads the keys that encrypt a tenant's payloads in Redis, from the secret manifest.PayloadKeysSecret. It
// returns nil if the tenant has no such secret.
func PayloadKeys(dir, tenant string, granted map[string]manifest.Secret) (*seal.Ring, error) {
	name := manifest.PayloadKeysSecret
	if _, ok := granted[name]; !ok && dir == "" {
		return nil, nil
	}
	text, err := ReadSecret(dir, tenant, name, granted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var keys *seal.Ring
	if err == nil {
		keys, err = seal.Parse(string(text))
	}
	if err != nil {
		return nil, fmt.Errorf("the secret %s of tenant %s: %w", name, tenant, err)
	}
	return keys, nil
}

// SecretNames lists the names under which ReadSecret may find a secret of a tenant, sorted.
func SecretNames(dir, tenant string, granted map[string]manifest.Secret) []string {
	names := slices.Collect(maps.Keys(granted))
	if dir != "" {
		files, _ := os.ReadDir(filepath.Join(dir, tenant)) // a tenant may have none
		for _, file := range files {
			names = append(names, file.Name())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unreadable wraps an error of reading a secret in an error of package service; nil stays nil.
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
