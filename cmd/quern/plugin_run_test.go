package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// warmed is a handler that counts its calls in its memory, and traps if its input has five bytes.
const warmed = `(module
	(import "quern_v1" "input_size" (func $input_size (result i32)))
	(import "quern_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
	(memory (export "memory") 1)
	(data (i32.const 0) "0")
	(func (export "quern_handle") (result i32)
		(i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const 1)))
		(if (i32.eq (call $input_size) (i32.const 5)) (then unreachable))
		(call $output_write (i32.const 0) (i32.const 1))))`

// A task that runs for long may be an endless loop, so the command says what to do.
func TestPluginRunTellsOfLongTasks(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"wait": runtimetest.BuildWAT(t, `(module (memory (export "memory") 1)
		(func (export "quern_handle") (result i32) (loop (br 0)) (unreachable)))`)})
	c := u.spawn("plugin", "run", filepath.Join(dir, "wait.wasm"), "--timeout", "1m")
	c.stderr.await(t, regexp.MustCompile(`quern: it has run for 10s, of 1m0s at most \(limits\.timeout, --timeout\): Ctrl-C ends it and says where it is\n`))
	_ = c.Process.Signal(os.Interrupt)
	c.wait(t)
}

// A run finds the handler as a task on a host does: warmed, where its reset mode keeps an image. That it is not is told.
// A Ctrl-C names the place where the handler waits, and the shell sees that it was one.
func TestPluginRunInterrupted(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"wait": runtimetest.BuildWAT(t, `(module
		(import "quern_v1" "progress" (func $progress (param f64 i32 i32) (result i32)))
		(import "quern_v1" "sleep" (func $sleep (param i64) (result i32)))
		(memory (export "memory") 1) (data (i32.const 16) "a.py:7 in f\0a")
		(func (export "quern_handle") (result i32)
			(drop (call $progress (f64.const 0.5) (i32.const 0) (i32.const 0)))
			(call $sleep (i64.const 3600000000000)))
		(func (export "quern_where") (result i32) (i32.const 16)))`)})
	c := u.spawn("plugin", "run", filepath.Join(dir, "wait.wasm"))
	c.stderr.await(t, regexp.MustCompile("progress 50 %"))
	_ = c.Process.Signal(os.Interrupt)
	state := c.wait(t)
	if status, ok := state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %s", state)
	}
	if said := c.stderr.String(); !strings.HasSuffix(said, "\nquern: interrupted at a.py:7 in f\n") {
		t.Errorf("it said %q", said)
	}
}

func TestPluginRunWarm(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	module := runtimetest.BuildWAT(t, warmed)
	dir := folder(t, map[string][]byte{"good": module, "bad": module, "plain": module})
	write(t, filepath.Join(dir, "good.yaml"), "name: good\nwarm: {input: good.bin}\n")
	write(t, filepath.Join(dir, "bad.yaml"), "name: bad\nwarm: {input: bad.bin}\n")
	write(t, filepath.Join(dir, "good.bin"), "warm")
	write(t, filepath.Join(dir, "bad.bin"), "traps")
	modes := []runtime.ResetMode{runtime.ResetNew}
	if best := bestResetMode(); best != runtime.ResetNew {
		modes = append(modes, best)
	}
	for _, mode := range modes {
		run := func(name string) result {
			return u.run("plugin", "run", filepath.Join(dir, name+".wasm"), "--reset", string(mode))
		}
		warm, warnings := "2", 1
		if mode == runtime.ResetNew {
			warm, warnings = "1", 0
		}
		if got := run("plain"); got != (result{exitDone, "1", ""}) {
			t.Errorf("%s: without warm: %+v", mode, got)
		}
		if got := run("good"); got != (result{exitDone, warm, ""}) {
			t.Errorf("%s: %+v, want %s", mode, got, warm)
		}
		got := run("bad")
		if got.status != exitDone || got.stdout != "1" || strings.Count(got.stderr, "\n") != warnings ||
			strings.Count(got.stderr, "no warm snapshot: the warm call failed: ") != warnings ||
			strings.Count(got.stderr, " plugin=bad ") != warnings || strings.Count(got.stderr, "unreachable") != warnings {
			t.Errorf("%s: of a warm call that traps: %+v, want %d lines of why", mode, got, warnings)
		}
		for _, output := range []string{"text", "json"} {
			view := u.must("plugin", "check", filepath.Join(dir, "good.wasm"), "--reset", string(mode), "-o", output)
			if noted := strings.Contains(view, "warm has no effect with reset mode new"); noted != (mode == runtime.ResetNew) {
				t.Errorf("check on %s: %s", mode, view)
			}
		}
	}
	if view := u.must("plugin", "check", filepath.Join(dir, "plain.wasm"), "--reset", "new", "-o", "json"); strings.Contains(view, "notes") {
		t.Errorf("check without warm: %s", view)
	}
}

