package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/cmd/quern/plugin"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// tested is a handler whose result is its input without the first byte. If that is an f, it fails for good with the rest as
// its error and in its log.
const tested = `(module
	(import "quern_v1" "input_size" (func $size (result i32)))
	(import "quern_v1" "input_read" (func $read (param i32 i32 i32) (result i32)))
	(import "quern_v1" "output_write" (func $write (param i32 i32) (result i32)))
	(import "quern_v1" "error_set" (func $error (param i32 i32) (result i32)))
	(import "quern_v1" "log" (func $log (param i32 i32 i32 i32 i32) (result i32)))
	(memory (export "memory") 1)
	(func (export "quern_handle") (result i32)
		(local $n i32)
		(local.set $n (i32.sub (call $size) (i32.const 1)))
		(if (i32.lt_s (local.get $n) (i32.const 0)) (then (return (i32.const 0))))
		(drop (call $read (i32.const 0) (i32.const 0) (i32.const 65536)))
		(if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 102)) (then
			(drop (call $log (i32.const 2) (i32.const 1) (local.get $n) (i32.const 0) (i32.const 0)))
			(drop (call $error (i32.const 1) (local.get $n)))
			(return (i32.const 65))))
		(drop (call $write (i32.const 1) (local.get $n)))
		(i32.const 0)))`

const cases = `name: tested
tests:
- {name: passes, input: in/ok, output: out/ok}
- {input: in/failed, exit: 65, error: no such month}
- {name: any failure, input: in/failed, error: month}
- {name: anything, input: in/ok}
- {name: newline of an editor, input: in/line, output: out/newline}
- {name: same JSON, input: in/json, output: out/json}
`

