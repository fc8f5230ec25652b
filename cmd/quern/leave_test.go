package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A pause of a key stops its tasks alone, is listed, and found by doctor, whose remedy ends it.
func TestPauseOfAKey(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}))
	u.must("enqueue", "echo", "x", "--wait")
	u.must("queue", "pause", "echo", "--key", "customer 7", "--reason", "owes money")
	u.must("enqueue", "echo", "x", "--id", "waits", "--key", "customer 7")
	u.must("enqueue", "echo", "x", "--key", "customer 8", "--wait")
	eventually(t, "the task is held", func() bool {
		return strings.Contains(u.must("task", "show", "waits"), "scheduled (its key is held)")
	})
	const what = `the key "customer 7" of the queue echo`
	if shown := u.run("queue", "show", "echo"); !strings.Contains(shown.stderr, what) {
		t.Errorf("queue show: %+v", shown)
	}
	if shown := u.must("task", "show", "waits"); !strings.Contains(shown, what+" is paused since ") || strings.Contains(shown, "2223") {
		t.Errorf("task show:\n%s", shown)
	}
	if list := u.must("tenant", "pauses", "blueque"); !strings.Contains(list, what) || !strings.Contains(list, "owes money") {
		t.Errorf("pauses:\n%s", list)
	}
	if found := u.run("doctor").stdout; !strings.Contains(found, what+" is paused since ") ||
		!strings.Contains(found, "`quern queue resume echo --key 'customer 7'`") {
		t.Errorf("doctor:\n%s", found)
	}
	if r := u.run("queue", "resume", "echo", "--key", ""); r.status != exitUsage || !strings.Contains(r.stderr, "--key is empty") {
		t.Errorf("%+v", r)
	}
	if r := u.run("queue", "pause", "echo", "--key", "x", "--accepting"); r.status == exitDone || !strings.Contains(r.stderr, "pause taking") {
		t.Errorf("%+v", r)
	}
	u.must("queue", "resume", "echo", "--key", "customer 7")
	u.must("task", "wait", "waits")
}

// An empty name pauses nothing, and ends no pause: least of all that of the tenant.
func TestPauseOfNothing(t *testing.T) { overBoth(t, testPauseOfNothing) }

