package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Who reads stdout may go away, as head does: the program ends by SIGPIPE and says nothing.
func TestStdoutClosed(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	defer writer.Close()
	c := newUser(t, "").prepare("version")
	c.Stdout = writer
	_ = c.Run()
	status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGPIPE || c.stderr.String() != "" {
		t.Errorf("%s: %s", c.ProcessState, c.stderr)
	}
}

// A disk that is full is no success.
func TestStdoutFull(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("only Linux has a device that is always full")
	}
	defer full.Close()
	u := newUser(t, queuetest.Shared(t).URL())
	dir := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	for _, args := range []string{"version", "help tasks", "queue ls --tenant full", "queue ls --tenant full -o json", "enqueue mail --tenant full", "plugin run " + dir + "/echo.wasm"} {
		var stderr strings.Builder
		err := run(t.Context(), strings.Fields(args), u.lookup, strings.NewReader("hello"), full, &stderr)
		if status := cli.Report(err, &stderr); status != exitRefused || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%s: exit %d: %s", args, status, &stderr)
		}
	}
}

// The real program, with the system's own environment, finds no settings that it does not know.
func TestMainProgram(t *testing.T) {
	t.Parallel()
	c := newUser(t, "redis://127.0.0.1:1/0").with(map[string]string{
		"QUERN_SERVICE_HOST": "10.0.0.1", "QUERN_PORT": "tcp://10.0.0.1:9464", "QUERN_PORT_9464_TCP_ADDR": "10.0.0.1", "QUERN_NONSENSE": "1",
	}).prepare("queue", "ls")
	_ = c.Run()
	want := "quern: list queues in blueque_queues: dial tcp 127.0.0.1:1: connect: connection refused: start Redis there, name another with --redis, or run `quern dev`\n"
	if c.ProcessState.ExitCode() != exitRefused || c.stderr.String() != want || c.stdout.String() != "" {
		t.Errorf("%s: %s%s", c.ProcessState, c.stdout, c.stderr)
	}
}

// A Redis that never answers: each command says so with a remedy, and nobody enqueues a task twice.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	u := newUser(t, "redis://"+listener.Addr().String()+"/0?read_timeout=200ms")
	for args, want := range map[string]string{
		"queue ls":                                "Redis does not answer",
		"queue pause mail":                        "Redis does not answer",
		"enqueue mail --id one":                   "repeat it with --id one, which enqueues it once: Redis does not answer",
		"task wait one --wait-timeout 50ms":       "task one is not finished after 50ms",
		"enqueue mail --wait --wait-timeout 50ms": "Redis does not answer",
	} {
		if r := u.run(strings.Fields(args)...); r.status != exitRefused || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s", args, r.status, r.stderr)
		}
	}
}

// A result is the bytes that the task wrote, whatever they are, also of a size that no pipe holds.
func TestResultBytes(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	dir := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	u.host(dir)
	every := make([]byte, 1<<20)
	for i := range every {
		every[i] = byte(i * i >> 3)
	}
	for _, args := range [][]string{{"plugin", "run", dir + "/echo.wasm"}, {"enqueue", "echo", "-", "--wait"}} {
		if r := u.feed(string(every), args...); r.status != exitDone || r.stdout != string(every) || r.stderr != "" {
			t.Errorf("%v: exit %d, %d bytes: %s", args, r.status, len(r.stdout), r.stderr)
		}
	}
}

// A plugin that is run locally reads the files that its manifest grants.
func TestPluginRunGrantsFiles(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"cat": runtimetest.Cat(t)})
	write(t, filepath.Join(dir, "cat.yaml"), "capabilities: {files: [{from: model.txt, to: /data/model.txt}]}")
	if r := u.feed("/data/model.txt", "plugin", "run", dir+"/cat.wasm"); r.status != exitRefused || !strings.Contains(r.stderr, "there is no such file") {
		t.Errorf("without the file: exit %d: %s", r.status, r.stderr)
	}
	write(t, filepath.Join(dir, "model.txt"), "weights")
	u.must("plugin", "check", dir+"/cat.wasm")
	if r := u.feed("/data/model.txt", "plugin", "run", dir+"/cat.wasm"); r.status != exitDone || r.stdout != "weights" {
		t.Errorf("exit %d, %q: %s", r.status, r.stdout, r.stderr)
	}
	if r := u.feed("/checkpoint", "plugin", "run", dir+"/cat.wasm"); r.status != exitFailed {
		t.Errorf("/checkpoint: exit %d, %q", r.status, r.stdout)
	}
}

