package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestGoldenEnqueueOptions(t *testing.T) { overBoth(t, testGoldenEnqueueOptions) }

func testGoldenEnqueueOptions(t *testing.T, by over) {
	s := &transcript{user: by.user(t, queuetest.Start(t).URL())}
	s.run("enqueue", "mail", "hello", "--id", "all", "--max-attempts", "5", "--backoff", "linear", "--backoff-base", "2s",
		"--backoff-min", "500ms", "--backoff-max", "1h30m", "--no-jitter", "--max-age", "7d", "--max-reschedules", "20",
		"--timeout", "1m", "--deadline", "4102444800", "--priority", "70", "--key", "order-7", "--label", "a=b", "--label", "c=d", "--header", "x-request-id=7",
		"--parent", "order", "--traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "--delay", "1d")
	s.run("task", "show", "all")
	s.run("task", "show", "all", "-o", "json")
	s.run("enqueue", "mail", "--id", "patient", "--max-attempts", "unlimited")
	s.run("task", "show", "patient")
	s.run("task", "show", "patient", "-o", "json")
	s.run("enqueue", "mail", "--id", "aging", "--max-age", "1h")
	s.run("task", "show", "aging", "-o", "json")

	s.run("enqueue", "report", "2026-01", "--id", "first", "--unique")
	s.run("enqueue", "report", "2026-01", "--unique")
	s.run("enqueue", "report", "2026-01", "--unique", "-o", "json")
	s.run("enqueue", "report", "2026-02", "--id", "second", "--unique=year", "--unique-for", "1h")
	s.run("enqueue", "report", "2026-03", "--unique=year")

	s.run("enqueue", "rush", "--id", "low", "--priority", "0", "--label", "a=b")
	s.run("enqueue", "rush", "--id", "high", "--priority", "100", "--label", "a=b", "--label", "c=d", "--key", "k")
	s.run("enqueue", "rush", "--id", "usual")
	s.run("task", "ls", "rush", "--status", "pending")
	s.run("task", "ls", "rush", "--label", "a=b", "--label", "c=d")
	s.run("task", "ls", "rush", "--label", "a=b", "--offset", "1", "--limit", "1")
	s.run("task", "ls", "rush", "--key", "k", "-o", "json")
	s.run("task", "ls", "rush", "--key", "k", "--status", "failed", "-o", "json")

	s.run("enqueue", "mail", "--id", "late", "--deadline", "1700000000")
	s.run("enqueue", "mail", "--id", "waiting", "--after", "all,patient", "--when", "ended", "--parent", "order")
	s.run("task", "show", "waiting")
	s.run("task", "show", "waiting", "-o", "json")
	s.run("subscription", "create", "index", "--topic", "orders", "--queue", "index", "--dead", "index.lost")
	s.run("topic", "publish", "orders", "hello", "--id", "p1")
	s.run("task", "show", "pub-d865a60ee42e18f3b1828424223a23ef4f4dbbe1")
	s.run("task", "show", "pub-d865a60ee42e18f3b1828424223a23ef4f4dbbe1", "-o", "json")

	golden(t, "enqueue", s.String())
}

// Only Redis itself waits for replicas.
func TestGoldenReplicas(t *testing.T) {
	t.Parallel()
	s := &transcript{user: newUser(t, queuetest.Start(t).URL())}
	s.run("enqueue", "mail", "--id", "alone", "--replicas", "1")
	s.run("enqueue", "mail", "--id", "alone", "--replicas", "1", "-o", "json")
	s.run("enqueue", "mail", "--replicas", "1", "--server", "http://127.0.0.1:1", "--config", "")
	golden(t, "replicas", s.String())
}

func TestGoldenQueueManagement(t *testing.T) { overBoth(t, testGoldenQueueManagement) }

func testGoldenQueueManagement(t *testing.T, by over) {
	server := queuetest.Start(t)
	s := &transcript{user: by.user(t, server.URL())}
	s.run("queue", "limit", "mail")
	s.run("queue", "limit", "mail", "2")
	s.run("enqueue", "mail", "--id", "one")
	s.run("enqueue", "mail", "--id", "two")
	s.run("enqueue", "mail", "--id", "three")
	s.run("enqueue", "mail", "--id", "three", "--wait")
	s.run("queue", "limit", "mail")
	s.run("queue", "limit", "mail", "-o", "json")
	s.run("queue", "limit", "mail", "0")
	s.run("queue", "limit", "mail", "few")
	s.run("queue", "pause", "mail")
	s.run("queue", "pause", "nail")
	s.run("queue", "pause", "two words")
	s.run("queue", "ls")
	s.run("queue", "show", "mail", "-o", "json")
	s.run("queue", "limit", "mail", "none")
	s.run("queue", "limit", "mail", "-o", "json")
	s.run("queue", "limit", "nail")
	s.run("queue", "resume", "mail")
	s.run("queue", "resume", "nail")
	s.run("queue", "show", "mail")
	s.run("queue", "purge", "nail", "--all")

	s.run("task", "cancel", "one", "two")
	s.run("task", "show", "one")
	s.run("task", "ls", "mail", "--status", "failed")
	s.run("task", "cancel", "one", "none", "two")
	s.run("task", "cancel", "two words")
	s.run("task", "retry", "one")
	s.run("task", "show", "one")
	s.run("task", "retry", "one")
	s.run("task", "retry", "none")
	s.run("task", "cancel", "one")
	s.run("task", "retry", "--queue", "mail", "--reason", "timeout")
	s.run("task", "retry", "--queue", "mail", "--older-than", "1h")
	s.run("task", "retry", "--queue", "mail", "--reason", "cancelled", "--limit", "1")
	s.run("task", "retry", "--queue", "mail")
	s.run("task", "cancel", "one", "two")
	s.run("task", "delete", "one", "none", "two")
	for i := range 3 {
		id := fmt.Sprint("done", i)
		s.must("enqueue", "mail", "--id", id)
		s.must("task", "cancel", id)
	}
	s.run("queue", "purge", "mail", "--older-than", "7d")
	s.run("queue", "purge", "mail", "--keep", "2")
	s.run("queue", "purge", "mail", "--status", "complete", "--all")
	s.run("queue", "purge", "mail", "--all", "-o", "json")
	s.run("task", "ls", "mail")
	golden(t, "manage", s.String())
}

func TestGoldenNodes(t *testing.T) { overBoth(t, testGoldenNodes) }

func testGoldenNodes(t *testing.T, by over) {
	server := queuetest.Start(t)
	s := &transcript{user: by.user(t, server.URL())}
	s.run("node", "ls")
	s.run("node", "ls", "-o", "json")
	host, _ := s.host(folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}), "--concurrency", "4", "--memory", "1GiB")
	python := queuetest.Python(t, server.URL())
	legacy := python.Register("legacy")
	s.must("enqueue", "legacy", "--id", "held")
	if task := python.Listen("legacy"); task.ID != "held" {
		t.Fatalf("Python has %+v", task)
	}
	python.Start("held", 1)
	s.must("enqueue", "sleep", "600000", "--id", "running")
	host.stderr.await(t, regexp.MustCompile(`plugin says.*line=ready`))
	eventually(t, "the host says what it does", func() bool {
		return strings.Contains(s.must("node", "ls"), "1/4") && strings.Contains(s.must("node", "ls", "-o", "json"), `"running":{`)
	})
	s.run("node", "ls")
	s.run("node", "ls", "-o", "json")
	s.run("queue", "pause", "legacy")
	s.run("task", "cancel", "held")
	s.run("node", "drain", legacy)
	s.run("node", "drain", "nobody~00000000_1")
	s.run("node", "reclaim", "nobody~00000000_1")
	quern := regexp.MustCompile(`\S+~[0-9a-f]{8}_\d+`).FindString(s.must("node", "ls"))
	s.run("node", "reclaim", quern)
	s.run("node", "reclaim", legacy)
	s.run("task", "show", "held", "-o", "json")
	s.must("task", "retry", "--queue", "legacy") // none: it is not failed
	s.run("task", "cancel", "held", "running")
	s.run("task", "show", "running")
	s.run("node", "drain", quern)
	if status := host.wait(); status != exitDone {
		t.Errorf("the host ended with %d", status)
	}
	s.run("node", "ls")
	golden(t, "nodes", strings.ReplaceAll(s.String(), legacy, "PYTHON"))
}

