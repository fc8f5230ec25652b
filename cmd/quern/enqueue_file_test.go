package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// newProducer is a user with a tenant of its own on a Redis, and a client of that tenant on the shared Redis.
func newProducer(t *testing.T, redisURL string) (*user, *queue.Client) {
	return over("redis").producer(t, redisURL)
}

func (by over) producer(t *testing.T, redisURL string) (*user, *queue.Client) {
	t.Helper()
	tenant := queuetest.Tenant()
	client, err := queue.New(queuetest.Shared(t).URL(), queue.Config{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return by.user(t, redisURL, tenant).with(map[string]string{"QUERN_TENANT": tenant}), client
}

// lines are n tasks, the first of which has the number 1 as its parameters.
func lines(from, to int) string {
	var text strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&text, "{\"parameters\": %d}\n", i)
	}
	return text.String()
}

func pending(t *testing.T, client *queue.Client) int64 {
	t.Helper()
	n, err := manage.New(client).Queue("mail").Count(t.Context(), queue.Pending)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// enqueuedOnce tests that each of the lines is there once.
func enqueuedOnce(t *testing.T, client *queue.Client, id string, n int) {
	t.Helper()
	if is := pending(t, client); is != int64(n) {
		t.Errorf("%d tasks are pending, want %d", is, n)
	}
	for _, i := range []int{1, 2, n / 2, n - 1, n} {
		task, err := client.Task(t.Context(), fmt.Sprintf("%s-%d", id, i))
		if err != nil || string(task.Parameters) != fmt.Sprint(i) {
			t.Errorf("line %d: %+v, %v", i, task, err)
		}
	}
}

func TestEnqueueFile(t *testing.T) { overBoth(t, testEnqueueFile) }

func testEnqueueFile(t *testing.T, by over) {
	u, client := by.producer(t, queuetest.Shared(t).URL())
	file := write(t, filepath.Join(t.TempDir(), "tasks.jsonl"), "\ufeff"+`{"parameters": "text \u00e4"}`+"\r\n"+
		"\r\n"+
		` {"parameters": {"a": [1, 2]}, "key": "k", "labels": {"b": "line"}, "priority": 90, "max_attempts": -1, "timeout_seconds": 0.5, "backoff": "linear", "backoff_base_seconds": 2, "dead_queue": "dead"} `+"\n"+
		`{"parameters_base64": "/wA=", "id": "own", "parent": "p", "deadline": 4102444800.5}`+"\n"+
		`{"delay_seconds": 3600}`+"\n"+
		`{"parameters": null, "at": 4102444800}`)
	command := []string{"enqueue", "mail", "--file", file, "--id", "x", "--label", "a=flag", "--label", "b=flag", "--max-attempts", "3"}
	if got, want := u.must(command...), "6 lines: 5 enqueued, 0 existed already, 0 refused\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for id, want := range map[string]string{
		"x-1": `{"parameters": "text ä", "labels": {"a": "flag", "b": "flag"}, "priority": 50, "max_attempts": 3, "status": "pending"}`,
		"x-3": `{"parameters": "{\"a\": [1, 2]}", "labels": {"a": "flag", "b": "line"}, "priority": 90, "max_attempts": -1, "status": "pending", "key": "k", "timeout_seconds": 0.5, "retry": "map[backoff:linear base_seconds:2]", "dead_queue": "dead"}`,
		"own": `{"parameters_base64": "/wA=", "parent": "p", "deadline": 4102444800.5, "status": "pending"}`,
		"x-5": `{"parameters": "", "status": "scheduled"}`,
		"x-6": `{"parameters": "null", "status": "scheduled", "eta": 4102444800}`,
	} {
		var is, should map[string]any
		if err := json.Unmarshal([]byte(u.must("task", "show", id, "-o", "json")), &is); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(want), &should); err != nil {
			t.Fatal(err)
		}
		for name, value := range should {
			if fmt.Sprint(is[name]) != fmt.Sprint(value) {
				t.Errorf("%s of %s is %v, want %v", name, id, is[name], value)
			}
		}
	}
	again := u.must(append(command, "--skip", "3", "-o", "json")...)
	if want := fmt.Sprintf(`{"id":"x","tenant":"%s","queue":"mail","lines":6,"enqueued":0,"existed":3,"refused":0}`+"\n", client.Tenant()); again != want {
		t.Errorf("%s, want %s", again, want)
	}
	empty := u.feed("", "enqueue", "mail", "--file", "-")
	if empty.status != exitDone || empty.stdout != "0 lines: 0 enqueued, 0 existed already, 0 refused\n" {
		t.Errorf("an empty file: %+v", empty)
	}
}

