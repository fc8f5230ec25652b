package snapshot

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestThin(t *testing.T) {
	for _, v := range Probe() {
		t.Log(v)
	}
	contents := make([]byte, 64*wasmPage)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range contents[:30*wasmPage] {
		contents[i] = byte(r.Uint32())
	}
	m, err := Take(contents)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, rung := range []Rung{Scan, Pagemap, Copy} {
		s, err := Reserve(200 * wasmPage)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Map(m); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			used := 64*wasmPage + r.Uint64N(136*wasmPage)
			for range r.IntN(1000) {
				s.Bytes()[r.Uint64N(used)] = byte(r.Uint32())
			}
			if err := s.Reset(rung, used); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(s.Bytes()[:len(contents)], contents) || !bytes.Equal(s.Bytes()[len(contents):], make([]byte, 136*wasmPage)) {
				t.Fatal("differs")
			}
		}
		t.Log(rung, s.Held())
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
