package wasi

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]string{
		"none": nil, "one": {"program"}, "more": {"program", "", "ä", "last"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for function, c := range map[string]Config{"args": {Args: list}, "environ": {Env: list}} {
				g := setup(t, 1, c)
				total := uint32(len(strings.Join(append(slices.Clone(list), ""), "\x00")))
				g.must(function+"_sizes_get", 0, 4)
				if got := [2]uint32{g.get32(0), g.get32(4)}; got != [2]uint32{uint32(len(list)), total} {
					t.Errorf("%s has sizes %d", function, got)
				}
				g.put(100, strings.Repeat("\xaa", 200))
				g.must(function+"_get", 100, 200)
				for i, want := range list {
					at := g.get32(100 + uint32(i)*4)
					if got := string(g.get(at, uint32(len(want))+1)); got != want+"\x00" {
						t.Errorf("%s %d = %q, want %q", function, i, got, want)
					}
				}
				if g.get(100+uint32(len(list))*4, 1)[0] != 0xaa || g.get(200+total, 1)[0] != 0xaa {
					t.Errorf("%s wrote further", function)
				}
				if g.host.spent != len(list)*4+int(total) {
					t.Errorf("%s cost %d", function, g.host.spent)
				}
				g.answers(errnoFault, function+"_sizes_get", 65533, 0)
				g.u32(0, 99)
				g.answers(errnoFault, function+"_sizes_get", 0, 65533)
				if g.get32(0) != 99 {
					t.Errorf("%s wrote half of an answer", function)
				}
				if list != nil {
					g.answers(errnoFault, function+"_get", 65536-uint64(len(list))*4+1, 0)
					g.answers(errnoFault, function+"_get", 0, 65536-uint64(total)+1)
				}
			}
		})
	}
}

func TestClocks(t *testing.T) {
	t.Parallel()
	started := time.Now().Add(-time.Hour)
	g := setup(t, 1, Config{Started: started})
	before := time.Now()
	g.must("clock_time_get", clockRealtime, 1, 0)
	g.must("clock_time_get", clockMonotonic, 1, 8)
	after := time.Now()
	if got := int64(g.get64(0)); got < before.UnixNano() || got > after.UnixNano() {
		t.Errorf("the wall clock says %d", got)
	}
	if got := time.Duration(g.get64(8)); got < before.Sub(started) || got > after.Sub(started) {
		t.Errorf("the monotonic clock says %v", got)
	}
	for id := range uint64(2) {
		g.must("clock_res_get", id, 0)
		if got := g.get64(0); got == 0 || got > uint64(time.Millisecond) {
			t.Errorf("clock %d has a resolution of %d", id, got)
		}
		g.answers(errnoFault, "clock_res_get", id, 65529)
		g.answers(errnoFault, "clock_time_get", id, 0, 65529)
	}
	for _, id := range []uint64{2, 3, 4, 0xffffffff} {
		g.answers(errnoInval, "clock_res_get", id, 0)
		g.answers(errnoInval, "clock_time_get", id, 0, 0)
	}
}

func TestRandom(t *testing.T) {
	t.Parallel()
	g := setup(t, 3, Config{})
	g.must("random_get", 16, 2<<16)
	if g.host.spent != 2<<16 {
		t.Errorf("it cost %d", g.host.spent)
	}
	if !bytes.Equal(g.get(0, 16), make([]byte, 16)) || !bytes.Equal(g.get(16+2<<16, 16), make([]byte, 16)) {
		t.Error("wrote outside of the buffer")
	}
	random := g.get(16, 2<<16)
	for i := 0; i < len(random); i += 1 << 12 { // 32 bytes of zeros come by chance once in 2²⁵⁶
		if bytes.Equal(random[i:i+32], make([]byte, 32)) {
			t.Errorf("not filled at %d", i)
		}
	}
	g.must("random_get", 0xffffffff, 0)
	g.answers(errnoFault, "random_get", 3<<16-1, 2)
	g.answers(errnoFault, "random_get", 1, 0xffffffff)
	// It is paid for piece by piece.
	g.host.spent, g.host.budget = 0, 2*randomPiece-1
	if ending(func() { g.call("random_get", 0, 3<<16) }) != errBroke || g.host.spent != 2*randomPiece {
		t.Errorf("spent %d", g.host.spent)
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	g.answers(errnoNotsup, "proc_raise", 6)
	g.answers(errnoSuccess, "sched_yield")
	if !slices.Equal(g.host.waited, []time.Duration{0}) {
		t.Errorf("waited %v", g.host.waited)
	}
	for fd, want := range map[uint64]errno{0: errnoNotsock, 1: errnoNotsock, 3: errnoNotsock, 9: errnoBadf} {
		g.answers(want, "sock_accept", fd, 0, 0)
		g.answers(want, "sock_recv", fd, 0, 0, 0, 0, 0)
		g.answers(want, "sock_send", fd, 0, 0, 0, 0)
		g.answers(want, "sock_shutdown", fd, 0)
	}
}
