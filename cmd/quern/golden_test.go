package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What scripts rely on, form by form: testdata holds what a user types and sees. The Redis of each
// test is its own, so that the tenant is the default one.

func TestGoldenWaitingTasks(t *testing.T) { overBoth(t, testGoldenWaitingTasks) }

func testGoldenWaitingTasks(t *testing.T, by over) {
	s := &transcript{user: by.user(t, queuetest.Start(t).URL(), "acme")}
	s.run("enqueue", "mail", "hello", "--id", "one")
	s.run("enqueue", "mail", "hello", "--id", "one", "-o", "json")
	s.run("enqueue", "mail", "other", "--id", "one")
	s.run("enqueue", "acme/mail", "hello", "--id", "one")
	s.run("enqueue", "mail", "--id", "a b")
	s.run("enqueue", "mail", `{"to": "ada"}`, "--id", "two", "--key", "ada", "--label", "a=b", "--label", "c=d", "-o", "json")
	s.feed("from stdin\n", "enqueue", "mail", "-", "--id", "three", "--delay", "1h")
	s.run("enqueue", "mail", "--id", "four", "--at", "4102444800")
	s.run("enqueue", "mail", "hello", "--wait")
	s.run("queue", "ls")
	s.run("queue", "ls", "-o", "json")
	s.run("queue", "ls", "-o", "json", "--tenant", "acme")
	s.run("queue", "show", "mail")
	s.run("queue", "show", "mail", "-o", "json")
	s.run("queue", "show", "nail")
	s.run("kv", "get", "thumbs", "one")
	s.run("task", "ls", "mail", "--status", "scheduled")
	s.run("task", "ls", "mail", "--status", "pending", "-o", "json")
	s.run("task", "ls", "mail", "--limit", "1", "--status", "scheduled", "-o", "json")
	s.run("task", "ls", "nail", "-o", "json")
	s.run("task", "show", "two")
	s.run("task", "show", "two", "-o", "json")
	s.run("task", "show", "three", "-o", "json")
	s.run("task", "show", "four", "-o", "json")
	s.run("task", "logs", "two")
	s.run("task", "delete", "two")
	s.run("task", "wait", "two", "--wait-timeout", "20ms")
	for _, verb := range []string{"show", "wait", "logs", "delete"} {
		s.run("task", verb, "none")
	}
	golden(t, "waiting", s.String())
}

func TestGoldenFinishedTasks(t *testing.T) { overBoth(t, testGoldenFinishedTasks) }

func testGoldenFinishedTasks(t *testing.T, by over) {
	s := &transcript{user: by.user(t, queuetest.Start(t).URL())}
	plugins := folder(t, map[string][]byte{
		"echo": runtimetest.Echo(t), "exit": runtimetest.Exit(t), "trap": runtimetest.Trap(t), "loop": runtimetest.Loop(t),
	})
	write(t, filepath.Join(plugins, "loop.yaml"), "name: loop\nlimits:\n  timeout: 200ms\n")
	s.host(plugins)
	s.run("enqueue", "echo", "hello", "--wait", "--id", "ok", "--key", "greeting", "--label", "a=b")
	s.run("enqueue", "echo", "--wait")
	s.run("enqueue", "echo", "--wait", "--wait-timeout", "20ms", "--delay", "1h", "--id", "slow")
	s.feed("\xff\xfe\x00", "enqueue", "echo", "-", "--id", "bytes")
	if got := s.must("task", "wait", "bytes"); got != "\xff\xfe\x00" {
		t.Errorf("result %q", got)
	}
	s.run("enqueue", "exit", "7 two\nlines\n", "--wait", "--id", "seven")
	s.run("enqueue", "exit", "65", "--wait", "--id", "fatal")
	s.run("enqueue", "exit", "75", "--wait", "--id", "later", "--max-reschedules", "1", "--backoff-max", "50ms")
	s.run("enqueue", "trap", "unreachable", "--wait", "--id", "trap")
	s.run("enqueue", "loop", "--wait", "--id", "loop")
	s.run("task", "wait", "ok")
	s.run("task", "wait", "seven")
	s.run("task", "show", "ok")
	s.run("task", "show", "ok", "-o", "json")
	s.run("task", "show", "bytes", "-o", "json")
	s.run("task", "show", "seven")
	s.run("task", "show", "seven", "-o", "json")
	s.run("task", "show", "loop", "-o", "json")
	s.run("task", "logs", "seven")
	s.run("task", "logs", "-f", "seven", "-o", "json")
	s.run("task", "ls", "exit", "--limit", "2")
	s.run("task", "ls", "exit", "--status", "failed", "--limit", "1", "-o", "json")
	s.run("queue", "show", "exit", "-o", "json")
	s.run("task", "delete", "ok", "seven")
	s.run("task", "show", "ok")
	golden(t, "finished", s.String())
}