// A command sees the attempt and the reschedules that the flags name, and its own timeout counts within that of the limits.
func TestPluginRunTask(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"env": runtimetest.BuildC(t, "#include <stdio.h>\n#include <stdlib.h>\nint main(void) {\n"+
		"\tconst char *again = getenv(\"TASK_RESCHEDULES\");\n\tif (getchar() == 'x') for (;;);\n"+
		"\tprintf(\"%s %s\", getenv(\"TASK_ATTEMPT\"), again ? again : \"-\");\n}\n")})
	file := filepath.Join(dir, "env.wasm")
	for flags, want := range map[string]string{"": "1 -", "--attempt 3": "3 -", "--attempt 2 --reschedules 97": "2 97"} {
		if got := u.must(append([]string{"plugin", "run", file}, strings.Fields(flags)...)...); got != want {
			t.Errorf("%s: %q, want %q", flags, got, want)
		}
	}
	if r := u.feed("x", "plugin", "run", file, "--timeout", "300ms"); r.status != exitFailed || !strings.Contains(r.stderr, "(timeout)") {
		t.Errorf("%+v", r)
	}
	for _, flag := range []string{"--attempt=0", "--reschedules=-1", "--timeout=x"} {
		if r := u.run("plugin", "run", file, flag); r.status != exitUsage {
			t.Errorf("%s: %+v", flag, r)
		}
	}
}

// A file that does not exist is told with the folder that is missing, with the file that was probably meant, or with the command that
// builds it.
func TestPluginRunMissing(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := t.TempDir()
	run := func(args ...string) result {
		c := u.prepare(args...)
		c.Dir = dir
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return result{c.wait(t).ExitCode(), c.stdout.String(), c.stderr.String()}
	}
	if r := run("plugin", "new", "source", "--lang", "py"); r.status != exitDone || !strings.Contains(r.stdout, "source/handler.py\n") {
		t.Fatalf("%+v", r)
	}
	write(t, filepath.Join(dir, "handlers", "here.wasm"), "x")
	write(t, filepath.Join(dir, "folder", "folder.wasm"), "x")
	for file, want := range map[string]string{
		"none/x.wasm":      `no such file "none/x.wasm" (there is no folder "none"): name a .wasm file`,
		"x.wasm":           `no such file "x.wasm": name a .wasm file`,
		"here.wasm":        `no such file "here.wasm": did you mean handlers/here.wasm?`,
		"folder.wasm":      `no such file "folder.wasm": did you mean folder/folder.wasm?`,
		"lost/folder.wasm": `no such file "lost/folder.wasm" (there is no folder "lost"): did you mean folder/folder.wasm?`,
		"source.wasm":      "no such file \"source.wasm\": build it with `quern plugin build source`, and name source/source.wasm",
	} {
		if r := run("plugin", "run", file); r != (result{exitUsage, "", "quern: " + want + "\n"}) {
			t.Errorf("%s: %+v, want %s", file, r, want)
		}
	}
	r := run("queue", "ls", "--redis-file", "none/deep/url")
	if r.status != exitUsage || !strings.HasSuffix(r.stderr, " (there is no folder \"none\")\n") {
		t.Errorf("%+v", r)
	}
}

