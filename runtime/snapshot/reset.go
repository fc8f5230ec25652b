package snapshot

import (
	"bytes"
	"fmt"
	"unsafe"
)

// The first write to a page that was given back costs some 3 µs, because the kernel must find and fill a new page.
// Keeping a page costs 0.1 µs in each Reset. So pages are kept as long as a task is likely to write them again, within
// these limits.
const (
	// patience is the number of Resets in a row that may find pages unchanged before they are given back.
	patience = 32
	// few is the number of unchanged pages up to which giving pages back does not pay.
	few = 64
	// stretch is the minimum number of adjacent private pages that are given back immediately if no recent task has
	// written that far.
	stretch = 256
)

// past is the state that a space keeps from one Reset to the next.
type past struct {
	// reached is the end of the last private page after the last Reset. The next Reset looks at least that far, so that
	// it misses no page.
	reached uint64
	// usual is how far recent tasks have reached. It rises to a longer reach at once and falls slowly.
	usual uint64
	// wasted counts comparisons with unchanged pages since such pages were last given back.
	wasted uint64
	// impatient makes the next Reset give back the pages that it finds unchanged.
	impatient bool
}

// tally counts the private pages that one Reset found and kept.
type tally struct{ changed, unchanged uint64 }

// putBack restores the private pages before used, which is a multiple of the page size, and those that the last Reset
// kept after it.
func (s *Space) putBack(find finder, used uint64) error {
	end := max(used, s.past.reached)
	s.past.reached = 0
	var t tally
	for at := uint64(0); at < end; {
		regions, next, err := s.ask(find, at, end)
		if err != nil {
			return err
		}
		for _, r := range regions {
			if err := s.putBackRegion(r, &t); err != nil {
				return err
			}
		}
		at = next
	}
	s.held.Store(int64((t.changed + t.unchanged) * pageSize))
	s.past.learn(used, t)
	return nil
}

// learn decides whether the next Reset gives back the pages that it finds unchanged. It does so once the comparisons of
// such pages have cost as much as getting new pages would.
func (p *past) learn(used uint64, t tally) {
	if p.impatient {
		p.wasted = 0
	}
	p.wasted += t.unchanged
	p.impatient = t.unchanged > few && p.wasted >= patience*t.unchanged
	if used >= p.usual {
		p.usual = used
	} else {
		p.usual -= (p.usual - used) / pageSize / 16 * pageSize
	}
}

// ask runs a finder on memory[from:to] and refuses results that cannot be true.
func (s *Space) ask(find finder, from, to uint64) ([]region, uint64, error) {
	regions, next, err := find(&s.buffer, s.memory, from, to)
	if err != nil {
		return nil, 0, err
	}
	if next <= from || next > to || next%pageSize != 0 {
		return nil, 0, fmt.Errorf("a search for written pages from %d to %d ended at %d", from, to, next)
	}
	at := from
	for _, r := range regions {
		start, end := s.offsets(r)
		if start < at || start >= end || end > next || start%pageSize != 0 || end%pageSize != 0 {
			return nil, 0, fmt.Errorf("a search for written pages from %d to %d reported those from %d to %d", at, next, start,
				end)
		}
		at = end
	}
	return regions, next, nil
}

// offsets returns where a region lies in memory. If the finder reported a wrong region, the offsets may be anything.
func (s *Space) offsets(r region) (start, end uint64) {
	base := addressOf(s.memory)
	return r.start - base, r.end - base
}

func (s *Space) putBackRegion(r region, t *tally) error {
	from, to := s.offsets(r)
	if r.categories&zeroPage != 0 && from >= s.size {
		return nil // after the image, such pages are not private; within it they are, and hide the image's contents
	}
	if far := max(from, s.size, s.past.usual); to >= far+stretch*pageSize {
		if err := s.giveBack(far, to); err != nil {
			return err
		}
		to = far
	}
	same := from // pages from here on have not changed
	for ; from < to; from += pageSize {
		own, want := s.memory[from:][:pageSize], s.original(from)
		// Comparing is cheap: pages that differ mostly do so early. It also shows which pages are kept although no task
		// writes them.
		if bytes.Equal(own, want) {
			continue
		}
		copy(own, want)
		if err := s.unchanged(same, from, t); err != nil {
			return err
		}
		same = from + pageSize
		t.changed++
		s.past.reached = same
	}
	return s.unchanged(same, to, t)
}

// unchanged handles the private pages in memory[from:to], which have not changed. If past.impatient is set, it gives
// them back; otherwise it keeps them.
func (s *Space) unchanged(from, to uint64, t *tally) error {
	switch {
	case from >= to:
		return nil
	case s.past.impatient:
		return s.giveBack(from, to)
	default:
		t.unchanged += (to - from) / pageSize
		s.past.reached = to
		return nil
	}
}

// original returns the page at this offset as Map left it.
func (s *Space) original(offset uint64) []byte {
	if offset < s.size {
		return s.image.original(offset)
	}
	return zeroes
}

// compareAll restores the memory without knowing its private pages: it compares all pages of the image. It gives back
// the pages after the image, which is simpler than reading them. Afterwards all pages of the image may be private.
func (s *Space) compareAll(used uint64) error {
	end := max(used, s.past.reached)
	front := min(end, s.size)
	for at := uint64(0); at < front; at += pageSize {
		if own, want := s.memory[at:][:pageSize], s.original(at); !bytes.Equal(own, want) {
			copy(own, want)
		}
	}
	s.past.reached = front
	s.held.Store(int64(front))
	return s.giveBack(front, end)
}

// addressOf returns the address of a space's memory, which never moves.
func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}
