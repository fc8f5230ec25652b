package snapshot

import (
	"bytes"
	"fmt"
	"unsafe"
)

// A page that is given back costs some 3 µs when it is next written, because the kernel must find and fill
// another one; a page that is kept costs 0.1 µs at each Reset. So pages are kept as long as there is hope that a
// task will write them again, and these are the limits of hope.
const (
	// patience is how many Resets in a row find pages unchanged before they are given back.
	patience = 32
	// few is how many unchanged pages are not worth a thought.
	few = 64
	// stretch is how many own pages in a row are given back at once, where no task has come of late.
	stretch = 256
)

// past is what a space remembers from one Reset to the next.
type past struct {
	// reached is the end of the last page that the space owned after the last Reset. The next one looks as
	// far at least, so that no page is forgotten there.
	reached uint64
	// usual is how far tasks have reached of late. It follows a longer reach at once and a shorter one slowly.
	usual uint64
	// wasted counts comparisons with pages that had not changed, since such pages were last given back.
	wasted uint64
	// impatient says that the coming Reset gives back the pages that it finds unchanged.
	impatient bool
}

// tally is how many own pages one Reset has found and kept.
type tally struct{ changed, unchanged uint64 }

// putBack makes the own pages in front of used (whole pages) what they were.
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

// learn decides what the next Reset does with pages that are kept in vain: when as much has been spent on
// comparing them as it costs to get them anew, they are given back.
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

// ask lets a finder look at memory[from:to] and believes it only what can be.
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
			return nil, 0, fmt.Errorf("a search for written pages from %d to %d reported those from %d to %d", at, next, start, end)
		}
		at = end
	}
	return regions, next, nil
}

// offsets are where a region lies in memory; in a false one they may be anything.
func (s *Space) offsets(r region) (start, end uint64) {
	base := addressOf(s.memory)
	return r.start - base, r.end - base
}

func (s *Space) putBackRegion(r region, t *tally) error {
	from, to := s.offsets(r)
	if r.categories&zeroPage != 0 && from >= s.size {
		return nil // not own pages; in the image they would be, as something else was there
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
		// Comparing costs little: pages that differ mostly do so early. And it tells which are kept in vain.
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

// unchanged says what becomes of own pages that are as they were.
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

// original is what Map left in the page at this offset.
func (s *Space) original(offset uint64) []byte {
	if offset < s.size {
		return s.image.view[offset:][:pageSize]
	}
	return zeroes
}

// compareAll restores the memory without knowing which pages are the space's own. Those behind the image are
// given back, which is simpler than to read them all; of the image's it may own all.
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

// addressOf is where a space's memory begins. It never moves.
func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}