// A task that fails for good goes to its dead-letter queue, and who completes the letter has handled it.
func TestGoldenDeadLetters(t *testing.T) { overBoth(t, testGoldenDeadLetters) }

func testGoldenDeadLetters(t *testing.T, by over) {
	s := &transcript{user: by.user(t, queuetest.Start(t).URL())}
	plugins := folder(t, map[string][]byte{"exit": runtimetest.Exit(t), "funeral": runtimetest.Echo(t)})
	write(t, filepath.Join(plugins, "exit.yaml"), "name: exit\ndead: exit.dead\n")
	write(t, filepath.Join(plugins, "funeral.yaml"), "name: funeral\nqueues: [exit.dead]\n")
	c := s.start("serve", "--plugins", plugins, "--http", "127.0.0.1:0")
	for _, name := range []string{"exit", `exit\.dead`} {
		c.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=`+name+`\n`))
	}
	s.run("enqueue", "exit", "7 once", "--wait", "--id", "once", "--max-attempts", "2", "--backoff-max", "50ms")
	letter := regexp.MustCompile(`"dead_id":"([^"]+)"`).FindStringSubmatch(s.must("task", "show", "once", "-o", "json"))
	if letter == nil {
		t.Fatal("there is no dead letter")
	}
	s.run("task", "wait", letter[1])
	s.run("task", "show", letter[1], "-o", "json")
	s.run("task", "show", "once")
	s.run("task", "logs", "once")
	s.run("task", "show", "once", "-o", "json")
	s.run("task", "ls", "exit")
	soon := regexp.MustCompile(`; the next one in [\d.]+ s`) // it depends on when the command and the host looked
	golden(t, "dead", strings.ReplaceAll(soon.ReplaceAllString(s.String(), ""), letter[1], "LETTER"))
}

