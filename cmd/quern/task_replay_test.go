package main

import (
	"bytes"
	"compress/flate"
	wire "encoding/binary" // main_test.go has a function binary
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/quern-project/quern/host/rollout/oci/ocitest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

const (
	recordedSecret = "s3cr3t-of-the-tests"

	recordedManifest = `name: recorded
record: failed
limits: {cpu: 30s}
capabilities:
  kv: [{bucket: seen, access: rw}]
  http: [{host: %q, methods: [GET]}]
  secrets: [api_key]
  env: {SERVER: %q}
`
	recordedJavaScript = `import { kv, secrets, log } from "@quern/sdk";

const started = Date.now();

export default async function (task) {
  const times = kv("seen").increment("times");
  const answer = await fetch(process.env.SERVER + "/rate", { headers: { authorization: secrets.get("api_key") } });
  const rate = await answer.text();
  kv("seen").set("rate", rate);
  const order = Array.from({ length: 20 }, () => Math.floor(Math.random() * 1000)).join(" ");
  log.info("times " + times + ", rate " + rate + ", order " + order + ", " + Date.now() + " " + performance.now() + " " + started);
  if (task.text() === "complete") return order;
  return broken(order);
}

function broken(order) {
  throw new TypeError("nothing at " + order);
}
`
	recordedPython = `import os, random, time, uuid
import quern

STARTED = time.time()

def handle(task):
    times = quern.kv("seen").increment("times")
    rate = quern.http.get(os.environ["SERVER"] + "/rate", headers={"authorization": quern.secrets.get("api_key")}).text
    quern.kv("seen").set("rate", rate)
    order = " ".join(str(random.randrange(1000)) for _ in range(20)) + str(sorted({uuid.uuid4().hex, "a", "b"}, key=hash))
    quern.log.info(f"times {times}, rate {rate}, order {order}, {time.time()} {time.perf_counter()} {STARTED}")
    if task.text == "complete":
        return order
    return broken(order)

def broken(order):
    raise ValueError("nothing at " + order)
`
)

// recorded builds the plugin in a language into a folder of plugins, with a server that it asks.
func recorded(t *testing.T, u *user, language string) (plugins string, asked func() int) {
	t.Helper()
	plugins = t.TempDir()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		fmt.Fprintf(w, "rate %d for %s", requests, r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	manifest := fmt.Sprintf(recordedManifest, server.URL, server.URL)
	switch language {
	case "go":
		recordedGo(t, filepath.Join(plugins, "recorded.wasm"), "")
	case "javascript":
		interpreter(t, language)
		u.asBuilt().must("plugin", "build", sourceFolder(t, map[string]string{"handler.js": recordedJavaScript, "recorded.yaml": "name: recorded\n"}), "--to", plugins)
	case "typescript":
		interpreter(t, "javascript")
		source := strings.NewReplacer("(task) {", "(task: Task): Promise<string> {", "broken(order) {", "broken(order: string): never {",
			"secrets, log }", "secrets, log, type Task }").Replace(recordedJavaScript)
		u.asBuilt().must("plugin", "build", sourceFolder(t, map[string]string{"handler.ts": source, "recorded.yaml": "name: recorded\n"}), "--to", plugins)
	case "python":
		interpreter(t, language)
		u.asBuilt().must("plugin", "build", sourceFolder(t, map[string]string{"handler.py": recordedPython, "recorded.yaml": "name: recorded\n"}), "--to", plugins)
	}
	write(t, filepath.Join(plugins, "recorded.yaml"), manifest)
	return plugins, func() int { return requests }
}

// recordedGo builds the plugin in Go, or a changed one: set is a variable with another value.
func recordedGo(t *testing.T, out, set string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-X=main."+set, "-o", out, "./testdata/recorded/go")
	if set == "" {
		build.Args = slices.DeleteFunc(build.Args, func(a string) bool { return strings.HasPrefix(a, "-ldflags") })
	}
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// replays tries what can be asked of a replay of the run of task-trap.
func replays(t *testing.T, u *user, plugins string) {
	t.Helper()
	dir := t.TempDir()
	file, changed := filepath.Join(dir, "a.record"), filepath.Join(dir, "changed.record")
	mended, other := filepath.Join(dir, "mended.wasm"), filepath.Join(dir, "other.wasm")
	recordedGo(t, mended, "mended=yes")
	recordedGo(t, other, "key=count")
	const secret = "--secret=api_key=" + recordedSecret
	for _, test := range []struct {
		args   []string
		status int
		stdout string
		stderr string // a pattern
	}{
		{[]string{"task-trap", secret}, exitRefused, "", `no module recorded.wasm with the digest sha256:[0-9a-f]{64} is in a release`},
		{[]string{"task-trap", "--plugins", plugins}, exitUsage, "", `the run has read the secret api_key, whose value no record has: pass --secret api_key=VALUE, or --secret api_key for`},
		{[]string{"task-trap", "--module", other, "--secret=api_key=wrong"}, exitRefused, "", `differs from the record: .*; the run has read another value of api_key: pass the value of that time by --secret api_key=VALUE\n`},
		{[]string{"task-trap", "--plugins", plugins, "--secret=api_key=wrong"}, exitRefused, "", `its fuel is \d+, recorded \d+; the run has read another value of api_key: pass`},
		{[]string{"task-trap", "--plugins", plugins, secret, "--until", "-1"}, exitUsage, "", `--until "-1": write an amount of fuel, from 1 to 9223372036854775807, or 0 for the end of the run`},
		{[]string{"task-trap", "--plugins", plugins, secret, "--until", "99999999999999999999"}, exitUsage, "", `--until "99999999999999999999": write an amount of fuel, from 1 to 9223372036854775807`},
		{[]string{"task-trap", "--plugins", plugins, secret, "--until", "100000000000"}, exitFailed, "", `it ended at fuel \d+, before --until 100000000000\n(?s:.*)the same end`},
		{[]string{"task-trap", "--plugins", plugins, secret, "--update-record", filepath.Join(dir, "lacking", "a.record")}, exitUsage, "", `--update-record \S+/lacking/a.record: there is no folder \S+/lacking: name one that there is, or make it by .mkdir -p `},
		{[]string{"task-trap", "--plugins", plugins, secret, "--update-record", dir}, exitUsage, "", `--update-record \S+ is a folder: name a file in it, such as `},
		{[]string{"task-trap", "--plugins", plugins, secret, "--until", "200000"}, exitDone, "", `stopped at fuel 2000?\d\d\d at `},
		{[]string{"task-trap", "--plugins", plugins, secret, "--update-record", file}, exitFailed, "", `a.record has the record`},
		{[]string{file, "--plugins", plugins, secret}, exitFailed, "", `run 1 of task task-trap replayed: the same end at the same fuel, \d+\n`},
		{[]string{"task-trap", "--module", mended, secret, "--update-record", changed}, exitDone, "yes", `(?s)the recorded module: failed: panic: .*this module: complete \(fuel \d+\)`},
		{[]string{changed, "--module", mended, secret}, exitDone, "yes", `the same end at the same fuel`},
		{[]string{changed, "--plugins", plugins, secret}, exitRefused, "", `has the digest sha256:[0-9a-f]+, and the run was of sha256:[0-9a-f]+: replay with another module by --module`},
		{[]string{"task-trap", "--module", other, secret}, exitRefused, "", `call \d+ differs from the record: recorded kv_increment "seen" "times", asked kv_increment "seen" "count" at main.handle`},
		{[]string{filepath.Join(dir, "none.record")}, exitUsage, "", `read record: .*no such file`},
		{[]string{mended}, exitUsage, "", `it is no record of a run: name a file that --update-record wrote`},
	} {
		r := u.run(append([]string{"task", "replay"}, test.args...)...)
		if r.status != test.status || r.stdout != test.stdout || !regexp.MustCompile(test.stderr).MatchString(r.stderr) {
			t.Errorf("%v: exit %d, %q, %s", test.args, r.status, r.stdout, r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "lacking")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a mistyped folder was made: %v", err)
	}
	if data := content(t, file); bytes.Contains(data, []byte(recordedSecret)) {
		t.Error("the record has the secret")
	}
	u.must("plugin", "push", filepath.Join(plugins, "recorded.wasm"))
	if r := u.run("task", "replay", "task-trap", secret); r.status != exitFailed || !strings.Contains(r.stderr, "the same end") {
		t.Errorf("of a release: exit %d, %s", r.status, r.stderr)
	}
}

// A failed run in each language is replayed from its record: with the same log and error, at the same fuel, and without
// asking anybody.
func TestTaskReplay(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	for _, language := range []string{"go", "javascript", "typescript", "python"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			tenant := queuetest.Tenant()
			u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant, "api_key": recordedSecret}).asBuilt()
			plugins, asked := recorded(t, u, language)
			secrets := t.TempDir()
			write(t, filepath.Join(secrets, tenant, "api_key"), recordedSecret)
			u.host(plugins, "--allow-networks", "127.0.0.0/8", "--secrets", secrets)

			inputs := []string{"fail"}
			if language == "go" {
				inputs = append(inputs, "trap")
			}
			for _, input := range inputs {
				r := u.feed(input, "enqueue", "recorded", "-", "--id", "task-"+input, "--wait")
				if r.status != exitFailed {
					t.Fatalf("exit %d: %s", r.status, r.stderr)
				}
				_, failure, _ := strings.Cut(strings.TrimSpace(r.stderr), "): ")
				logged := regexp.MustCompile(`(?m)^.* UTC  run \d+  `).ReplaceAllString(u.must("task", "logs", "task-"+input), "")
				before := asked()
				replayed := u.run("task", "replay", "task-"+input, "--plugins", plugins, "--log", "--secret", "api_key")
				if replayed.status != exitFailed || !strings.Contains(replayed.stderr, "the same end at the same fuel") {
					t.Fatalf("exit %d: %s", replayed.status, replayed.stderr)
				}
				if !strings.Contains(replayed.stderr, strings.Split(failure, "\n")[0]) {
					t.Errorf("the replay fails in another way than\n%s:\n%s", failure, replayed.stderr)
				}
				for line := range strings.Lines(logged) {
					if line = strings.TrimSpace(line); !strings.Contains(replayed.stderr, line) {
						t.Errorf("the log of the replay lacks %q:\n%s", line, replayed.stderr)
					}
				}
				if asked() != before {
					t.Errorf("the replay has sent a request")
				}
			}
			if language == "go" {
				replays(t, u, plugins)
			}
		})
	}
}