func testPauseOfNothing(t *testing.T, by over) {
	u := by.tenant(t)
	refused := func(want string, args ...string) {
		t.Helper()
		if r := u.run(args...); r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	refused(`queue "": use 1 to 128`, "queue", "pause", "")
	refused(`queue "": use 1 to 128`, "queue", "pause", "", "--accepting")
	refused("the plugin's name is empty", "plugin", "pause", "")
	refused("--key is empty", "queue", "pause", "q", "--key", "")
	tenant, _ := u.lookup("QUERN_TENANT")
	if r := u.run("tenant", "pause", tenant); r.status != exitDone || !strings.Contains(r.stderr, "has no queues yet") {
		t.Errorf("%+v", r)
	}
	u.must("tenant", "pause", tenant, "--accepting")
	if r := u.run("enqueue", "q", "x", "--tenant", tenant); !strings.Contains(r.stderr, "`quern tenant resume "+tenant+" --accepting`") {
		t.Errorf("the hint names the tenant once: %+v", r)
	}
	refused(`queue "": use 1 to 128`, "queue", "resume", "")
	refused(`queue "": use 1 to 128`, "queue", "resume", "", "--accepting")
	refused("the plugin's name is empty", "plugin", "resume", "")
	if list := u.must("tenant", "pauses", tenant); strings.Count(list, "the tenant ") != 2 || strings.Count(list, "\n") != 3 {
		t.Errorf("pauses:\n%s", list)
	}
}

// A limit says whether the queue drops its oldest tasks, and when it does not any more.
func TestLimitThatDrops(t *testing.T) { overBoth(t, testLimitThatDrops) }

func testLimitThatDrops(t *testing.T, by over) {
	u := by.tenant(t)
	u.must("enqueue", "q", "x")
	u.must("queue", "limit", "q", "2", "--drop-oldest")
	if got := u.must("queue", "limit", "q"); got != "2,drop-oldest\n" {
		t.Errorf("%q", got)
	}
	if got := u.must("queue", "limit", "q", "-o", "json"); !strings.Contains(got, `"limit":2,"drop_oldest":true`) {
		t.Error(got)
	}
	if got := u.must("queue", "ls"); !strings.Contains(got, "2,drop-oldest") {
		t.Error(got)
	}
	if r := u.run("queue", "limit", "q", "3"); !strings.Contains(r.stderr, "to drop them again, add --drop-oldest") {
		t.Errorf("%+v", r)
	}
	if got := u.must("queue", "limit", "q"); got != "3\n" {
		t.Errorf("%q", got)
	}
}

// A tenant is paused, shows what it used, moves to another name beside its host, and is deleted after its host has left.
func TestTenantLeaves(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	u := newUser(t, server.URL()).with(map[string]string{"QUERN_TENANT": "blueque"})
	host, _ := u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}))
	u.must("enqueue", "echo", "hello", "--wait", "--id", "one")

	u.must("queue", "pause", "echo", "--accepting", "--reason", "the disk is full")
	r := u.run("enqueue", "echo", "more")
	if r.status != exitRefused || !strings.Contains(r.stderr, "the disk is full: wait, or end that pause with `quern queue resume echo --accepting`") {
		t.Errorf("an enqueue during a pause: %+v", r)
	}
	if r := u.run("queue", "show", "echo"); !strings.Contains(r.stderr, "the queue echo accepts no new tasks since ") ||
		!strings.Contains(r.stdout, "accepting") {
		t.Errorf("show: %+v", r)
	}
	u.must("queue", "resume", "echo", "--accepting")
	u.must("plugin", "pause", "echo", "--reason", "a bug")
	u.must("tenant", "pause", "blueque")
	u.must("enqueue", "echo", "waits", "--id", "waits")
	pauses := u.must("tenant", "pauses", "blueque")
	if !regexp.MustCompile(`(?m)^the tenant +taking .*\nthe plugin echo +taking .* a bug$`).MatchString(strings.TrimSpace(pauses)) {
		t.Errorf("pauses:\n%s", pauses)
	}
	if found := u.run("doctor").stdout; !strings.Contains(found, "the plugin echo is paused since ") || !strings.Contains(found, "the tenant is paused since ") {
		t.Errorf("doctor:\n%s", found)
	}
	if r := u.run("task", "wait", "waits", "--wait-timeout", "100ms"); r.status == exitDone {
		t.Error("a task ran during the pause")
	}
	because := func(id, why string) {
		t.Helper()
		if shown := u.must("task", "show", id); !strings.Contains(shown, "waits because") || !strings.Contains(shown, why) {
			t.Errorf("%s:\n%s", why, shown)
		}
	}
	because("waits", "end that with `quern tenant resume blueque`")
	u.must("tenant", "resume", "blueque")
	because("waits", "a bug): end that with `quern plugin resume echo`")
	u.must("plugin", "resume", "echo")
	u.must("task", "wait", "waits")

	var usage string
	eventually(t, "the host counts what tasks used", func() bool {
		usage = u.must("tenant", "usage", "blueque", "-o", "csv")
		return strings.Contains(usage, ",2,2,0,0,")
	})
	if today := time.Now().UTC().Format(time.DateOnly); !regexp.MustCompile(`^tenant,day,.*\nblueque,` + today + `,2,2,0,0,[1-9]\d*,0\.\d*[1-9]\d*,[\d.]+,10,10,0\n$`).MatchString(usage) {
		t.Errorf("usage:\n%s", usage)
	}

	u.must("tenant", "set", "blueque", "--fuel-day", "1")
	u.must("enqueue", "echo", "more", "--id", "burnt")
	because("burnt", "the tenant has used up its quota fuel_day of 1: see `quern tenant show blueque`")
	if found := u.run("doctor").stdout; !strings.Contains(found, "the quota fuel_day of 1 is used up, and 1 task waits") {
		t.Errorf("doctor:\n%s", found)
	}
	u.must("tenant", "set", "blueque", "--fuel-day", "none")
	u.must("task", "wait", "burnt")

	file := filepath.Join(t.TempDir(), "blueque.quern")
	u.must("tenant", "export", "blueque", file, "--pause")
	if list := u.must("tenant", "pauses", "blueque", "-o", "json"); list != "[]\n" {
		t.Errorf("after the export: %s", list)
	}
	u.must("tenant", "import", "moved", file)
	if list := u.must("tenant", "pauses", "moved", "-o", "json"); list != "[]\n" {
		t.Errorf("after the import: %s", list)
	}
	if got := u.must("task", "wait", "one", "--tenant", "moved"); got != "hello" {
		t.Errorf("the imported result is %q", got)
	}
	if r := u.run("tenant", "import", "moved", file); r.status != exitRefused || !strings.Contains(r.stderr, "tenant moved has keys") {
		t.Errorf("a second import: %+v", r)
	}
	if r := u.run("tenant", "delete", "blueque"); r.status != exitUsage || !strings.Contains(r.stderr, "--confirm blueque") {
		t.Errorf("a deletion without confirmation: %+v", r)
	}
	none := filepath.Join(t.TempDir(), "none")
	if r := u.run("tenant", "export", "typo", none, "--pause"); r.status != exitRefused || !strings.Contains(r.stderr, "tenant typo has no keys") {
		t.Errorf("an export of no tenant: %+v", r)
	}
	if got := u.must("tenant", "delete", "typo", "--confirm", "typo"); got != "0\n" {
		t.Errorf("a deletion of no tenant prints %q", got)
	}
	// A deletion that gives up ends its pause.
	r = u.run("tenant", "delete", "blueque", "--confirm", "blueque", "--leave-timeout", "1ms")
	if list := u.must("tenant", "pauses", "blueque", "-o", "json"); r.status != exitRefused || list != "[]\n" {
		t.Errorf("after %+v: %s", r, list)
	}
	u.must("tenant", "delete", "blueque", "--confirm", "blueque")
	host.wait()
	rdb := server.Client(t)
	if keys := rdb.Keys(t.Context(), "blueque_*").Val(); len(keys) > 0 {
		t.Errorf("keys stay: %v", keys)
	}
	if rdb.Exists(t.Context(), "moved_task_one").Val() != 1 {
		t.Error("the other tenant lost a task")
	}
}

