package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestVault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"acme/key": "value", "acme/lines": "one\ntwo\n\n", "acme/empty": "", "zebra/key": "other", "acme/big": strings.Repeat("x", plugins.MaxSecret+1),
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
	if err := syscall.Mkfifo(filepath.Join(dir, "acme", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := vault{dir, "acme", granting("key", "lines", "empty", "big", "link", "pipe", "none")}
	for name, want := range map[string]any{
		"key": "value", "lines": "one\ntwo\n", "empty": "", "big": service.ErrTooBig, "none": service.ErrNotFound,
		"link": service.ErrUnavailable, "pipe": service.ErrUnavailable, "other": service.ErrDenied, "../zebra/key": service.ErrDenied,
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
	if _, err := (vault{"", "acme", granting("key")}).Secret(t.Context(), "key"); !errors.Is(err, service.ErrNotFound) {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := (vault{filepath.Join(dir, "gone"), "acme", granting("key")}).Secret(t.Context(), "key"); !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("without the folder: %v", err)
	}
}

// granting are terms that grant secrets.
func granting(secrets ...string) *plugins.Terms {
	return &plugins.Terms{Capabilities: plugins.Capabilities{Secrets: secrets}}
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
	terms := granting("key", "other", "lost")
	terms.Secrets = map[string]plugins.Secret{
		"key": {File: filepath.Join(dir, "rotated")}, "lost": {Env: "QUERN_TEST_NOWHERE"},
	}
	v := vault{dir, "acme", terms}
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
	write("rotated", strings.Repeat("x", plugins.MaxSecret+1))
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

// A secret that a task has in its memory is nowhere else, however the task ends: not in Redis, not in the host's log, not
// in what it counts.
func TestASecretStaysInItsTask(t *testing.T) {
	t.Parallel()
	const value = "hunter2-and-more"
	secrets := t.TempDir()
	tenant := queuetest.Tenant()
	if err := os.Mkdir(filepath.Join(secrets, tenant), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, tenant, "api_key"), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	// It reads the secret into its memory and onto its stack, and ends as its input says.
	guest := runtimetest.BuildCHandler(t, `
#include "quern.h"
#include <stdlib.h>
static char kept[100];
static int32_t deep(int32_t n, volatile const char *copy) {
	volatile char own[100];
	for (int i = 0; i < 100; i++) own[i] = copy[i];
	return n == 0 ? 0 : own[0] + deep(n + 1, own);
}
QUERN_HANDLER int32_t handle(void) {
	char how;
	quern_input_read(0, &how, 1);
	if (quern_secret_get("api_key", 7) != sizeof "`+value+`" - 1) return 3;
	quern_result_read(0, kept, sizeof kept);
	switch (how) {
	case 'c': return 0;
	case 'f': return 65;
	case 'l': return 75;
	case 't': __builtin_trap();
	case 'a': abort();
	case 's': return deep(1, kept);
	case 'w': for (;;) quern_sleep(1000);
	case 'd': quern_kv_get("others", 6, kept, sizeof "`+value+`" - 1);
	}
	return 1;
}`)
	n := start(t, settings{
		tenants: []string{tenant}, hclog: hclog.Trace,
		Config: Config{Services: Services{Secrets: secrets}},
		guests: map[string][]byte{"keeping": guest},
		yaml: map[string]string{"keeping": `limits: {timeout: 3s}
retry: {max_attempts: 2, base: 10ms, min: 10ms, max_reschedules: 1}
capabilities: {secrets: [api_key], kv: [{bucket: a}]}
`},
	})
	for how, want := range map[string]queue.Status{
		"c": queue.Complete, "f": queue.Failed, "l": queue.Failed, "t": queue.Failed, "a": queue.Failed, "s": queue.Failed, "w": queue.Failed,
		"d": queue.Failed, "other": queue.Failed,
	} {
		task := n.wait(n.enqueue("keeping", how))
		if code := task.Failure().ExitCode; task.Status != want || code != nil && *code == 3 {
			t.Errorf("%s: %s, %+v", how, task.Status, task.Failure())
		}
	}
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"the log": n.log.String(), "the metrics": fmt.Sprint(families), "what the host says of itself": fmt.Sprint(n.about(n.tenants[tenant]))}
	keys, err := n.rdb.Keys(n.ctx, tenant+"*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, key := range keys {
		places[key] = content(t, n, key)
	}
	for place, text := range places {
		if text == "" {
			t.Errorf("%s is empty", place)
		}
		if strings.Contains(text, value) || strings.Contains(text, value[:8]) || strings.Contains(text, value[8:]) {
			t.Errorf("%s has the secret: %s", place, text)
		}
	}
}

// content is all that a key of Redis holds.
func content(t *testing.T, n *node, key string) string {
	t.Helper()
	kind, err := n.rdb.Type(n.ctx, key).Result()
	var value any
	if err == nil {
		switch kind {
		case "string":
			value, err = n.rdb.Get(n.ctx, key).Result()
		case "hash":
			value, err = n.rdb.HGetAll(n.ctx, key).Result()
		case "list":
			value, err = n.rdb.LRange(n.ctx, key, 0, -1).Result()
		case "set":
			value, err = n.rdb.SMembers(n.ctx, key).Result()
		case "zset":
			value, err = n.rdb.ZRange(n.ctx, key, 0, -1).Result()
		case "stream":
			value, err = n.rdb.XRange(n.ctx, key, "-", "+").Result()
		case "none": // it has expired
			value = kind
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	if errors.Is(err, redis.Nil) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(value)
}
