package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/plugins/signature"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
)

const fullHostGrants = `# What this host grants.
"*":
  capabilities: {}
acme:
  capabilities:
    http: [{host: "https://*.example.com", methods: [GET, POST]}]
    kv: [{bucket: "*", quota: 1MiB}, {bucket: "thumb*", access: rw, quota: 1MiB}]
    secrets: ["api_*", token]
    enqueue: {queues: ["mail.*"], after: call}
  config: {size: 300x300, lonely: 1}
  secrets: {api_key: {env: QUERN_TEST_NOWHERE}, token: {file: secrets/token}, plain: {value: 007}}
"{blue}": {}
`

const manifestOfAcme = `
config: {size: 200x200, other: a}
capabilities:
  http: [{host: "https://api.example.com", methods: [GET, PUT]}]
  kv: [{bucket: thumbs, access: rw, quota: 2MiB}, {bucket: seen, access: rw}]
  secrets: [api_key, ssh]
  enqueue: {queues: [mail.done, other], depth: 50}
  env: {A: b}
`

func hostGrants(t testing.TB, data string) *Grants {
	t.Helper()
	g, err := ParseGrants("/etc/quern/grants.yaml", []byte(data))
	check(t, err)
	return g
}

func TestHostGrants(t *testing.T) {
	t.Parallel()
	hosts := hostGrants(t, fullHostGrants)
	m, err := Parse("x.yaml", []byte(manifestOfAcme))
	check(t, err)
	const whole = "http https://api.example.com GET, PUT|kv thumbs rw, quota 2MiB|kv seen rw, quota 10MiB|" +
		"enqueue mail.done, other, after complete, depth 50, tasks 256 of 16MiB|secrets api_key, ssh|env A|config other, size"
	for tenant, want := range map[string]struct{ granted, config, taken string }{
		"acme": {
			"http https://api.example.com GET|kv thumbs rw, quota 1MiB|kv seen r|enqueue mail.done, after complete, depth 16, tasks 256 of 16MiB|" +
				"secrets api_key|env A|config other, size",
			"map[other:a size:300x300]", "[http kv secrets enqueue]",
		},
		"{blue}": {whole, "map[other:a size:200x200]", "[]"},
		"zebra":  {"env A|config other, size", "map[other:a size:200x200]", "[http kv secrets enqueue]"},
	} {
		permissions := NewPermissions(&m, hosts, tenant, nil)
		if got := strings.Join(permissions.Granted().Lines(), "|"); got != want.granted {
			t.Errorf("%s:\ngot  %s\nwant %s", tenant, got, want.granted)
		}
		if got := fmt.Sprint(permissions.Config); got != want.config {
			t.Errorf("%s: config %s, want %s", tenant, got, want.config)
		}
		if got := fmt.Sprint(permissions.Reduced()); got != want.taken {
			t.Errorf("%s: taken %s, want %s", tenant, got, want.taken)
		}
	}
	if got := NewPermissions(&m, nil, "zebra", nil); strings.Join(got.Granted().Lines(), "|") != whole || got.Ceiling != nil || len(got.Reduced()) > 0 {
		t.Errorf("without grants: %+v", got)
	}
	if got := fmt.Sprint(hosts.Of("acme").Secrets); got != "map[api_key:{QUERN_TEST_NOWHERE   11} plain:{  007 11} token:{ /etc/quern/secrets/token  11}]" {
		t.Errorf("secrets %s", got)
	}
	if permissions := NewPermissions(&m, hostGrants(t, "acme: {}"), "zebra", nil); permissions.Granted() == nil || len(permissions.Granted().KV) > 0 || permissions.Capabilities.Enqueue != nil {
		t.Errorf("a tenant of whom nothing is said has %+v", permissions.Granted())
	}
}

// The grants that the manual shows are ones.
func TestManualGrants(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../cmd/quern/manual/grants.md")
	check(t, err)
	_, text, ok := strings.Cut(string(page), "```yaml\n# grants.yaml\n")
	text, _, ends := strings.Cut(text, "```\n")
	if !ok || !ends {
		t.Fatal("the page has no grants.yaml")
	}
	g := hostGrants(t, text)
	if acme := g.Of("acme"); len(acme.Secrets) != 2 || acme.Ceiling == nil || acme.Ceiling.Enqueue.Depth != 50 || g.Of("other").Ceiling == nil {
		t.Errorf("%+v", acme)
	}
}