// What keeps one task from its retry, or its dead letter from being deleted, keeps no other task from it. It is told, and by the exit
// status too.
func TestRetryGoesOn(t *testing.T) { overBoth(t, testRetryGoesOn) }

func testRetryGoesOn(t *testing.T, by over) {
	redis := queuetest.Start(t)
	u := by.user(t, redis.URL())
	plugins := folder(t, map[string][]byte{"exit": runtimetest.Exit(t)})
	write(t, filepath.Join(plugins, "exit.yaml"), "name: exit\ndead: exit.dead\n")
	host, _ := u.host(plugins)
	for _, id := range []string{"one", "two"} {
		if r := u.run("enqueue", "exit", "65 no", "--id", id, "--wait"); r.status != exitFailed {
			t.Fatalf("%+v", r)
		}
	}
	u.run("enqueue", "exit", "65 unique", "--unique", "--id", "three", "--wait")
	host.stop()
	host.wait()
	u.must("enqueue", "exit", "65 unique", "--unique", "--id", "four")
	if err := redis.Client(t).Set(t.Context(), "blueque_complete_tasks_exit.dead", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := u.run("task", "retry", "--queue", "exit")
	if !strings.Contains(r.stderr, "task four holds the uniqueness of three by now") {
		t.Error(r.stderr)
	}
	if r.status != exitRefused || r.stdout != "one\ntwo\n" || strings.Count(r.stderr, "is retried, but one of its dead letters stays: ") != 2 {
		t.Errorf("%+v", r)
	}
}

// A retry in a queue of dead letters takes those that nobody has handled, and retries the tasks behind them.
func TestRetryWaitingLetters(t *testing.T) { overBoth(t, testRetryWaitingLetters) }

func testRetryWaitingLetters(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	plugins := folder(t, map[string][]byte{"exit": runtimetest.Exit(t)})
	write(t, filepath.Join(plugins, "exit.yaml"), "name: exit\ndead: exit.dead\n")
	host, _ := u.host(plugins)
	for _, id := range []string{"one", "two"} {
		if r := u.run("enqueue", "exit", "65 no", "--id", id, "--wait"); r.status != exitFailed {
			t.Fatalf("%+v", r)
		}
	}
	host.stop()
	host.wait()
	u.must("enqueue", "exit.dead", "no letter")
	if r := u.run("task", "retry", "--queue", "exit.dead"); r != (result{stdout: "one\ntwo\n"}) {
		t.Errorf("%+v", r)
	}
	if left := u.must("task", "ls", "exit.dead"); strings.Count(left, "\n") != 2 {
		t.Errorf("left are %q", left)
	}
}

func TestCancelRunning(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	host, _ := u.host(folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}))
	run := func(id string) {
		u.must("enqueue", "sleep", "600000", "--id", id)
		host.stderr.await(t, regexp.MustCompile(`plugin says.*task_id=`+id+` .*line=ready|plugin says.*line=ready.*task_id=`+id+`\b`))
	}
	run("waited")
	if r := u.run("task", "cancel", "waited"); r != (result{exitDone, "", "quern: stopped waited\n"}) {
		t.Errorf("%+v", r)
	}
	if got := u.run("task", "wait", "waited"); got.status != exitFailed || !strings.HasPrefix(got.stderr, "task waited failed (cancelled): ") {
		t.Errorf("%+v", got)
	}
	run("asked")
	if r := u.run("task", "cancel", "--no-wait", "asked"); r != (result{exitDone, "", "quern: asked runs, and its host stops it now\n"}) {
		t.Errorf("%+v", r)
	}
	eventually(t, "the task is stopped", func() bool {
		return strings.Contains(u.must("task", "show", "asked", "-o", "json"), `"status":"failed","reason":"cancelled"`)
	})
}

