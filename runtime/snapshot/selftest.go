package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
)

// The memory that modes are tried on: so many pages of image and so many behind it.
const (
	trialFront = 160
	trialTail  = 160
)

// try proves a mode on a memory of its own: it must report exactly the pages that were written, and restore them.
func (f *finders) try(mode Mode) (err error) {
	find, err := f.finder(mode)
	if err != nil {
		return err
	}
	contents := make([]byte, (trialFront+trialTail)*pageSize)
	for page := range uint64(trialFront) {
		if page%8 < 6 { // the others are zero
			for i := range pageSize {
				contents[page*pageSize+i] = byte(page + i)
			}
		}
	}
	image, err := Take(contents[:trialFront*pageSize])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	space, err := Reserve(uint64(len(contents)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, space.Release()) }()
	space.finders = f
	if err := space.Map(image); err != nil {
		return err
	}
	return space.prove(mode, find, contents)
}

// prove lets two tasks work on a space and looks whether they are found out and undone, and then whether Trim
// is.
func (s *Space) prove(mode Mode, find finder, contents []byte) error {
	own := make([]bool, trialFront+trialTail)
	for task := range 2 {
		s.work(task, own)
		if err := s.found(find, own); err != nil {
			return err
		}
		if err := s.Reset(mode, uint64(len(contents))); err != nil {
			return err
		}
		if !bytes.Equal(s.memory, contents) {
			return fmt.Errorf("a memory is not restored after task %d", task)
		}
	}
	if err := s.Trim(); err != nil {
		return err
	}
	if !bytes.Equal(s.memory, contents) {
		return errors.New("a memory is not restored by giving its pages back")
	}
	clear(own)
	return s.found(find, own)
}

// work writes some pages, reads others, leaves some alone, and marks those that are now the space's own. The
// first task leaves 15 regions in 32 pages, which is in all more than a finder can report at once.
func (s *Space) work(task int, own []bool) {
	for page := range own {
		at := uint64(page) * pageSize
		switch place := (page + 3*task) % 32; {
		case place == 31:
			s.memory[at] ^= byte(page >> 16) // a write that changes nothing, as pages are few
			own[page] = true
		case place%2 == 0:
			s.memory[at+uint64(31*page)%pageSize] ^= byte(place%5 + 1)
			own[page] = true
		case place == 3, place%4 == 1 && page < trialFront:
			read.Add(uint32(s.memory[at]))
		}
	}
}

// read keeps the compiler from leaving out what nobody looks at.
var read atomic.Uint32

// found compares what a finder reports with the pages that are the space's own. A page behind the image that was only
// read may be among them.
func (s *Space) found(find finder, own []bool) error {
	if find == nil {
		return nil
	}
	got := make([]bool, len(own))
	end := uint64(len(s.memory))
	for at := uint64(0); at < end; {
		regions, next, err := s.ask(find, at, end)
		if err != nil {
			return err
		}
		for _, r := range regions {
			from, to := s.offsets(r)
			for ; from < to; from += pageSize {
				got[from/pageSize] = true
			}
		}
		at = next
	}
	for page, want := range own {
		if got[page] != want && (want || page < trialFront) {
			return fmt.Errorf("page %d of a memory is reported to be written: %v, want %v", page, got[page], want)
		}
	}
	return nil
}
