package host

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/release"
)

// pushRelease makes the hosts of a node's tenant serve a module, with a manifest unless that is "".
func (n *node) pushRelease(plugin string, module []byte, manifest string, named ...release.Content) release.Release {
	n.t.Helper()
	return n.pushAs(plugin, module, manifest, nil, named...)
}

// pushCanary gives a share of a plugin's tasks to a module.
func (n *node) pushCanary(plugin string, module []byte, manifest string, share release.Share) release.Release {
	n.t.Helper()
	return n.pushAs(plugin, module, manifest, &share)
}

func (n *node) pushAs(plugin string, module []byte, manifest string, share *release.Share, named ...release.Content) release.Release {
	n.t.Helper()
	files := []release.Content{{Name: plugin + ".wasm", Data: module}}
	if manifest != "" {
		files = append(files, release.Content{Name: plugin + ".yaml", Data: []byte(manifest)})
	}
	files = append(files, named...)
	r, err := release.New(plugin, files)
	if err == nil {
		r, err = release.Push(n.ctx, release.NewStore(n.client), r, files, share)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// versions are modules that write their names, and the digests of the modules by name.
func versions(t *testing.T, count int) (modules [][]byte, digests map[string]string) {
	t.Helper()
	digests = make(map[string]string)
	for i := range count {
		name := fmt.Sprint("version ", i)
		modules = append(modules, runtimetest.Version(t, name))
		digests[name] = digest(modules[i])
	}
	return modules, digests
}

// ranOnOne checks that each task ran on one of the versions, and that at least this many of them ran.
func (n *node) ranOnOne(ids []string, digests map[string]string, least int) (ran map[string]int) {
	n.t.Helper()
	ran = make(map[string]int)
	for _, id := range ids {
		task := n.task(id)
		if want, known := digests[string(task.Result)]; !known || task.Digest != want {
			n.t.Errorf("%q was written by %s, want %s", task.Result, task.Digest, want)
		}
		ran[string(task.Result)]++
	}
	if len(ran) < least {
		n.t.Errorf("only %v ran", ran)
	}
	return ran
}

// served returns the number of the release that serves a plugin's queue; -1 if nothing does.
func (n *node) served(plugin string) int {
	for _, s := range n.catalog.directory.List() {
		if s.Plugin == plugin && s.State == plugins.StateServing {
			return s.Release
		}
	}
	return -1
}

func (n *node) serves(plugin string, number int) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("release %d of %s serves", number, plugin), func() bool { return n.served(plugin) == number })
}

func TestReleaseServesOnAllHosts(t *testing.T) {
	t.Parallel()
	one, two := runtimetest.Version(t, "one"), runtimetest.Version(t, "two")
	a := start(t, settings{})
	b := start(t, settings{tenants: []string{a.tenant}})
	said := func() string { return string(a.wait(a.enqueue("version", "")).Result) }

	first := a.pushRelease("version", one, "")
	a.serves("version", first.Number)
	b.serves("version", first.Number)
	if got := said(); got != "one" {
		t.Errorf("the first release wrote %q", got)
	}
	second := a.pushRelease("version", two, "")
	a.serves("version", second.Number)
	b.serves("version", second.Number)
	if got := said(); got != "two" {
		t.Errorf("the second release wrote %q", got)
	}
	back, err := release.NewStore(a.client).ServeRelease(a.ctx, "version", 0)
	if err != nil || back.Number != first.Number {
		t.Fatalf("rolled back to %d, %v", back.Number, err)
	}
	a.serves("version", first.Number)
	b.serves("version", first.Number)
	if got := said(); got != "one" {
		t.Errorf("after the rollback: %q", got)
	}
	if err := release.NewStore(a.client).DeleteRelease(a.ctx, "version", 0); err != nil {
		t.Fatal(err)
	}
	a.serves("version", -1)
	b.serves("version", -1)
}

// refusal returns why a release of a plugin is refused; "" if it is not.
func (n *node) refusal(plugin string, number int) string {
	t := n.tenants[n.tenant]
	for _, s := range n.catalog.of(t.name, t.releases).statuses() {
		if s.Plugin == plugin && s.State == plugins.StateRefused && s.Release == number {
			return s.Error
		}
	}
	return ""
}

