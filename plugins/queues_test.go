package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestTwoPluginsForOneQueue(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		// The first by name has the manifest, and is the last to be written.
		write(t, dir+"/q.wasm", guest(t, 2))
		write(t, dir+"/b.wasm", guest(t, 1))
		write(t, dir+"/b.yaml", []byte("queues: [b, q]"))
	})
	if got := f.runs("acme", "q"); got != output(1) {
		t.Errorf("output %q, want that of the first by name", got)
	}
	want := fmt.Sprintf(`the queue "q" is served by the plugin "b" (%s): remove one of the two, or give them different queues in their manifests`,
		f.path("b.wasm"))
	if status := f.awaitRefusal("", "q"); status.Error != want {
		t.Errorf("got  %s\nwant %s", status.Error, want)
	}

	// One that serves keeps the queue from one whose name comes before.
	f.write("a.yaml", []byte("queues: [a, q]"))
	f.write("a.wasm", guest(t, 3))
	f.awaitRefusal("", "a", `the queue "q" is served by the plugin "b"`)
	if got := f.runs("acme", "a"); got != "" {
		t.Errorf("a refused plugin serves its other queue: %q", got)
	}

	// A version of the one that serves does not give it up by being swapped.
	f.write("b.wasm", guest(t, 4))
	f.awaitRun("acme", "q", output(4))

	// When it gives the queue up, the first by name of those that wait gets it.
	f.write("b.yaml", []byte("queues: [b]"))
	f.awaitRun("acme", "q", output(3))
	f.awaitRun("acme", "a", output(3))
	f.awaitRun("acme", "b", output(4))
	f.awaitNoRefusal("", "a")
	f.awaitRefusal("", "q", `served by the plugin "a"`)

	// And when that one goes, the last.
	check(t, os.Remove(f.path("a.wasm")))
	f.awaitRun("acme", "q", output(2))
	f.awaitNoRefusal("", "q")
}

// The plugins in a tenant's folder have so many queues all together: who would take more is refused with what it would take,
// and the others serve on; as soon as there is room it serves.
func TestQueuesOfATenant(t *testing.T) {
	t.Parallel()
	grants := hostGrants(t, "acme: {max_queues: 2}\n\"*\": {max_queues: 9}")
	f := setup(t, Config{MaxQueues: 3, Grants: grants}, func(dir string) {
		for i, name := range []string{"acme/a", "acme/b", "{blue}/a", "common"} {
			check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			write(t, filepath.Join(dir, name+".wasm"), guest(t, i+1))
		}
		write(t, dir+"/acme/b.yaml", []byte("queues: [b, c]"))
		write(t, dir+"/{blue}/a.yaml", []byte("queues: [a, b, c]"))
		write(t, dir+"/common.yaml", []byte("queues: [d, e, f]"))
	})
	want := f.path("acme/b.yaml") + `: the plugin "b" serves 2 queues, with which the plugins of the tenant "acme" would serve 3, more than the 2 ` +
		`that the host gives them: serve fewer queues, or raise max_queues of "acme" in /etc/quern/grants.yaml`
	if status := f.awaitRefusal("acme", "b"); status.Error != want {
		t.Errorf("got  %s\nwant %s", status.Error, want)
	}
	for _, at := range []tenantQueue{{"acme", "a"}, {"{blue}", "c"}, {"acme", "f"}} {
		if f.runs(at.tenant, at.queue) == "" {
			t.Errorf("%+v is not served", at)
		}
	}

	// What a plugin has is not counted against its next version, and one that has too much leaves the last good one.
	f.write("acme/a.yaml", []byte("queues: [x, y]"))
	f.awaitRun("acme", "y", output(1))
	f.write("common.yaml", []byte("queues: [d, e, f, g]"))
	f.awaitRefusal("", "common", "more than the 3 that the host gives them: serve fewer queues, or raise --max-queues")
	f.write("{blue}/a.yaml", []byte("queues: [a, b, c, d]"))
	f.awaitRefusal("{blue}", "a", `the tenant "{blue}" would serve 4, more than the 3`, "raise --max-queues")
	if got := f.runs("{blue}", "c"); got != output(3) {
		t.Errorf("the last good one answers %q", got)
	}

	f.write("{blue}/z.wasm", guest(t, 5)) // it has no manifest to name
	f.awaitRefusal("{blue}", "z", f.path("{blue}/z.wasm")+`: the plugin "z" serves 1 queue, with which the plugins of the tenant "{blue}" would serve 4`)

	check(t, os.Remove(f.path("acme/a.wasm")))
	check(t, os.Remove(f.path("acme/a.yaml")))
	f.awaitRun("acme", "c", output(2))
	f.awaitNoRefusal("acme", "b")
}

// A bad file claims nothing.
func TestBadFileClaimsNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", []byte("bad"))
		write(t, dir+"/a.yaml", []byte("queues: [q]"))
		write(t, dir+"/q.wasm", guest(t, 1))
	})
	if got := f.runs("acme", "q"); got != output(1) {
		t.Errorf("when ready: output %q; list %+v", got, f.List())
	}
	// Put right, it finds the queue taken.
	f.write("a.wasm", guest(t, 2))
	f.awaitRefusal("", "a", `served by the plugin "q"`)
	if got := f.runs("acme", "q"); got != output(1) {
		t.Errorf("output %q", got)
	}
}

// A new version that wants a queue of another plugin is refused as a whole; the old one serves on.
func TestConflictKeepsLastGood(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", guest(t, 1))
		write(t, dir+"/b.wasm", guest(t, 2))
	})
	f.write("b.yaml", []byte("queues: [b, c, a]"))
	f.awaitRefusal("", "b", `the queue "a" is served by the plugin "a"`)
	for queue, want := range map[string]string{"a": output(1), "b": output(2), "c": ""} {
		if got := f.runs("acme", queue); got != want {
			t.Errorf("queue %s: %q, want %q", queue, got, want)
		}
	}
	check(t, os.Remove(f.path("a.wasm")))
	f.awaitRun("acme", "a", output(2))
	f.awaitRun("acme", "c", output(2))
}
