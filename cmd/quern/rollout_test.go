package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// rolledOut waits until two hosts serve a release of a plugin, and nothing else of its name.
func (u *user) rolledOut(plugin string, release int) {
	u.t.Helper()
	row := regexp.MustCompile(fmt.Sprintf(`(?m)^\S+ +%s .* serving +\S+ +2 +release %d\b`, plugin, release))
	rows := regexp.MustCompile(`(?m)^\S+ +` + plugin + ` `)
	eventually(u.t, fmt.Sprintf("two hosts serve release %d", release), func() bool {
		said := u.must("plugin", "ls")
		return row.MatchString(said) && len(rows.FindAllString(said, -1)) == 1
	})
}

// Two hosts, each a process of its own, serve what is pushed, and follow a rollback. A host that is killed serves the
// release again, and one that was killed before a push serves what was pushed meanwhile.
func TestRollout(t *testing.T) {
	ofProcesses(t)
	overBoth(t, func(t *testing.T, by over) {
		u := by.tenant(t)
		host := func(cache string) *child {
			c := u.spawn("serve", "--plugins", filepath.Join(cache, "none"), "--http", "127.0.0.1:0", "--cache", cache, "--lease", "2s")
			c.stderr.await(t, regexp.MustCompile(`joined: `))
			return c
		}
		caches := []string{filepath.Join(t.TempDir(), "cache"), filepath.Join(t.TempDir(), "cache")}
		host(caches[0])
		victim := host(caches[1])
		plugin := folder(t, map[string][]byte{"version": runtimetest.Version(t, "one")})
		write(t, filepath.Join(plugin, "version.yaml"), "version: 1.0.0\n")
		if got := u.must("plugin", "push", plugin, "--note", "the first"); got != "version 1\n" {
			t.Errorf("pushed %q", got)
		}
		u.rolledOut("version", 1)
		if got := u.must("enqueue", "version", "--wait"); got != "one" {
			t.Errorf("the first release wrote %q", got)
		}
		r := u.run("plugin", "push", plugin)
		if r.status != exitDone || !strings.Contains(r.stderr, "nothing was pushed") {
			t.Errorf("pushed again: %+v", r)
		}

		kill := func() {
			t.Helper()
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			victim.wait(t)
		}
		kill()
		write(t, filepath.Join(plugin, "version.wasm"), string(runtimetest.Version(t, "two")))
		u.must("plugin", "push", filepath.Join(plugin, "version.wasm"))
		victim = host(caches[1])
		u.rolledOut("version", 2)
		kill()
		victim = host(caches[1])
		u.rolledOut("version", 2)
		if got := u.must("enqueue", "version", "--wait"); got != "two" {
			t.Errorf("the second release wrote %q", got)
		}
		if got := u.must("plugin", "rollback", "version"); got != "version 1\n" {
			t.Errorf("rolled back to %q", got)
		}
		u.rolledOut("version", 1)
		said := u.must("plugin", "releases", "version")
		for _, want := range []string{`\n2 +version +1.0.0 +rolled back +- +sha256:`, `\n1 +version +1.0.0 +serving .* the first +- +2\n`} {
			if !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("%s is not in\n%s", want, said)
			}
		}
		if shown := u.must("plugin", "show", "version", "2"); !strings.Contains(shown, "version.yaml") || !strings.Contains(shown, "rolled back") {
			t.Errorf("release 2 is shown as\n%s", shown)
		}
		u.must("plugin", "freeze", "version")
		if r := u.run("plugin", "push", plugin); r.status != exitRefused || !strings.Contains(r.stderr, "quern plugin freeze version --off") {
			t.Errorf("pushed to a frozen plugin: %+v", r)
		}
		u.must("plugin", "freeze", "version", "--off")
		for _, command := range []string{"rollback", "show", "delete"} {
			r := u.run("plugin", command, "version", "99")
			if r.status != exitRefused || !strings.Contains(r.stderr, "plugin version has no release 99: use one of 1, 2, see `quern plugin releases version`") {
				t.Errorf("%s of a release that does not exist: %+v", command, r)
			}
		}
		u.must("plugin", "delete", "version", "2")
		if r := u.run("plugin", "rollback", "version", "2"); r.status != exitRefused || !strings.Contains(r.stderr, "no release 2: use one of 1, see") {
			t.Errorf("rolled back to a deleted release: %+v", r)
		}
		if r := u.run("plugin", "rollback", "version"); r.status != exitRefused || !strings.Contains(r.stderr, "no earlier release") {
			t.Errorf("rolled back from the first release: %+v", r)
		}
		if r := u.run("plugin", "halt", "version", "1"); r.status != exitRefused || !strings.Contains(r.stderr, "release 1 of plugin version is no canary, it serves: roll back with `quern plugin rollback version`") {
			t.Errorf("halted the release that serves: %+v", r)
		}
		if r := u.run("plugin", "delete", "version", "1"); r.status != exitRefused || !strings.Contains(r.stderr, "rollback") {
			t.Errorf("deleted the release that serves: %+v", r)
		}
		u.must("plugin", "delete", "version", "--all")
		eventually(t, "no host serves the plugin", func() bool { return !strings.Contains(u.must("plugin", "ls"), "version") })
		if by == "server" {
			audit := u.must("audit")
			for _, action := range []string{"push-release", "serve-release", "freeze-plugin", "thaw-plugin", "delete-release"} {
				if !strings.Contains(audit, action) {
					t.Errorf("the audit log lacks %s:\n%s", action, audit)
				}
			}
		}
	})
}