// A host that refuses the release to which somebody goes back serves the one before it, and not the bad one.
func TestRollbackToRefusedRelease(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}})
	first := a.pushRelease("version", runtimetest.Version(t, "one"), "")
	a.serves("version", first.Number)
	refused := a.pushRelease("version", []byte("no module"), "")
	a.refuses("version", refused.Number, "not a WebAssembly module")
	bad := a.pushRelease("version", runtimetest.Version(t, "bad"), "")
	a.serves("version", bad.Number)
	if r, err := release.NewStore(a.client).ServeRelease(a.ctx, "version", 0); err != nil || r.Number != refused.Number {
		t.Fatalf("went back to release %d, %v", r.Number, err)
	}
	a.serves("version", first.Number)
	a.refuses("version", refused.Number, "this host refuses it")
	if said := string(a.wait(a.enqueue("version", "")).Result); said != "one" {
		t.Errorf("the release before wrote %q", said)
	}
}

// pieceKey is the key of a piece of a release's module.
func (n *node) pieceKey(r release.Release) string { return n.tenant + "_piece_" + r.Files[0].Pieces[0] }

// A plugin of the plugin directory serves in place of a release of its name, on its host alone.
func TestDirectoryBeforeRelease(t *testing.T) {
	t.Parallel()
	one, two := runtimetest.Version(t, "one"), runtimetest.Version(t, "two")
	a := start(t, settings{})
	b := start(t, settings{tenants: []string{a.tenant}})
	r := a.pushRelease("version", one, "")
	a.serves("version", r.Number)
	b.serves("version", r.Number)
	for _, name := range []string{"version", a.tenant + "/version"} { // for all tenants, and of the tenant
		b.install(name, two)
		b.serves("version", 0)
		b.eventually("one version serves", func() bool { return len(b.catalog.directory.List()) == 1 })
		if got := b.published()["version"]; a.served("version") != r.Number {
			t.Errorf("the other host serves %d; published is %+v", a.served("version"), got)
		}
		b.remove(name)
		b.serves("version", r.Number)
	}
	b.eventually("the host publishes the release", func() bool { return b.published()["version"].Release == r.Number })
}