// asking is a handler that asks its host for what the first byte of its input says, and answers what it got.
const asking = `#include "quern.h"

static char room[1000];

static void tell(int32_t answer) {
	quern_builder b = quern_build(room, sizeof room);
	quern_add_number(&b, answer);
	quern_add(&b, "\n", 1);
	quern_output_write(room, b.size);
}

static void show(int32_t answer) {
	int32_t size = quern_slot(answer, room, sizeof room);
	if (size < 0) tell(size);
	else quern_output_write(room, size);
}

static int32_t add(const char *bucket) {
	int64_t sum = 0;
	int32_t answer = quern_kv_increment(bucket, quern_length(bucket), QUERN_TEXT("n"), 40, &sum);
	return answer < 0 ? answer : (int32_t)sum;
}

QUERN_HANDLER int32_t handle(void) {
	char in[500];
	int32_t size = quern_input(in, sizeof in);
	if (size < 1) return QUERN_FAILED;
	switch (in[0]) {
	case 'k':
		tell(add("seen"));
		tell(add("seen"));
		tell(add("read"));
		break;
	case 'c':
		show(quern_checkpoint_load());
		tell(quern_checkpoint_save(QUERN_TEXT("half")));
		show(quern_checkpoint_load());
		break;
	case 'd': {
		static char list[500];
		int32_t got = quern_slot(quern_task_text(QUERN_TASK_DEPENDENCIES), list, sizeof list);
		if (got < 0) return tell(got), 0;
		quern_view rest = quern_view_of(list, got), id, end;
		while (quern_next_dependency(&rest, &id, &end)) {
			quern_output_write(QUERN_VIEW(end));
			show(quern_dependency_result(QUERN_VIEW(id)));
		}
		break;
	}
	case 'g':
		show(quern_config_get(QUERN_TEXT("size")));
		break;
	case 's':
		show(quern_secret_get(QUERN_TEXT("key")));
		show(quern_secret_get(QUERN_TEXT("missing")));
		show(quern_secret_get(QUERN_TEXT("other")));
		break;
	case 'h':
	case 'H':
	for (int left = in[0] == 'H' ? 3 : 1; left > 0; left--) {
		quern_builder head = quern_object(room, sizeof room);
		quern_text_member(&head, "url", in + 1, size - 1);
		quern_end_object(&head);
		static char answer[4000];
		quern_view about, body;
		int32_t got = quern_slot(quern_http(QUERN_VIEW(head), NULL, 0), answer, sizeof answer);
		if (got < 0) {
			tell(got);
			continue;
		}
		tell(quern_split_answer(answer, got, &about, &body));
		quern_output_write(QUERN_VIEW(body));
	}
		break;
	case 'e':
	case 'f':
		show(quern_enqueue(QUERN_TEXT("jobs.a"), QUERN_TEXT("{\"x\": 1}"), QUERN_TEXT("{\"key\":\"k\",\"delay_ms\":5000,\"priority\":70}")));
		show(quern_enqueue(QUERN_TEXT("jobs.b"), QUERN_TEXT("\xff\x00"), NULL, 0));
		show(quern_enqueue(QUERN_TEXT("bills"), NULL, 0, NULL, 0));
		show(quern_enqueue(QUERN_TEXT("jobs.c"), NULL, 0, QUERN_TEXT("{\"priority\":101}")));
		if (in[0] == 'f') return QUERN_FAILED;
	}
	return QUERN_COMPLETE;
}
`

// What a module imports and its manifest does not grant is denied at the call, and told with the line to add.
func TestPluginRunWithoutGrants(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	file := filepath.Join(t.TempDir(), "small.wasm")
	write(t, file, string(runtimetest.BuildCHandler(t, asking)))
	for input, want := range map[string]string{
		"k":                    `quern_v1.kv_increment: denied: bucket "seen" is not granted: add capabilities: {kv: [{bucket: "seen", access: rw}]}`,
		"s":                    `quern_v1.secret_get: denied: secret "key" is not granted: add capabilities: {secrets: ["key"]}`,
		"hhttps://example.com": `quern_v1.http: GET https://example.com: denied: the manifest does not allow it: add capabilities: {http: [{host: "https://example.com", methods: [GET]}]}`,
		"e":                    `quern_v1.enqueue: denied: queue "jobs.a" is not granted: add capabilities: {enqueue: {queues: ["jobs.a"]}}`,
	} {
		got := u.feed(input, "plugin", "run", file)
		if got.status != exitDone || !strings.Contains(got.stdout, "-3\n") || !strings.Contains(got.stderr, want+"\n") {
			t.Errorf("%s: %+v\nwant %s", input, got, want)
		}
	}
	if got := u.run("plugin", "check", file); got.status != exitDone || !strings.Contains(got.stdout,
		"http: imported, and denied to each task: add capabilities: {http: [{host: \"https://HOST\", methods: [GET]}]}") {
		t.Errorf("%+v", got)
	}
}