// What the manifest grants and the host does not is told as the host's; all else as the manifest's.
func TestPermissionsDeny(t *testing.T) {
	t.Parallel()
	m, err := Parse("x.yaml", []byte(manifestOfAcme))
	check(t, err)
	permissions := NewPermissions(&m, hostGrants(t, fullHostGrants), "acme", nil)
	reader, err := Parse("x.yaml", []byte("capabilities: {kv: [{bucket: read}], publish: {topics: [t], after: call}}"))
	check(t, err)
	reading := NewPermissions(&reader, nil, "acme", nil)
	host := func(line string) string {
		return `denied: the manifest allows it, the host does not: add ` + line + ` of "acme" in /etc/quern/grants.yaml`
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{permissions.DenyBucket("thumbs", true), ""},
		{permissions.DenyBucket("seen", false), ""},
		{permissions.DenyBucket("seen", true), host(`{bucket: "seen", access: rw} to capabilities.kv`)},
		{permissions.DenyBucket("others", false), `denied: bucket "others" is not granted: add {bucket: "others"} to capabilities.kv`},
		{reading.DenyBucket("read", false), ""},
		{reading.DenyBucket("read", true), `denied: bucket "read" is granted for reading only: add access: rw to bucket "read" in capabilities.kv`},
		{reading.DenyBucket("other", true), `denied: bucket "other" is not granted: add {bucket: "other", access: rw} to capabilities.kv`},
		{permissions.DenySecret("api_key"), ""},
		{permissions.DenySecret("ssh"), host(`"ssh" to capabilities.secrets`)},
		{permissions.DenySecret("token"), `denied: secret "token" is not granted: add "token" to capabilities.secrets`},
		{permissions.DenyQueue("mail.done"), ""},
		{permissions.DenyQueue("other"), host(`"other" to queues in capabilities.enqueue`)},
		{permissions.DenyQueue("mail.bulk"), `denied: queue "mail.bulk" is not granted: add "mail.bulk" to queues in capabilities.enqueue`},
		{reading.DenyQueue("a"), `denied: queue "a" is not granted: add capabilities: {enqueue: {queues: ["a"]}}`},
		{reading.DenyTopic("t"), ""},
		{reading.DenyTopic("u"), `denied: topic "u" is not granted: add "u" to topics in capabilities.publish`},
		{NewPermissions(&m, nil, "acme", nil).DenySecret("ssh"), ""},
	} {
		if tt.want == "" && tt.err == nil {
			continue
		}
		if !errors.Is(tt.err, service.ErrDenied) || tt.err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", tt.err, tt.want)
		}
	}
	m.Capabilities.Enqueue.After = afterCall
	const late = `add after: call to capabilities.enqueue of "acme" in g.yaml`
	ceiling, err := ParseGrants("g.yaml", []byte(`acme: {capabilities: {enqueue: {queues: ["*"]}}}`))
	check(t, err)
	atOnce := NewPermissions(&m, ceiling, "acme", nil)
	if err := atOnce.DenyQueue("mail.done"); !errors.Is(err, service.ErrDenied) || !strings.HasSuffix(fmt.Sprint(err), late) {
		t.Errorf("at once, under a ceiling of the completion: %v", err)
	}
	if got := fmt.Sprint(atOnce.Reduced()); atOnce.Capabilities.Enqueue != nil || got != "[http kv secrets enqueue]" {
		t.Errorf("taken %s, left %+v", got, atOnce.Capabilities.Enqueue)
	}
	everyone := NewPermissions(&m, hostGrants(t, fullHostGrants), "zebra", nil).DenyBucket("seen", false)
	if everyone == nil || !strings.Contains(everyone.Error(), `"*" in /etc/quern/grants.yaml`) {
		t.Errorf("of everyone: %v", everyone)
	}
}

