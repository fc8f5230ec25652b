package wasi

import (
	"bytes"
	"math"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Stdin: []byte("0123456789")})
	for name, fd := range map[string]uint64{"stdin": 0, "file": g.open("dir/one")} {
		at, n := g.vectors(0, [2]uint32{100, 2}, [2]uint32{0xffffffff, 0}, [2]uint32{200, 3})
		g.must("fd_read", fd, at, n, 50)
		if got := string(g.get(100, 2)) + string(g.get(200, 3)); got != "01234" || g.get32(50) != 5 {
			t.Errorf("%s: read %q, said %d", name, got, g.get32(50))
		}
		g.must("fd_read", fd, at, 0, 50)
		if got := g.get32(50); got != 0 {
			t.Errorf("%s: read %d into nothing", name, got)
		}
		g.answers(errnoInval, "fd_read", fd, at, maxVectors+1, 50)
		g.answers(errnoFault, "fd_read", fd, 65529, 1, 50)
		g.answers(errnoFault, "fd_read", fd, at, n, 65533)
		at, n = g.vectors(0, [2]uint32{100, 2}, [2]uint32{65530, 7})
		g.answers(errnoFault, "fd_read", fd, at, n, 50)
		at, n = g.vectors(0, [2]uint32{100, 65436})
		g.must("fd_read", fd, at, n, 50) // nothing of the failed ones is gone
		if got := g.get(100, 5); string(got) != "56789" || g.get32(50) != 5 {
			t.Errorf("%s: read %q, said %d", name, got, g.get32(50))
		}
		g.must("fd_read", fd, at, n, 50)
		if got := g.get32(50); got != 0 {
			t.Errorf("%s: read %d behind the end", name, got)
		}
	}
	at, n := g.vectors(0, [2]uint32{100, 2})
	for fd, want := range map[uint64]errno{1: errnoBadf, 2: errnoBadf, 3: errnoIsdir, 9: errnoBadf, math.MaxUint32: errnoBadf} {
		g.answers(want, "fd_read", fd, at, n, 50)
	}
}

// TestReadOver: what is read may cover the vectors themselves, and the count comes last.
func TestReadOver(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Stdin: bytes.Repeat([]byte{0xff}, 20)})
	at, n := g.vectors(0, [2]uint32{0, 16}, [2]uint32{100, 2})
	g.must("fd_read", 0, at, n, 8)
	if got := g.get(0, 16); !bytes.Equal(got[:8], bytes.Repeat([]byte{0xff}, 8)) || g.get32(8) != 18 || g.get(101, 1)[0] != 0xff {
		t.Errorf("read %x", got)
	}
}

func TestPread(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t), Stdin: []byte("in")})
	one := g.open("dir/one")
	at, n := g.vectors(0, [2]uint32{100, 4})
	for offset, want := range map[uint64]string{0: "0123", 8: "89", 10: "", 11: "", math.MaxInt64: ""} {
		g.must("fd_pread", one, at, n, offset, 50)
		if got := g.get(100, g.get32(50)); string(got) != want {
			t.Errorf("at %d: %q, want %q", offset, got, want)
		}
	}
	g.must("fd_tell", one, 50)
	if got := g.get64(50); got != 0 {
		t.Errorf("moved to %d", got)
	}
	g.answers(errnoInval, "fd_pread", one, at, n, 1<<63, 50)
	g.answers(errnoInval, "fd_pread", one, at, maxVectors+1, 0, 50)
	g.answers(errnoFault, "fd_pread", one, at, n, 0, 65533)
	for fd, want := range map[uint64]errno{0: errnoSpipe, 1: errnoBadf, 3: errnoIsdir, 9: errnoBadf} {
		g.answers(want, "fd_pread", fd, at, n, 0, 50)
	}
}