func TestGoldenPluginLs(t *testing.T) { overBoth(t, testGoldenPluginLs) }

func testGoldenPluginLs(t *testing.T, by over) {
	server := queuetest.Start(t)
	s := &transcript{user: by.user(t, server.URL())}
	s.env["QUERN_RESET"] = "new" // that of every system
	plugins := folder(t, map[string][]byte{"mail": runtimetest.Echo(t), "page": []byte("<html>")})
	write(t, filepath.Join(plugins, "mail.yaml"), "name: mail\nversion: 1.4.0\nqueues: [mail, mail.bulk]\n")
	s.run("plugin", "ls", "-o", "json")
	s.host(plugins)
	s.host(plugins)
	eventually(t, "both hosts say what they have", func() bool {
		return regexp.MustCompile(`refused +\S+ +2 `).MatchString(s.must("plugin", "ls"))
	})
	s.run("plugin", "ls")
	s.run("plugin", "ls", "-o", "json")
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(runtimetest.Echo(t)))
	crashes := "4102444800 a~00000001_1 1.0 b~00000002_1 2.0 c~00000003_1 3.0" // until 2100
	if err := server.Client(t).HSet(t.Context(), "blueque_crashes", "mail "+digest, crashes).Err(); err != nil {
		t.Fatal(err)
	}
	s.run("plugin", "ls")
	s.run("plugin", "release", "page")
	s.run("plugin", "release", digest[:len("sha256:")+12])
	s.run("plugin", "release", "mail")
	golden(t, "plugin-ls", strings.ReplaceAll(s.String(), plugins, "DIR"))
}

// module is a command that does nothing, the same bytes wherever it is made.
func module() []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", ""), runtimetest.FunctionType("\x7f", "")),
		runtimetest.Section(runtimetest.ImportSection, runtimetest.Import("wasi_snapshot_preview1", "proc_exit", runtimetest.FunctionKind, 1)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.MemorySection, []byte{1, 2, 16}),
		runtimetest.Section(runtimetest.ExportSection,
			runtimetest.Export("memory", runtimetest.MemoryKind, 0), runtimetest.Export("_start", runtimetest.FunctionKind, 1)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()),
	)
}

// handler is a handler that does nothing.
func handler() []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "\x7f")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.MemorySection, []byte{1, 2, 16}),
		runtimetest.Section(runtimetest.ExportSection,
			runtimetest.Export("memory", runtimetest.MemoryKind, 0), runtimetest.Export("quern_handle", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(0x41, 0x00)),
	)
}

