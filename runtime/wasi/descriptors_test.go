package wasi

import (
	"bytes"
	"slices"
	"testing"
)

func TestClose(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Stdin: []byte("in")})
	a, one := g.open("a"), g.open("dir/one")
	g.must("fd_close", a)
	g.answers(errnoBadf, "fd_close", a)
	g.answers(errnoBadf, "fd_tell", a, 0)
	g.answers(errnoSuccess, "fd_tell", one, 0)
	if again := g.open("a"); again != a {
		t.Errorf("descriptor %d, want the lowest that is free, %d", again, a)
	}
	for fd := range uint64(3) {
		g.must("fd_close", fd)
	}
	if fd := g.open("a"); fd != 0 {
		t.Errorf("descriptor %d, want 0", fd)
	}
	g.must("fd_close", 3)
	g.answers(errnoBadf, "fd_prestat_get", 3, 0)
	g.answers(errnoBadf, "fd_close", 0xffffffff)
}

func TestMfile(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	at, n := g.put(100, "a")
	for fd := uint32(4); fd < maxOpen; fd++ {
		g.must("path_open", 3, 0, at, n, 0, 0, 0, 0, 0)
		if got := g.get32(0); got != fd {
			t.Fatalf("descriptor %d, want %d", got, fd)
		}
	}
	g.answers(errnoMfile, "path_open", 3, 0, at, n, 0, 0, 0, 0, 0)
	g.must("fd_close", 700)
	g.must("path_open", 3, 0, at, n, 0, 0, 0, 0, 0)
	if got := g.get32(0); got != 700 {
		t.Errorf("descriptor %d, want 700", got)
	}
}

func TestRenumber(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Stdin: []byte("in")})
	one, two := g.open("dir/one"), g.open("dir/two")
	g.must("fd_seek", one, 7, whenceSet, 0)
	g.answers(errnoBadf, "fd_renumber", one, 9)
	g.answers(errnoBadf, "fd_renumber", 9, one)
	g.must("fd_renumber", one, one)
	g.must("fd_renumber", one, two)
	g.answers(errnoBadf, "fd_tell", one, 0)
	g.must("fd_tell", two, 0)
	if at := g.get64(0); at != 7 {
		t.Errorf("at %d, want 7", at)
	}
	// A file takes the place of standard input, and the root another number.
	g.must("fd_renumber", two, 0)
	at, n := g.vectors(8, [2]uint32{100, 10})
	g.must("fd_read", 0, at, n, 0)
	if got := g.get(100, g.get32(0)); string(got) != "789" {
		t.Errorf("read %q, want 789", got)
	}
	g.must("fd_renumber", 3, 1)
	g.answers(errnoBadf, "fd_prestat_get", 3, 0)
	g.answers(errnoSuccess, "fd_prestat_get", 1, 0)
}

func TestPrestat(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	dir := g.open("dir")
	g.must("fd_prestat_get", 3, 0)
	if got := g.get(0, 8); !bytes.Equal(got, []byte{0, 0, 0, 0, 1, 0, 0, 0}) {
		t.Errorf("prestat %v", got)
	}
	g.must("fd_prestat_dir_name", 3, 0, 1)
	if got := g.get(0, 1); string(got) != "/" {
		t.Errorf("name %q", got)
	}
	g.must("fd_prestat_dir_name", 3, 65535, 9)
	g.answers(errnoNametoolong, "fd_prestat_dir_name", 3, 0, 0)
	g.answers(errnoFault, "fd_prestat_dir_name", 3, 65536, 1)
	g.answers(errnoFault, "fd_prestat_get", 3, 65529)
	for _, fd := range []uint64{0, 1, 2, dir, 9} {
		g.answers(errnoBadf, "fd_prestat_get", fd, 0)
		g.answers(errnoBadf, "fd_prestat_dir_name", fd, 0, 1)
	}
}

