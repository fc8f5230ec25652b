package snapshot

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// pageSize is the system's, the unit in which a space gets pages of its own.
var pageSize = uint64(os.Getpagesize())

// zeroes is one page of them.
var zeroes = make([]byte, pageSize)

// Space is the address space of one instance's memory. All of it is reserved at once, so that the memory
// never moves and growing costs nothing: the system gives a page when it is first touched.
//
// A space is used by one goroutine at a time, but for Held.
type Space struct {
	limit  uint64
	memory []byte // limit, rounded up to whole pages
	all    []byte // memory with the guards around it
	image  *Image // what is mapped in front; nil before Map
	size   uint64 // of the image
	held   atomic.Int64

	finders *finders
	buffer  buffer
	past    past
	// astray is set when memory could not be mapped anew, and there may be a gap where it was: see Release.
	astray   bool
	released bool
}

// Reserve makes a space of limit bytes, all zero, between guards if the system has the addresses. Nothing of it counts
// until it is touched.
func Reserve(limit uint64) (*Space, error) {
	if limit > 1<<48 {
		return nil, fmt.Errorf("reserve a space of %d bytes: more than a system has addresses", limit)
	}
	memory, all, err := reserve(wholePages(limit))
	if err != nil {
		return nil, fmt.Errorf("reserve a space of %d bytes: %w", limit, err)
	}
	return &Space{limit: limit, memory: memory, all: all, finders: &system}, nil
}

// Guarded tells whether the space lies between guards: 4 GiB of addresses below and above it that are a fault to touch.
// A space has none where the system has no such addresses left, and where no mapping is implemented.
func (s *Space) Guarded() bool { return len(s.all) > len(s.memory) }

// Addresses are all that the space takes, its guards included. They tell where it is, and must not be touched.
func (s *Space) Addresses() []byte { return s.all }

// Bytes is all of the memory. It must not be touched after Release.
func (s *Space) Bytes() []byte { return s.memory[:s.limit:s.limit] }

// Map replaces the contents: the image in front and zero behind it. After an error the space is only good for
// Release.
func (s *Space) Map(image *Image) error {
	if s.released {
		return fmt.Errorf("map an image: %w", errReleased)
	}
	if image.size > s.limit {
		return fmt.Errorf("map an image of %d bytes into a space of %d", image.size, s.limit)
	}
	if err := image.enter(s); err != nil {
		return fmt.Errorf("map an image of %d bytes: %w", image.size, err)
	}
	before := s.image
	s.image, s.size = image, image.size
	s.past = past{}
	s.held.Store(0)
	if before != nil {
		return before.leave()
	}
	return nil
}

// Reset makes the contents what Map left, by a mode that Probe calls usable. Used is how far the memory ever
// reached since the last Reset or Map: nothing behind it was touched. After an error the contents are
// undefined, and the instance must be discarded.
func (s *Space) Reset(mode Mode, used uint64) error {
	if err := s.restore(mode, used); err != nil {
		return fmt.Errorf("reset a memory of %d bytes: %w", used, err)
	}
	return nil
}

func (s *Space) restore(mode Mode, used uint64) error {
	if s.released {
		return errReleased
	}
	if used > s.limit {
		return fmt.Errorf("the space has only %d", s.limit)
	}
	if s.image != nil && s.image.closed.Load() {
		return errClosed
	}
	find, err := s.finders.finder(mode)
	if err != nil {
		return err
	}
	if find == nil {
		return s.compareAll(wholePages(used))
	}
	return s.putBack(find, wholePages(used))
}

// Trim gives every page of the space's own back to the system. The contents are as Map left them.
func (s *Space) Trim() error {
	if s.released {
		return fmt.Errorf("trim a space: %w", errReleased)
	}
	if err := s.giveBack(0, uint64(len(s.memory))); err != nil {
		return fmt.Errorf("trim a space: %w", err)
	}
	s.past.reached = 0
	s.held.Store(0)
	return nil
}

// Held is the number of bytes in pages of the space's own, as of the last Map, Reset or Trim; after a Reset by
// mode Copy, which cannot tell, the most that they may be. It may be called from any goroutine.
func (s *Space) Held() int64 { return s.held.Load() }

// Release unmaps the space. Nobody may touch its bytes any more. It may be called twice.
func (s *Space) Release() error {
	all, image := s.all, s.image
	s.memory, s.all, s.image, s.limit, s.size, s.released = nil, nil, nil, 0, 0, true
	s.held.Store(0)
	var err error
	if !s.astray {
		// A mapping that failed may have left a gap, where by now anybody's memory may be: nothing is unmapped.
		err = unmap(all)
	}
	if image != nil {
		err = errors.Join(err, image.leave())
	}
	return err
}

// wholePages rounds a size up.
func wholePages(size uint64) uint64 { return (size + pageSize - 1) / pageSize * pageSize }
