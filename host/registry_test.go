package host

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/rollout/oci"
	"github.com/quern-project/quern/host/rollout/oci/ocitest"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// artifacts is a client for a host of a registry.
func artifacts(t *testing.T, r *ocitest.Registry, host string) *oci.Client {
	t.Helper()
	client, err := oci.New(oci.Config{
		Registries: []oci.Registry{{Host: host, Plain: true}}, Credentials: r.Credentials(host, ocitest.Password),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// pushArtifact uploads a module to a registry, and releases it from there.
func (n *node) pushArtifact(c *oci.Client, host, plugin string, module []byte) release.Release {
	n.t.Helper()
	return n.pushArtifactAs(c, host, plugin, module, nil)
}

func (n *node) pushArtifactAs(c *oci.Client, host, plugin string, module []byte, share *release.Share) release.Release {
	n.t.Helper()
	files := []release.Content{{Name: plugin + ".wasm", Data: module}, {Name: plugin + ".yaml", Data: []byte("version: 1.0.0")}}
	r, err := release.New(plugin, files)
	if err != nil {
		n.t.Fatal(err)
	}
	ref, err := oci.Parse(release.ArtifactScheme + host + "/acme/" + plugin + ":latest")
	if err != nil {
		n.t.Fatal(err)
	}
	artifact, err := c.Push(n.ctx, ref, &r, files)
	if err == nil {
		r, err = release.Push(n.ctx, release.NewStore(n.client), r.InRegistry(artifact), nil, share)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *node) refuses(plugin string, number int, why string) {
	n.t.Helper()
	n.eventually("a release is refused: "+why, func() bool { return strings.Contains(n.refusal(plugin, number), why) })
}

// Releases in Redis and in a registry follow each other. While the registry is away, hosts serve what they have, also
// after a start; a host that has nothing serves the release before.
func TestRegistryAway(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	client := artifacts(t, registry, registry.Host)
	cache := t.TempDir()
	config := Config{Artifacts: client, Releases: cache}
	a := start(t, settings{Config: config})
	first := a.pushRelease("version", runtimetest.Version(t, "one"), "")
	a.serves("version", first.Number)
	second := a.pushArtifact(client, registry.Host, "version", runtimetest.Version(t, "two"))
	a.serves("version", second.Number)
	if said := string(a.wait(a.enqueue("version", "")).Result); said != "two" {
		t.Errorf("the release in the registry wrote %q", said)
	}
	if pieces, err := a.rdb.Keys(a.ctx, a.tenant+"_piece_*").Result(); len(pieces) != 1 || err != nil {
		t.Errorf("Redis has the pieces %v, %v: want one, of the first release", pieces, err)
	}
	if again := a.pushArtifact(client, registry.Host, "version", runtimetest.Version(t, "two")); again.Number != second.Number {
		t.Errorf("pushed again as release %d", again.Number)
	}

	registry.Stop()
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	again := start(t, settings{tenants: []string{a.tenant}, Config: config})
	again.serves("version", second.Number)
	other := start(t, settings{tenants: []string{a.tenant}, Config: Config{Artifacts: client}})
	other.refuses("version", second.Number, "connection refused")
	other.serves("version", first.Number)
	forbidden := start(t, settings{tenants: []string{a.tenant}})
	forbidden.refuses("version", second.Number, "start it with --registry")
	forbidden.serves("version", first.Number)

	registry.Serve()
	other.serves("version", second.Number)
	other.eventually("the release is no longer refused", func() bool { return other.refusal("version", second.Number) == "" })
	if _, err := release.NewStore(a.client).ServeRelease(a.ctx, "version", first.Number); err != nil {
		t.Fatal(err)
	}
	other.serves("version", first.Number)
}

// countingArtifacts are those of a host that dials no registry. They count the attempts to fetch a release.
type countingArtifacts struct {
	rollout.NoArtifacts
	attempts atomic.Int64
}

func (c *countingArtifacts) Files(ctx context.Context, r *release.Release) (func(*release.File) (io.ReadCloser, error), error) {
	c.attempts.Add(1)
	return c.NoArtifacts.Files(ctx, r)
}

// A host that can fetch neither the release to serve nor the one before becomes ready, and names both.
func TestHostWithoutRegistry(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	client := artifacts(t, registry, registry.Host)
	a := start(t, settings{Config: Config{Artifacts: client}})
	first := a.pushArtifact(client, registry.Host, "version", runtimetest.Version(t, "one"))
	a.serves("version", first.Number)
	second := a.pushArtifact(client, registry.Host, "version", runtimetest.Version(t, "two"))
	a.serves("version", second.Number)
	b := start(t, settings{tenants: []string{a.tenant}})
	b.eventually("the host is ready", func() bool { return b.tenants[b.tenant].releases.Ready() })
	b.refuses("version", second.Number, "of the release before, 1")
}

// A registry that sends other bytes than the release says changes nothing, until it sends the right ones.
func TestRegistryLies(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	var lies atomic.Bool
	host := registry.Front(func(response *http.Response) error {
		if !lies.Load() || response.StatusCode != http.StatusOK || !strings.Contains(response.Request.URL.Path, "/blobs/") ||
			response.Request.Method != http.MethodGet {
			return nil
		}
		data, err := io.ReadAll(response.Body)
		slices.Reverse(data)
		response.Body = io.NopCloser(bytes.NewReader(data))
		return err
	})
	client := artifacts(t, registry, host)
	a := start(t, settings{Config: Config{Artifacts: client}})
	first := a.pushArtifact(client, host, "version", runtimetest.Version(t, "one"))
	a.serves("version", first.Number)
	lies.Store(true)
	second := a.pushArtifact(client, host, "version", runtimetest.Version(t, "two"))
	a.refuses("version", second.Number, "other bytes than the digest says")
	a.serves("version", first.Number)
	if said := string(a.wait(a.enqueue("version", "")).Result); said != "one" {
		t.Errorf("the release before wrote %q", said)
	}
	lies.Store(false)
	a.serves("version", second.Number)
}

// A registry that hangs delays neither the halt of a canary of another plugin, nor a rollback. What it has not sent
// serves later.
func TestRegistryHangs(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	hangs, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var hung atomic.Bool
	host := registry.Front(func(response *http.Response) error {
		if hung.Load() && strings.Contains(response.Request.URL.Path, "/blobs/") && response.Request.Method == http.MethodGet {
			once.Do(func() { close(hangs) })
			select {
			case <-goOn:
			case <-response.Request.Context().Done():
			}
		}
		return nil
	})
	client := artifacts(t, registry, host)
	one, two := runtimetest.Version(t, "one"), runtimetest.Version(t, "two")
	a := start(t, settings{Config: Config{Artifacts: client}})
	first := a.pushArtifact(client, host, "version", one)
	mail := a.pushRelease("mail", one, "version: one")
	a.serves("version", first.Number)
	a.serves("mail", mail.Number)
	next := a.pushRelease("mail", two, "version: two")
	a.serves("mail", next.Number)
	canary := a.pushCanary("mail", one, "version: three", percent(50))
	a.has("mail", canary.Number, plugins.StateCanary)

	hung.Store(true)
	second := a.pushArtifact(client, host, "version", two)
	select {
	case <-hangs:
	case <-a.ctx.Done():
		t.Fatal("the host fetches nothing")
	}
	a.eventually("the host publishes that it fetches", func() bool {
		fetches := false
		err := upkeep.PublishedPlugins(a.ctx, a.client, func(_ string, p upkeep.PluginInfo) {
			fetches = fetches || p.State == plugins.StateFetching && p.Release == second.Number && p.Since > 0
		})
		return err == nil && fetches
	})
	store, began := release.NewStore(a.client), time.Now()
	if _, err := store.HaltRelease(a.ctx, "mail", canary.Number, "test"); err != nil {
		t.Fatal(err)
	}
	a.awareOf("mail", 0)
	if _, err := store.ServeRelease(a.ctx, "mail", mail.Number); err != nil {
		t.Fatal(err)
	}
	a.serves("mail", mail.Number)
	if took := time.Since(began); took > 8*time.Second || a.served("version") != first.Number || a.refusal("version", second.Number) != "" {
		t.Errorf("halt and rollback took %s; version serves release %d: %s", took, a.served("version"), a.refusal("version", second.Number))
	}
	close(goOn)
	a.serves("version", second.Number)
	if list := a.tenants[a.tenant].releases.Fetching(); len(list) > 0 {
		t.Errorf("the host still fetches %v", list)
	}
}

// A host that has no release of a plugin, and cannot fetch its canary either, names both. The canary is not halted for
// that.
func TestCanaryThatNoHostCanFetch(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	client := artifacts(t, registry, registry.Host)
	one, two := runtimetest.Version(t, "one"), runtimetest.Version(t, "two")
	counting := &countingArtifacts{}
	a := start(t, settings{Config: Config{Poll: 100 * time.Millisecond, Artifacts: counting}})
	began := time.Now()
	other := a.pushArtifact(client, registry.Host, "other", one)
	first := a.pushRelease("version", one, "")
	a.serves("version", first.Number)
	all := percent(100)
	canary := a.pushArtifactAs(client, registry.Host, "version", two, &all)
	beside := a.pushArtifactAs(client, registry.Host, "other", two, &all)
	for _, r := range []release.Release{other, canary, beside} {
		a.refuses(r.Plugin, r.Number, "start it with --registry")
	}
	a.agePush("version")
	r, err := release.NewStore(a.client).Release(a.ctx, "version", canary.Number)
	if err != nil || r.State() != release.StateCanary {
		t.Errorf("the canary is %s, %v", r.State(), err)
	}
	if most := 3 * (1 + int64(time.Since(began)/(10*time.Second))); counting.attempts.Load() > most {
		t.Errorf("%d attempts to fetch three releases, want at most %d", counting.attempts.Load(), most)
	}
}
