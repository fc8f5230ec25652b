package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// A host without a task's key gives the task back, and a host that has it runs it. Whoever has no key is told so.
func TestPayloadKeys(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	u := over("redis").tenant(t)
	tenant := u.env["QUERN_TENANT"]
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	blind, _ := u.host(plugins)
	secrets := t.TempDir()
	keys := filepath.Join(secrets, tenant, "payload.keys")
	write(t, keys, seal.NewKey()+"\n")

	u.must("enqueue", "echo", "4111", "--id", "one", "--payload-keys", keys)
	blind.stderr.await(t, regexp.MustCompile(`task met an internal error: .*it is encrypted with a key that is missing here`))
	u.host(plugins, "--secrets", secrets)
	if got := u.must("task", "wait", "one", "--payload-keys", keys); !strings.HasPrefix(got, "4111") {
		t.Errorf("result %q", got)
	}
	if shown := u.must("task", "show", "one"); !regexp.MustCompile(`(?m)^encrypted by key +[0-9a-f]{16}$`).MatchString(shown) || strings.Contains(shown, "4111") {
		t.Errorf("shown without keys:\n%s", shown)
	}
	if r := u.run("task", "wait", "one"); r.status == exitDone || !strings.Contains(r.stderr, "give the key with --payload-keys FILE") {
		t.Errorf("waited without keys: %+v", r)
	}
	server := u.start("admin", "--admin", "127.0.0.1:0", "--tenants", tenant, "--secrets", secrets)
	client := u.with(nil)
	client.server = "http://" + server.stderr.await(t, adminListening)
	if got := client.must("enqueue", "echo", "by the API", "--wait"); !strings.HasPrefix(got, "by the API") {
		t.Errorf("result over the API %q", got)
	}
	rdb := queuetest.Shared(t).Client(t)
	for _, key := range rdb.Keys(t.Context(), tenant+"_task_*").Val() {
		if text := rdb.HGet(t.Context(), key, "parameters").Val(); !strings.HasPrefix(text, "quern:bytes:") {
			t.Errorf("%s in plain: %s", key, text)
		}
	}

	write(t, keys, "short\n")
	for _, args := range [][]string{
		{"enqueue", "echo", "x", "--payload-keys", keys},
		{"serve", "--plugins", plugins, "--secrets", secrets},
		{"admin", "--admin", "127.0.0.1:0", "--tenants", tenant, "--secrets", secrets},
	} {
		if r := u.run(args...); r.status != exitUsage || !strings.Contains(r.stderr, "line 1 is no key: write 32 bytes in base64, as `openssl rand -base64 32` prints them") {
			t.Errorf("%s with a bad key: %+v", args[0], r)
		}
	}
	if r := client.run("enqueue", "echo", "x", "--payload-keys", keys); r.status != exitUsage || !strings.Contains(r.stderr, "leave one of them out") {
		t.Errorf("keys for a server: %+v", r)
	}
}