// A handler that is run has what its manifest grants, and is told by who looks on what it is denied.
func TestPluginRunServices(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "you asked for "+r.URL.Path)
	}))
	defer server.Close()
	const grants = "name: small\nconfig: {size: 200x200}\ncapabilities:\n  kv: [{bucket: seen, access: rw}, {bucket: read}]\n" +
		"  http: [{host: %q, methods: [GET]}, {host: \"http://10.0.0.5\", methods: [GET]}]\n  secrets: [key, missing]\n  enqueue: {queues: [\"jobs.*\"], after: %s}\n"
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{
		"a.c": asking, "quern.h": string(content(t, "../../sdk/c/quern.h")), "small.yaml": fmt.Sprintf(grants, server.URL, "complete"),
	})
	u.must("plugin", "build", dir)
	secrets := t.TempDir()
	write(t, filepath.Join(secrets, "blueque", "key"), "s3cret\n")
	write(t, filepath.Join(secrets, "blueque", "other"), "not granted")
	const note = "quern: the buckets are in memory: empty at the start, forgotten at the end\n"
	const reason = "quern_v1.enqueue: denied: queue \"bills\" is not granted: add \"bills\" to queues in capabilities.enqueue\n"
	// The failure tells the last refusal, so the log does not tell it before.
	const wrong = "quern_v1.enqueue: invalid: priority 101: use 0 to 100; higher ones run first, 50 is the default\n"
	const enqueued = "quern: enqueued local-1 to jobs.a, key k, priority 70, after 5s: {\"x\": 1}\nquern: enqueued local-2 to jobs.b: 2 bytes\n"
	for _, test := range []struct {
		name, input string
		flags       []string
		want        result
	}{
		{"KV", "k", nil, result{exitDone, "40\n80\n-3\n", "quern_v1.kv_increment: denied: bucket \"read\" is granted for reading only: " +
			"add access: rw to bucket \"read\" in capabilities.kv\n"}},
		{"KVAgain", "k", nil, result{exitDone, "40\n80\n-3\n", "*"}},
		{"Checkpoint", "c", nil, result{exitDone, "-4\n0\nhalf", ""}},
		{"Dependencies", "d", []string{"--dependency", "one=" + filepath.Join(secrets, "blueque", "key"), "--dependency", "two"}, result{exitDone, "completes3cret\nfailed-4\n", ""}},
		{"Config", "g", nil, result{exitDone, "200x200", ""}},
		{"NoSecrets", "s", nil, result{exitDone, "-4\n-4\n-3\n", "*"}},
		{"Secrets", "s", []string{"--secrets", secrets}, result{exitDone, "s3cret-4\n-3\n", "quern_v1.secret_get: denied: " +
			"secret \"other\" is not granted: add \"other\" to capabilities.secrets\n"}},
		{"HTTP", "h" + server.URL + "/a", []string{"--allow-networks", "127.0.0.0/8"}, result{exitDone, "200\nyou asked for /a", ""}},
		{"HTTPLoopback", "h" + server.URL + "/a", nil, result{exitDone, "200\nyou asked for /a", "quern: a handler calls " + server.URL +
			" on this machine, as its manifest allows; `quern serve` also needs --allow-networks 127.0.0.1/32\n"}},
		{"HTTPNetwork", "hhttp://10.0.0.5/", nil, result{exitDone, "-3\n", "quern_v1.http: GET http://10.0.0.5: denied: " +
			"10.0.0.5 is private (RFC 1918): the operator can allow the address with --allow-networks 10.0.0.5/32\n"}},
		{"HTTPHost", "hhttps://example.com/", nil, result{exitDone, "-3\n", "*"}},
		{"Enqueue", "e", nil, result{exitDone, "local-1local-2-3\n-1\n", reason + wrong + enqueued}},
		{"EnqueueFails", "f", nil, result{exitFailed, "", reason + "task local failed (error): exit status 1: " + wrong}},
	} {
		got := u.feed(test.input, append([]string{"plugin", "run", filepath.Join(dir, "small.wasm")}, test.flags...)...)
		noted := strings.Contains(got.stderr, note)
		got.stderr = strings.Replace(got.stderr, note, "", 1)
		if test.want.stderr == "*" {
			test.want.stderr = got.stderr
		}
		if got != test.want || !noted {
			t.Errorf("%s: %+v (it is noted: %t), want %+v", test.name, got, noted, test.want)
		}
	}
	write(t, filepath.Join(dir, "small.yaml"), fmt.Sprintf(grants, server.URL, "call"))
	if got := u.feed("f", "plugin", "run", filepath.Join(dir, "small.wasm")); got.status != exitFailed || !strings.Contains(got.stderr, enqueued) {
		t.Errorf("at once, and failed: %+v", got)
	}
	proxied, _ := url.Parse(server.URL)
	for flags, says := range map[string]string{
		"--secrets=" + filepath.Join(secrets, "none"): "not a readable folder: name the one with TENANT/NAME",
		"--allow-networks=everywhere":                 "use an address and its bits, such as 10.0.0.0/8",
		"--proxy=" + proxied.Host:                     "proxy",
		"--dependency=one=" + secrets + "/none":       "of the dependency one cannot be read: no such file or directory",
		"--dependency=a b":                            "use ID=FILE, or ID alone",
	} {
		if got := u.run("plugin", "run", filepath.Join(dir, "small.wasm"), flags); got.status != exitUsage || !strings.Contains(got.stderr, says) {
			t.Errorf("%s: %+v", flags, got)
		}
	}
}

