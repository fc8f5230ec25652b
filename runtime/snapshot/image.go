package snapshot

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// wasmPage is the unit of memory sizes in WebAssembly, in bytes.
const wasmPage = 64 << 10

var errClosed = errors.New("the image is closed")

// Image is a snapshot of a memory, sealed against any change. Its methods are safe for concurrent use.
type Image struct {
	size uint64
	// view is the contents, mapped for Reset to read. It is unmapped when the last user leaves: users are the image
	// until Close, and each space that maps the image.
	view   []byte
	closed atomic.Bool // set with mu held

	mu    sync.Mutex
	file  *os.File // the memfd; nil if the size is 0, and after Close
	users int
}

// Take makes an image of contents, which it copies. Their length must be a multiple of 64 KiB. On systems other than
// Linux it fails with [errors.ErrUnsupported].
func Take(contents []byte) (*Image, error) {
	if len(contents)%wasmPage != 0 {
		return nil, fmt.Errorf("take an image of %d bytes: want a multiple of %d", len(contents), wasmPage)
	}
	m := &Image{size: uint64(len(contents)), users: 1}
	var err error
	if m.file, m.view, err = seal(contents); err != nil {
		return nil, fmt.Errorf("take an image of %d bytes: %w", len(contents), err)
	}
	return m, nil
}

// Size is the size of the memory in bytes, and the most that the image takes. At first it takes the pages that are not
// zero; a page of zeroes is added when any space first touches it.
func (m *Image) Size() uint64 { return m.size }

// Close frees the image. Spaces that map it keep their contents, but can no longer be Reset. Close may be called twice.
func (m *Image) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Swap(true) {
		return nil
	}
	var err error
	if m.file != nil {
		err = m.file.Close()
		m.file = nil
	}
	return errors.Join(err, m.drop())
}

// enter maps the image into a space. Each success is paired with a call of leave once the image is no longer mapped
// there.
func (m *Image) enter(s *Space) error {
	m.mu.Lock() // the file is not closed meanwhile
	defer m.mu.Unlock()
	if m.closed.Load() {
		return errClosed
	}
	if err := s.replace(m.file, m.size); err != nil {
		s.astray = true
		return err
	}
	m.users++
	return nil
}

func (m *Image) leave() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drop()
}

// drop ends one use of the view; the last one unmaps it. The caller holds mu.
func (m *Image) drop() error {
	m.users--
	if m.users > 0 {
		return nil
	}
	view := m.view
	m.view = nil
	return unmap(view)
}