// keyPair writes a private key of age into a file, and returns the public one.
func keyPair(t *testing.T, file string) string {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, "# public key: "+key.Recipient().String()+"\n"+key.String()+"\n")
	return key.Recipient().String()
}

// Records of a tenant whose grants name recipients are encrypted: a replay needs the private key of one of those that the
// grants named when the task ran.
func TestEncryptedReplay(t *testing.T) {
	t.Parallel()
	tenant, dir := queuetest.Tenant(), t.TempDir()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant}).here()
	plugins := folder(t, map[string][]byte{"fails": runtimetest.BuildWAT(t, `(module
		(import "quern_v1" "random" (func $random (param i32 i32) (result i32)))
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32) (drop (call $random (i32.const 0) (i32.const 16))) (i32.const 3)))`)})
	write(t, filepath.Join(plugins, "fails.yaml"), "name: fails\nrecord: failed\n")
	grants, empty := filepath.Join(dir, "grants.yaml"), filepath.Join(dir, "empty.txt")
	first, second := filepath.Join(dir, "first.txt"), filepath.Join(dir, "second.txt")
	keys := []string{keyPair(t, first), keyPair(t, second)}
	write(t, empty, "# nothing\n")
	for i, id := range []string{"one", "two"} { // the grants change between them
		write(t, grants, `"*": {records: {recipients: [`+keys[i]+"]}}\n")
		host, _ := u.host(plugins, "--grants", grants)
		if r := u.run("enqueue", "fails", "x", "--id", id, "--wait"); r.status != exitFailed {
			t.Fatalf("exit %d: %s", r.status, r.stderr)
		}
		host.stop()
	}
	if shown := u.must("task", "show", "one"); !regexp.MustCompile(`record +of run 1, \S+, encrypted: replay it by .quern task replay one --identity FILE.\n`).MatchString(shown) {
		t.Errorf("task show:\n%s", shown)
	}
	if shown := u.must("task", "show", "one", "-o", "json"); !strings.Contains(shown, `"encrypted":true`) {
		t.Errorf("task show:\n%s", shown)
	}
	file := filepath.Join(dir, "plain.record")
	same := `the same end at the same fuel`
	for _, test := range []struct {
		args   []string
		status int
		stderr string // a pattern
	}{
		{[]string{"one"}, exitUsage, `task one: the record is encrypted to ` + keys[0] + `: pass --identity FILE with the private key of one of these public keys, as .age-keygen. wrote it\n`},
		{[]string{"one", "--identity", second}, exitUsage, `task one: the record is encrypted to ` + keys[0] + `, and the identity is of another key: pass --identity FILE with the private key of one of these public keys, and not \S+second.txt\n`},
		{[]string{"one", "--identity", first}, exitFailed, same},
		{[]string{"two", "--identity", first}, exitUsage, `encrypted to ` + keys[1]},
		{[]string{"two", "--identity", second}, exitFailed, same},
		{[]string{"two", "--identity", second, "--update-record", file}, exitFailed, same},
		{[]string{file}, exitFailed, same}, // it is not encrypted
		{[]string{"one", "--identity", empty}, exitUsage, `--identity "\S+empty.txt": no identities found: name a file that .age-keygen. wrote`},
		{[]string{"one", "--identity", "/dev/zero"}, exitUsage, `--identity "/dev/zero": it has more than 65536 bytes: name a file`},
		{[]string{"one", "--identity", filepath.Join(dir, "none")}, exitUsage, `--identity "\S+none": .*no such file`},
	} {
		r := u.run(append([]string{"task", "replay", "--plugins", plugins}, test.args...)...)
		if r.status != test.status || !regexp.MustCompile(test.stderr).MatchString(r.stderr) {
			t.Errorf("%v: exit %d, %s", test.args, r.status, r.stderr)
		}
	}
	if r := u.with(map[string]string{"QUERN_IDENTITY": first}).run("task", "replay", "one", "--plugins", plugins); r.status != exitFailed || !strings.Contains(r.stderr, same) {
		t.Errorf("by the variable: exit %d, %s", r.status, r.stderr)
	}
}

