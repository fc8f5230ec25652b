package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Each tenant is served with its own Redis user, and by no other connection; what happens to one user stops that tenant alone,
// until it may connect again.
func TestTenantRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	admin := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	url := func(tenant string) string { return "redis://" + tenant + "-host:PASSWORD@" + server.Addr() + "/0" }
	for _, tenant := range []string{"acme", "beta"} {
		grantTenant(t, admin, tenant)
	}
	file := write(t, filepath.Join(t.TempDir(), "url"), url("beta")+"\n")
	nowhere := newUser(t, "redis://127.0.0.1:1/0")
	c, address := nowhere.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), "--lease", "1s", "--tenants", "acme,beta",
		"--tenant-redis", "acme="+url("acme"), "--tenant-redis-file", "beta="+file)
	runs := func(tenant string) {
		t.Helper()
		newUser(t, url(tenant)).must("enqueue", "echo", "hello", "--wait", "--tenant", tenant)
	}
	ready := func() string {
		t.Helper()
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.Status + ": " + string(text)
	}
	eventually(t, "both are served", func() bool { return ready() == "200 OK: ok\n" })
	for _, tenant := range []string{"acme", "beta"} {
		c.stderr.await(t, regexp.MustCompile("serving queue: tenant="+tenant))
		runs(tenant)
	}
	for _, tenant := range []string{"acme", "beta"} {
		if n := strings.Count(admin.ClientList(ctx).Val(), "user="+tenant+"-host"); n == 0 {
			t.Errorf("no connection is that of %s's user", tenant)
		}
	}
	for _, command := range []string{"ACL SETUSER beta-host off", "CLIENT KILL USER beta-host"} {
		if err := admin.Do(ctx, words(command)...).Err(); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	eventually(t, "one is not served", func() bool { return ready() == "200 OK: ok, but redis does not serve tenant beta\n" })
	runs("acme")
	if err := admin.Do(ctx, words("ACL SETUSER beta-host on")...).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are served again", func() bool { return ready() == "200 OK: ok\n" })
	runs("beta")
	if text := c.stderr.String(); strings.Contains(text, "-host:PASSWORD") {
		t.Errorf("the log tells a password:\n%s", text)
	}
}

func words(line string) (list []any) {
	for word := range strings.FieldsSeq(line) {
		list = append(list, word)
	}
	return list
}

// Who gives an empty URL, as a script does whose variable is not set, means another Redis than that on this machine.
func TestEmptyRedis(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"queue", "ls"}, {"serve", "--check"}, {"bench"}} {
		if r := newUser(t, queuetest.Shared(t).URL()).run(append(args, "--redis", "")...); r.status != exitUsage || !strings.Contains(r.stderr, "--redis is empty") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
