package guest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"acme/key": "value", "acme/lines": "one\ntwo\n\n", "acme/empty": "", "zebra/key": "other", "acme/big": strings.Repeat("x", manifest.MaxSecret+1),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("not for guests"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "acme", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../zebra/key", filepath.Join(dir, "acme", "neighbour")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "acme", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := secretsOf(dir, granting("key", "lines", "empty", "big", "link", "neighbour", "pipe", "none"))
	for name, want := range map[string]any{
		"key": "value", "lines": "one\ntwo\n", "empty": "", "big": service.ErrTooBig, "none": service.ErrNotFound,
		"link": service.ErrUnavailable, "neighbour": service.ErrUnavailable, "pipe": service.ErrUnavailable, "other": service.ErrDenied, "../zebra/key": service.ErrDenied,
	} {
		value, err := v.Secret(t.Context(), name)
		if err, ok := want.(error); ok {
			if _, got := v.Secret(t.Context(), name); !errors.Is(got, err) {
				t.Errorf("%s: %v, want %v", name, got, err)
			}
			continue
		}
		if err != nil || string(value) != want {
			t.Errorf("%s: %q, %v, want %q", name, value, err, want)
		}
	}
	for _, name := range []string{"webhook.x/../key", "../zebra/key", "webhook.x/../../zebra/key", "/key"} { // of a webhook, which no manifest checks
		if value, err := ReadSecret(dir, "acme", name, nil); err == nil {
			t.Errorf("%s: %q", name, value)
		}
	}
	if _, err := secretsOf("", granting("key")).Secret(t.Context(), "key"); !errors.Is(err, service.ErrNotFound) {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := secretsOf(filepath.Join(dir, "gone"), granting("key")).Secret(t.Context(), "key"); !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("without the folder: %v", err)
	}
}

// granting are permissions that grant secrets.
func granting(secrets ...string) *manifest.Permissions {
	return &manifest.Permissions{Capabilities: manifest.Capabilities{Secrets: secrets}}
}

// What a host's grants say of a secret goes before the folder of secrets, and is read anew each time.
func TestSecretsOfTheGrants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, value string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("acme/key", "of the folder")
	write("acme/other", "of the folder")
	write("rotated", "first\n")
	permissions := granting("key", "other", "lost")
	permissions.Secrets = map[string]manifest.Secret{
		"key": {File: filepath.Join(dir, "rotated")}, "lost": {Env: "QUERN_TEST_NOWHERE"},
	}
	v := secretsOf(dir, permissions)
	for _, want := range []string{"first", "second"} {
		write("rotated", want+"\n")
		if value, err := v.Secret(t.Context(), "key"); string(value) != want || err != nil {
			t.Errorf("key: %q, %v, want %s", value, err, want)
		}
	}
	if value, err := v.Secret(t.Context(), "other"); string(value) != "of the folder" || err != nil {
		t.Errorf("other: %q, %v", value, err)
	}
	if _, err := v.Secret(t.Context(), "lost"); !errors.Is(err, service.ErrNotFound) {
		t.Errorf("lost: %v", err)
	}
	write("rotated", strings.Repeat("x", manifest.MaxSecret+1))
	if _, err := v.Secret(t.Context(), "key"); !errors.Is(err, service.ErrTooBig) {
		t.Errorf("a large one: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "rotated")); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Secret(t.Context(), "key"); !errors.Is(err, service.ErrNotFound) {
		t.Errorf("a file that is gone: %v", err)
	}
}

// secretsOf are those of a task of acme, with a folder of secrets.
func secretsOf(dir string, permissions *manifest.Permissions) service.Secrets {
	services, _, _ := New(Config{Secrets: dir}).For(Task{Tenant: "acme", Asked: &permissions.Capabilities, Permissions: permissions, Host: accepting{}})
	return services.Secrets
}