// A release whose bytes differ from what it names changes nothing. The host says so, and serves the release when it is
// whole. A new host serves the release before.
func TestReleaseLiesAboutItsDigest(t *testing.T) {
	t.Parallel()
	one, two := runtimetest.Version(t, "one"), runtimetest.Version(t, "two")
	a := start(t, settings{})
	first := a.pushRelease("version", one, "")
	a.serves("version", first.Number)

	store := release.NewStore(a.client)
	files := []release.Content{{Name: "version.wasm", Data: two}}
	second, err := release.New("version", files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.MissingPieces(a.ctx, second.Pieces()); err != nil {
		t.Fatal(err)
	}
	spoiled := bytes.Clone(two)
	spoiled[len(spoiled)-1]++
	if err := a.rdb.Set(a.ctx, a.pieceKey(second), spoiled, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if second, err = store.PushRelease(a.ctx, second, nil); err != nil {
		t.Fatal(err)
	}
	b := start(t, settings{tenants: []string{a.tenant}})
	for _, n := range []*node{a, b} {
		n.eventually("the release is refused", func() bool {
			return strings.Contains(n.refusal("version", second.Number), "has other bytes")
		})
		n.serves("version", first.Number)
		n.counted(1, "quern_plugin_refused", "tenant", n.tenant, "plugin", "version")
	}
	if got := string(a.wait(a.enqueue("version", "")).Result); got != "one" {
		t.Errorf("%q ran", got)
	}
	// The module's own digest can be wrong as well.
	third := second
	third.Files = []release.File{first.Files[0]}
	third.Files[0].Digest = second.Files[0].Digest
	if third, err = store.PushRelease(a.ctx, third, nil); err != nil {
		t.Fatal(err)
	}
	a.eventually("the release is refused", func() bool {
		return strings.Contains(a.refusal("version", third.Number), "its bytes have the digest")
	})
	a.serves("version", first.Number)

	if err := a.rdb.Set(a.ctx, a.pieceKey(second), two, 0).Err(); err != nil {
		t.Fatal(err)
	}
	whole := a.pushRelease("version", two, "")
	a.serves("version", whole.Number)
	b.serves("version", whole.Number)
	a.eventually("no release is refused", func() bool {
		return a.refusal("version", second.Number)+a.refusal("version", third.Number) == ""
	})
}

// A host that is started again serves what it has fetched, whether its bytes can be had or not.
func TestRestartWithoutTheBytes(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	a := start(t, settings{Config: Config{Releases: cache}})
	r := a.pushRelease("version", runtimetest.Version(t, "one"), "")
	a.serves("version", r.Number)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if err := a.rdb.Del(a.ctx, a.pieceKey(r)).Err(); err != nil {
		t.Fatal(err)
	}
	again := start(t, settings{tenants: []string{a.tenant}, Config: Config{Releases: cache}})
	again.serves("version", r.Number)
	other := start(t, settings{tenants: []string{a.tenant}})
	other.eventually("a host that never had them says so", func() bool {
		return strings.Contains(other.refusal("version", r.Number), "not in Redis")
	})
}

// A release that must be signed, and is not, changes nothing.
func TestUnsignedRelease(t *testing.T) {
	t.Parallel()
	config := Config{Verify: func(_ string, r *release.Release) error {
		if slices.Contains(r.Signatures, "signed") {
			return nil
		}
		return errors.New("it is not signed")
	}}
	a := start(t, settings{Config: config})
	push := func(module []byte, signatures ...string) release.Release {
		t.Helper()
		files := []release.Content{{Name: "version.wasm", Data: module}}
		r, err := release.New("version", files)
		if err == nil {
			r.Signatures = signatures
			r, err = release.Push(a.ctx, release.NewStore(a.client), r, files, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := push(runtimetest.Version(t, "one"), "signed")
	a.serves("version", first.Number)
	second := push(runtimetest.Version(t, "two"), "forged")
	b := start(t, settings{tenants: []string{a.tenant}, Config: config})
	for _, n := range []*node{a, b} {
		n.eventually("the release is refused", func() bool {
			return strings.Contains(n.refusal("version", second.Number), "not signed")
		})
		n.serves("version", first.Number)
	}
	third := push(runtimetest.Version(t, "two"), "forged", "signed") // the same files, now signed
	if third.Number == second.Number {
		t.Error("a signature makes no new release")
	}
	a.serves("version", third.Number)
	b.serves("version", third.Number)
}

// A release that this host refuses changes nothing, and after a start the host serves the release before.
func TestHostRefusesRelease(t *testing.T) {
	t.Parallel()
	module := runtimetest.Version(t, "one")
	config := Config{Memory: 256 << 20}
	a := start(t, settings{Config: config})
	first := a.pushRelease("version", module, "limits: {memory: 64MiB}")
	a.serves("version", first.Number)
	second := a.pushRelease("version", module, "limits: {memory: 1GiB}")
	refused := func(n *node) {
		n.t.Helper()
		n.eventually("the release is refused", func() bool {
			return strings.Contains(n.refusal("version", second.Number), "more than the")
		})
		n.serves("version", first.Number)
	}
	refused(a)
	b := start(t, settings{tenants: []string{a.tenant}, Config: config})
	refused(b)
	if task := b.wait(b.enqueue("version", "")); task.Status != queue.Complete {
		t.Errorf("%+v", task)
	}
}

// Under a load of short tasks, 50 pushes lose no task, and each task ran on one version.
func TestPushUnderLoad(t *testing.T) {
	t.Parallel()
	const pushes, tasks = 50, 2000
	a := start(t, settings{})
	b := start(t, settings{tenants: []string{a.tenant}})
	modules, digests := versions(t, 5)
	var ids []string
	var slowest time.Duration
	for i := range pushes {
		began := time.Now()
		r := a.pushRelease("version", modules[i%len(modules)], "")
		ids = append(ids, a.enqueueMany("version", tasks/pushes, "")...)
		if i%10 == 0 { // the others follow each other while hosts still swap
			a.serves("version", r.Number)
			b.serves("version", r.Number)
			slowest = max(slowest, time.Since(began))
		}
	}
	a.complete("version", ids)
	ran := a.ranOnOne(ids, digests, 2)
	t.Logf("%d tasks ran on %v; a push served on both hosts after %s at most", len(ids), ran, slowest)
}

// published are the plugins that live hosts publish, by name.
func (n *node) published() map[string]upkeep.PluginInfo {
	n.t.Helper()
	all := make(map[string]upkeep.PluginInfo)
	if err := upkeep.PublishedPlugins(n.ctx, n.client, func(_ string, p upkeep.PluginInfo) { all[p.Plugin] = p }); err != nil {
		n.t.Fatal(err)
	}
	return all
}