// In development the manifest's grant of a loopback address is enough, which the log says once. A host of serve also wants
// the flag.
func TestLoopbackOfHosts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "you asked for "+r.URL.Path)
	}))
	defer server.Close()
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{
		"a.c": asking, "quern.h": string(content(t, "../../sdk/c/quern.h")),
		"small.yaml": fmt.Sprintf("name: small\ncapabilities: {http: [{host: %q, methods: [GET]}, {host: \"http://10.0.0.5\", methods: [GET]}]}\n", server.URL),
	})
	u.must("plugin", "build", dir)
	const said = "on this machine, as its manifest allows; `quern serve` also needs --allow-networks 127.0.0.1/32"
	for _, test := range []struct {
		user    *user
		command string
		want    string
		said    int
	}{{newUser(t, ""), "dev", "200\nyou asked for /a", 1}, {newUser(t, queuetest.Shared(t).URL()), "serve", "-3\n", 0}} {
		c := test.user.start(test.command, "--plugins", dir)
		c.serving(dir)
		for range 2 {
			if got := test.user.must("enqueue", "small", "h"+server.URL+"/a", "--wait"); got != test.want {
				t.Errorf("%s: %q, want %q", test.command, got, test.want)
			}
		}
		if got := test.user.must("enqueue", "small", "hhttp://10.0.0.5/", "--wait"); got != "-3\n" {
			t.Errorf("%s: another private address: %q", test.command, got)
		}
		if test.command == "dev" {
			test.user.must("subscription", "create", "hook", "--topic", "loopback", "--url", server.URL+"/hook")
			test.user.must("topic", "publish", "loopback", "x")
			c.stderr.await(t, regexp.MustCompile("a webhook goes to "+server.URL+" on this machine, as its subscription says; "))
		}
		c.stop()
		if c.wait(); strings.Count(c.stderr.String(), said) != test.said {
			t.Errorf("%s: %s, want %d times %q", test.command, c.stderr, test.said, said)
		}
	}
}