// How long a chain may be is denied as the host's only where the manifest allows more.
func TestPermissionsDenyDepth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		asked, ceiling, depth int
		want                  string
	}{
		{50, 16, 15, ""},
		{50, 16, 16, `limit: the task has 16 parents above it (a loop?), and the host allows 16: add capabilities: {enqueue: {depth: 50}} to "acme" in g.yaml`},
		{50, 16, 49, `limit: the task has 49 parents above it (a loop?), and the host allows 16: add capabilities: {enqueue: {depth: 50}} to "acme" in g.yaml`},
		{50, 16, 50, ""}, // is for the manifest to allow first
		{16, 16, 16, ""},
		{16, 50, 16, ""},
		{50, 0, 50, ""},
	} {
		var hosts *Grants
		if tt.ceiling > 0 {
			var err error
			hosts, err = ParseGrants("g.yaml", fmt.Appendf(nil, `acme: {capabilities: {enqueue: {queues: ["*"], depth: %d}}}`, tt.ceiling))
			check(t, err)
		}
		m := Manifest{Capabilities: Capabilities{Enqueue: &EnqueueGrant{Queues: []string{"a"}, Depth: tt.asked}}}
		err := NewPermissions(&m, hosts, "acme", nil).DenyDepth(tt.depth)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%+v: %v", tt, err)
		case tt.want != "" && (!errors.Is(err, service.ErrLimit) || !strings.HasSuffix(err.Error(), strings.TrimPrefix(tt.want, "limit"))):
			t.Errorf("%+v:\ngot %v", tt, err)
		}
	}
	if err := NewPermissions(&Manifest{}, nil, "acme", nil).DenyDepth(100); err != nil {
		t.Error(err)
	}
}

// The quotas of a tenant are those of its entry, or of "*". All errors are listed, with their lines.
func TestQuotasOfGrants(t *testing.T) {
	t.Parallel()
	g, err := ParseGrants("g.yaml", []byte("acme:\n  quotas:\n    running: 50\n    rate:mail: 10/m burst 5\n\"*\": {quotas: {kv_bytes: 1MiB}}\nnone: {}\n"))
	check(t, err)
	quotas, err := g.QuotasOf([]string{"acme", "beta", "gamma", "none"}, func(name, text string) (string, error) { return name + text, nil })
	check(t, err)
	want := "map[acme:map[rate:mail:rate:mail10/m burst 5 running:running50] beta:map[kv_bytes:kv_bytes1MiB] gamma:map[kv_bytes:kv_bytes1MiB] none:map[]]"
	if got := fmt.Sprint(quotas); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err = g.QuotasOf([]string{"acme", "beta", "gamma"}, func(name, text string) (string, error) { return "", fmt.Errorf("%s %q is bad", name, text) })
	const wrong = `g.yaml:3: acme.quotas.running: running "50" is bad: see ` + "`quern tenant set --help`" +
		`; g.yaml:4: acme.quotas.rate:mail: rate:mail "10/m burst 5" is bad: see ` + "`quern tenant set --help`" +
		`; g.yaml:5: *.quotas.kv_bytes: kv_bytes "1MiB" is bad: see ` + "`quern tenant set --help`"
	if fmt.Sprint(err) != wrong {
		t.Errorf("got  %v\nwant %s", err, wrong)
	}
}