// Where nobody serves the queue, that is said before stdin is read: it may never end.
func TestEnqueueWaitRefusedAtOnce(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	endless, held := io.Pipe()
	defer held.Close()
	var stdout, stderr strings.Builder
	err := run(t.Context(), []string{"enqueue", "mail", "-", "--wait"}, u.lookup, endless, &stdout, &stderr)
	if status := cli.Report(err, &stderr); status != exitRefused || !strings.Contains(stderr.String(), "no host serves") || stdout.String() != "" {
		t.Errorf("exit %d: %s", status, &stderr)
	}
	if got := u.must("queue", "ls", "-o", "json"); got != "[]\n" {
		t.Errorf("it was enqueued: %s", got)
	}
}

// Nothing that a task leaves in Redis reaches the terminal as a control sequence.
func TestEscapes(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	u.must("enqueue", "mail", "pa\x1b[2Jram", "--id", "one", "--key", "k\x1b[2Jey", "--label", "la\x1bbel=va\x1blue", "--delay", "1h")
	rdb := queuetest.Shared(t).Client(t)
	key := u.env["QUERN_TENANT"] + "_task_one"
	if err := rdb.HSet(t.Context(), key, "status", "failed", "error", "\x1b[2Jbad\nnews", "node", "\x1bnode", "message", "\x1bmessage", "plugin", "\x1bplugin").Err(); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"task show one", "task ls mail", "task wait one"} {
		r := u.run(strings.Fields(args)...)
		if text := r.stdout + r.stderr; strings.Contains(text, "\x1b") || !strings.Contains(text, "one") {
			t.Errorf("%s: %q", args, text)
		}
	}
}

// An argument of any length, quoted in an error, leaves the error readable: its head and its remedy.
func TestErrorOfALongArgument(t *testing.T) {
	t.Parallel()
	r := newUser(t, "").run("queue", "show", strings.Repeat("ä", 50_000), "--tenant", "A")
	if r.status != exitUsage || len(r.stderr) > 8000 || !utf8.ValidString(r.stderr) {
		t.Errorf("exit %d, %d bytes: %.200s", r.status, len(r.stderr), r.stderr)
	}
	r = newUser(t, "").run(strings.Repeat("ä", 50_000))
	if r.status != exitUsage || len(r.stderr) > 8000 || !strings.Contains(r.stderr, "ä…ä") || !strings.HasSuffix(r.stderr, ", version\n") {
		t.Errorf("exit %d, %d bytes: %.200s", r.status, len(r.stderr), r.stderr)
	}
}

// A long stderr is shown by its head and its tail, with a mark between them.
func TestTaskShowOfALongStderr(t *testing.T) {
	t.Parallel()
	u := newTenant(t)
	u.must("enqueue", "mail", "--id", "one", "--delay", "1h")
	failed := fmt.Sprintf(`{"reason":"memory","message":"too much","stderr":"first%slast"}`, strings.Repeat("x", 3000))
	if err := queuetest.Shared(t).Client(t).HSet(t.Context(), u.env["QUERN_TENANT"]+"_task_one", "status", "failed", "error", failed).Err(); err != nil {
		t.Fatal(err)
	}
	if got := u.must("task", "show", "one"); !regexp.MustCompile("first(x+)\\s+… 1009 bytes left out: `quern task logs one` …\\s+x+last").MatchString(got) {
		t.Error(got)
	}
}

// What Redis refuses is told with what to do about it.
func TestRedisReplies(t *testing.T) {
	t.Parallel()
	full := queuetest.Start(t, "--maxmemory", "1b")
	replica := queuetest.Start(t, "--replicaof", "127.0.0.1 1")
	if r := newUser(t, replica.URL()).run("serve", "--check"); r.status != exitRefused || !strings.Contains(r.stderr, "this Redis is a replica, which takes no tasks: name the primary") {
		t.Errorf("serve --check of a replica: exit %d: %s", r.status, r.stderr)
	}
	shared := queuetest.Shared(t)
	rdb, name := shared.Client(t), queuetest.Tenant()
	if err := rdb.Set(t.Context(), name+"_pending_tasks_mail", "of another program", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">s3cret", "~*", "&*", "+@read", "+@connection").Err(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, redis, want string }{
		{"Full", full.URL(), "OOM .*: Redis is full: raise maxmemory, or delete finished tasks"},
		{"Replica", replica.URL(), "READONLY .*: this Redis is a replica: name the primary with --redis"},
		{"OtherType", shared.URL(), "a key of the queue is of another type: WRONGTYPE .*: something else uses a key of this tenant: delete the key, or take another tenant"},
		{"Forbidden", "redis://reader:s3cret@" + shared.Addr() + "/0", "NOPERM .*: grant the Redis user what it needs: see Redis users \\(ACL.md\\) in the documentation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newUser(t, tt.redis).run("enqueue", "mail", "--tenant", name)
			if r.status != exitRefused || !regexp.MustCompile(`^quern: enqueue in "mail": `+tt.want+"\n$").MatchString(r.stderr) {
				t.Errorf("exit %d: %s", r.status, r.stderr)
			}
		})
	}
}
