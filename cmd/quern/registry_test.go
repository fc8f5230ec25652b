package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/rollout/oci/ocitest"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// Two hosts, each a confined process of its own, serve releases from a registry: one that was pushed there, and one that
// lay there. While the registry is away, a host that is started again serves from its cache, and a tag that moves changes
// nothing.
func TestRolloutFromRegistry(t *testing.T) {
	ofProcesses(t)
	overBoth(t, func(t *testing.T, by over) {
		registry := ocitest.Start(t)
		u := by.tenant(t)
		credentials := registry.Credentials(registry.Host, ocitest.Password)
		host := func(cache string, flags ...string) *child {
			c := u.spawn(append([]string{"serve", "--plugins", filepath.Join(cache, "none"), "--http", "127.0.0.1:0", "--cache", cache, "--lease", "2s"}, flags...)...)
			c.stderr.await(t, regexp.MustCompile(`joined: `))
			return c
		}
		allowed := []string{"--registry", registry.Host, "--registry-config", credentials}
		caches := []string{filepath.Join(t.TempDir(), "cache"), filepath.Join(t.TempDir(), "cache")}
		host(caches[0], allowed...)
		victim := host(caches[1], allowed...)
		plugin := folder(t, map[string][]byte{"version": runtimetest.Version(t, "one")})
		write(t, filepath.Join(plugin, "version.yaml"), "version: 1.0.0\n")
		repository := registry.Host + "/acme/version"
		push := func(args ...string) string {
			t.Helper()
			return u.must(append([]string{"plugin", "push", "--registry-config", credentials}, args...)...)
		}
		if got := push(plugin, "--registry", repository); got != "version 1\n" {
			t.Errorf("pushed %q", got)
		}
		u.rolledOut("version", 1)
		shown := u.must("plugin", "show", "version")
		artifact := regexp.MustCompile(`oci://` + regexp.QuoteMeta(repository) + `@sha256:[0-9a-f]{64}`).FindString(shown)
		if artifact == "" {
			t.Fatalf("no artifact is shown:\n%s", shown)
		}
		if r := u.run("plugin", "push", plugin, "--registry", repository, "--registry-config", credentials); r.status != exitDone || !strings.Contains(r.stderr, "nothing was pushed") {
			t.Errorf("pushed again: %+v", r)
		}

		// The same tag gets other files. They are released only when somebody says so.
		tagged := "oci://" + repository + ":1.0.0"
		other := folder(t, map[string][]byte{"version": runtimetest.Version(t, "two")})
		write(t, filepath.Join(other, "version.yaml"), "version: 1.0.0\n")
		write(t, filepath.Join(other, "version.sig"), "a signature\n")
		push(other, "--registry", repository)
		u.rolledOut("version", 2)
		if got := u.must("plugin", "rollback", "version"); got != "version 1\n" {
			t.Errorf("rolled back to %q", got)
		}
		u.rolledOut("version", 1)
		if got := push(tagged, "--note", "by its tag"); got != "version 3\n" {
			t.Errorf("pushed %q", got)
		}
		u.rolledOut("version", 3)
		if shown := u.must("plugin", "show", "version", "-o", "json"); !strings.Contains(shown, "a signature") {
			t.Errorf("the signature is not released with the artifact:\n%s", shown)
		}
		if got := u.must("enqueue", "version", "--wait"); got != "two" {
			t.Errorf("the release of the tag wrote %q", got)
		}
		push(artifact)
		u.rolledOut("version", 4)
		if got := u.must("enqueue", "version", "--wait"); got != "one" {
			t.Errorf("the release of the digest wrote %q", got)
		}

		registry.Stop()
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		victim.wait(t)
		victim = host(caches[1], allowed...)
		u.rolledOut("version", 4)
		if r := u.run("plugin", "push", tagged, "--registry-config", credentials); r.status != exitRefused || !strings.Contains(r.stderr, "connection refused") {
			t.Errorf("pushed from a registry that is away: %+v", r)
		}
		if by == "server" {
			if audit := u.must("audit"); !strings.Contains(audit, artifact) {
				t.Errorf("the audit log lacks the artifact:\n%s", audit)
			}
		}
		if log := victim.stderr.String(); strings.Contains(log, ocitest.Password) {
			t.Errorf("the log has the password:\n%s", log)
		}
	})
}

// What is wrong about a registry is said at once.
func TestRegistryRefused(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	u := over("redis").tenant(t)
	plugin := folder(t, map[string][]byte{"version": runtimetest.Version(t, "one")})
	wrong := registry.Credentials(registry.Host, "wrong-password")
	helper := write(t, filepath.Join(t.TempDir(), "config.json"), `{"credsStore": "desktop"}`)
	none := filepath.Join(t.TempDir(), "none.json")
	for _, of := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"plugin", "push", plugin, "--registry", registry.Host + "/acme/version", "--registry-config", wrong}, exitRefused, "give credentials for " + registry.Host},
		{[]string{"plugin", "push", "oci://" + registry.Host + "/acme/version:1", "--registry-config", wrong}, exitRefused, "give credentials for " + registry.Host},
		{[]string{"plugin", "push", "oci://" + registry.Host + "/acme/none:1", "--registry-config", registry.Credentials(registry.Host, ocitest.Password)}, exitRefused, "does not have it"},
		{[]string{"plugin", "push", "oci://" + registry.Host + "/acme/version"}, exitUsage, "add :TAG"},
		{[]string{"plugin", "push", "oci://nonsense"}, exitUsage, "use oci://HOST/REPOSITORY:TAG"},
		{[]string{"plugin", "push", "oci://" + registry.Host + "/acme/version:1", "--registry", "x/y"}, exitUsage, "leave out --registry"},
		{[]string{"plugin", "push", plugin, "--registry", "nonsense"}, exitUsage, "use HOST/REPOSITORY"},
		{[]string{"plugin", "push", plugin, "--registry", registry.Host + "/acme/version", "--registry-config", none}, exitUsage, none},
		{[]string{"plugin", "push", plugin, "--registry", registry.Host + "/acme/version", "--plain-http=false"}, exitRefused, "HTTP response to HTTPS"},
		{[]string{"plugin", "push", plugin, "--registry", ocitest.Nobody(t) + "/acme/version"}, exitRefused, "connection refused"},
		{[]string{"serve", "--registry", "ghcr.io/acme"}, exitUsage, "use HOST or HOST:PORT"},
		{[]string{"serve", "--registry", registry.Host, "--registry-config", helper}, exitUsage, "credential helpers"},
		{[]string{"serve", "--registry", registry.Host, "--registry-config", none}, exitUsage, none},
	} {
		r := u.run(of.args...)
		if r.status != of.status || !strings.Contains(r.stderr, of.want) || strings.Contains(r.stderr, "wrong-password") {
			t.Errorf("%v: exit %d, %s; want %d, %s", of.args, r.status, r.stderr, of.status, of.want)
		}
	}
	if said := u.must("plugin", "releases", "version"); strings.Contains(said, "sha256") {
		t.Errorf("a refused push has left\n%s", said)
	}
}