func TestSeek(t *testing.T) {
	t.Parallel()
	const size, most = 10, math.MaxInt64
	g := setup(t, 1, Config{Files: tree(t)})
	one := g.open("dir/one")
	for _, test := range []struct {
		from, by int64
		whence   uint64
		want     errno
		at       int64
	}{
		{0, 3, whenceSet, 0, 3},
		{3, 4, whenceCur, 0, 7},
		{7, -7, whenceCur, 0, 0},
		{7, -8, whenceCur, errnoInval, 7},
		{7, 0, whenceEnd, 0, size},
		{7, -size, whenceEnd, 0, 0},
		{7, -size - 1, whenceEnd, errnoInval, 7},
		{7, -1, whenceSet, errnoInval, 7},
		{7, math.MinInt64, whenceSet, errnoInval, 7},
		{7, math.MinInt64, whenceCur, errnoInval, 7},
		{7, math.MinInt64, whenceEnd, errnoInval, 7},
		{7, most, whenceSet, 0, most},
		{most, 0, whenceCur, 0, most},
		{most, 1, whenceCur, errnoOverflow, most},
		{most, most, whenceCur, errnoOverflow, most},
		{7, most, whenceCur, errnoOverflow, 7},
		{7, most, whenceEnd, errnoOverflow, 7},
		{7, most - size, whenceEnd, 0, most},
		{7, 0, 3, errnoInval, 7},
		{7, 0, 1 << 8, errnoInval, 7},
	} {
		g.must("fd_seek", one, uint64(test.from), whenceSet, 0)
		g.answers(test.want, "fd_seek", one, uint64(test.by), test.whence, 0)
		told := int64(g.get64(0))
		g.must("fd_tell", one, 0)
		if at := int64(g.get64(0)); at != test.at || told != at && test.want == errnoSuccess {
			t.Errorf("%+v: at %d, told %d", test, at, told)
		}
		// There is nothing to read behind the end, and no harm in trying.
		at, n := g.vectors(8, [2]uint32{100, size})
		g.must("fd_read", one, at, n, 0)
		if got, want := int64(g.get32(0)), max(0, size-test.at); got != want {
			t.Errorf("%+v: read %d bytes, want %d", test, got, want)
		}
	}
	g.must("fd_seek", one, 2, whenceSet, 0)
	g.answers(errnoFault, "fd_seek", one, 3, whenceSet, 65529)
	g.answers(errnoFault, "fd_tell", one, 65529)
	g.must("fd_tell", one, 0)
	if at := g.get64(0); at != 2 {
		t.Errorf("at %d after a failure, want 2", at)
	}
	for fd, want := range map[uint64]errno{0: errnoSpipe, 1: errnoSpipe, 2: errnoSpipe, 3: errnoBadf, 9: errnoBadf} {
		g.answers(want, "fd_seek", fd, 0, whenceCur, 0)
		g.answers(want, "fd_tell", fd, 0)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	g.put(100, "hello world")
	at, n := g.vectors(0, [2]uint32{100, 5}, [2]uint32{0xffffffff, 0}, [2]uint32{105, 6})
	g.must("fd_write", 1, at, n, 50)
	if got := g.host.stdout.String(); got != "hello world" || g.get32(50) != 11 || g.host.stderr.Len() != 0 {
		t.Errorf("wrote %q, said %d", got, g.get32(50))
	}
	if g.host.writes != 2 {
		t.Errorf("%d writes, of what are two pieces", g.host.writes)
	}
	if g.host.spent < 11 {
		t.Errorf("spent %d", g.host.spent)
	}
	g.must("fd_write", 2, at, 1, 50)
	if got := g.host.stderr.String(); got != "hello" {
		t.Errorf("wrote %q to stderr", got)
	}
	g.must("fd_write", 1, at, 0, 50)
	if got := g.get32(50); got != 0 {
		t.Errorf("wrote %d of nothing", got)
	}
	g.answers(errnoInval, "fd_write", 1, at, maxVectors+1, 50)
	g.answers(errnoInval, "fd_write", 1, at, 0x20000000, 50)
	g.answers(errnoFault, "fd_write", 1, 65529, 1, 50)
	g.answers(errnoFault, "fd_write", 1, at, n, 65533)
	at, n = g.vectors(0, [2]uint32{100, 5}, [2]uint32{65530, 7})
	g.answers(errnoFault, "fd_write", 1, at, n, 50)
	if got := g.host.stdout.String(); got != "hello world" {
		t.Errorf("a failure wrote %q", got)
	}
	for fd, want := range map[uint64]errno{0: errnoBadf, 3: errnoBadf, g.open("a"): errnoBadf, 9: errnoBadf} {
		g.answers(want, "fd_write", fd, at, n, 50)
		g.answers(errnoBadf, "fd_pwrite", fd, at, n, 0, 50)
	}
	g.answers(errnoSpipe, "fd_pwrite", 1, at, n, 0, 50)
}

// TestTransferBounds: one call moves 1 MiB, and pays for no more.
func TestTransferBounds(t *testing.T) {
	t.Parallel()
	const pages, size = 40, 40 << 16
	input := bytes.Repeat([]byte("x"), size)
	files, err := NewFiles(map[string][]byte{"/large": input})
	if err != nil {
		t.Fatal(err)
	}
	g := setup(t, pages, Config{Files: files, Stdin: input})
	fd := g.open("large")
	vectors := make([][2]uint32, maxVectors)
	for i := range vectors {
		vectors[i] = [2]uint32{1 << 16, size - 1<<16}
	}
	at, n := g.vectors(0, vectors...)
	for name, call := range map[string]func(){
		"stdin":  func() { g.must("fd_read", 0, at, n, 50000) },
		"file":   func() { g.must("fd_read", fd, at, n, 50000) },
		"pread":  func() { g.must("fd_pread", fd, at, n, 1, 50000) },
		"stdout": func() { g.must("fd_write", 1, at, n, 50000) },
	} {
		g.host.spent = 0
		call()
		if moved := g.get32(50000); moved != maxTransfer || g.host.spent != maxTransfer+maxVectors*vectorSize {
			t.Errorf("%s: moved %d bytes for %d", name, moved, g.host.spent)
		}
	}
	if g.host.stdout.Len() != maxTransfer {
		t.Errorf("wrote %d bytes", g.host.stdout.Len())
	}
	g.must("fd_tell", fd, 0)
	if offset := g.get64(0); offset != maxTransfer {
		t.Errorf("the file is at %d", offset)
	}
	// Only what is there is paid for.
	g.must("fd_seek", fd, 7, whenceSet, 0)
	g.must("fd_seek", fd, ^uint64(2), whenceEnd, 0)
	g.host.spent = 0
	at, n = g.vectors(0, [2]uint32{100, 1000})
	g.must("fd_read", fd, at, n, 0)
	if g.host.spent != 3+vectorSize {
		t.Errorf("3 bytes cost %d", g.host.spent)
	}
}
