package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestKV(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	store := kv.New(server.Client(t), "acme").For([]kv.Grant{{Bucket: "thumbs", Write: true, Quota: 1 << 20}, {Bucket: "seen", Write: true, Quota: 1 << 20}}, nil)
	for _, key := range []string{"a.jpg", "b.jpg", "c.png"} {
		if err := store.Set(t.Context(), "thumbs", key, []byte("bytes of "+key), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Set(t.Context(), "seen", "x", []byte("\x00\xff"), 0); err != nil {
		t.Fatal(err)
	}
	u := newUser(t, "redis://"+server.Addr()+"/0")
	for args, want := range map[string]result{
		"ls":         {exitDone, "TENANT  BUCKET  KEYS  BYTES  QUOTA\nacme    seen    1     3      -\nacme    thumbs  3     57     -\n", ""},
		"ls -o json": {exitDone, `[{"tenant":"acme","bucket":"seen","keys":1,"bytes":3},{"tenant":"acme","bucket":"thumbs","keys":3,"bytes":57}]` + "\n", ""},
		"ls thumbs":  {exitDone, "KEY\na.jpg\nb.jpg\nc.png\n", ""},
		"ls thumbs --after a.jpg --limit 1 -o json": {exitDone, `["b.jpg"]` + "\n", ""},
		"ls thumbs --prefix c":                      {exitDone, "KEY\nc.png\n", ""},
		"ls none -o json":                           {exitDone, "[]\n", "quern: tenant acme has no bucket \"none\": see `quern kv ls --tenant acme`\n"},
		"ls sen -o json":                            {exitDone, "[]\n", "quern: tenant acme has no bucket \"sen\": did you mean seen?\n"},
		"ls seen --prefix y -o json":                {exitDone, "[]\n", ""},
		"get thumbs a.jpg":                          {exitDone, "bytes of a.jpg", ""},
		"get seen x":                                {exitDone, "\x00\xff", ""},
	} {
		r := u.run(append([]string{"kv", "--tenant", "acme"}, strings.Fields(args)...)...)
		if strings.HasSuffix(args, "-o json") {
			r.stdout = strings.NewReplacer(" ", "").Replace(strings.ReplaceAll(r.stdout, "\n ", "")) // however it is indented
		}
		if r != want {
			t.Errorf("%s: %+v, want %+v", args, r, want)
		}
	}
	if r := u.run("kv", "--tenant", "acme", "get", "sen", "x"); r.status != exitRefused || !strings.HasPrefix(r.stderr, "quern: tenant acme has no bucket \"sen\": did you mean seen?\n") {
		t.Errorf("%+v", r)
	}
	if r := newUser(t, "redis://127.0.0.1:1/0").run("kv", "ls"); r.status != exitRefused || r.stdout != "" {
		t.Errorf("without Redis: %+v", r)
	}
	for args, want := range map[string]int{"get thumbs none": exitRefused, "ls thumbs --limit 0": exitUsage, "get thumbs": exitUsage} {
		r := u.run(append([]string{"kv", "--tenant", "acme"}, strings.Fields(args)...)...)
		if r.status != want || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %+v, want exit %d and one line", args, r, want)
		}
	}
}

// What a bucket may hold is what live hosts grant: the largest quota of the plugins that may write.
func TestKVQuota(t *testing.T) { overBoth(t, testKVQuota) }

func testKVQuota(t *testing.T, by over) {
	server := queuetest.Start(t)
	store := kv.New(server.Client(t), queue.DefaultTenant).For([]kv.Grant{{Bucket: "seen", Write: true, Quota: 1 << 20}}, nil)
	if err := store.Set(t.Context(), "seen", "x", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	u := by.user(t, "redis://"+server.Addr()+"/0")
	plugins := folder(t, map[string][]byte{"a": runtimetest.C.Empty(t), "b": runtimetest.C.Empty(t), "c": runtimetest.C.Empty(t)})
	for name, grant := range map[string]string{"a": "access: rw, quota: 1kB", "b": "access: rw, quota: 2kB", "c": "access: r"} {
		write(t, filepath.Join(plugins, name+".yaml"), "capabilities: {kv: [{bucket: seen, "+grant+"}]}\n")
	}
	u.host(plugins)
	if got, want := u.must("kv", "ls"), "TENANT   BUCKET  KEYS  BYTES  QUOTA\nblueque  seen    1     2      2000\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Handlers that wait for their key-value store, on as many connections as it may have, keep no other task from being
// reserved and settled.
func TestSlowKVIsNobodyElsesConcern(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant})
	host := u.with(map[string]string{"QUERN_REDIS_URL": proxy.URL() + "?pool_size=2&read_timeout=1h&pool_timeout=1h"})
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t), "counter": runtimetest.C.BuildHandler(t, `#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	int64_t sum;
	return quern_kv_increment("slow", 4, "n", 1, 1, &sum);
}
`)})
	write(t, filepath.Join(plugins, "counter.yaml"), "capabilities: {kv: [{bucket: slow, access: rw}]}\n")
	host.host(plugins, "--concurrency", "4")
	proxy.HoldReplies(tenant + "_kv_slow")
	for range 2 {
		u.must("enqueue", "counter")
	}
	eventually(t, "two handlers wait for their store", func() bool { return proxy.Held() == 2 })
	for range 10 {
		if r := u.run("enqueue", "echo", "hello", "--wait", "--wait-timeout", "20s"); r.stdout != "hello" {
			t.Fatalf("exit %d, %q: %s", r.status, r.stdout, r.stderr)
		}
	}
	proxy.Pass()
	eventually(t, "they are done", func() bool { return strings.Contains(u.run("kv", "get", "slow", "n").stdout, "2") })
}