func TestGoldenPluginFiles(t *testing.T) {
	t.Parallel()
	s := &transcript{user: newUser(t, "")}
	s.env["QUERN_RESET"] = "new" // that of every system
	dir := folder(t, map[string][]byte{
		"good": module(), "cut": module()[:20], "empty": nil, "misspelled": module(), "narrow": module(), "echo": runtimetest.Echo(t),
		"exit": runtimetest.Exit(t), "two words": module(), "granted": module(), "handler": handler(), "warm": module(),
		"browser": runtimetest.Module(
			runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
			runtimetest.Section(runtimetest.ImportSection, runtimetest.Import("wbg", "now", runtimetest.FunctionKind, 0), runtimetest.Import("env", "f", runtimetest.FunctionKind, 0)),
			runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		),
	})
	write(t, filepath.Join(dir, "misspelled.yaml"), "name: misspelled\nlimits:\n  memroy: 64MiB\n")
	write(t, filepath.Join(dir, "narrow.yaml"), "name: narrow\nlimits:\n  memory: 64KiB\n")
	write(t, filepath.Join(dir, "exit.yaml"), "name: exit\nlimits:\n  input: 64B\n")
	write(t, filepath.Join(dir, "granted.yaml"), "capabilities:\n  files:\n  - {from: model.bin, to: /data/model.bin}\n  - {from: link, to: /data/link}\n"+
		"  - {from: good.bin, to: /data/good.bin}\nlimits: {cpu: 10s}\n")
	if err := os.Symlink("/etc/hosts", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "good.bin"), string(module()))
	write(t, filepath.Join(dir, "handler.yaml"), "name: handler\nwarm: {input: good.bin}\n")
	write(t, filepath.Join(dir, "warm.yaml"), "name: warm\nwarm: {input: good.bin}\n")
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"good.wasm", "cut.wasm", "empty.wasm", "misspelled.wasm", "narrow.wasm", "two words.wasm", "browser.wasm", "granted.wasm", "handler.wasm", "warm.wasm", "good.bin", "", "none.wasm"} {
		s.run("plugin", "check", file(name))
	}
	for _, name := range []string{"good.wasm", "handler.wasm", "browser.wasm", "misspelled.wasm", "none.wasm"} {
		s.run("plugin", "check", "-o", "json", file(name))
	}
	s.feed("hello", "plugin", "run", file("echo.wasm"))
	s.run("plugin", "run", file("handler.wasm"))
	s.feed("0 log line", "plugin", "run", file("exit.wasm"))
	s.feed("0 log line\nquern:progress=0.42 resizing\n", "plugin", "run", file("exit.wasm"))
	s.feed("75 busy", "plugin", "run", file("exit.wasm"))
	s.feed("9 log\x1b line", "plugin", "run", file("exit.wasm"))
	s.feed("0 more than the limit"+strings.Repeat(".", 64), "plugin", "run", file("exit.wasm"))
	for _, name := range []string{"browser.wasm", "misspelled.wasm", "narrow.wasm", "granted.wasm", "warm.wasm", "none.wasm"} {
		s.run("plugin", "run", file(name))
	}
	golden(t, "plugin-files", strings.ReplaceAll(s.String(), dir, "DIR"))
}

