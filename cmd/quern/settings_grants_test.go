package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// granted is a handler that answers with its configuration, its secret, and how it was denied to write, to enqueue and
// to send a request.
const granted = `#include "quern.h"
static char text[100];
static void answer(int32_t size) {
  if (size < 0) return;
  quern_result_read(0, text, sizeof text);
  quern_output_write(text, size);
  quern_output_write("|", 1);
}
QUERN_HANDLER int handle(void) {
  answer(quern_config_get("size", 4));
  answer(quern_secret_get("api_key", 7));
  int32_t enqueued = quern_enqueue("mail.done", 9, "", 0, "", 0);
  const char head[] = "{\"url\":\"http://127.0.0.1:1\"}";
  char denied[3] = {
    '0' - quern_kv_set("seen", 4, "k", 1, "v", 1, 0), '0' - (enqueued < 0 ? enqueued : 0), '0' - quern_http(head, sizeof head - 1, "", 0),
  };
  return quern_output_write(denied, sizeof denied);
}`

const grantedManifest = `
config: {size: 200x200, mode: fast}
limits: {log: 4KiB, output: 4KiB}
capabilities:
  kv: [{bucket: seen, access: rw}]
  secrets: [api_key]
  enqueue: {queues: [mail.done]}
  http: [{host: "http://127.0.0.1:1", methods: [GET]}]
`

func TestServeGrants(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	dir := folder(t, map[string][]byte{"a": runtimetest.BuildCHandler(t, granted)})
	write(t, filepath.Join(dir, "a.yaml"), grantedManifest)
	grants := filepath.Join(t.TempDir(), "grants.yaml")
	write(t, grants, `
blueque: {secrets: {api_key: {file: key}}}
acme:
  capabilities: {kv: [{bucket: "*"}], secrets: ["*"], enqueue: {queues: ["*.bulk"]}, http: [{host: "http://127.0.0.1:1", methods: [PUT]}]}
  config: {size: 300x300}
  secrets: {api_key: {value: "hunter2, the value"}}
  limits: {output: 1KiB}
  quotas: {kv_bytes: 1MiB, rate:a: 60/m, running: 5}
`)
	write(t, filepath.Join(filepath.Dir(grants), "key"), "the first\n")
	if err := os.Chmod(grants, 0o644); err != nil {
		t.Fatal(err)
	}
	c, _ := u.host(dir, "--tenants", "blueque,acme", "--grants", grants, "--ceiling", "limits.log=2KiB,limits.output=2KiB")
	c.stderr.await(t, regexp.MustCompile(`serving queue: tenant=blueque queue=a\n`))
	c.stderr.await(t, regexp.MustCompile(`holds a secret, and others than its owner may read it: chmod 600`))
	c.stderr.await(t, regexp.MustCompile(`the host's grants leave a plugin less than its manifest asks for: plugin=a tenant=acme capabilities=\["http", "kv", "enqueue"\]`))

	if got := u.must("enqueue", "a", "--wait"); got != "200x200|the first|003" {
		t.Errorf("result %q", got)
	}
	write(t, filepath.Join(filepath.Dir(grants), "key"), "the second\n")
	if got := u.must("enqueue", "a", "--wait"); got != "200x200|the second|003" {
		t.Errorf("result %q with another secret", got)
	}
	if got := u.must("enqueue", "a", "--wait", "--tenant", "acme", "--id", "bounded"); got != "300x300|hunter2, the value|333" {
		t.Errorf("result %q of acme", got)
	}
	log := u.must("task", "logs", "bounded", "--tenant", "acme")
	for function, line := range map[string]string{
		"kv_set": `{bucket: "seen", access: rw} to capabilities.kv`, "enqueue": `"mail.done" to queues in capabilities.enqueue`,
		"http": `GET to methods of http://127.0.0.1:1 in capabilities.http`,
	} {
		remedy := `denied: the manifest allows it, the host does not: add ` + line + ` of "acme" in ` + grants
		if !regexp.MustCompile(`quern_v1\.` + function + `: .*` + regexp.QuoteMeta(remedy)).MatchString(log) {
			t.Errorf("the task's log has no %q of %s: %s", remedy, function, log)
		}
		if !strings.Contains(c.stderr.String(), "a host function was refused: tenant=acme task_id=bounded queue=a plugin=a function="+function) {
			t.Errorf("the host's log has nothing of %s", function)
		}
	}

	for tenant, want := range map[string]string{
		"blueque": `"grants":{"http":[{"host":"http://127.0.0.1:1","methods":["GET"]}],"kv":[{"bucket":"seen","access":"rw","quota":10485760}],` +
			`"secrets":["api_key"],"enqueue":{"queues":["mail.done"],"after":"complete","depth":16,"tasks":256,"bytes":16777216},"config":["mode","size"]},` +
			`"lowered":[{"key":"limits.output","manifest":"4KiB","host":"2KiB","place":"--ceiling"},{"key":"limits.log","manifest":"4KiB","host":"2KiB","place":"--ceiling"}]`,
		"acme": `"grants":{"kv":[{"bucket":"seen","access":"r"}],"secrets":["api_key"],"config":["mode","size"]},` +
			`"lowered":[{"key":"limits.output","manifest":"4KiB","host":"1KiB","place":"\"acme\" in ` + grants + `"},` +
			`{"key":"limits.log","manifest":"4KiB","host":"2KiB","place":"--ceiling"}]`,
	} {
		eventually(t, "the host says what "+tenant+" is granted", func() bool {
			return strings.Contains(u.must("plugin", "ls", "-o", "json", "--tenant", tenant), want)
		})
	}
	u.must("tenant", "set", "acme", "--running", "7", "--fuel-rate", "2G/s burst 60G", "--fuel-day", "36T", "--memory", "1GiB")
	if got := u.must("tenant", "show", "acme"); !regexp.MustCompile(`(?m)^tenant +kv_bytes +1048576 +1048576 +0 +1048576 .*
(.*\n)*tenant +running +7 +5 +0 +7 .*$`).MatchString(got) || !strings.Contains(got, "rate:a") || !strings.Contains(got, "2000000000/s burst 60000000000") {
		t.Errorf("%s", got)
	}
	if strings.Contains(c.stderr.String(), "hunter2") {
		t.Errorf("the log has the secret: %s", c.stderr.String())
	}
}

func TestServeGrantsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "grants.yaml")
	for data, want := range map[string]string{
		"acme: {}": `quern: ` + path + `: names neither the tenant "blueque" nor "*" for all others: ` +
			`add "blueque": {}, with which manifests alone decide, or a ceiling in it`,
		"blueque: {capabilitis: {}}\nacme: {config: [a]}": `quern: ` + path + `:1: blueque: unknown key "capabilitis": did you mean "capabilities"?; ` +
			path + `:2: acme.config: expected a mapping, but it is a list: write its keys, such as config: {greeting: Hello}, or leave it out`,
		"blueque: {secrets: {a: {env: QUERN_TEST_NOWHERE}}}": `quern: ` + path + `:1: blueque.secrets.a: the variable QUERN_TEST_NOWHERE is not set: ` +
			`set it, or remove the secret`,
		"blueque:\n  quotas:\n    kv_bytes: 5\n    rate: fast": `quern: ` + path + `:3: blueque.quotas.kv_bytes: quota kv_bytes: "5" is not a size: it has no unit; ` +
			`write a whole number and B, kB, KiB, MB, MiB, GB, GiB or TiB, such as 64MiB: see ` +
			"`quern tenant set --help`; " + path + `:4: blueque.quotas.rate: quota rate "fast": write tasks by s, m, h or d, such as "100/s" or "100/s burst 200": see ` +
			"`quern tenant set --help`",
	} {
		write(t, path, data)
		r := newUser(t, "").with(map[string]string{"QUERN_GRANTS": path}).run("serve", "--check")
		if r.status != exitUsage || r.stderr != want+"\n" {
			t.Errorf("%s: exit %d:\n%swant\n%s", data, r.status, r.stderr, want)
		}
	}
	r := newUser(t, "").with(map[string]string{"QUERN_GRANTS": path + "x"}).run("serve", "--check")
	if want := `quern: QUERN_GRANTS "` + path + `x": no such file or directory: name a YAML file that this user may read` + "\n"; r.status != exitUsage || r.stderr != want {
		t.Errorf("exit %d: %swant %s", r.status, r.stderr, want)
	}
	write(t, path, `"*": {capabilities: {}}`)
	if printed := checked(newUser(t, ""), "--grants", path); !strings.Contains(printed, "grants: "+path) {
		t.Errorf("settings %s", printed)
	}
}

// Of a manifest that cannot be read nothing is said but that: neither what it does not grant nor limits.
func TestPluginCheckUnread(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"a": runtimetest.BuildCHandler(t, `#include "quern.h"
QUERN_HANDLER int handle(void) { return quern_kv_get("seen", 4, "k", 1); }`)})
	write(t, filepath.Join(dir, "a.yaml"), "limits: {memory: 1MiB}\ncapabilities:\n  kv: [{bucket: seen}]\n  http: [{hots: \"https://example.com\", methods: [GET]}]\n")
	got := u.run("plugin", "check", dir+"/a.wasm")
	if got.status != exitRefused || strings.Count(got.stdout, "\nrefused ") != 1 || !strings.Contains(got.stdout, `unknown key "hots"`) ||
		strings.Contains(got.stdout, "\nlimits ") || strings.Contains(got.stdout, "16MiB") || !strings.Contains(got.stdout, "handler\n") {
		t.Errorf("%+v", got)
	}
	got = u.run("plugin", "check", dir+"/a.wasm", "-o", "json")
	if strings.Count(got.stdout, `"what":`) != 1 || strings.Contains(got.stdout, `"limits":{`) {
		t.Errorf("as JSON: %+v", got)
	}
}