// Lines that are no tasks are named, each with its remedy, and the others are enqueued. The corrected file fills the gaps.
func TestEnqueueFileWithBadLines(t *testing.T) { overBoth(t, testEnqueueFileWithBadLines) }

func testEnqueueFileWithBadLines(t *testing.T, by over) {
	u, client := by.producer(t, queuetest.Shared(t).URL())
	bad := [][2]string{
		{`{"to": "ada"}`, `unknown field "to", and what the handler gets belongs into parameters: use one of after, at, backoff,`},
		{`{"paramters": 1}`, `did you mean parameters?`},
		{`hello`, `no JSON object: write one JSON object a line, such as {"parameters": {"to": "ada"}}`},
		{`{"parameters": "a}`, `unexpected EOF: write one JSON object a line`},
		{`{"parameters": 1}{"parameters": 2}`, `something follows the object: write one JSON object a line`},
		{`{"parameters": 1, "parameters_base64": "AA=="}`, `both parameters and parameters_base64: give one of them`},
		{`{"parameters_base64": "?"}`, `illegal base64 data`},
		{"{\"parameters\": \"\xff\"}", `not UTF-8: write bytes as parameters_base64`},
		{`{"priority": "high"}`, `priority is of the JSON type string: write a whole number`},
		{`{"timeout_seconds": "1"}`, `: timeout_seconds is of the JSON type string: write a number`},
		{`{"unique": 1}`, `: unique is of the JSON type number: write true or false`},
		{`{"unique_key": "k"}`, `unique_key or unique_for_seconds without unique: add unique`},
		{`{"priority": 101}`, `priority 101: use 0 to 100`},
		{`{"labels": ["a"]}`, `labels is of the JSON type array: write an object`},
		{`{"id": "a b"}`, `task ID "a b": use 1 to 128 printable ASCII characters without spaces`},
		{`{"at": 1767225600000}`, `at is 1.7672256e+12: use seconds`},
		{`{"delay_seconds": -1}`, `delay_seconds is -1: use seconds`},
		{`{"timeout_seconds": -1, "delay_seconds": -2, "max_age_seconds": -3, "at": -4}`, `at is -4: use seconds`},
		{strings.Repeat(" ", 64<<20+1), "longer than 64MiB: enqueue it alone, with `quern enqueue mail - < PARAMETERS`"},
		{"\x1b[31m", `no JSON object`},
	}
	var file strings.Builder
	for i, line := range bad {
		fmt.Fprintf(&file, "%s\n{\"parameters\": %d}\n", line[0], 2*i+2)
	}
	r := u.feed(file.String(), "enqueue", "mail", "--file", "-", "--id", "x")
	if want := fmt.Sprintf("%d lines: %d enqueued, 0 existed already, %d refused\n", 2*len(bad), len(bad), len(bad)); r.status != exitUsage || r.stdout != want {
		t.Errorf("exit %d: %q, want %q", r.status, r.stdout, want)
	}
	told := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	if len(told) != len(bad)+1 || !strings.HasPrefix(told[len(bad)], fmt.Sprintf("quern: %d lines are refused: correct what is wrong in place, neither adding nor removing lines, and repeat the command with --id x", len(bad))) {
		t.Fatalf("%q", told)
	}
	for i, line := range bad {
		if !strings.HasPrefix(told[i], fmt.Sprintf("line %d: ", 2*i+1)) || !strings.Contains(told[i], line[1]) {
			t.Errorf("%q, want line %d: %s", told[i], 2*i+1, line[1])
		}
	}
	r = u.feed(lines(1, 2*len(bad)), "enqueue", "mail", "--file", "-", "--id", "x")
	if want := fmt.Sprintf("%d lines: %d enqueued, %d existed already, 0 refused\n", 2*len(bad), len(bad), len(bad)); r.status != exitDone || r.stdout != want {
		t.Errorf("%+v, want %q", r, want)
	}
	enqueuedOnce(t, client, "x", 2*len(bad))
}

// A line whose ID something else has is no repeat: it is named.
func TestEnqueueFileWithTakenIDs(t *testing.T) { overBoth(t, testEnqueueFileWithTakenIDs) }

