package abi

import (
	"bytes"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	t.Parallel()
	started := time.Now().Add(-time.Hour)
	g := setup(t, 1, Config{Started: started})
	before := time.Now()
	g.answers(0, "clock", clockWall, 0)
	g.answers(0, "clock", clockMonotonic, 65528)
	after := time.Now()
	if got := g.get64(0); got < before.UnixNano() || got > after.UnixNano() {
		t.Errorf("the wall clock says %d", got)
	}
	if got := time.Duration(g.get64(65528)); got < before.Sub(started) || got > after.Sub(started) {
		t.Errorf("the monotonic clock says %v", got)
	}
	g.clear()
	for id := range uint64(2) {
		for _, at := range []uint64{65529, 65536, 0xfffffff8, 0xffffffff} {
			g.answers(errnoFault, "clock", id, at)
		}
	}
	for _, id := range []uint64{2, 3, 0x7fffffff, 0xffffffff} {
		g.answers(errnoInval, "clock", id, 0)
		g.answers(errnoInval, "clock", id, 65536)
	}
	g.holds(0, "")
}

func TestRandom(t *testing.T) {
	t.Parallel()
	g := setup(t, 2, Config{})
	g.answers(0, "random", 16, maxRandom)
	if maxRandom != 65536 || g.host.spent != maxRandom {
		t.Errorf("%d bytes cost %d", maxRandom, g.host.spent)
	}
	if !bytes.Equal(g.get(0, 16), make([]byte, 16)) || !bytes.Equal(g.get(16+maxRandom, 16), make([]byte, 16)) {
		t.Error("wrote outside of the buffer")
	}
	random := g.get(16, maxRandom)
	for i := 0; i < len(random); i += 1 << 12 { // 32 bytes of zeros come by chance once in 2²⁵⁶
		if bytes.Equal(random[i:i+32], make([]byte, 32)) {
			t.Errorf("not filled at %d", i)
		}
	}
	g.answers(0, "random", 16, 32)
	if bytes.Equal(g.get(16, 32), random[:32]) {
		t.Error("the same twice")
	}
	g.clear()
	g.answers(0, "random", 0xffffffff, 0)
	g.answers(errnoTooBig, "random", 0, maxRandom+1)
	g.answers(errnoTooBig, "random", 0xffffffff, 0xffffffff)
	for _, a := range [][2]uint64{{2<<16 - 1, 2}, {2 << 16, 1}, {0xffffffff, 1}, {0xffff0000, maxRandom}, {1<<16 + 1, maxRandom}} {
		g.answers(errnoFault, "random", a[0], a[1])
	}
	g.holds(0, "")
}