func casesFolder(t *testing.T, manifest string) string {
	t.Helper()
	dir := folder(t, map[string][]byte{"tested": runtimetest.BuildWAT(t, tested)})
	for name, content := range map[string]string{
		"tested.yaml": manifest, "in/ok": " one\ntwo\n", "in/failed": "fno such month", "in/bytes": " \x00\xff", "out/ok": "one\ntwo\n",
		"out/other": "one\nthree\n", "out/longer": "one\ntwo\nthree\n", "out/shorter": "one", "out/bytes": "\x00\xfe",
		"in/line": " one", "in/newlines": " one\n\n", "out/newline": "one\n", "in/json": ` {"total":7,"items":[1],"id":"a"}`,
		"out/json": "{\"id\": \"a\", \"items\": [1],\n \"total\": 7}\n", "out/otherJSON": `{"id":"a","items":[1],"total":8}`,
	} {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func TestPluginTest(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := casesFolder(t, cases)
	want := "ok   tested: passes\nok   tested: in/failed\nok   tested: any failure\nok   tested: anything\nok   tested: newline of an editor\nok   tested: same JSON\nall 6 tests passed\n"
	for _, place := range []string{dir, filepath.Join(dir, "tested.wasm")} {
		if got := u.run("plugin", "test", place); got != (result{exitDone, want, ""}) {
			t.Errorf("%+v", got)
		}
	}
	var views []plugin.CaseView
	if err := json.Unmarshal([]byte(u.must("plugin", "test", dir, "-o", "json")), &views); err != nil {
		t.Fatal(err)
	}
	if len(views) != 6 || !views[1].Passed || *views[1].Exit != 65 || views[1].Outcome != "fatal" || views[1].Plugin != "tested" {
		t.Errorf("%+v", views)
	}
}

// A test that fails says what was expected, what came, and what the guest has said.
func TestPluginTestFails(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	for name, test := range map[string]struct{ test, says string }{
		"Line":       {"{input: in/ok, output: out/other}", "the result differs from out/other; if it is right, `quern plugin test --update` writes it there\n     from line 2 on:\n     - three\n     + two\n"},
		"Shorter":    {"{input: in/ok, output: out/longer}", "from line 3 on:\n     - three\n"},
		"Longer":     {"{input: in/ok, output: out/shorter}", "from line 2 on:\n     + two\n     + \n"},
		"Bytes":      {"{input: in/bytes, output: out/bytes}", "writes it there: from byte 2 on, 2 bytes in place of 2\n     - 00 fe\n     + 00 ff\n"},
		"JSON":       {"{input: in/json, output: out/otherJSON}", "from line 6 on (as formatted JSON):\n     -   \"total\": 8\n     +   \"total\": 7\n"},
		"Newline":    {"{input: in/newlines, output: out/newline}", "from line 2 on:\n     + \n"},
		"Fails":      {"{input: in/failed, output: out/ok}", "it ended with exit status 65, expected 0\n     error: no such month\n"},
		"Status":     {"{input: in/failed, exit: 75}", "it ended with exit status 65, expected 75\n"},
		"Completes":  {"{input: in/ok, exit: 65}", "it ended with exit status 0, expected 65\n"},
		"NoFailure":  {"{input: in/ok, error: month}", "it ended with exit status 0, expected it to fail\n"},
		"Error":      {"{input: in/failed, exit: 65, error: day}", "the error does not contain \"day\"\n     error: no such month"},
		"NoInput":    {"{input: in/none}", "input \"in/none\" cannot be read: no such file or directory\n"},
		"NoOutput":   {"{input: in/ok, output: out/none}", "output \"out/none\" cannot be read: no such file or directory: --update writes it\n"},
		"InputLimit": {"{input: in/ok}\nlimits: {input: 4B}", "it was ended (error), expected 0\n     error: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := casesFolder(t, "name: tested\ntests:\n- {name: first, input: in/ok}\n- "+test.test+"\n")
			got := u.run("plugin", "test", dir)
			if got.status != exitFailed || !strings.Contains(got.stdout, test.says) || !strings.Contains(got.stdout, "\nFAIL tested: ") && name != "InputLimit" ||
				!regexp.MustCompile(`^quern: [12] of 2 tests failed\n$`).MatchString(got.stderr) {
				t.Errorf("%+v, want %q", got, test.says)
			}
			got = u.run("plugin", "test", dir, "-o", "json")
			if got.status != exitFailed || !json.Valid([]byte(got.stdout)) || !strings.Contains(got.stdout, `"passed":false`) {
				t.Errorf("as JSON: %+v", got)
			}
		})
	}
}

func TestPluginTestUpdate(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := casesFolder(t, "name: tested\ntests:\n- {input: in/ok, output: out/other}\n- {input: in/ok, output: out/ok}\n- {input: in/bytes, output: new/bytes}\n- {input: in/failed, output: out/longer}\n")
	r := u.run("plugin", "test", "--update", dir)
	if r.status != exitFailed || strings.Count(r.stdout, "(output updated)") != 2 || !strings.Contains(r.stdout, "ok   tested: in/ok\n") ||
		!strings.Contains(r.stdout, "FAIL tested: in/failed\n") {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{"out/other": "one\ntwo\n", "new/bytes": "\x00\xff", "out/longer": "one\ntwo\nthree\n"} {
		if got := string(content(t, filepath.Join(dir, name))); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestPluginTestRefuses(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := casesFolder(t, cases)
	empty, plain, wrong := t.TempDir(), folder(t, map[string][]byte{"plain": runtimetest.Echo(t)}), folder(t, map[string][]byte{"page": []byte("<html>")})
	write(t, filepath.Join(wrong, "page.yaml"), "name: page\ntests: [{input: a}]\n")
	misspelled := casesFolder(t, "name: tested\ntests: [{inptu: a}]\n")
	for _, test := range []struct {
		place  string
		status int
		says   string
	}{
		{filepath.Join(dir, "none.wasm"), exitUsage, "no such file"},
		{empty, exitUsage, "has no .wasm file: build it by `quern plugin build`"},
		{filepath.Join(dir, "tested.yaml"), exitUsage, "tested.yaml\" is no plugin: name a .wasm file, or a folder that has some"},
		{plain, exitUsage, "there is no test: name some in the manifest of " + filepath.Join(plain, "plain.wasm")},
		{wrong, exitRefused, "page.wasm is refused"},
		{misspelled, exitRefused, "inptu"},
	} {
		if r := u.run("plugin", "test", test.place); r.status != test.status || !strings.Contains(r.stderr, test.says) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %+v, want %d, %q", test.place, r, test.status, test.says)
		}
	}
}

// A test that never ends fails, whatever its manifest says; a lower limit of the manifest is told as that.
func TestPluginTestTimeout(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"loop": runtimetest.Loop(t)})
	const flag = "     error: timeout of 100ms exceeded (it computed all the time: an endless loop?): raise --timeout of this command\n"
	for limits, wants := range map[string]bool{"": true, "limits: {timeout: 1h}\n": true, "limits: {timeout: 50ms}\n": false} {
		write(t, filepath.Join(dir, "loop.yaml"), "name: loop\n"+limits+"tests: [{name: one}, {name: two}]\n")
		got := u.run("plugin", "test", dir, "--timeout", "100ms")
		if got.status != exitFailed || strings.Count(got.stdout, "FAIL loop: ") != 2 || strings.Count(got.stdout, "it was ended (timeout), expected 0\n") != 2 ||
			strings.Contains(got.stdout, flag) != wants {
			t.Errorf("%q: %+v", limits, got)
		}
	}
}

// leaking says its secret wherever it can.
const leaking = `#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	char key[100];
	int32_t size = quern_slot(quern_secret_get(QUERN_TEXT("key")), key, sizeof key);
	if (size < 0) return 75;
	quern_log(QUERN_INFO, key, size, 0, 0);
	quern_progress(0.5, key, size);
	char url[200], head[300];
	quern_builder to = quern_build(url, sizeof url), request = quern_object(head, sizeof head);
	quern_add(&to, QUERN_TEXT("http://127.0.0.1:1/?key="));
	quern_add(&to, key, size);
	quern_text_member(&request, "url", url, to.size);
	quern_end_object(&request);
	quern_http(head, request.size, NULL, 0);
	quern_enqueue(QUERN_TEXT("b"), key, size, 0, 0);
	quern_error_set(key, size);
	return QUERN_FAILED;
}
`

// What is tried with a host's grants has their secrets, and shows none.
func TestPluginSecretsAreHidden(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{"a.c": leaking, "small.yaml": "name: small\ncapabilities: {secrets: [key], http: [{host: \"http://127.0.0.1:1\", methods: [GET]}], enqueue: {queues: [b], after: call}}\ntests: [{http: []}]\n"})
	u.must("plugin", "build", dir)
	grants := write(t, filepath.Join(t.TempDir(), "grants.yaml"), "acme: {secrets: {key: {value: hunter2-hunter2}}}\n")
	if err := os.Chmod(grants, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--grants", grants, "--tenant", "acme"}
	file := filepath.Join(dir, "small.wasm")
	tested, run := u.run(append([]string{"plugin", "test", file}, flags...)...), u.run(append([]string{"plugin", "run", file}, flags...)...)
	const shown = "[secret key]"
	if tested.status != exitFailed || strings.Count(tested.stdout, shown) != 3 {
		t.Errorf("test: %+v", tested)
	}
	if run.status != exitFailed || strings.Count(run.stderr, shown) != 4 {
		t.Errorf("run: %+v", run)
	}
	if said := tested.stdout + tested.stderr + run.stdout + run.stderr; strings.Contains(said, "hunter2") {
		t.Errorf("the secret is told: %s", said)
	}
}

// Folders are taken as they are called.
func TestPluginTestFolderNames(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := filepath.Join(t.TempDir(), "a[b]*?")
	if err := os.Rename(casesFolder(t, cases), dir); err != nil {
		t.Fatal(err)
	}
	u.must("plugin", "test", dir)
}

// No test finds anything of another one: not in memory, not in a bucket.
func TestPluginTestPristine(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"counter": runtimetest.BuildWAT(t, `(module
		(import "quern_v1" "kv_increment" (func $increment (param i32 i32 i32 i32 i64 i32) (result i32)))
		(import "quern_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
		(memory (export "memory") 1)
		(data (i32.const 0) "b")
		(data (i32.const 16) "0")
		(func (export "quern_handle") (result i32)
			(i32.store8 (i32.const 16) (i32.add (i32.load8_u (i32.const 16)) (i32.const 1)))
			(drop (call $increment (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 1) (i64.const 48) (i32.const 24)))
			(drop (call $increment (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 1) (i64.const 1) (i32.const 24)))
			(drop (call $output_write (i32.const 16) (i32.const 1)))
			(drop (call $output_write (i32.const 24) (i32.const 1)))
			(i32.const 0)))`)})
	write(t, filepath.Join(dir, "counter.yaml"), "name: counter\ncapabilities: {kv: [{bucket: b, access: rw}]}\ntests:\n- {output: out}\n- {output: out}\n- {output: out}\n")
	write(t, filepath.Join(dir, "out"), "11")
	u.must("plugin", "test", dir)
}

