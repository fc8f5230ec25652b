package host

import (
	"fmt"
	"testing"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// pushRelease makes the hosts of a node's tenant serve a module, with a manifest unless that is "".
func (n *node) pushRelease(plugin string, module []byte, manifest string, named ...release.Content) release.Release {
	n.t.Helper()
	files := []release.Content{{Name: plugin + ".wasm", Data: module}}
	if manifest != "" {
		files = append(files, release.Content{Name: plugin + ".yaml", Data: []byte(manifest)})
	}
	files = append(files, named...)
	r, err := release.New(plugin, files)
	if err != nil {
		n.t.Fatal(err)
	}
	pushed, err := release.Push(n.ctx, release.NewStore(n.client), r, files)
	if err != nil {
		n.t.Fatal(err)
	}
	return pushed
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
