package snapshot

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

var errReleased = errors.New("the space is released")

// pageSize is the system's page size.
var pageSize = uint64(os.Getpagesize())

// zeroes is a page of zeroes.
var zeroes = make([]byte, pageSize)

// Space is the address range of one instance's memory. All of it is reserved at once, so the memory never moves and
// growing it costs nothing: the system provides a page when it is first touched. A space is used by one goroutine at a
// time; only Held may be called from others.
type Space struct {
	limit  uint64       // maximum size of the memory in bytes
	memory []byte       // limit bytes, rounded up to whole pages
	all    []byte       // memory and the guards around it
	image  *Image       // the image that is mapped at the start; nil before Map
	size   uint64       // size of the image in bytes
	held   atomic.Int64 // see Held

	finders *finders
	buffer  buffer
	past    past
	// astray is set when a mapping failed and may have left a gap: see Release.
	astray   bool
	released bool
}

// Reserve makes a space of limit bytes, all zero, between guards if there are addresses for them. A page of the space
// takes no memory until it is touched.
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

// Guarded reports whether the space lies between guards (see the package comment).
func (s *Space) Guarded() bool { return len(s.all) > len(s.memory) }

// Addresses returns the whole range including the guards. Only its position is of use: the bytes must not be touched.
func (s *Space) Addresses() []byte { return s.all }

// Bytes returns the memory. It must not be touched after Release.
func (s *Space) Bytes() []byte { return s.memory[:s.limit:s.limit] }

// Map replaces the contents by the image, followed by zeroes. After an error the space can only be released.
func (s *Space) Map(image *Image) error {
	if s.released {
		return fmt.Errorf("map an image: %w", errReleased)
	}
	if image.size > s.limit {
		return fmt.Errorf("map an image of %d bytes into a space of %d", image.size, s.limit)
	}
	entered, err := image.enter()
	if err != nil {
		return fmt.Errorf("map an image of %d bytes: %w", image.size, err)
	}
	before := s.image
	s.image, s.size = entered, image.size
	s.past = past{}
	s.held.Store(0)
	if err = s.replace(entered); err != nil {
		s.astray = true
		err = fmt.Errorf("map an image of %d bytes: %w", image.size, err)
	}
	return errors.Join(err, before.exit())
}

// Reset restores the contents that Map has set. mode must be usable according to Probe. used is the largest size of the
// memory since the last Reset or Map: nothing after it was touched. After an error the contents are undefined, and the
// instance must be discarded.
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

// Trim gives every private page back to the system. The contents are then those that Map has set.
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

// Held returns the number of bytes in private pages as of the last Map, Reset or Trim; after a Reset by mode Copy, an
// upper bound. It is safe for concurrent use.
func (s *Space) Held() int64 { return s.held.Load() }

// Release unmaps the space; its bytes must not be touched any more. Release can be called twice.
func (s *Space) Release() error {
	all, image := s.all, s.image
	s.memory, s.all, s.image, s.limit, s.size, s.released = nil, nil, nil, 0, 0, true
	s.held.Store(0)
	var err error
	if !s.astray {
		// If a mapping failed, it may have left a gap, where another memory may lie by now. Then nothing is unmapped.
		err = unmap(all)
	}
	return errors.Join(err, image.exit())
}

// wholePages rounds a size up to whole pages.
func wholePages(size uint64) uint64 { return (size + pageSize - 1) / pageSize * pageSize }
