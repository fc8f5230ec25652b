package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
)

// The size of the memory on which modes are tested, in pages: of the image, and of the rest after it.
const (
	trialFront = 160
	trialTail  = 160
)

// try tests a mode on a test memory: the mode must report exactly the written pages, and restore them.
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
	image, err := Take(contents[:trialFront*pageSize], nil)
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

// prove changes a space as two tasks would. It checks that the mode finds and undoes the changes of each, and that Trim
// gives all pages back.
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

// work writes some pages, reads others, and leaves the rest alone. It sets own for the pages that become private. The
// first task makes 15 regions in every 32 pages, which is more in total than a finder reports at once.
func (s *Space) work(task int, own []bool) {
	for page := range own {
		at := uint64(page) * pageSize
		switch place := (page + 3*task) % 32; {
		case place == 31:
			s.memory[at] ^= byte(page >> 16) // xor with 0: a write that changes nothing
			own[page] = true
		case place%2 == 0:
			s.memory[at+uint64(31*page)%pageSize] ^= byte(place%5 + 1)
			own[page] = true
		case place == 3, place%4 == 1 && page < trialFront:
			read.Add(uint32(s.memory[at]))
		}
	}
}

// read keeps the compiler from removing reads.
var read atomic.Uint32

// found checks that a finder reports exactly the private pages, which own marks. The finder is also allowed to report a
// page after the image that was only read.
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
