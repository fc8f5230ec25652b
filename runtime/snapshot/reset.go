package snapshot

import (
	"bytes"
	"fmt"
	"unsafe"
)

// region is a range of a space's own pages, by address, as the kernel reports it (struct page_region).
type region struct {
	start, end uint64
	categories uint64
}

const (
	// tailAtOnce is how many own pages in a row behind the image are given back and not cleared.
	tailAtOnce = 1024
	// spare is how many own pages may be found unchanged at every Reset without any consequence.
	spare = 64
)

// reset is what a space remembers from one Reset to the next.
type reset struct {
	ladder *ladder
	buffer buffer
	// reached is the end of the last page of the space's own that the last Reset kept: the next one looks as far at least.
	reached uint64
	// wasted counts pages that were found but had not changed, over the Resets; thrifty says that the next
	// Reset gives such pages back.
	wasted  uint64
	thrifty bool
}

// forget is said when the space has no pages of its own.
func (r *reset) forget() { r.reached, r.wasted, r.thrifty = 0, 0, false }

// tally is what one Reset has found, in pages.
type tally struct {
	changed, unchanged uint64
}

func (s *Space) putBack(find finder, used uint64) error {
	end := max((used+pageSize-1)/pageSize*pageSize, s.reset.reached)
	if find == nil {
		return s.copyBack(end)
	}
	r := &s.reset
	r.reached = 0
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.memory))))
	var t tally
	for at := uint64(0); at < end; {
		regions, next, err := find(&r.buffer, s.memory, at, end)
		if err != nil {
			return err
		}
		if next <= at || next > end {
			return fmt.Errorf("a scan of the pages from %d to %d ended at %d", at, end, next)
		}
		for i := range regions {
			// A region that wraps around is refused here too, being large.
			from, to := regions[i].start-base, regions[i].end-base
			if from < at || from >= to || to > next {
				return fmt.Errorf("a scan of the pages from %d to %d reported those from %d to %d", at, next, from, to)
			}
			at = to
			if err := s.putBackRegion(from, to, &t); err != nil {
				return err
			}
		}
		at = next
	}
	s.held.Store(int64((t.changed + t.unchanged) * pageSize))
	r.wasted += t.unchanged
	r.thrifty = t.unchanged > spare && r.wasted > 8*t.unchanged
	return nil
}

func (s *Space) putBackRegion(from, to uint64, t *tally) error {
	if tail := max(from, s.size); to > tail && to-tail >= tailAtOnce*pageSize {
		if err := s.giveBack(tail, to); err != nil {
			return err
		}
		to = tail
	}
	idle := from // own pages from here on are unchanged
	for ; from < to; from += pageSize {
		own, want := s.memory[from:][:pageSize], zeroes
		if from < s.size && !s.image.hole(from) {
			want = s.image.view[from:][:pageSize]
		}
		if bytes.Equal(own, want) {
			t.unchanged++
			continue
		}
		copy(own, want)
		t.changed++
		if err := s.giveIdle(idle, from, t); err != nil {
			return err
		}
		idle = from + pageSize
		s.reset.reached = from + pageSize
	}
	return s.giveIdle(idle, to, t)
}

// giveIdle is said of pages that the space owns for nothing.
func (s *Space) giveIdle(from, to uint64, t *tally) error {
	if from >= to {
		return nil
	}
	if !s.reset.thrifty {
		s.reset.reached = to
		return nil
	}
	t.unchanged -= (to - from) / pageSize
	s.reset.wasted = 0
	return s.giveBack(from, to)
}

// copyBack compares everything.
func (s *Space) copyBack(end uint64) error {
	front := min(end, s.size)
	for at := uint64(0); at < front; at += pageSize {
		own, want := s.memory[at:][:pageSize], zeroes
		if !s.image.hole(at) {
			want = s.image.view[at:][:pageSize]
		}
		if !bytes.Equal(own, want) {
			copy(own, want)
		}
	}
	s.reset.reached = front
	s.held.Store(int64(front))
	if end > front {
		return s.giveBack(front, end)
	}
	return nil
}
