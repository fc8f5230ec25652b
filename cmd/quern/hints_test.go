package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What a message says to type works when it is pasted: with the tenant and the Redis of the command that said so.
func TestHintsCanBePasted(t *testing.T) {
	t.Parallel()
	u, url := newUser(t, ""), queuetest.Start(t).URL()
	u.must("enqueue", "mail", "--id", "a;b", "--tenant", "acme", "--redis", url)
	r := u.run("task", "delete", "a;b", "--tenant", "acme", "--redis", url)
	hinted := regexp.MustCompile("`quern (.+)`").FindStringSubmatch(r.stderr)
	if r.status != exitRefused || hinted == nil {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	if want := "task cancel --redis " + url + " --tenant acme 'a;b'"; hinted[1] != want {
		t.Errorf("hint %q, expected %q", hinted[1], want)
	}
	u.must(strings.Fields(strings.ReplaceAll(hinted[1], "'", ""))...)

	// A password is never repeated, and commands without a tenant stay as they are.
	r = u.run("task", "show", "none", "--redis", strings.Replace(url, "redis://", "redis://:s3cret@", 1))
	if strings.Contains(r.stderr, "s3cret") {
		t.Errorf("a password is shown: %s", r.stderr)
	}
	r = u.run("task", "show", "none", "--tenant", "acme", "--redis", "redis://127.0.0.1:1/0")
	if !strings.Contains(r.stderr, "run `quern dev`") {
		t.Error(r.stderr)
	}
}

// Who lists without naming a tenant learns of the others; an empty list tells where it looked.
func TestListsNameOtherTenants(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	u.must("enqueue", "mail", "--tenant", "acme")
	u.must("enqueue", "mail", "--tenant", "globex")
	for _, command := range [][]string{{"queue", "ls"}, {"task", "ls", "mail", "--status", "failed"}, {"node", "ls"}, {"plugin", "ls"}, {"kv", "ls"}} {
		r := u.run(command...)
		where := "nothing found in tenant blueque at 127.0.0.1:"
		others := "this is tenant blueque; there are also acme, globex: name one with --tenant"
		if r.status != exitDone || !strings.Contains(r.stderr, where) || !strings.Contains(r.stderr, others) ||
			!strings.Contains(r.stderr, "by `quern "+strings.Join(command, " ")+"`") {
			t.Errorf("%s: exit %d: %s", command, r.status, r.stderr)
		}
		if r := u.run(append(command, "--tenant", "acme")...); strings.Contains(r.stderr, "there are also") {
			t.Errorf("%s --tenant acme: %s", command, r.stderr)
		}
		if r := u.run(append(command, "-o", "json")...); r.stderr != "" {
			t.Errorf("%s -o json: %s", command, r.stderr)
		}
	}
}

// A misspelled queue is told when a task gets lost in it, and not when it has, or had, somebody who serves it.
func TestEnqueueWarnsOfUnservedQueue(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	warns := func(queue, text string) {
		t.Helper()
		r := u.run("enqueue", queue)
		if r.status != exitDone || !strings.Contains(r.stderr, text) || text == "" && r.stderr != "" {
			t.Errorf("enqueue %s: exit %d: %q, expected %q", queue, r.status, r.stderr, text)
		}
	}
	warns("mail", `no host serves the queue "mail" of tenant blueque, and none is known to have done so: put mail.wasm into a host's plugin directory`)
	host, _ := u.host(folder(t, map[string][]byte{"mail": runtimetest.Echo(t)}))
	warns("mail", "")
	warns("mial", "did you mean mail?")
	u.must("enqueue", "mail", "--wait")
	host.stop()
	host.wait()
	warns("mail", "")
}