// A test with http and kv needs no server: its answers are given in their order, and one that is missing fails the test,
// whatever the handler makes of it.
func TestPluginTestAnswers(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a server") }))
	defer server.Close()
	const manifest = `name: small
capabilities:
  kv: [{bucket: seen, access: rw}]
  http: [{host: "https://api.example.com", methods: [GET]}, {host: "SERVER", methods: [GET]}]
tests:
`
	const url = "https://api.example.com/users?a=1"
	dir := sourceFolder(t, map[string]string{
		"a.c": asking, "quern.h": string(content(t, "../../sdk/c/quern.h")), "in/get": "H" + url, "in/kv": "k", "in/server": "h" + server.URL,
		"out/get": "503\n200\n{\"name\": \"Ada\"}200\n{\"name\": \"Ada\"}", "out/kv": "42\n82\n-3\n", "out/empty": "40\n80\n-3\n",
		"out/server": "200\na server", "out/missing": "-10\n",
		"small.yaml": "name: small\n",
	})
	u.must("plugin", "build", dir)
	const answers = `http: [{method: GET, url: "` + url + `", status: 503}, {method: GET, url: "` + url + `", headers: {Content-Type: application/json}, body: '{"name": "Ada"}'}]`
	for _, test := range []struct{ name, test, says string }{
		{"Answers", "{input: in/get, output: out/get, " + answers + "}", ""},
		{"KV", "{input: in/kv, output: out/kv, kv: {seen: {n: 2, other: text}}}", ""},
		{"KVOfAnother", "{input: in/kv, output: out/kv, kv: {seen: {n: 2}}}\n- {input: in/kv, output: out/empty}", ""},
		{"Server", "{input: in/server, output: out/server}", ""},
		{"NoAnswer", "{input: in/get, http: [{method: POST, url: \"" + url + "\"}]}", "no answer to GET " + url +
			": add to http of this test: - {method: GET, url: \"" + url + "\", status: 200, body: \"\"}\n"},
		{
			"Unused", "{input: in/get, output: out/get, " + strings.TrimSuffix(answers, "]") + ", {method: GET, url: \"https://api.example.com/other\"}]}",
			"no request for the answer to GET https://api.example.com/other (number 3 in http of this test): remove it, or correct its method and url\n",
		},
		{"Failed", "{input: in/kv, exit: 7, http: [{method: GET, url: \"" + url + "\"}]}", "expected 7\n"},
		{"NoAnswerAtAll", "{input: in/server, http: []}", "no answer to GET " + server.URL},
		{"KVKey", `{input: in/kv, kv: {seen: {"": a}}}`, "kv of this test: "},
	} {
		write(t, filepath.Join(dir, "small.yaml"), strings.ReplaceAll(manifest, "SERVER", server.URL)+"- "+test.test+"\n")
		r := u.run("plugin", "test", filepath.Join(dir, "small.wasm"), "--no-build")
		if ok := r.status == exitDone; ok != (test.says == "") || !strings.Contains(r.stdout, test.says) {
			t.Errorf("%s: %+v, want %q", test.name, r, test.says)
		}
		if test.name == "Failed" && strings.Contains(r.stdout, "no request") {
			t.Errorf("a task that failed before its request: %+v", r)
		}
	}
	write(t, filepath.Join(dir, "small.yaml"), "name: small\ntests: [{input: in/kv, kv: {seen: {n: 2}}}]\n")
	if r := u.run("plugin", "test", dir); r.status != exitRefused || !strings.Contains(r.stderr, `tests[0].kv: bucket "seen" is not granted (`) || !strings.Contains(r.stderr, `: add capabilities: {kv: [{bucket: "seen", access: rw}]}`) {
		t.Errorf("a bucket that is not granted: %+v", r)
	}
}