// One that cannot be cancelled does not keep the others from it, and is not waited for.
func TestCancelTimeout(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	client, err := queue.New(queuetest.Shared(t).URL(), queue.Config{Tenant: u.env["QUERN_TENANT"]})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	listener := listen.New(client) // a host that never looks
	if err := listener.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.must("enqueue", "mail", "--id", "held")
	if err := listener.Register(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	if got := listener.Reserve(t.Context(), []listen.ReserveRequest{{Queue: "mail", Count: 1}}); got[0].Err != nil {
		t.Fatal(got[0].Err)
	}
	u.must("enqueue", "mail", "--id", "waiting")
	r := u.run("task", "cancel", "held", "waiting", "--wait-timeout", "50ms")
	want := "quern: cancelled waiting\nquern: task held is not finished after 50ms: continue with `quern task wait held`\n"
	if r != (result{exitRefused, "", want}) {
		t.Errorf("%+v", r)
	}
	for id, want := range map[string]string{"held": `"cancel_asked":true`, "waiting": `"reason":"cancelled"`} {
		if text := u.must("task", "show", id, "-o", "json"); !strings.Contains(text, want) {
			t.Errorf("%s: %s", id, text)
		}
	}
	if text := u.must("task", "show", "held"); !strings.Contains(text, "reserved (to be cancelled)") {
		t.Error(text)
	}
}

func TestRetryMany(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	client, err := queue.New(queuetest.Shared(t).URL(), queue.Config{Tenant: u.env["QUERN_TENANT"]})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const many = 1100 // more than a page
	var all []string
	specs := make([]queue.Spec, many)
	for i := range specs {
		specs[i].ID = fmt.Sprintf("t%04d", i)
		specs[i].Labels = map[string]string{"half": fmt.Sprint(i % 2)}
		all = append(all, specs[i].ID)
	}
	if _, err := client.Queue("mail").EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	for _, id := range all {
		if _, err := client.Queue("mail").Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := u.must("task", "retry", "--queue", "mail"); got != "" {
		t.Errorf("what somebody cancelled is tried again: %.100s", got)
	}
	got := strings.Fields(u.must("task", "retry", "--queue", "mail", "--reason", "cancelled", "--label", "half=1", "--limit", "3"))
	if !slices.Equal(got, []string{"t0001", "t0003", "t0005"}) {
		t.Errorf("tried again: %v", got)
	}
	if got := strings.Fields(u.must("task", "retry", "--queue", "mail", "--reason", "cancelled")); len(got) != many-3 || got[0] != "t0000" {
		t.Errorf("tried again: %d, from %v on", len(got), got[:1])
	}
	if n, err := manage.New(client).Queue("mail").Count(t.Context(), queue.Pending); n != many || err != nil {
		t.Errorf("%d are pending: %v", n, err)
	}
}

// A host that was killed: until its lease is over its tasks stay, then somebody may take them.
func TestReclaimKilledHost(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	c := u.spawn("serve", "--plugins", folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}), "--http", "127.0.0.1:0", "--lease", "3s")
	c.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=sleep`))
	u.must("enqueue", "sleep", "600000", "--id", "one")
	c.stderr.await(t, regexp.MustCompile(`plugin says.*line=ready`))
	listener := regexp.MustCompile(`\S+~[0-9a-f]{8}_\d+`).FindString(u.must("node", "ls"))
	_ = c.Process.Kill()
	c.wait(t)
	if r := u.run("node", "reclaim", listener); r.status != exitRefused || !strings.Contains(r.stderr, "is alive, its lease runs") {
		t.Errorf("%+v", r)
	}
	eventually(t, "its lease is over", func() bool { return strings.Contains(u.must("node", "ls"), "over for") })
	if r := u.run("node", "drain", listener); r.status != exitRefused || !strings.Contains(r.stderr, "is dead") {
		t.Errorf("%+v", r)
	}
	want := `{"listener":"` + listener + `","returned":1,"scheduled":0,"failed":0,"dropped":0}` + "\n"
	if got := u.must("node", "reclaim", listener, "-o", "json"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	text := u.must("task", "show", "one", "-o", "json")
	for _, want := range []string{`"status":"pending"`, `"crashes":1`, `"outcome":"crashed"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if r := u.run("node", "reclaim", listener); r.status != exitRefused || !strings.Contains(r.stderr, "has no listener") {
		t.Errorf("%+v", r)
	}
}