func TestPluginCheckGrants(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"a": handler()})
	write(t, filepath.Join(dir, "a.yaml"), grantedManifest)
	grants := filepath.Join(t.TempDir(), "grants.yaml")
	write(t, grants, `{acme: {capabilities: {kv: [{bucket: seen}]}, limits: {output: 1KiB, memory: 8MiB}}, "*": {}}`)

	const all = `"http":[{"host":"http://127.0.0.1:1","methods":["GET"]}],"kv":[{"bucket":"seen","access":"rw","quota":10485760}],"secrets":["api_key"],` +
		`"enqueue":{"queues":["mail.done"],"after":"complete","depth":16,"tasks":256,"bytes":16777216},"config":["mode","size"]`
	if out := u.must("plugin", "check", dir+"/a.wasm", "-o", "json"); !strings.Contains(out, `"asks":{`+all+`},"grants":{`+all+`}`) {
		t.Errorf("%s", out)
	}
	args := []string{"plugin", "check", dir + "/a.wasm", "--grants", grants, "--tenant", "acme"}
	out := u.must(append(args, "-o", "json")...)
	if !strings.Contains(out, `"asks":{`+all+`},"grants":{"kv":[{"bucket":"seen","access":"r"}],"config":["mode","size"]}`) ||
		!strings.Contains(out, `"capabilities.kv: the host grants less than the manifest asks for: see \"acme\" in `) {
		t.Errorf("%s", out)
	}
	out = u.must(args...)
	if !regexp.MustCompile(`asks +http http://127.0.0.1:1 GET\n +kv seen rw, quota 10MiB\n +enqueue mail.done, after complete, depth 16, tasks 256 of 16MiB\n +secrets api_key\n +config mode, size\ngrants +kv seen r\n +config mode, size\n`).MatchString(out) {
		t.Errorf("%s", out)
	}
	if !regexp.MustCompile(`limits +memory 8MiB, input 16MiB, output 1KiB, log 4KiB, timeout 1h0m0s\n`).MatchString(out) ||
		!regexp.MustCompile(`note +limits.output: the manifest has 4KiB, the host lowers it to 1KiB: see "acme" in `).MatchString(out) {
		t.Errorf("%s", out)
	}
	if out := u.must("plugin", "check", dir+"/a.wasm", "--grants", grants); strings.Contains(out, "\nasks") || !strings.Contains(out, "grants         http http://127.0.0.1:1 GET") {
		t.Errorf("of another tenant: %s", out)
	}
	if r := u.run(append(args, "--tenant", "A")...); r.status != exitUsage || !strings.HasPrefix(r.stderr, `quern: --tenant "A": use`) {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
}

func TestPluginSchema(t *testing.T) {
	t.Parallel()
	if out := newUser(t, "").must("plugin", "schema"); !strings.HasPrefix(out, "{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\",") || !strings.HasSuffix(out, "}\n") {
		t.Errorf("%.100s", out)
	}
}

// What the tenant's grants do not let a manifest declare is refused as a host refuses it.
func TestPluginCheckDeclared(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"a": handler()})
	write(t, filepath.Join(dir, "a.yaml"), `schedule: [{cron: "* * * * * *", parameters: hello}]`)
	grants := filepath.Join(t.TempDir(), "grants.yaml")
	write(t, grants, `{acme: {capabilities: {}}, slow: {schedule: {every: 1m}}, "*": {}}`)
	for tenant, want := range map[string]string{
		"acme": dir + `/a.yaml): remove them, or add schedule: {entries: 1} to "acme" in ` + grants,
		"slow": `schedule[0].cron: "* * * * * *" is due 1s after the tick before, and the host allows no less than 1m0s`,
		"free": "",
	} {
		got := u.run("plugin", "check", dir+"/a.wasm", "--grants", grants, "--tenant", tenant)
		if (got.status == exitRefused) != (want != "") || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v", tenant, got)
		}
	}
	write(t, filepath.Join(dir, "a.yaml"), "schedule:\n- {cron: '@daily', parameters: &p x}\n- {cron: '@hourly', parameters: *p}\n")
	if got := u.run("plugin", "check", dir+"/a.wasm"); got.status != exitRefused || !strings.Contains(got.stderr, "has an anchor (&), for which aliases would stand ("+dir+"/a.yaml:2): write the value out") {
		t.Errorf("an alias: %+v", got)
	}
}
