package python_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
)

const page = 4096

// TestSharedPages: the snapshots of two plugins differ in few pages, so a host can share the others.
func TestSharedPages(t *testing.T) {
	const most = 5 << 20 // bytes of a snapshot that are not those of another plugin
	small := snapshotOf(t, map[string]string{"handler.py": "def handle(task):\n    return 1\n"})
	files := packages(t)
	source, err := os.ReadFile("testdata/packages/handler.py")
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(files, map[string]string{"handler.py": string(source)})
	for name, files := range map[string]map[string]string{
		"json":        {"handler.py": jsonHandler},
		"same length": {"handler.py": "def handle(task):\n    return 2\n"},
		"sqlite3":     {"handler.py": "import sqlite3\nbase = sqlite3.connect(':memory:')\nbase.execute('create table t (a)')\n" + jsonHandler},
		"packages":    files,
	} {
		other := snapshotOf(t, files)
		used, different := 0, 0
		for at := 0; at < len(other); at += page {
			contents := other[at : at+page]
			if bytes.Count(contents, []byte{0}) == page {
				continue
			}
			used++
			if at >= len(small) || !bytes.Equal(contents, small[at:at+page]) {
				different++
			}
		}
		t.Logf("%s: %d KiB of memory, %d KiB not zero, %d KiB not as in the other plugin", name, len(other)>>10, used*page>>10, different*page>>10)
		if name != "packages" && different*page > most {
			t.Errorf("%s: %d bytes of the snapshot are its own, want at most %d", name, different*page, most)
		}
	}
}

// snapshotOf is the memory from which a plugin's tasks start.
func snapshotOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	p := setup(t, files, runtime.Profile{})
	before := memories(t)
	if r := p.run(t, ""); r.Kind == runtime.HostFault || r.Kind == runtime.Trap {
		t.Fatalf("%s: %s", r.Kind, r.Message)
	}
	for fd := range memories(t) {
		if before[fd] {
			continue
		}
		contents, err := os.ReadFile(filepath.Join("/proc/self/fd", fd))
		if err != nil {
			t.Fatal(err)
		}
		return contents
	}
	t.Skip("no snapshot: this machine resets instances in another way")
	return nil
}

// memories are the file descriptors of this process that are memory.
func memories(t *testing.T) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name())); err == nil && strings.HasPrefix(target, "/memfd:") {
			found[entry.Name()] = true
		}
	}
	return found
}
