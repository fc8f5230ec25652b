package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/listen"
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

	// Commands without a tenant stay as they are.
	r = u.run("task", "show", "none", "--tenant", "acme", "--redis", "redis://127.0.0.1:1/0")
	if !strings.Contains(r.stderr, "run `quern dev`") {
		t.Error(r.stderr)
	}
}

// A hint never repeats a password; pasted, it takes the URL from the shell, or tells that it is missing.
func TestHintsHidePasswords(t *testing.T) {
	t.Parallel()
	u, url := newUser(t, ""), strings.Replace(queuetest.Start(t, "--requirepass", "s3cret").URL(), "redis://", "redis://:s3cret@", 1)
	u.must("enqueue", "mail", "--id", "one", "--redis", url)
	r := u.run("task", "delete", "one", "--redis", url)
	hinted := regexp.MustCompile("`(quern .+)`").FindStringSubmatch(r.stderr)
	if hinted == nil || strings.Contains(r.stderr, "s3cret") {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	quern, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"": "QUERN_REDIS_URL: set it to the URL of Redis with its password", url: ""} {
		shell := exec.CommandContext(t.Context(), "bash", "-c", hinted[1])
		shell.Env = append(os.Environ(), "PATH="+filepath.Dir(quern)+string(os.PathListSeparator)+os.Getenv("PATH"), "QUERN_REDIS_URL="+given)
		if said, err := shell.CombinedOutput(); (err == nil) != (want == "") || !strings.Contains(string(said), want) {
			t.Errorf("%s: %v: %s", hinted[1], err, said)
		}
	}
}

// Who lists without naming a tenant learns of the others; an empty list tells where it looked.
func TestListsNameOtherTenants(t *testing.T) { overBoth(t, testListsNameOtherTenants) }

