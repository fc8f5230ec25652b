package wasi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// list reads a directory with a buffer of so many bytes, the way that C libraries do: an entry that is
// cut off is asked for again.
func (g *guest) list(fd uint64, size uint32) []string {
	g.t.Helper()
	var names []string
	cookie := uint64(0)
	for range 1000 {
		g.must("fd_readdir", fd, 1000, uint64(size), cookie, 0)
		used := g.get32(0)
		if used > size {
			g.t.Fatalf("used %d bytes of %d", used, size)
		}
		b := g.get(1000, used)
		for len(b) >= direntSize {
			name := le.Uint32(b[16:])
			if uint32(len(b)) < direntSize+name {
				break
			}
			cookie = le.Uint64(b)
			names = append(names, fmt.Sprintf("%s:%d", b[direntSize:][:name], b[20]))
			b = b[direntSize+name:]
		}
		if used < size {
			return names
		}
	}
	g.t.Fatal("no end")
	return nil
}

func TestReaddir(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Checkpoint: []byte("state")})
	for path, want := range map[string][]string{
		".":       {".:3", "..:3", "checkpoint:4", "a:4", "dir:3", "ä ö:4"},
		"dir":     {".:3", "..:3", "one:4", "sub:3", "two:4"},
		"dir/sub": {".:3", "..:3", "nil:4"},
	} {
		fd := g.open(path)
		for size := uint32(direntSize + len(checkpointName)); size < 300; size++ {
			if got := g.list(fd, size); !slices.Equal(got, want) {
				t.Errorf("%s with a buffer of %d: %q, want %q", path, size, got, want)
			}
		}
	}
}

// TestReaddirCut: an entry is cut off where the buffer ends, be it in its head.
func TestReaddirCut(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	dir := g.open("dir")
	g.must("fd_readdir", dir, 1000, 1000, 0, 0)
	whole := g.get(1000, g.get32(0))
	if len(whole) != 5*direntSize+1+2+3+3+3 {
		t.Fatalf("%d bytes", len(whole))
	}
	for size := range uint32(len(whole) + 1) {
		g.put(1000, strings.Repeat("\xaa", 1000))
		g.must("fd_readdir", dir, 1000, uint64(size), 0, 0)
		if used := g.get32(0); used != size || string(g.get(1000, used)) != string(whole[:size]) {
			t.Errorf("a buffer of %d holds %q", size, g.get(1000, used))
		}
		if after := g.get(1000+size, 1); after[0] != 0xaa {
			t.Errorf("wrote behind a buffer of %d", size)
		}
	}
}

func TestReaddirInodes(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Checkpoint: []byte{}})
	for path, parent := range map[string]string{".": ".", "dir": ".", "dir/sub": "dir"} {
		g.must("fd_readdir", g.open(path), 1000, 10000, 0, 0)
		b := g.get(1000, g.get32(0))
		for len(b) > 0 {
			name := string(b[direntSize:][:le.Uint32(b[16:])])
			full := path + "/" + name
			if name == ".." {
				full = parent
			}
			at, n := g.put(100, full)
			g.must("path_filestat_get", 3, 0, at, n, 200)
			if got, want := le.Uint64(b[8:]), g.get64(208); got != want || got == 0 {
				t.Errorf("%s has inode %d in its directory and %d of its own", full, got, want)
			}
			b = b[direntSize+len(name):]
		}
	}
}

func TestReaddirErrors(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	g.answers(errnoBadf, "fd_readdir", 9, 1000, 100, 0, 0)
	g.answers(errnoNotdir, "fd_readdir", 0, 1000, 100, 0, 0)
	g.answers(errnoNotdir, "fd_readdir", g.open("a"), 1000, 100, 0, 0)
	g.answers(errnoFault, "fd_readdir", 3, 65500, 100, 0, 0)
	g.answers(errnoFault, "fd_readdir", 3, 1000, 100, 0, 65533)
	for _, cookie := range []uint64{5, 6, 1 << 32, 1 << 63, ^uint64(0)} {
		g.u32(0, 99)
		g.must("fd_readdir", 3, 1000, 100, cookie, 0)
		if used := g.get32(0); used != 0 {
			t.Errorf("%d bytes behind the end, at %d", used, cookie)
		}
	}
}