// With a host's grants a plugin has what the ceiling leaves of its manifest, and the tenant's config and secrets.
func TestPluginRunGrants(t *testing.T) {
	t.Parallel()
	u := newUser(t, "").with(map[string]string{"QUERN_GRANTS": "/nowhere"}) // is a host's
	dir := sourceFolder(t, map[string]string{
		"a.c": asking, "small.yaml": "name: small\nconfig: {size: 200x200}\ncapabilities:\n" +
			"  kv: [{bucket: seen, access: rw}, {bucket: read}]\n  http: [{host: \"https://example.com\", methods: [GET]}]\n" +
			"  secrets: [key, missing]\n  enqueue: {queues: [\"jobs.*\"], after: call}\ntests: [{input: g, output: out}, {input: d, output: ends, dependencies: [{id: one, result: out}, {id: two}]}]\n",
		"g": "g", "out": "300x300", "d": "d", "ends": "complete300x300failed-4\n",
	})
	u.must("plugin", "build", dir)
	secrets := t.TempDir()
	write(t, filepath.Join(secrets, "acme", "missing"), "from the folder")
	write(t, filepath.Join(secrets, "key"), "from a file\n")
	grants := filepath.Join(secrets, "grants.yaml")
	write(t, grants, `
acme: {config: {size: 300x300}, secrets: {key: {file: key}}}
bound:
  capabilities: {kv: [{bucket: "*"}], secrets: [missing], enqueue: {queues: ["*"]}}
  secrets: {key: {value: 0123456789}, missing: {file: nowhere}}
"*": {capabilities: {}}
`)
	place := func(line string) string {
		return `the manifest allows it, the host does not: add ` + line + ` of "bound" in ` + grants
	}
	for _, test := range []struct {
		tenant, input, want string
		says                []string // on stderr
	}{
		{"acme", "g", "300x300", nil},
		{"other", "g", "200x200", nil},
		{"acme", "s", "from a filefrom the folder-3\n", nil},
		{"acme", "k", "40\n80\n-3\n", nil},
		{"bound", "k", "-3\n-3\n-3\n", []string{place(`{bucket: "seen", access: rw} to capabilities.kv`), `bucket "read" is granted for reading only: add access: rw`}},
		{"bound", "s", "-3\n-4\n-3\n", []string{place(`"key" to capabilities.secrets`), `secret "other" is not granted: add "other"`}},
		{"bound", "e", "-3\n-3\n-3\n-3\n", []string{place(`after: call to capabilities.enqueue`), `queue "bills" is not granted: add "bills"`}},
		{"bound", "hhttps://example.com/", "-3\n", []string{`"bound" in ` + grants}},
	} {
		got := u.feed(test.input, "plugin", "run", filepath.Join(dir, "small.wasm"), "--grants", grants, "--tenant", test.tenant, "--secrets", secrets)
		if got.status != exitDone || got.stdout != test.want {
			t.Errorf("%s, %s: %+v, want %q", test.tenant, test.input, got, test.want)
		}
		for _, says := range test.says {
			if !strings.Contains(got.stderr, says) {
				t.Errorf("%s, %s: no %q in %s", test.tenant, test.input, says, got.stderr)
			}
		}
	}
	u.must("plugin", "test", dir, "--grants", grants, "--tenant", "acme")
	if got := u.run("plugin", "test", dir, "--grants", grants); got.status != exitFailed {
		t.Errorf("test of another tenant: %+v", got)
	}
	for flag, says := range map[string]string{
		"--tenant=A": `quern: --tenant "A": use`, "--grants=" + grants + "x": "no such file or directory: name a YAML file",
	} {
		if got := u.run("plugin", "run", filepath.Join(dir, "small.wasm"), flag); got.status != exitUsage || !strings.Contains(got.stderr, says) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

// What the start of a plugin is refused is in no task's log, and told all the same.
func TestPluginRunDeniedAtStart(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string][]byte{"start": runtimetest.BuildWAT(t, `(module
		(import "quern_v1" "log" (func $log (param i32 i32 i32 i32 i32) (result i32)))
		(memory (export "memory") 1)
		(func (export "_initialize") (drop (call $log (i32.const 99) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))))
		(func (export "quern_handle") (result i32) (i32.const 0)))`)})
	got := newUser(t, "").run("plugin", "run", filepath.Join(dir, "start.wasm"))
	if got.status != exitDone || strings.Count(got.stderr, "quern_v1.log: ") != 1 {
		t.Errorf("%+v", got)
	}
}

// A run without a host has the bounds of one: those of the manifest, and of the grants of the tenant, which are named.
func TestPluginRunBounds(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"a": runtimetest.BuildCHandler(t, `#include "quern.h"
QUERN_HANDLER int handle(void) {
	static char text[200];
	int32_t answer = 0;
	for (int i = 0; i < 3; i++) answer = quern_enqueue("jobs", 4, "", 0, "", 0);
	text[0] = answer == -11 ? 'L' : 'O';
	return quern_output_write(text, quern_input_size() ? sizeof text : 1);
}`)})
	write(t, filepath.Join(dir, "a.yaml"), "capabilities: {enqueue: {queues: [jobs], tasks: 2}}\n")
	grants := write(t, filepath.Join(t.TempDir(), "grants.yaml"), "acme: {limits: {output: 100B}}")
	args := []string{"plugin", "run", dir + "/a.wasm", "--grants", grants, "--tenant", "acme"}
	if got := u.run(args...); got.stdout != "L" || !strings.Contains(got.stderr, "a task may enqueue 2 tasks: raise capabilities.enqueue.tasks") {
		t.Errorf("%+v", got)
	}
	if got := u.feed("more", args...); got.status != exitFailed ||
		!strings.Contains(got.stderr, `output limit of 100B reached by `) || !strings.Contains(got.stderr, `B: the host allows no more, see "acme" in `+grants) {
		t.Errorf("%+v", got)
	}
}