func testListsNameOtherTenants(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL(), "acme", "globex")
	u.must("enqueue", "mail", "--tenant", "acme")
	u.must("enqueue", "mail", "--tenant", "globex")
	for _, command := range [][]string{{"queue", "ls"}, {"task", "ls", "mail", "--status", "failed"}, {"node", "ls"}, {"plugin", "ls"}, {"kv", "ls"}} {
		r := u.run(command...)
		r.stderr = strings.ReplaceAll(r.stderr, "at http://", "at ")
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

// Where there are many tenants, the note names some and counts the others.
func TestListsNameSomeOfManyTenants(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	u, rdb := newUser(t, server.URL()), server.Client(t)
	for i := range 25 {
		if err := rdb.ZAdd(t.Context(), fmt.Sprintf("t%02d_queues", i), redis.Z{Member: "mail"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if r := u.run("queue", "ls"); !strings.Contains(r.stderr, "there are also t00, t01, ") || !strings.Contains(r.stderr, "t19 and 5 more: name one") {
		t.Errorf("%+v", r)
	}
}

// A misspelled queue is told when a task gets lost in it, and not when it has, or had, somebody who serves it.
// Parameters that are the path of a file are enqueued as they are, and the remark says how the file's content would be.
func TestEnqueueOfAPath(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	file := write(t, filepath.Join(t.TempDir(), "order.json"), "{}")
	for parameters, noted := range map[string]bool{"@" + file: true, file: true, file + ".old": false, "order": false} {
		r := u.run("enqueue", "mail", parameters)
		want := "quern: the parameters are the text \"" + parameters + "\", not what the file has: for that write - < " + file + "\n"
		if r.status != exitDone || strings.Contains(r.stderr, want) != noted {
			t.Errorf("%s: %+v", parameters, r)
		}
	}
}

func TestEnqueueWarnsOfUnservedQueue(t *testing.T) { overBoth(t, testEnqueueWarnsOfUnservedQueue) }

func testEnqueueWarnsOfUnservedQueue(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	warns := func(queue, text string) {
		t.Helper()
		r := u.run("enqueue", queue)
		if r.status != exitDone || !strings.Contains(r.stderr, text) || text == "" && r.stderr != "" {
			t.Errorf("enqueue %s: exit %d: %q, expected %q", queue, r.status, r.stderr, text)
		}
	}
	warns("mail", `enqueued, but no host serves the queue "mail", nor is one known to have served it: put a plugin that serves it, such as mail.wasm, into a host's plugin directory`)
	host, _ := u.host(folder(t, map[string][]byte{"mail": runtimetest.Echo(t)}))
	warns("mail", "")
	warns("mial", "did you mean mail?")
	u.must("enqueue", "mail", "--wait")
	if r := u.run("enqueue", "mial", "--wait"); r.status != exitRefused || !strings.Contains(r.stderr, "nothing was enqueued: did you mean mail? Or leave --wait out\n") {
		t.Errorf("%+v", r)
	}
	host.stop()
	host.wait()
	warns("mail", "")
}

// A queue with a misspelled name leads to the one that was meant.
func TestMisspelledQueue(t *testing.T) { overBoth(t, testMisspelledQueue) }

func testMisspelledQueue(t *testing.T, by over) {
	u := by.tenant(t)
	u.must("enqueue", "orders")
	for _, args := range [][]string{{"task", "ls", "ordrs"}, {"queue", "show", "ordrs"}, {"queue", "pause", "ordrs"}} {
		if r := u.run(args...); !strings.Contains(r.stderr, `has no queue "ordrs"`) || !strings.HasSuffix(r.stderr, "did you mean orders?\n") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := u.run("queue", "pause", "ordrs"); !strings.HasPrefix(r.stderr, "quern: paused, but tenant ") {
		t.Errorf("pause: %+v", r)
	}
	u.must("queue", "pause", "orrs") // an empty one is no suggestion, even if its name is nearer
	if r := u.run("queue", "pause", "orr"); strings.Contains(r.stderr, "orrs") {
		t.Errorf("a suggestion without tasks and hosts: %+v", r)
	}
	if r := u.run("task", "ls", "orders", "--status", "failed"); strings.Contains(r.stderr, "did you mean") {
		t.Errorf("a queue without failed tasks: %+v", r)
	}
}

// TestCancelQueue: the tasks that wait in a misspelled queue go by one command.
func TestCancelQueue(t *testing.T) { overBoth(t, testCancelQueue) }

func testCancelQueue(t *testing.T, by over) {
	u := by.tenant(t)
	u.must("enqueue", "invoic", "--id", "one")
	u.must("enqueue", "invoic", "--id", "two", "--delay", "1h")
	u.must("enqueue", "invoice", "--id", "other")
	r := u.run("task", "cancel", "--queue", "invoic")
	if r.status != exitDone || !strings.Contains(r.stderr, "cancelled one\n") || !strings.Contains(r.stderr, "cancelled two\n") || strings.Contains(r.stderr, "other") {
		t.Errorf("%+v", r)
	}
	if r := u.run("task", "cancel", "--queue", "invoic"); r.status != exitDone || !strings.Contains(r.stderr, "no task waits in the queue \"invoic\"") {
		t.Errorf("%+v", r)
	}
	if out := u.must("queue", "purge", "invoic", "--all"); out != "2\n" {
		t.Errorf("purged %s", out)
	}
	for _, args := range [][]string{{"task", "cancel"}, {"task", "cancel", "other", "--queue", "invoice"}} {
		if r := u.run(args...); r.status != exitUsage || !strings.Contains(r.stderr, "cancel needs tasks or a queue") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if out := u.must("task", "show", "other", "-o", "json"); !strings.Contains(out, `"status":"pending"`) {
		t.Errorf("%s", out)
	}
}

// TestCancelManyOfAQueue: all tasks that wait are cancelled, each once, also if they are more than a page of a list.
func TestCancelManyOfAQueue(t *testing.T) { overBoth(t, testCancelManyOfAQueue) }

func testCancelManyOfAQueue(t *testing.T, by over) {
	u := by.tenant(t)
	lines := ""
	for i := range 250 {
		lines += fmt.Sprintf("{\"id\":\"t%d\",\"delay_seconds\":%d}\n", i, i%2*3600)
	}
	path := filepath.Join(t.TempDir(), "tasks")
	write(t, path, lines)
	u.must("enqueue", "many", "--file", path)
	r := u.run("task", "cancel", "--queue", "many")
	if r.status != exitDone || strings.Count(r.stderr, "cancelled t") != 250 || strings.Count(r.stderr, "\n") != 250 {
		t.Errorf("%d, %s", r.status, r.stderr)
	}
}

// TestWordsOfOtherSystems: commands and flags of other systems lead to those here.
func TestWordsOfOtherSystems(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	for line, want := range map[string]string{
		"worker": "use `quern serve`", "new mail": "use `quern plugin new mail`", "task requeue x": "use `quern task retry ID`",
		"logs x": "use `quern task logs x`", "wrker": "use one of ", "enqueue mail --retries 3": "use --max-attempts",
		"enqueue mail --countdown 3": "use --delay", "enqueue mail --args x": "write the parameters behind the queue", "queue ls --retries 3": "unknown flag --retries of quern queue ls: use one of", "schedule new x": "use one of ", "plugin init": "use `quern plugin new NAME`",
	} {
		if r := u.run(strings.Fields(line)...); r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// A source of a database that is gone is forgotten by one command, but not while a relay leads it.
func TestDatabaseForget(t *testing.T) { overBoth(t, testDatabaseForget) }

func testDatabaseForget(t *testing.T, by over) {
	u, client := by.producer(t, queuetest.Shared(t).URL())
	rdb := queuetest.Shared(t).Client(t)
	const gone = "127.0.0.1:5432/shop/jobs"
	if err := rdb.HSet(t.Context(), client.Tenant()+"_relays", gone, `{"name":"`+gone+`","table":"raquel:jobs","told":`+fmt.Sprint(time.Now().Unix()-3600)+`}`).Err(); err != nil {
		t.Fatal(err)
	}
	if err := listen.NewRelayClient(client).Publish(t.Context(), listen.RelayState{Name: "shop", Table: "outbox"}); err != nil {
		t.Fatal(err)
	}
	if out := u.must("database", "ls"); !strings.Contains(out, gone) {
		t.Error(out)
	}
	u.must("database", "forget", gone)
	if out := u.must("database", "ls"); strings.Contains(out, gone) || !strings.Contains(out, "shop") {
		t.Error(out)
	}
	for name, want := range map[string]string{gone: "list them with `quern database ls`", "shop": "s ago: end it, and wait half a minute; `quern database ls` names it"} {
		if r := u.run("database", "forget", name); r.status != exitRefused || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