// What a host would refuse is refused before anything is written.
func TestPushRefused(t *testing.T) {
	overBoth(t, func(t *testing.T, by over) {
		u := by.tenant(t)
		plugin := folder(t, map[string][]byte{"bad": []byte("nonsense"), "good": runtimetest.Version(t, "one")})
		write(t, filepath.Join(plugin, "good.yaml"), "limits: {memory: 1}\n")
		for _, of := range []struct {
			args   []string
			status int
			want   string
		}{
			{[]string{"push", filepath.Join(plugin, "bad.wasm")}, exitRefused, "bad.wasm is refused"},
			{[]string{"push", filepath.Join(plugin, "good.wasm")}, exitRefused, "limits.memory"},
			{[]string{"push", plugin}, exitUsage, "name one of them"},
			{[]string{"push", filepath.Join(plugin, "none.wasm")}, exitUsage, "no such file"},
			{[]string{"rollback", "good"}, exitRefused, "plugin good has no releases"},
			{[]string{"rollback", "good", "x"}, exitUsage, "use a number"},
			{[]string{"show", "good"}, exitRefused, "plugin good has no releases: see `quern plugin ls`"},
			{[]string{"freeze", "good"}, exitRefused, "plugin good has no releases"},
			{[]string{"promote", "good"}, exitRefused, "plugin good has no releases"},
			{[]string{"delete", "good"}, exitUsage, "or use --all"},
			{[]string{"delete", "good", "2", "--all"}, exitUsage, "both release 2 and --all: delete one release with `quern plugin delete good 2`, or all with `quern plugin delete good --all`"},
		} {
			r := u.run(append([]string{"plugin"}, of.args...)...)
			if r.status != of.status || !strings.Contains(r.stderr, of.want) {
				t.Errorf("%v: exit %d, %s; want %d, %s", of.args, r.status, r.stderr, of.status, of.want)
			}
		}
		if said := u.must("plugin", "releases", "good"); strings.Contains(said, "sha256") {
			t.Errorf("a refused push has left\n%s", said)
		}
		write(t, filepath.Join(plugin, "good.yaml"), "version: 1.0.0\n")
		if r := u.run("plugin", "push", filepath.Join(plugin, "good.wasm")); r.stdout != "good 1\n" || !strings.Contains(r.stderr, "has no live host, so nothing serves the release yet: see `quern node ls") {
			t.Errorf("pushed where no host is: %+v", r)
		}
	})
}

// A tenant with signers gets only what one of them has signed.
func TestSignedReleases(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	u := over("redis").tenant(t)
	dir := folder(t, map[string][]byte{"version": runtimetest.Version(t, "one")})
	manifest := write(t, filepath.Join(dir, "version.yaml"), "version: 1.0.0\n")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	block := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	keys := t.TempDir()
	secret := write(t, filepath.Join(keys, "ci.key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
	shown := write(t, filepath.Join(keys, "ci.pub"), block)
	grants := write(t, filepath.Join(keys, "grants.yaml"), "\"*\":\n  signers:\n    ci: |\n      "+strings.ReplaceAll(strings.TrimSpace(block), "\n", "\n      ")+"\n")
	c := u.spawn("serve", "--plugins", filepath.Join(keys, "none"), "--http", "127.0.0.1:0", "--cache", filepath.Join(keys, "cache"), "--grants", grants, "--require-signed")
	c.stderr.await(t, regexp.MustCompile(`joined: `))
	said := func(want string) {
		t.Helper()
		row := regexp.MustCompile(want)
		eventually(t, want, func() bool { return row.MatchString(u.must("plugin", "ls")) })
	}

	u.must("plugin", "push", dir)
	said(`refused .* release 1 .*it is not signed: .* with the key of ci`)
	if r := u.run("plugin", "verify", dir, "--key", shown); r.status != exitRefused || !strings.Contains(r.stderr, "not signed") {
		t.Errorf("verified: %+v", r)
	}
	if got := u.must("plugin", "sign", dir, "--key", secret); got != filepath.Join(dir, "version.sig")+"\n" {
		t.Errorf("signed %q", got)
	}
	if got := u.must("plugin", "verify", dir, "--key", shown); got != "signed by "+shown+"\n" {
		t.Errorf("verified %q", got)
	}
	u.must("plugin", "push", dir)
	said(`serving .* release 2`)
	write(t, manifest, "version: 1.0.1\n")
	if r := u.run("plugin", "verify", dir, "--key", shown); r.status != exitRefused || !strings.Contains(r.stderr, "other files") {
		t.Errorf("verified after a change: %+v", r)
	}
	u.must("plugin", "push", dir)
	said(`refused .* release 3 .*of another key, or of other files`)
	said(`serving .* release 2`)
	if text := u.must("plugin", "sign", dir); !strings.HasPrefix(text, "quern release of version\n") {
		t.Errorf("the text to sign is %q", text)
	}
	for _, command := range []string{"sign", "verify"} {
		if r := u.run("plugin", command, dir, "--key", "nowhere"); r.status != exitUsage || !strings.Contains(r.stderr, `--key "nowhere": no such file or directory: name a file that this user may read`) {
			t.Errorf("%s with a key that does not exist: %+v", command, r)
		}
	}
	if r := u.run("plugin", "sign", dir, "--key", shown); r.status != exitUsage || !strings.Contains(r.stderr, "private key") {
		t.Errorf("signed with a public key: %+v", r)
	}
}