// The recorded module is fetched from the release that ran the task, also from a registry. Another release with the same
// module and manifest can have other files.
func TestReplayFromRegistry(t *testing.T) {
	t.Parallel()
	registry, tenant := ocitest.Start(t), queuetest.Tenant()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant}).here()
	credentials := registry.Credentials(registry.Host, ocitest.Password)
	plugin := folder(t, map[string][]byte{"fails": runtimetest.BuildWAT(t, `(module
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32) (i32.const 3)))`)})
	write(t, filepath.Join(plugin, "fails.yaml"), "name: fails\nrecord: failed\ncapabilities: {files: [{from: data/a.txt, to: /a.txt}]}\n")
	data := filepath.Join(plugin, "data", "a.txt")
	write(t, data, "one")
	u.must("plugin", "push", plugin, "--registry", registry.Host+"/acme/fails", "--registry-config", credentials)
	u.host("none", "--registry", registry.Host, "--registry-config", credentials)
	if r := u.run("enqueue", "fails", "x", "--id", "one", "--wait"); r.status != exitFailed {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	write(t, data, "two")
	u.must("plugin", "push", plugin)
	replay := func(status int, stderr string, args ...string) {
		t.Helper()
		r := u.run(append([]string{"task", "replay", "one"}, args...)...)
		if r.status != status || !regexp.MustCompile(stderr).MatchString(r.stderr) {
			t.Errorf("%v: exit %d, %s", args, r.status, r.stderr)
		}
	}
	const same = `run 1 of task one replayed: the same end at the same fuel`
	replay(exitFailed, same, "--registry-config", credentials)
	replay(exitRefused, `fetch release 1 of fails: .*give credentials for \S+ with --registry-config FILE.*; or name a folder that has it by --plugins DIR\n`,
		"--registry-config", registry.Credentials(registry.Host, "wrong-password"))
	registry.Stop()
	replay(exitRefused, `fetch release 1 of fails: .*connection refused; or name a folder that has it by --plugins DIR\n`, "--registry-config", credentials)
	replay(exitFailed, same, "--plugins", plugin)
}

