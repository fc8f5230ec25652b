package snapshot

import (
	"errors"
	"strings"
	"testing"
)

func TestSpace(t *testing.T) {
	t.Parallel()
	for _, limit := range []uint64{0, 1, pageSize, pageSize + 1, wasmPage, 100_000_000, 4 << 30} {
		space, err := Reserve(limit)
		if err != nil {
			t.Fatalf("Reserve(%d): %v", limit, err)
		}
		memory := space.Bytes()
		if uint64(len(memory)) != limit || uint64(cap(memory)) != limit {
			t.Fatalf("%d bytes of %d, want %d", len(memory), cap(memory), limit)
		}
		if limit > 0 {
			if memory[0] != 0 || memory[limit-1] != 0 {
				t.Errorf("a new space of %d bytes is not zero", limit)
			}
			memory[0], memory[limit-1] = 1, 1
		}
		if space.Held() != 0 {
			t.Errorf("%d bytes held, want none before the first Reset", space.Held())
		}
		for range 2 {
			if err := space.Release(); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		if len(space.Bytes()) != 0 {
			t.Error("a released space has bytes")
		}
	}
}

func TestSpaceTrimsWithoutImage(t *testing.T) {
	t.Parallel()
	space := reserved(t, 2*wasmPage)
	for i := range space.Bytes() {
		space.Bytes()[i] = 1
	}
	if err := space.Trim(); err != nil {
		t.Fatal(err)
	}
	pristine(t, space, nil)
}

func TestReserveErrTooMuch(t *testing.T) {
	t.Parallel()
	for _, limit := range []uint64{1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		if _, err := Reserve(limit); err == nil {
			t.Errorf("Reserve(%d) succeeded, want an error: no system has as many addresses", limit)
		}
	}
}

func TestSpaceErrReleased(t *testing.T) {
	t.Parallel()
	space, err := Reserve(wasmPage)
	if err != nil {
		t.Fatal(err)
	}
	if err := space.Release(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"Map":   space.Map(&Image{}),
		"Reset": space.Reset(Copy, 0),
		"Trim":  space.Trim(),
	} {
		if !errors.Is(err, errReleased) {
			t.Errorf("%s: %v, want %v", name, err, errReleased)
		}
	}
}

func TestTakeErrSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, wasmPage - 1, wasmPage + 4096} {
		if _, err := Take(make([]byte, size), nil); err == nil || !strings.Contains(err.Error(), "multiple of 65536") {
			t.Errorf("Take of %d bytes: %v, want what sizes there are", size, err)
		}
	}
}