func TestParseHostGrantsWrong(t *testing.T) {
	t.Parallel()
	const words = "1 to 32 of a-z, 0-9 and -, such a word in braces, or \"*\" for all others"
	for data, want := range map[string]string{
		"":                     `g.yaml: is empty: write at least "*": {}`,
		"[a]":                  `g.yaml:1: expected a mapping, but it is a list: write it as "key: value" lines`,
		"Acme: {}":             `g.yaml:1: Acme: "Acme" is not a tenant name: write ` + words,
		"acme: {}\nacme: {}":   `g.yaml:2: acme: is here a second time, after line 1: keep one of them`,
		"acme:":                `g.yaml:1: acme: expected a mapping, but it is empty: write it as "key: value" lines`,
		"acme: {capability: }": `g.yaml:1: acme: unknown key "capability": did you mean "capabilities"?`,
		"acme: {kv: []}":       `g.yaml:1: acme: unknown key "kv": it belongs to capabilities, as capabilities.kv`,
		"acme: {concurrency: 5}": `g.yaml:1: acme: unknown key "concurrency": the nearest is "config"; ` +
			`allowed are config, capabilities, limits, retry, max_crashes, schedule, subscribe, max_queues, quotas, signers, databases, records, secrets`,
		"acme: {limits: {memory: 1KiB}}": `g.yaml:1: acme.limits.memory: "1KiB" is too small: write a size from 64KiB to ` +
			units.FormatSize(runtime.MaxMemory) + `, such as 16MiB`,
		"acme: {limits: {memroy: 1MiB}}":    `g.yaml:1: acme.limits: unknown key "memroy": did you mean "memory"?`,
		"acme: {signers: {ci: RWnonsense}}": "g.yaml:1: acme.signers.ci: is not a public key: " + signature.KeyRule,
		"acme: {signers: {ci: [a]}}":        "g.yaml:1: acme.signers.ci: is not a public key: " + signature.KeyRule,
		"acme: {quotas: {running: [1]}}":    `g.yaml:1: acme.quotas.running: is a list: write a number or a rate, such as tasks_waiting: 10000 or rate: 100/s`,
		"acme: {max_queues: 0}":             `g.yaml:1: acme.max_queues: "0" is not allowed: write a whole number from 1 to 1000000, or leave the key out for the host's bound`,
		"acme: {retry: {base: 1s}}":         `g.yaml:1: acme.retry: unknown key "base": the nearest is "min"; allowed are max_attempts, min, max_age, max_reschedules`,
		"capabilities: {kv: [{bucket: a}]}": `g.yaml:1: capabilities: is where a tenant name belongs: ` +
			`write it below a tenant's name, or below "*" for all others`,
		"acme: {capabilities: {config: {}}}": `g.yaml:1: acme.capabilities: unknown key "config": it belongs to the tenant`,
		"acme: {capabilities: {kvs: []}}":    `g.yaml:1: acme.capabilities: unknown key "kvs": did you mean "kv"?`,
		"acme: {capabilities: {env: {A: b}}}": `g.yaml:1: acme.capabilities.env: has no ceiling, since it gives a plugin nothing that its module could not hold: ` +
			`remove it`,
		"acme: {capabilities: {files: []}}": `g.yaml:1: acme.capabilities.files: has no ceiling, since it gives a plugin nothing that its module could not hold: ` +
			`remove it`,
		`acme: {capabilities: {kv: [{bucket: "*a*"}]}}`: `g.yaml:1: acme.capabilities.kv[0].bucket: "*a*" has more than one *: ` +
			`write a name, or one with a single * for any text, such as mail.*`,
		`acme: {capabilities: {secrets: ["*a*"]}}`: `g.yaml:1: acme.capabilities.secrets[0]: "*a*" has more than one *: ` +
			`write a name, or one with a single * for any text, such as mail.*`,
		"acme: {capabilities: {secrets: [../a]}}": `g.yaml:1: acme.capabilities.secrets[0]: "../a" is not a secret name: ` + secretRule,
		"acme: {secrets: [a]}":                    `g.yaml:1: acme.secrets: expected a mapping, but it is a list: write its keys, or leave it out`,
		"acme: {secrets: {../a: {env: A}}}":       `g.yaml:1: acme.secrets.../a: "../a" is not a secret name: ` + secretRule,
		"acme: {secrets: {a: hunter2}}":           `g.yaml:1: acme.secrets.a: does not say where the secret is: write {env: VARIABLE}, {file: PATH} or {value: TEXT}`,
		"acme: {secrets: {a: {}}}":                `g.yaml:1: acme.secrets.a: has 0 keys: write one of env, file and value`,
		"acme: {secrets: {a: {env: A, file: b}}}": `g.yaml:1: acme.secrets.a: has 2 keys: write one of env, file and value`,
		"acme: {secrets: {a: {path: b}}}":         `g.yaml:1: acme.secrets.a: has an unknown key: an entry has env, file and value`,
		"acme: {secrets: {a: {hunter2xyz}}}":      `g.yaml:1: acme.secrets.a: has an unknown key: an entry has env, file and value`,
		"acme: {secrets: {a: {hunter2xyz: b}}}":   `g.yaml:1: acme.secrets.a: has an unknown key: an entry has env, file and value`,
		"acme: {secrets: {a: {hunter2: a, hunter2: b}}}": `g.yaml:1: acme.secrets.a: has an unknown key: an entry has env, file and value; ` +
			`g.yaml:1: acme.secrets.a: has a key twice: keep one of them`,
		"acme: {secrets: {a: {env: hunter-2}}}": `g.yaml:1: acme.secrets.a.env: is not a variable name: write letters, digits and _, not beginning with a digit`,
		"acme: {secrets: {a: {value: }}}":       `g.yaml:1: acme.secrets.a.value: is not a text, or an empty one: write a text, in quotes if it begins with other than a letter`,
		"acme: {secrets: {a: {value: !hunter2 }}}": `g.yaml:1: acme.secrets.a.value: is not a text, or an empty one: ` +
			`write a text, in quotes if it begins with other than a letter`,
		"acme: {secrets: {a: {value: *hunter2 }}}": `g.yaml:1: has an alias (*): write the value out, and a text that begins with * in quotes`,
		"acme: {secrets: {a: {value: [hunter2]}}}": `g.yaml:1: acme.secrets.a.value: is not a text, or an empty one: ` +
			`write a text, in quotes if it begins with other than a letter`,
		"acme: {secrets: {a: {value: " + strings.Repeat("x", MaxSecret+1) + "}}}": `g.yaml:1: acme.secrets.a.value: has 65537 bytes: write at most 65536`,
		"acme: {databases: {a: {by: X}}}":                                         `g.yaml:1: acme.databases.a.by: "X" is not a header of a task: write the name of a header in lower case, such as nsj-tenant`,
		"acme: {databases: {a: {pool: 0}}}":                                       `g.yaml:1: acme.databases.a.pool: "0" is not allowed: write a whole number from 1 to 1000, or leave the key out for 8`,
		"acme: {databases: {a: {settings: {'a b': c}}}}":                          `g.yaml:1: acme.databases.a.settings: "a b" is not a setting of PostgreSQL: write one such as app.tenant or search_path`,
		"acme: {capabilities: {sql: [{database: a.*}]}}":                          `g.yaml:1: acme.capabilities.sql[0].database: "a.*" is not a database name: write 1 to 64 of A-Z, a-z, 0-9, - and _`,
		`acme: {capabilities: {sql: [{database: "*a*"}]}}`:                        `g.yaml:1: acme.capabilities.sql[0].database: "*a*" has more than one *: write a name, or one with a single * for any text, such as mail.*`,
		"acme: {databases: {shop.47: {}}}":                                        `g.yaml:1: acme.databases.shop.47: "shop.47" is not a database name: write 1 to 64 of A-Z, a-z, 0-9, - and _`,
		"acme: {capabilities: {sql: [{database: a, commit: call}]}}":              `g.yaml:1: acme.capabilities.sql[0].commit: has no ceiling: remove it`,
		"acme: {secret: {}}\nzebra: {secret: {}}": `g.yaml:1: acme: unknown key "secret": did you mean "secrets"?; ` +
			`g.yaml:2: zebra: unknown key "secret": did you mean "secrets"?`,
	} {
		_, err := ParseGrants("g.yaml", []byte(data))
		if err == nil || err.Error() != want {
			t.Errorf("%.100q\ngot  %v\nwant %s", data, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q tells the secret: %v", data, err)
		}
	}
}

func TestLoadGrants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "grants.yaml")
	write(t, path, []byte(`
acme: {secrets: {relative: {file: token}, absolute: {file: "`+dir+`/token"}, path: {env: PATH}, plain: {value: hunter2}}}
zebra: {secrets: {lost: {file: nowhere}, unset: {env: QUERN_TEST_NOWHERE}, folder: {file: .}}}
`))
	write(t, filepath.Join(dir, "token"), []byte("t0ken\n"))
	g, err := LoadGrants(path)
	check(t, err)
	check(t, g.Check([]string{"acme"}))
	for name, want := range map[string]string{"relative": "t0ken", "absolute": "t0ken", "path": os.Getenv("PATH"), "plain": "hunter2"} {
		if value, err := g.Of("acme").Secrets[name].Read(); err != nil || string(value) != want {
			t.Errorf("%s is %q, %v", name, value, err)
		}
	}
	write(t, filepath.Join(dir, "token"), []byte("another\n\n"))
	if value, err := g.Of("acme").Secrets["relative"].Read(); err != nil || string(value) != "another\n" {
		t.Errorf("changed it is %q, %v", value, err)
	}
	want := path + `: names neither the tenant "other" nor "*" for all others: add "other": {}, with which manifests alone decide, or a ceiling in it`
	if err := g.Check([]string{"acme", "other"}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	want = path + ":3: zebra.secrets.folder: cannot read " + dir + ": it is a folder: let the host's user read it, or remove the secret; " +
		path + ":3: zebra.secrets.lost: there is no file " + dir + "/nowhere: write the secret into it, or remove the secret; " +
		path + ":3: zebra.secrets.unset: the variable QUERN_TEST_NOWHERE is not set: set it, or remove the secret"
	if err := g.Check([]string{"acme", "zebra"}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := g.Check([]string{"zebra", "other"}); err == nil || strings.Count(err.Error(), "grants.yaml") != 4 {
		t.Errorf("all at once: %v", err)
	}
	if err := g.CheckTenants([]string{"zebra"}); err != nil {
		t.Errorf("the names alone: %v", err)
	}
	if _, err := g.Of("zebra").Secrets["lost"].Read(); !errors.Is(err, ErrNoSecret) {
		t.Errorf("a file that is not there: %v", err)
	}

	if got := g.Warnings(); len(got) > 0 {
		t.Errorf("a file of its owner alone: %q", got)
	}
	check(t, os.Chmod(path, 0o640))
	if g, err = LoadGrants(path); err != nil || len(g.Warnings()) != 1 {
		t.Errorf("a file that others may read: %q, %v", g.Warnings(), err)
	}
	write(t, path, []byte("acme: {secrets: {token: {file: token}}}"))
	if g, err = LoadGrants(path); err != nil || len(g.Warnings()) > 0 {
		t.Errorf("a file without a secret: %q, %v", g.Warnings(), err)
	}

	for name, want := range map[string]string{
		"nowhere": "no such file or directory", ".": "it is a folder", "pipe": "it is a named pipe",
	} {
		if name == "pipe" {
			check(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
		}
		if _, err := LoadGrants(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing of the host bounds or gives anything.
func TestNoHostGrants(t *testing.T) {
	t.Parallel()
	var g *Grants
	if err := g.Check([]string{"acme"}); err != nil || g.Of("acme").Ceiling != nil || len(g.Warnings()) > 0 {
		t.Errorf("%v", err)
	}
}

func FuzzParseGrants(f *testing.F) {
	for _, seed := range []string{
		fullHostGrants, "{}", "a: {}", "a: &a {secrets: *a}", "a: {capabilities: {enqueue: {queues: [a], depth: 1}}}", "\"*\": {config: {a: b}}",
		"a: {secrets: {b: {value: *c}}}", "capabilities: {}", "a: {capabilities: {http: [{host: \"https://*.a\", methods: [GET]}]}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGrants("g.yaml", data)
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) || len(refused.Problems) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		m, err := Parse("x.yaml", []byte(manifestOfAcme))
		check(t, err)
		for tenant, own := range g.tenants {
			permissions := NewPermissions(&m, g, tenant, nil)
			if own.Ceiling == nil != (permissions.Ceiling == nil) || len(permissions.Config) != len(m.Config) {
				t.Fatalf("%+v of %+v", permissions, own)
			}
			for _, secret := range own.Secrets {
				if given := len(nonEmpty(secret.Env, secret.File, secret.Value)); given != 1 {
					t.Fatalf("%+v", secret)
				}
			}
		}
	})
}

func nonEmpty(words ...string) (given []string) {
	for _, word := range words {
		if word != "" {
			given = append(given, word)
		}
	}
	return given
}