func TestTenantACL(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	all := u.must("tenant", "acl", "acme")
	if strings.Contains(all, "python") || strings.Count(all, "ACL SETUSER acme-") < 7 {
		t.Errorf("users:\n%s", all)
	}
	if all := u.must("tenant", "acl", "blueque"); !strings.Contains(all, "ACL SETUSER blueque-python on >PASSWORD resetkeys ~blueque_* ") {
		t.Errorf("users:\n%s", all)
	}
	for args, want := range map[string]string{
		"acme --for python": "Blueque's clients know only the tenant blueque", "a_b": "tenant \"a_b\": ", "acme --for cook": "use one of host, ",
	} {
		if r := u.run(append([]string{"tenant", "acl"}, strings.Fields(args)...)...); r.status == exitDone || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// Ctrl-C ends the pause of an export, and of a deletion that has deleted nothing; an import says how it goes on.
func TestTenantMoveInterrupted(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	u := newUser(t, server.URL()).with(map[string]string{"QUERN_TENANT": "blueque"})
	client, err := queue.New(server.URL(), queue.Config{Tenant: "blueque"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 40 {
		if _, err := client.Queue("q").EnqueueMany(t.Context(), make([]queue.Spec, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	pauses := func(tenant string) string { return u.must("tenant", "pauses", tenant, "-o", "json") }
	// interrupt sends a SIGINT as soon as the command has paused the tenant, and returns what it prints.
	interrupt := func(tenant string, args ...string) string {
		c := u.prepare(args...)
		start(t, c)
		eventually(t, "the pause of "+strings.Join(args, " "), func() bool { return pauses(tenant) != "[]\n" })
		_ = c.Process.Signal(os.Interrupt)
		if state := c.wait(t); !state.Sys().(syscall.WaitStatus).Signaled() {
			t.Errorf("%v: %s: %s", args, state, c.stderr)
		}
		return c.stderr.String()
	}
	file := filepath.Join(t.TempDir(), "file")
	if said := interrupt("blueque", "tenant", "export", "blueque", file, "--pause"); !strings.Contains(said, "repeat it, and it goes on") {
		t.Errorf("export: %s", said)
	}
	if list := pauses("blueque"); list != "[]\n" {
		t.Errorf("after the export: %s", list)
	}
	u.must("tenant", "export", "blueque", file)

	said := interrupt("other", "tenant", "import", "other", file)
	if list := pauses("other"); (list != "[]\n") != strings.Contains(said, "repeat the command with --into") {
		t.Errorf("after the import: %s: %s", said, list)
	}
	u.must("tenant", "import", "other", file, "--into")
	if list := pauses("other"); list != "[]\n" {
		t.Errorf("after the second import: %s", list)
	}

	u.host(folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}))
	id := strings.TrimSpace(u.must("enqueue", "sleep", "60000"))
	eventually(t, "a task runs", func() bool { return strings.Contains(u.must("task", "show", id), "started") })
	interrupt("blueque", "tenant", "delete", "blueque", "--confirm", "blueque")
	if list := pauses("blueque"); list != "[]\n" {
		t.Errorf("after the deletion: %s", list)
	}
	if n := strings.TrimSpace(u.must("queue", "show", "q", "-o", "json")); !strings.Contains(n, `"pending":40000`) {
		t.Errorf("after the deletion: %s", n)
	}
}