// A replay of a record that is damaged names its task, its file and the remedy, and one whose release has lost a piece names
// the folder that it needs, and no push. A secret needs a name.
func TestReplayOfDamagedRecord(t *testing.T) {
	t.Parallel()
	tenant, dir := queuetest.Tenant(), t.TempDir()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant}).here()
	plugin := folder(t, map[string][]byte{"fails": runtimetest.BuildWAT(t, `(module
		(import "quern_v1" "random" (func $random (param i32 i32) (result i32)))
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32) (drop (call $random (i32.const 0) (i32.const 16))) (i32.const 3)))`)})
	write(t, filepath.Join(plugin, "fails.yaml"), "name: fails\nrecord: failed\n")
	u.must("plugin", "push", plugin)
	u.host("none")
	if r := u.run("enqueue", "fails", "x", "--id", "one", "--wait"); r.status != exitFailed {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	rdb := queuetest.Shared(t).Client(t)
	record, err := rdb.HGet(t.Context(), tenant+"_bytes_one", "record").Bytes()
	if err != nil {
		t.Fatal(err)
	}
	replay := func(status int, stderr string, args ...string) {
		t.Helper()
		r := u.run(append([]string{"task", "replay"}, args...)...)
		if r.status != status || !regexp.MustCompile(stderr).MatchString(r.stderr) {
			t.Errorf("%v: exit %d, %s", args, r.status, r.stderr)
		}
	}
	file := filepath.Join(dir, "one.record")
	for _, damaged := range [][]byte{record[:len(record)-8], withoutEvents(t, record)} {
		write(t, file, string(damaged))
		if err := rdb.HSet(t.Context(), tenant+"_bytes_one", "record", damaged).Err(); err != nil {
			t.Fatal(err)
		}
		replay(exitRefused, `^quern: task one: the record is damaged.*: run the task again by .quern task retry one.: its next record takes`, "one")
		replay(exitUsage, `^quern: \S+/one.record: the record is damaged.*: copy the file again, or write it again by .quern task replay (ID|one) --update-record \S+/one.record.\n`,
			file, "--plugins", plugin)
	}
	replay(exitUsage, `^quern: --secret has no name: write --secret NAME=VALUE, or --secret NAME for the environment variable`, "one", "--secret", "=x")
	replay(exitUsage, `^quern: --secret has no name`, "one", "--secret", "")

	if err := rdb.HSet(t.Context(), tenant+"_bytes_one", "record", record).Err(); err != nil {
		t.Fatal(err)
	}
	replay(exitFailed, `the same end at the same fuel`, "one")
	write(t, file, string(record))
	replay(exitRefused, `^quern: no module fails.wasm with the digest sha256:[0-9a-f]{64} is in this folder, ./handlers or ./fails: name`, file)
	keys, err := rdb.Keys(t.Context(), tenant+"_piece_*").Result()
	if err == nil {
		err = rdb.Del(t.Context(), keys...).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	replay(exitRefused, `^quern: fetch release 1 of fails: a piece of the release is not in Redis; or name a folder that has it by --plugins DIR\n`, "one")
}

// withoutEvents returns a record whose answers are no events.
func withoutEvents(t *testing.T, record []byte) []byte {
	t.Helper()
	const magic = "quern record 1\n"
	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(record[len(magic):])))
	if err != nil {
		t.Fatal(err)
	}
	rest := text
	for range 4 { // header, checkpoint, warm call, start
		length, n := wire.Uvarint(rest)
		rest = rest[n+int(max(length, 1))-1:]
	}
	length, n := wire.Uvarint(rest)
	for i := range int(length) - 1 {
		rest[n+i] = 0xff
	}
	out := bytes.NewBufferString(magic)
	w, err := flate.NewWriter(out, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