// `quern node drain` ends a host as SIGTERM does: what runs goes on to its end.
func TestServeEndsWhenDrained(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	c := u.spawn("serve", "--plugins", folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}), "--http", "127.0.0.1:0")
	c.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=sleep`))
	u.must("enqueue", "sleep", "2000", "--id", "one")
	c.stderr.await(t, regexp.MustCompile(`plugin says.*line=ready`))
	u.must("node", "drain", regexp.MustCompile(`\S+~[0-9a-f]{8}_\d+`).FindString(u.must("node", "ls")))
	if state := c.wait(t); state.ExitCode() != exitDone {
		t.Errorf("it ended with %s", state)
	}
	if text := u.must("task", "show", "one", "-o", "json"); !strings.Contains(text, `"status":"complete"`) {
		t.Errorf("the task: %s", text)
	}
}

func TestPausedQueueWaits(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}))
	u.must("queue", "pause", "echo")
	u.must("enqueue", "echo", "hello", "--id", "one")
	if r := u.run("task", "wait", "one", "--wait-timeout", "300ms"); r.status != exitRefused {
		t.Errorf("%+v", r)
	}
	u.must("queue", "resume", "echo")
	if got := u.must("task", "wait", "one"); got != "hello" {
		t.Errorf("result %q", got)
	}
}

// With replicas that answer, nothing is said of them.
func TestEnqueueReplicated(t *testing.T) {
	t.Parallel()
	primary := queuetest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(primary.Addr(), ":")
	queuetest.Start(t, "--replicaof", host+" "+port)
	u := newUser(t, primary.URL())
	eventually(t, "the replica has it", func() bool { return u.run("enqueue", "mail", "--replicas", "1").status == exitDone })
	if r := u.run("enqueue", "mail", "--id", "one", "--replicas", "1"); r.status != exitDone || r.stdout != "one\n" || strings.Contains(r.stderr, "replicas") {
		t.Errorf("%+v", r)
	}
	r := u.run("enqueue", "mail", "--id", "two", "--replicas", "2")
	if r.status != exitRefused || r.stdout != "two\n" || !strings.Contains(r.stderr, "quern: task two is enqueued, but only 1 of 2 replicas confirmed it: ") {
		t.Errorf("%+v", r)
	}
}

// A setting of a host that has the name of a flag means nothing to that flag, and no setting has the name of a flag that is
// of one call.
func TestSettingsOfHostsAlone(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	u.env["QUERN_KEEP"], u.env["QUERN_MAX_ATTEMPTS"] = "24h", "9"
	u.env["QUERN_ID"], u.env["QUERN_FLOW"], u.env["QUERN_CHECK"] = "fixed", "true", "true"
	u.env["QUERN_CONFIG"] = write(t, filepath.Join(t.TempDir(), "quern.yaml"), "keep: 48h\nmax-attempts: 7\n")
	u.must("enqueue", "mail", "--id", "one")
	if text := u.must("task", "show", "one", "-o", "json"); strings.Contains(text, "max_attempts") {
		t.Errorf("the task has the host's attempts: %s", text)
	}
	two := strings.TrimSpace(u.must("enqueue", "mail", "--after", "one"))
	u.must("task", "cancel", two)
	if text := u.must("task", "show", "one", "-o", "json"); two == "fixed" || !strings.Contains(text, `"status":"pending"`) {
		t.Errorf("%s is cancelled, and one is %s", two, text)
	}
	u.must("task", "cancel", "one")
	if r := u.run("queue", "purge", "mail"); r.status != exitUsage {
		t.Errorf("%+v", r)
	}
	if got := u.must("queue", "purge", "mail", "--all"); got != "2\n" {
		t.Errorf("purged %q", got)
	}
	settings := effective(t, checked(u))
	if settings["keep"] != "24h0m0s" || settings["max-attempts"] != "9" {
		t.Errorf("%v", settings)
	}
}

// Any ID can be named in a list of them.
func TestAfterAnyID(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	ids := []string{"a,b", `c"d`, `e\\f`, `g\h`, "i"}
	for _, id := range ids {
		u.must("enqueue", "mail", "--id", id)
	}
	u.must("enqueue", "mail", "--id", "all", "--after", `a\,b,c"d`, "--after", `e\\\\f,g\h,i`)
	if tree := u.must("task", "show", "all", "-o", "json"); !strings.Contains(tree, `"of":5`) {
		t.Errorf("it waits for others: %s", tree)
	}
	if r := u.run("enqueue", "mail", "--after", "a,b"); r.status != exitRefused || !strings.Contains(r.stderr, "task a, which does not exist") {
		t.Errorf("%+v", r)
	}
}
