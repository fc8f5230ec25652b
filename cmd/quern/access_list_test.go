package main

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// ACL.md's list of what a host's Redis user needs is enough for a host, from its start to its
// end, and for clients.
func TestHostsAccessList(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	admin := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for _, role := range []string{"host", "producer", "operator"} {
		grantRole(t, admin, queue.DefaultTenant, role)
	}
	url := "redis://" + queue.DefaultTenant + "-host:PASSWORD@" + server.Addr() + "/0"
	u := newUser(t, url)
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t), "exit": runtimetest.Exit(t)})
	write(t, filepath.Join(plugins, "exit.yaml"), "name: exit\ndead: echo\nmax_running: 2\n")
	host, _ := u.host(plugins)
	operator := u.with(map[string]string{"QUERN_REDIS_URL": strings.Replace(url, "-host:", "-operator:", 1)})
	for _, enqueue := range [][]string{
		{"enqueue", "echo", "hello", "--wait"},
		{"enqueue", "echo", "\xff", "--wait"},
		{"enqueue", "echo", strings.Repeat("x", 100_000), "--wait"},
		{"enqueue", "echo", "hello", "--delay", "100ms", "--id", "later"},
		{"task", "wait", "later"},
		{"task", "show", "later"},
		{"task", "logs", "later"},
		{"task", "ls", "echo"},
		{"task", "ls", "echo", "--status", "complete"},
		{"task", "ls", "echo", "--status", "scheduled"},
		{"task", "ls", "echo", "--status", "reserved"},
		{"queue", "ls"},
		{"plugin", "ls"},
		{"task", "delete", "later"},
		{"enqueue", "echo", "--unique", "--unique-for", "1h", "--wait"},
		{"enqueue", "echo", "--priority", "70", "--key", "k", "--max-age", "1h", "--max-attempts", "3", "--wait"},
		{"task", "ls", "echo", "--key", "k", "--label", "a=b"},
		{"enqueue", "echo", "--delay", "1h", "--id", "cancelled", "--deadline", "4102444800"},
		{"task", "cancel", "cancelled"},
		{"task", "retry", "cancelled"},
		{"task", "wait", "cancelled"},
		{"queue", "limit", "echo", "100"},
		{"enqueue", "echo", "--wait"},
		{"queue", "limit", "echo", "none"},
		{"queue", "pause", "echo"},
		{"queue", "resume", "echo"},
		{"queue", "show", "echo"},
		{"queue", "purge", "echo", "--keep", "2", "--foreign"},
		{"queue", "purge", "echo", "--older-than", "7d"},
		{"node", "ls"},
		{"kv", "ls"},
		{"audit"},
	} {
		operator.must(enqueue...)
	}
	u.with(map[string]string{"QUERN_REDIS_URL": "redis://" + queue.DefaultTenant + "-producer:PASSWORD@" + server.Addr() + "/0"}).must("enqueue", "echo", "hello", "--wait")
	operator.run("enqueue", "exit", "7", "--wait", "--max-attempts", "2", "--backoff-max", "50ms", "--id", "dead")
	operator.must("task", "retry", "--queue", "exit")
	operator.run("task", "wait", "dead")
	operator.must("queue", "purge", "exit", "--all")
	operator.run("enqueue", "echo", "--replicas", "1")
	python := queuetest.Python(t, server.URL())
	operator.must("node", "reclaim", python.Register("echo"))
	operator.must("node", "drain", regexp.MustCompile(`\S+~[0-9a-f]{8}_\d+`).FindString(operator.must("node", "ls")))
	host.wait()
	if denied := regexp.MustCompile(`(?m)^.*NOPERM.*$`).FindString(host.stderr.String()); denied != "" {
		t.Errorf("the host was denied something: %s", denied)
	}
	log, err := admin.ACLLog(ctx, 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range log {
		// What ACL.md names as optional.
		if !slices.Contains([]string{"config|get", "info", "scan", "zscan"}, entry.Object) {
			t.Errorf("Redis denied %s %q to %s", entry.Reason, entry.Object, entry.Username)
		}
	}
}

// grantTenant makes the Redis user of a host in the tenant.
func grantTenant(t *testing.T, admin *redis.Client, tenant string) {
	t.Helper()
	grantRole(t, admin, tenant, "host")
}

// grantRole makes the Redis user that `quern tenant acl TENANT --for ROLE` prints.
func grantRole(t *testing.T, admin *redis.Client, tenant, role string) {
	t.Helper()
	var words []any
	for word := range strings.FieldsSeq(newUser(t, "").must("tenant", "acl", tenant, "--for", role)) {
		words = append(words, word)
	}
	if err := admin.Do(t.Context(), words...).Err(); err != nil {
		t.Fatalf("ACL SETUSER of %s: %v", role, err)
	}
}