func testEnqueueFileWithTakenIDs(t *testing.T, by over) {
	u, client := by.producer(t, queuetest.Shared(t).URL())
	u.must("enqueue", "other", "--id", "foreign")
	if err := queuetest.Shared(t).Client(t).Set(t.Context(), client.Tenant()+"_task_x-5", "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	file := `{"parameters": "a", "id": "twice"}` + "\n" + `{"parameters": "b", "id": "twice"}` + "\n" + `{"parameters": "a", "id": "twice"}` + "\n" +
		`{"id": "foreign"}` + "\n{}\n{}\n"
	r := u.feed(file, "enqueue", "mail", "--file", "-", "--id", "x")
	if r.status != exitUsage || r.stdout != "6 lines: 2 enqueued, 1 existed already, 3 refused\n" {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{
		"line 2: a task with the ID twice exists already with other parameters: give it another id\n",
		"line 4: a task with the ID foreign exists already in the queue \"other\": give it another id\n",
		"line 5: the ID x-5 is taken by something else: give it another id\n",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q, want %q", r.stderr, want)
		}
	}
}

// A file of another form is told by its first lines, and by how many more there are.
func TestEnqueueFileOfAnotherForm(t *testing.T) {
	t.Parallel()
	u, _ := newProducer(t, queuetest.Shared(t).URL())
	const all = 5000
	r := u.feed(strings.Repeat("a plain line\n", all), "enqueue", "mail", "--file", "-", "--id", "x")
	if told := strings.Count(r.stderr, "no JSON object"); r.status != exitUsage || told != 20 || !strings.Contains(r.stderr, fmt.Sprintf("%d more lines are refused\n", all-20)) {
		t.Errorf("exit %d, %d lines told: %s", r.status, told, r.stderr)
	}
}

// goOn is how a command that stopped says to go on.
var goOn = regexp.MustCompile(`go on with the same command and (--id) (\S+) (--skip) (\d+)\n`)

// A full queue stops the command, which says how to go on.
func TestEnqueueFileIntoAFullQueue(t *testing.T) { overBoth(t, testEnqueueFileIntoAFullQueue) }

func testEnqueueFileIntoAFullQueue(t *testing.T, by over) {
	u, client := by.producer(t, queuetest.Shared(t).URL())
	tasks := lines(1, 3000)
	u.must("queue", "limit", "mail", "2000")
	r := u.feed(tasks, "enqueue", "mail", "--file", "-")
	how := goOn.FindStringSubmatch(r.stderr)
	if r.status != exitRefused || how == nil || !strings.Contains(r.stderr, "queue is full") || pending(t, client) > 2000 {
		t.Fatalf("%+v", r)
	}
	u.must("queue", "limit", "mail", "none")
	if r = u.feed(tasks, append([]string{"enqueue", "mail", "--file", "-"}, how[1:]...)...); r.status != exitDone {
		t.Errorf("%+v", r)
	}
	enqueuedOnce(t, client, how[2], 3000)
}

// What fits goes in, in order, also where less fits than is written at once; the command names the line to go on with.
func TestEnqueueFileAsMuchAsFits(t *testing.T) { overBoth(t, testEnqueueFileAsMuchAsFits) }

func testEnqueueFileAsMuchAsFits(t *testing.T, by over) {
	for _, c := range []struct {
		limit       []string
		from, fits  int
		told, again string
	}{
		{[]string{"queue", "limit", "mail", "10"}, 60, 10, `holds 10 waiting tasks and may hold 10: wait until`, "queue limit mail none"},
		{[]string{"queue", "limit", "mail", "53"}, 100, 53, `holds 53 waiting tasks and may hold 53: wait until`, "queue limit mail none"},
		{[]string{"tenant", "set", "--tasks-waiting", "51"}, 100, 50, "tasks_waiting of tenant", "tenant set --tasks-waiting none"},
		{[]string{"tenant", "set", "--enqueue-rate", "1/d burst 6"}, 9, 5, "enqueue_rate of tenant", "tenant set --enqueue-rate none"},
	} {
		u, client := by.producer(t, queuetest.Shared(t).URL()) // its tasks are one more, which waits for the others
		u.must(c.limit...)
		tasks := lines(1, c.from)
		command := []string{"enqueue", "mail", "--file", "-", "--then", "end"}
		r := u.feed(tasks, command...)
		how := goOn.FindStringSubmatch(r.stderr)
		if r.status != exitRefused || how == nil || how[4] != fmt.Sprint(c.fits) || !strings.Contains(r.stderr, c.told) {
			t.Fatalf("%q: %+v", c.limit, r)
		}
		_, err := client.Task(t.Context(), fmt.Sprintf("%s-%d", how[2], c.fits))
		if n := pending(t, client); err != nil || n != int64(c.fits) {
			t.Errorf("%q: %d tasks are there: %v", c.limit, n, err)
		}
		u.must(strings.Fields(c.again)...)
		if r = u.feed(tasks, append(command, how[1:]...)...); r.status != exitDone {
			t.Errorf("%q: %+v", c.limit, r)
		}
		enqueuedOnce(t, client, how[2], c.from)
	}
}

// Broken connections, whose writes Redis did, and a Redis that is away for a while: the command goes on by itself.
func TestEnqueueFileDuringAnOutage(t *testing.T) { overBoth(t, testEnqueueFileDuringAnOutage) }

func testEnqueueFileDuringAnOutage(t *testing.T, by over) {
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	u, client := by.producer(t, proxy.URL())
	c := u.prepare("enqueue", "mail", "--file", "-", "--id", "x")
	stdin := start(t, c)
	feed := func(from, to int) {
		t.Helper()
		if _, err := io.WriteString(stdin, lines(from, to)); err != nil {
			t.Fatal(err)
		}
	}
	feed(1, 100)
	eventually(t, "tasks before the end of the file", func() bool { return pending(t, client) == 100 })
	proxy.CutReplies(2, "pending_tasks_mail")
	feed(101, 2500)
	eventually(t, "two replies cut", func() bool { return proxy.Cuts() == 2 })
	eventually(t, "tasks after that", func() bool { return pending(t, client) == 2500 })
	proxy.Refuse()
	feed(2501, 3000)
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	proxy.Pass()
	state := c.wait(t)
	if want := "3000 lines: 3000 enqueued, 0 existed already, 0 refused\n"; state.ExitCode() != exitDone || c.stdout.String() != want {
		t.Errorf("%s: %q, want %q", state, c.stdout, want)
	}
	enqueuedOnce(t, client, "x", 3000)
}

// start starts a prepared program that reads from a pipe.
func start(t *testing.T, c *child) io.WriteCloser {
	t.Helper()
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return stdin
}

// Ctrl-C says how to go on, which loses and doubles nothing.
func TestEnqueueFileInterrupted(t *testing.T) { overBoth(t, testEnqueueFileInterrupted) }

func testEnqueueFileInterrupted(t *testing.T, by over) {
	u, client := by.producer(t, queuetest.Shared(t).URL())
	c := u.prepare("enqueue", "mail", "--file", "-")
	stdin := start(t, c)
	if _, err := io.WriteString(stdin, lines(1, 1000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "1000 tasks", func() bool { return pending(t, client) == 1000 })
	var how []string
	eventually(t, "the answer to a SIGINT", func() bool { // one that comes before the last answer of Redis leaves lines to skip
		_ = c.Process.Signal(os.Interrupt)
		how = goOn.FindStringSubmatch(c.stderr.String())
		return how != nil
	})
	if state := c.wait(t); !state.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("%s: %s", state, c.stderr)
	}
	if r := u.feed(lines(1, 2000), append([]string{"enqueue", "mail", "--file", "-"}, how[1:]...)...); r.status != exitDone {
		t.Errorf("%+v", r)
	}
	enqueuedOnce(t, client, how[2], 2000)
}

// A line says each thing once, by its name as it is written.
func TestEnqueueFileNames(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	for line, want := range map[string]string{
		`{"parameters": "a", "parameters": "b"}`: "parameters is there twice: leave one of them out",
		`{"Parameters": "a"}`:                    `unknown field "Parameters", and what the handler gets belongs into parameters: did you mean parameters?`,
	} {
		if r := u.feed(line+"\n", "enqueue", "mail", "--file", "-"); r.status == exitDone || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// A file that cannot be read enqueues nothing.
func TestEnqueueFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	u, _ := newProducer(t, queuetest.Shared(t).URL())
	folder := t.TempDir()
	for file, want := range map[string]string{
		folder:         "quern: --file: " + folder + " is a folder: name a file of JSON lines, or - for stdin\n",
		"no such file": "quern: --file: open no such file: no such file or directory: name a file of JSON lines, or - for stdin\n",
		"none/a.jsonl": "quern: --file: open none/a.jsonl: no such file or directory: name a file of JSON lines, or - for stdin (there is no folder \"none\")\n",
	} {
		if r := u.run("enqueue", "mail", "--file", file); r != (result{exitUsage, "", want}) { // no IDs are told
			t.Errorf("%+v, want %s", r, want)
		}
	}
}
