package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// sink keeps reads from being optimized away.
var sink atomic.Uint32

// try resets a space of its own by a rung and says what went wrong.
func (l *ladder) try(rung Rung) (err error) {
	find, err := l.finder(rung)
	if err != nil {
		return err
	}
	const imageSize, limit = 4 * wasmPage, 8 * wasmPage
	contents := make([]byte, imageSize)
	for at := uint64(0); at < imageSize; at += 2 * pageSize {
		for i := range pageSize {
			contents[at+i] = byte(at/pageSize + i + 1)
		}
	}
	image, err := Take(contents)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	space, err := Reserve(limit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, space.Release()) }()
	space.reset.ladder = l
	if err := space.Map(image); err != nil {
		return err
	}
	for round := range 3 {
		want := space.disturb(round)
		if find != nil {
			if err := space.check(find, want); err != nil {
				return err
			}
		}
		if err := space.Reset(rung, limit); err != nil {
			return err
		}
		if !bytes.Equal(space.memory[:imageSize], contents) || !bytes.Equal(space.memory[imageSize:], make([]byte, limit-imageSize)) {
			return fmt.Errorf("rung %q did not restore a memory", rung)
		}
		if err := space.Trim(); err != nil {
			return err
		}
	}
	return nil
}

// disturb reads and writes some pages, in another pattern each round, and returns for each whether it is now the space's own.
func (s *Space) disturb(round int) []bool {
	own := make([]bool, uint64(len(s.memory))/pageSize)
	for page := range own {
		own[page] = (page+round)%3 == 0 || page%7 == round
		at := uint64(page) * pageSize
		switch {
		case own[page]:
			s.memory[at+uint64(page+round)%pageSize] ^= byte(round) // in the first round a write that changes nothing
		case at < s.size && page%2 == 0:
			sink.Store(uint32(s.memory[at]))
		}
	}
	return own
}

// check compares what a finder reports with what is so.
func (s *Space) check(find finder, want []bool) error {
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.memory))))
	end := uint64(len(s.memory))
	got := make([]bool, len(want))
	for at := uint64(0); at < end; {
		regions, next, err := find(&s.reset.buffer, s.memory, at, end)
		if err != nil {
			return err
		}
		for _, region := range regions {
			if region.start < base+at || region.end > base+next || region.start >= region.end {
				return fmt.Errorf("a scan reported pages that it was not asked for")
			}
			for at := region.start; at < region.end; at += pageSize {
				got[(at-base)/pageSize] = true
			}
		}
		if next <= at {
			return fmt.Errorf("a scan made no progress")
		}
		at = next
	}
	for page := range want {
		if got[page] != want[page] {
			return fmt.Errorf("page %d of a scratch memory: own is reported %v, is %v", page, got[page], want[page])
		}
	}
	return nil
}