func TestGoldenWrongUsage(t *testing.T) {
	t.Parallel()
	s := &transcript{user: newUser(t, "")}
	for _, line := range []string{
		"enqeue mail", "task", "task shw one", "logs deep", "schedule create x --every 1m", "queue prge mail", "help foo", "completion foo", "completion bash foo",
		"--verbose", "task ls mail --stats failed", "task ls mail -x", "task ls mail --limit", "task ls mail --limit many", "task ls mail --limit -1",
		"task ls mail --status done", "task ls mail -o xml", "task show", "task show one two", "enqueue", "task delete",
		"enqueue mail -5", "enqueue mail --delay 5", "enqueue mail --delay -5s", "enqueue mail --at tomorrow", "enqueue mail --at 1 --delay 1s",
		"enqueue mail --label foo", "enqueue mail --label a=1 --label a=2", "admin --base-path /a/../b", "enqueue mail x --file tasks", "enqueue mail --file= x", "enqueue mail --file tasks --wait", "enqueue mail --skip 3", "enqueue mail --wait=perhaps", "enqueue mail --wait -o json", "enqueue mail --wait-timeout 1s", "task wait one --wait-timeout 0.5",
		"enqueue mail --max-attempts 0", "enqueue mail --max-attempts 9999999999", "enqueue mail --max-attempts lots", "enqueue mail --max-reschedules 0", "enqueue mail --backoff random",
		"enqueue mail --backoff-base 0s", "enqueue mail --backoff-min 5s --backoff-max 1s", "enqueue mail --max-age 1y", "enqueue mail --timeout 0",
		"enqueue mail --deadline tomorrow", "enqueue mail --delay 99999d", "schedule create s --missed none", "enqueue mail --deadline= x", "enqueue mail --unique= x", "enqueue mail --unique=false", "enqueue mail --unique-for 1m",
		"enqueue mail --unique --unique-for 1ms", "enqueue mail --priority 101", "enqueue mail --priority high", "enqueue mail --replicas -1",
		"task cancel", "task cancel one --no-wait --wait-timeout 1s", "task retry", "task retry one --queue mail", "task retry one --limit 1",
		"task retry --queue mail --older-than 0s", "task retry --queue mail --limit 0", "task retry --queue mail --label x", "task ls mail --label x",
		"subscription create a --queue q", "subscription create a --topic t", "subscription create a --topic t --queue q --final",
		"subscription create a --topic t --queue q --data a", "subscription update a --clear all", "topic publish", "topic publish t x --id=",
		"topic publish t x --attribute a", "queue pause", "queue limit mail -1", "queue limit mail 1.5", "queue purge mail", "queue purge mail --keep 0", "queue purge mail --all --keep 1",
		"queue purge mail --older-than soon", "queue purge mail --status pending", "node", "node drain", "node reclaim", "node recliam one",
		"enqueue mail --tenant A_b", "plugin new", "plugin new .mail", "plugin new mail:bulk", "plugin new mail --lang cobol", "plugin run",
		"serve now", "serve --tenants a,a", "serve --memory 80", "serve --memory 120%", "serve --queues [", "serve --http 9464", "serve --lease 1ms",
		"serve --concurrency 20000", "serve --poll 0s", "serve --max-timeout -1s", "serve --max-cpu 10", "serve --max-crashes 0", "serve --max-queues 0", "serve --ceiling limits.log=1", "serve --keep -1s",
		"serve --keep-tasks -1", "serve --max-attempts 0", "serve --purge-foreign=perhaps", "serve --log-level loud", "serve --reset pages", "plugin check one --reset best", "serve --idle-unload 5", "serve --redis localhost:6379",
		"dev --redis redis://localhost", "--config none.yaml version", "task show one --redis-file none",
		"task show one --redis redis://localhost/0 --redis-file none",
	} {
		s.run(strings.Fields(line)...)
	}
	s.run("enqueue", "two words", "--redis", "redis://127.0.0.1:1/0")
	s.run("task", "show", "two words", "--redis", "redis://127.0.0.1:1/0")
	s.run("task", "show", "one", "--redis", "redis://ada:s3/cret@127.0.0.1/0")
	s.run("task", "show", "one", "--redis", "redis://ada:s3cret@127.0.0.1/first")
	s.run("task", "show", "one", "--redis", "redis://127.0.0.1/0?pasword=s3cret")
	s.run("task", "show", "one", "--redis", "redis://127.0.0.1/0?password=s3&cret=1")
	golden(t, "wrong-usage", s.String())
	if shown := regexp.MustCompile(`(?m)^! .*(s3|cret).*`).FindString(s.String()); shown != "" {
		t.Errorf("a password is shown: %s", shown)
	}
}

func TestGoldenHelp(t *testing.T) {
	t.Parallel()
	s := &transcript{user: newUser(t, "")}
	var all func(cmd *cobra.Command, path []string)
	all = func(cmd *cobra.Command, path []string) {
		s.run(append(path, "--help")...)
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				all(sub, append(path[:len(path):len(path)], sub.Name()))
			}
		}
	}
	all(newRoot(s.lookup), nil)
	s.run("completion", "--help")
	golden(t, "help", s.text.String())
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if out := newUser(t, "").must("version"); !regexp.MustCompile(`^quern \S+( \([0-9a-f]{12}(\+changes)?\))? go1\.\d+\S* \w+/\w+\n$`).MatchString(out) {
		t.Errorf("%q", out)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	script := newUser(t, "").must("completion", "bash")
	bash := exec.CommandContext(t.Context(), "bash", "-n")
	bash.Stdin = strings.NewReader(script)
	if out, err := bash.CombinedOutput(); err != nil || !strings.Contains(script, "__start_quern") {
		t.Errorf("%v\n%s\n%s", err, out, script)
	}
}
