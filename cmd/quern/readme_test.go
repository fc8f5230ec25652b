package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
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
	grantTenant(t, admin, queue.DefaultTenant)
	url := "redis://" + queue.DefaultTenant + "-host:PASSWORD@" + server.Addr() + "/0"
	u := newUser(t, url)
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t), "exit": runtimetest.Exit(t)})
	write(t, filepath.Join(plugins, "exit.yaml"), "name: exit\ndead: echo\nmax_running: 2\n")
	host, _ := u.host(plugins)
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
		u.must(enqueue...)
	}
	u.run("enqueue", "exit", "7", "--wait", "--max-attempts", "2", "--backoff-max", "50ms", "--id", "dead")
	u.must("task", "retry", "--queue", "exit")
	u.run("task", "wait", "dead")
	u.must("queue", "purge", "exit", "--all")
	u.run("enqueue", "echo", "--replicas", "1")
	python := queuetest.Python(t, server.URL())
	u.must("node", "reclaim", python.Register("echo"))
	u.must("node", "drain", regexp.MustCompile(`\S+~[0-9a-f]{8}_\d+`).FindString(u.must("node", "ls")))
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
		if entry.Object != "config|get" {
			t.Errorf("Redis denied %s %q to %s", entry.Reason, entry.Object, entry.Username)
		}
	}
}

// The README's two handlers are built by the commands below them, and do what is said of them.
func TestREADMEHandlers(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for file, pattern := range map[string]string{
		"main.go": "(?s)```go\n(package main\n.*?)```\n\n    ([^\n]+)\n",
		"shout.c": "(?s)```c\n(.*?)```\n\n    ([^\n]+)\n",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "")
			listing := regexp.MustCompile(pattern).FindSubmatch(readme)
			if listing == nil {
				t.Fatal("README.md has no such listing with a command below it")
			}
			dir, build := t.TempDir(), string(listing[2])
			write(t, filepath.Join(dir, file), string(listing[1]))
			if file == "main.go" { // of this module, without which it would have to be downloaded
				build = strings.NewReplacer("shout.wasm", filepath.Join(dir, "shout.wasm"), " .", " "+filepath.Join(dir, file)).Replace(build)
				u.shell(".", build)
			} else {
				header, err := filepath.Abs("../../sdk/c")
				if err != nil {
					t.Fatal(err)
				}
				u.shell(dir, strings.Replace(build, "sdk/c", header, 1))
			}
			plugin := filepath.Join(dir, "shout.wasm")
			if view := u.must("plugin", "check", plugin); !regexp.MustCompile(`kind +handler\n`).MatchString(view) {
				t.Errorf("it is no handler:\n%s", view)
			}
			for _, input := range []string{"a quern is a hand mill", ""} {
				if got := u.feed(input, "plugin", "run", plugin); got.status != exitDone || got.stdout != strings.ToUpper(input) {
					t.Errorf("%q: exit %d: %q %s", input, got.status, got.stdout, got.stderr)
				}
			}
		})
	}
}

// grantTenant makes ACL.md's user TENANT-host.
func grantTenant(t *testing.T, admin *redis.Client, tenant string) {
	t.Helper()
	list := queuetest.AccessList(t, "../../sdk/queue/ACL.md", "acme-host")
	for i, word := range list {
		list[i] = strings.ReplaceAll(word.(string), "acme", tenant)
	}
	if err := admin.Do(t.Context(), list...).Err(); err != nil {
		t.Fatalf("ACL SETUSER of a host: %v", err)
	}
}