func TestStat(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Checkpoint: []byte("state"), Stdin: []byte("in")})
	for name, test := range map[string]struct {
		fd          uint64
		filetype    byte
		size        uint64
		can, cannot uint64 // rights
		inherits    uint64
	}{
		"stdin":      {0, filetypeUnknown, 0, rightFdRead, rightFdSeek | rightFdTell | rightFdWrite, 0},
		"stdout":     {1, filetypeUnknown, 0, rightFdWrite, rightFdSeek | rightFdTell | rightFdRead, 0},
		"stderr":     {2, filetypeUnknown, 0, rightFdWrite, rightFdSeek | rightFdTell | rightFdRead, 0},
		"root":       {3, filetypeDirectory, 0, rightFdReaddir | rightPathOpen, rightFdSeek | rightFdWrite, rightFdRead | rightFdAllocate},
		"file":       {g.open("dir/one"), filetypeRegularFile, 10, rightFdRead | rightFdSeek, rightFdWrite, 0},
		"empty":      {g.open("dir/sub/nil"), filetypeRegularFile, 0, rightFdRead | rightFdSeek, rightFdWrite, 0},
		"directory":  {g.open("dir/sub"), filetypeDirectory, 0, rightFdReaddir, rightFdSeek, rightFdRead},
		"checkpoint": {g.open("checkpoint"), filetypeRegularFile, 5, rightFdRead | rightFdTell, rightFdWrite, 0},
	} {
		g.put(0, string(bytes.Repeat([]byte{0xaa}, 64)))
		g.must("fd_fdstat_get", test.fd, 0)
		base, inheriting := g.get64(8), g.get64(16)
		if got := g.get(0, 1)[0]; got != test.filetype {
			t.Errorf("%s has type %d in fdstat, want %d", name, got, test.filetype)
		}
		if base&test.can != test.can || base&test.cannot != 0 || inheriting&test.inherits != test.inherits || inheriting&rightFdWrite != 0 {
			t.Errorf("%s has rights %x, inheriting %x", name, base, inheriting)
		}
		g.must("fd_filestat_get", test.fd, 0)
		stat := g.get(0, 64)
		if stat[16] != test.filetype || le.Uint64(stat[32:]) != test.size || le.Uint64(stat[24:]) != 1 ||
			!bytes.Equal(stat[40:], make([]byte, 24)) || !bytes.Equal(stat[17:24], make([]byte, 7)) {
			t.Errorf("%s is %v", name, stat)
		}
	}
	g.answers(errnoBadf, "fd_filestat_get", 99, 0)
	g.answers(errnoBadf, "fd_fdstat_get", 99, 0)
	g.answers(errnoFault, "fd_filestat_get", 1, 65473)
	g.answers(errnoFault, "fd_fdstat_get", 1, 65513)
}

// TestSameFile: a file is the same however it is reached, and no other is.
func TestSameFile(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Checkpoint: []byte{}})
	var seen [][]byte
	for _, fd := range []uint64{0, 1, 2, 3, g.open("a"), g.open("dir"), g.open("dir/one"), g.open("checkpoint")} {
		g.must("fd_filestat_get", fd, 0)
		identity := g.get(0, 16)
		if slices.ContainsFunc(seen, func(other []byte) bool { return bytes.Equal(other, identity) }) {
			t.Errorf("descriptor %d is %v, as another", fd, identity)
		}
		seen = append(seen, identity)
	}
	at, n := g.put(100, "dir/../checkpoint")
	g.must("path_filestat_get", 3, 0, at, n, 0)
	if got := g.get(0, 16); !bytes.Equal(got, seen[len(seen)-1]) {
		t.Errorf("by its path it is %v", got)
	}
}

func TestFdstatSet(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	file := g.open("a")
	for _, fd := range []uint64{0, 1, 2, 3, file} {
		g.must("fd_fdstat_set_flags", fd, 4)
		g.must("fd_fdstat_get", fd, 0)
		if got := g.get(2, 2); got[0] != 4 || got[1] != 0 {
			t.Errorf("flags %v", got)
		}
		g.answers(errnoInval, "fd_fdstat_set_flags", fd, 32)
		g.answers(errnoInval, "fd_fdstat_set_flags", fd, 1<<16)
		g.answers(errnoNotsup, "fd_fdstat_set_rights", fd, 0, 0)
		g.answers(errnoSuccess, "fd_sync", fd)
		g.answers(errnoSuccess, "fd_datasync", fd)
	}
	for _, name := range []string{"fd_sync", "fd_datasync"} {
		g.answers(errnoBadf, name, 9)
	}
	g.answers(errnoBadf, "fd_fdstat_set_flags", 9, 0)
	g.answers(errnoBadf, "fd_fdstat_set_rights", 9, 0, 0)
}

func TestAdvise(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	file := g.open("a")
	g.answers(errnoSuccess, "fd_advise", file, 0, 0, 5)
	g.answers(errnoSuccess, "fd_advise", file, 1<<40, 1, 0)
	g.answers(errnoInval, "fd_advise", file, 0, 0, 6)
	g.answers(errnoInval, "fd_advise", file, 1<<63, 0, 0)
	g.answers(errnoInval, "fd_advise", file, 1<<62, 1<<62, 0)
	g.answers(errnoSpipe, "fd_advise", 0, 0, 0, 0)
	g.answers(errnoBadf, "fd_advise", 3, 0, 0, 0)
	g.answers(errnoBadf, "fd_advise", 9, 0, 0, 9)
}
