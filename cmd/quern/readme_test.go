package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// The README's list of what the host's Redis user needs is enough for a host, from its start to its
// end, and for clients.
func TestREADMEAccessList(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```redis-acl\n(.*?)\n```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("README.md has no block of redis-acl")
	}
	server := queuetest.Start(t)
	admin := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := admin.Do(ctx, words(string(block[1]))...).Err(); err != nil {
		t.Fatalf("ACL of the README: %v", err)
	}

	url := "redis://quern:PASSWORD@" + server.Addr() + "/0"
	u := newUser(t, url)
	host, _ := u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}))
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
	} {
		u.must(enqueue...)
	}
	host.stop()
	host.wait()
	if denied := regexp.MustCompile(`(?m)^.*NOPERM.*$`).FindString(host.stderr.String()); denied != "" {
		t.Errorf("the host was denied something: %s", denied)
	}
	log, err := admin.ACLLog(ctx, 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range log {
		// What the README names as optional.
		if entry.Object != "config|get" {
			t.Errorf("Redis denied %s %q to %s", entry.Reason, entry.Object, entry.Username)
		}
	}
}

func words(line string) []any {
	var list []any
	for _, word := range strings.Fields(line) {
		list = append(list, word)
	}
	return list
}
