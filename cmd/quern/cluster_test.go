package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A host serves two tenants of a Redis Cluster, which people see and change over Redis and over the API.
func TestServeOnACluster(t *testing.T) {
	t.Parallel()
	c := queuetest.StartCluster(t)
	var tenants []string // on different shards
	for home := (*queuetest.Server)(nil); len(tenants) < 2; {
		tenant := "{" + queuetest.Tenant() + "}"
		if owner := c.Owner(t, tenant); owner != home {
			tenants, home = append(tenants, tenant), owner
		}
	}
	u := newUser(t, c.URL()).with(map[string]string{"QUERN_TENANTS": strings.Join(tenants, ",")})
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t), tenants[1] + "/echo": runtimetest.Version(t, "its own")})
	_, address := u.host(plugins)
	admin := u.start("admin", "--admin", "127.0.0.1:0")
	server := "http://" + admin.stderr.await(t, adminListening)
	for i, tenant := range tenants {
		want := []string{"hello", "its own"}[i]
		own := u.with(map[string]string{"QUERN_TENANT": tenant})
		overAPI := own.with(map[string]string{"QUERN_SERVER": server})
		delete(overAPI.env, "QUERN_REDIS_URL")
		for _, by := range []*user{own, overAPI} {
			if got := by.must("enqueue", "echo", "hello", "--wait"); got != want {
				t.Errorf("result %q, want %q", got, want)
			}
			if got := by.must("queue", "ls", "-o", "json"); !strings.Contains(got, `"complete":`) || !strings.Contains(got, tenant) {
				t.Errorf("queues: %s", got)
			}
			by.must("schedule", "create", "daily", "--queue", "echo", "--cron", "0 0 * * *")
			by.must("tenant", "set", "--tasks-waiting", "100")
			if got := by.must("tenant", "show", "-o", "json"); !strings.Contains(got, "tasks_waiting") {
				t.Errorf("the tenant: %s", got)
			}
		}
		if got := own.must("enqueue", "echo", "again", "--wait", "--replicas", "1"); got != strings.ReplaceAll(want, "hello", "again") {
			t.Errorf("result %q with replicas", got)
		}
		if r := own.run("doctor"); strings.Contains(r.stdout+r.stderr, "MOVED") {
			t.Errorf("doctor: %+v", r)
		}
		file := filepath.Join(t.TempDir(), "export") // between a Cluster and a single Redis, both ways
		exported := own.must("tenant", "export", tenant, file)
		single, back := own.with(map[string]string{"QUERN_REDIS_URL": queuetest.Shared(t).URL()}), "{"+queuetest.Tenant()+"}"
		for _, to := range []*user{single, own} {
			if got := to.must("tenant", "import", back, file); got != exported {
				t.Errorf("exported %s keys, imported %s", exported, got)
			}
		}
		own.must("tenant", "delete", back, "--confirm", back)
		if _, body := get(t, "http://"+address+"/metrics"); !strings.Contains(body, `quern_tasks_total{outcome="complete",plugin="echo",queue="echo",reason="",tenant="`+tenant+`"} 3`) {
			t.Errorf("metrics lack the tasks of %s", tenant)
		}
	}
	u.must("bench", "--tasks", "200")
	if r := u.run("queue", "ls"); r.status != exitUsage || !strings.Contains(r.stderr, "name the tenant {blueque}") {
		t.Errorf("without a tenant: %+v", r)
	}
	plain := u.with(map[string]string{"QUERN_REDIS_URL": "redis://" + c.Servers[0].Addr(), "QUERN_TENANT": tenants[0], "QUERN_TENANTS": tenants[0]})
	if r := plain.run("queue", "ls"); r.status != exitUsage || !strings.Contains(r.stderr, "write redis://HOST:PORT?cluster=true") {
		t.Errorf("with a plain URL: %+v", r)
	}
	if r := plain.run("serve", "--plugins", plugins); r.status != exitUsage || !strings.Contains(r.stderr, "write redis://HOST:PORT?cluster=true") {
		t.Errorf("a host with a plain URL: %+v", r)
	}
}
