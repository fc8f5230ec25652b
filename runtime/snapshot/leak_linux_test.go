package snapshot

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestNothingLeaks: images and spaces that come and go leave no mapping, no descriptor and no addresses behind.
func TestNothingLeaks(t *testing.T) { // not parallel: other tests map memory too
	contents := pattern(4 * block)
	cycle := func() {
		image, err := Take(contents, nil)
		if err != nil {
			t.Fatal(err)
		}
		space, err := Reserve(1 << 30)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := space.Map(image); err != nil {
				t.Fatal(err)
			}
		}
		space.Bytes()[0]++
		space.Bytes()[10*block]++
		if err := space.Reset(Copy, 11*block); err != nil {
			t.Fatal(err)
		}
		if err := image.Close(); err != nil {
			t.Fatal(err)
		}
		if err := space.Release(); err != nil {
			t.Fatal(err)
		}
	}
	Probe() // it opens what stays open
	cycle()
	files, mappings, addresses := footprint(t)
	const cycles = 1000
	for range cycles {
		cycle()
	}
	Probe()
	filesNow, mappingsNow, addressesNow := footprint(t)
	if filesNow != files {
		t.Errorf("%d open files, want %d", filesNow, files)
	}
	// Go's own runtime may map some more.
	if mappingsNow > mappings+cycles/10 {
		t.Errorf("%d mappings, at first %d", mappingsNow, mappings)
	}
	if addressesNow > addresses+cycles/10<<30 {
		t.Errorf("%d bytes of addresses, at first %d", addressesNow, addresses)
	}
}

// footprint is the number of open files, the number of mappings, and the size of this process in bytes.
func footprint(t testing.TB) (files, mappings, addresses int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[0])
	if err != nil {
		t.Fatal(err)
	}
	return len(entries), bytes.Count(maps, []byte("\n")), pages * os.Getpagesize()
}
