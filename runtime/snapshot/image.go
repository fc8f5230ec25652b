package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// wasmPage is the unit of memory sizes in WebAssembly, in bytes.
const wasmPage = 64 << 10

var errClosed = errors.New("the image is closed")

// Image is a snapshot of a memory, sealed against any change. Its methods are safe for concurrent use.
type Image struct {
	size uint64
	// parts are the contents, in order; between and after them the memory is zero. Their files live until the last user
	// leaves: users are the image until Close, and each space that maps the image.
	parts  []part
	own    *file
	shared *file       // the file of another image; nil if nothing is shared
	closed atomic.Bool // set with mu held

	mu    sync.Mutex
	users int

	making sync.Mutex
	whole  atomic.Pointer[Image] // this image without sharing, for spaces over maxMappings; nil until needed
}

// part is a range of an image whose contents are in a file.
type part struct {
	from, to uint64 // in the memory
	file     *file
	at       uint64 // in the file
}

// file has the contents of one image, or contents that several images share. The last user closes it.
type file struct {
	memfd *os.File // nil if size is 0
	size  uint64
	view  []byte // mapped for reading

	mu    sync.Mutex
	users int
}

// Take makes an image of contents, which it copies. Their length must be a multiple of 64 KiB. The image shares equal
// pages with like, which may be nil or closed, if they make up at least a quarter of the contents and half of like. On
// systems other than Linux it fails with [errors.ErrUnsupported].
func Take(contents []byte, like *Image) (*Image, error) {
	if len(contents)%wasmPage != 0 {
		return nil, fmt.Errorf("take an image of %d bytes: want a multiple of %d", len(contents), wasmPage)
	}
	m := &Image{size: uint64(len(contents)), users: 1}
	var err error
	var own []part
	if m.size > 0 {
		own = []part{{to: m.size}}
	}
	if m.shared = like.lend(); m.shared != nil {
		var differing []part
		differing, err = compare(contents, m.shared)
		if alike := m.size - total(differing); alike >= m.size/4 && alike >= m.shared.size/2 {
			own = differing
		} else {
			err = m.shared.leave()
			m.shared = nil
		}
	}
	if err == nil {
		m.own, err = write(contents, own)
	}
	if err != nil {
		return nil, fmt.Errorf("take an image of %d bytes: %w", len(contents), errors.Join(err, m.shared.leave()))
	}
	m.arrange(own)
	return m, nil
}

// arrange sets the parts: the own ranges, and between them ranges of the shared file.
func (m *Image) arrange(own []part) {
	at := uint64(0) // in the memory
	share := func(to uint64) {
		if m.shared != nil && at < min(to, m.shared.size) {
			m.parts = append(m.parts, part{at, min(to, m.shared.size), m.shared, at})
		}
	}
	used := uint64(0) // of the own file
	for _, p := range own {
		share(p.from)
		m.parts = append(m.parts, part{p.from, p.to, m.own, used})
		used += p.to - p.from
		at = p.to
	}
	share(m.size)
}

// ownRanges returns the most ranges in which an image of that many bytes may differ from what it shares. Each range
// takes two mappings in each space, and makes a Reset 0.3 µs slower. Fewer ranges take more memory, because they
// contain equal pages.
func ownRanges(size uint64) int { return int(min(16, max(2, size/(2<<20)))) }

// compare returns the ranges of whole pages in which contents differ from the file of an image that shares nothing. It
// joins the nearest ranges until there are few enough.
func compare(contents []byte, other *file) (differing []part, err error) {
	want := make([]byte, wasmPage)
	for at := uint64(0); at < uint64(len(contents)); at += pageSize {
		switch {
		case at%wasmPage > 0:
		case at < other.size:
			if _, err := other.memfd.ReadAt(want, int64(at)); err != nil { // a look at the view would fill the file's holes
				return nil, err
			}
		default:
			clear(want)
		}
		if bytes.Equal(contents[at:][:pageSize], want[at%wasmPage:][:pageSize]) {
			continue
		}
		if last := len(differing) - 1; last >= 0 && differing[last].to == at {
			differing[last].to += pageSize
		} else {
			differing = append(differing, part{from: at, to: at + pageSize})
		}
	}
	most := ownRanges(uint64(len(contents)))
	if len(differing) <= most {
		return differing, nil
	}
	gaps := make([]uint64, 0, len(differing))
	for i, p := range differing[1:] {
		gaps = append(gaps, p.from-differing[i].to)
	}
	slices.Sort(gaps)
	least := gaps[len(gaps)-most+1] // the smallest gap that stays
	joined := differing[:1]
	for _, p := range differing[1:] {
		if last := &joined[len(joined)-1]; p.from-last.to < least || len(joined) == most {
			last.to = p.to
		} else {
			joined = append(joined, p)
		}
	}
	return joined, nil
}

// total returns the size of all parts in bytes.
func total(parts []part) (bytes uint64) {
	for _, p := range parts {
		bytes += p.to - p.from
	}
	return bytes
}

// Shares reports whether the image shares pages with another image.
func (m *Image) Shares() bool { return m.shared != nil }

// lend returns the file that another image can share, and counts one more user of it; nil if the file is gone.
func (m *Image) lend() *file {
	if m == nil {
		return nil
	}
	f := cmp.Or(m.shared, m.own)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == 0 {
		return nil
	}
	f.users++
	return f
}

// leave ends one use of the file.
func (f *file) leave() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users--; f.users > 0 || f.memfd == nil {
		return nil
	}
	view := f.view
	f.view = nil
	return errors.Join(f.memfd.Close(), unmap(view))
}

// held returns one user's part of the file's size.
func (f *file) held() uint64 {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size / uint64(max(1, f.users))
}

// alone returns the file's size if it has one user, else 0.
func (f *file) alone() uint64 {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users > 1 {
		return 0
	}
	return f.size
}

// Size returns the size of the memory in bytes.
func (m *Image) Size() uint64 { return m.size }

// Held returns the most bytes that the image takes, including its part of what several images share. At first the image
// takes the pages that are not zero. A page of zeroes is added when any space first touches it.
func (m *Image) Held() uint64 { return m.sum((*file).held) }

// Alone returns the most bytes that Close frees, once no space maps the image.
func (m *Image) Alone() uint64 { return m.sum((*file).alone) }

func (m *Image) sum(of func(*file) uint64) uint64 {
	bytes := of(m.own) + of(m.shared)
	if whole := m.whole.Load(); whole != nil {
		bytes += whole.sum(of)
	}
	return bytes
}

// original returns the page at an offset in the memory.
func (m *Image) original(offset uint64) []byte {
	i, found := slices.BinarySearchFunc(m.parts, offset,
		func(p part, offset uint64) int { return cmp.Compare(p.from, offset) })
	if !found {
		i--
	}
	if i < 0 || offset >= m.parts[i].to {
		return zeroes
	}
	p := &m.parts[i]
	return p.file.view[p.at+offset-p.from:][:pageSize]
}

// Close frees the image. Spaces that map it keep their contents, but can no longer be Reset. Close may be called twice.
func (m *Image) Close() error {
	m.making.Lock() // else unshared might make a whole image after this
	defer m.making.Unlock()
	m.mu.Lock()
	closed := m.closed.Swap(true)
	m.mu.Unlock()
	if closed {
		return nil
	}
	if whole := m.whole.Load(); whole != nil {
		return errors.Join(m.leave(), whole.Close())
	}
	return m.leave()
}

// maxMappings bounds the mappings of spaces whose images share pages: a process may have 65,530, unless
// vm.max_map_count is changed.
const maxMappings = 30_000

// mappings counts the mappings of all images: the bound is per process.
var mappings atomic.Int64

// mapped returns how many mappings the image takes in a space. It returns 0 for an image that maxMappings does not
// bound.
func (m *Image) mapped() int64 {
	if len(m.parts) <= 1 {
		return 0
	}
	return int64(len(m.parts)) + 1 // one for the zeroes after the parts
}

// enter counts a space as a user, and returns the image that the space maps: m, or the whole image if there are too
// many mappings.
func (m *Image) enter() (*Image, error) {
	if m.mapped() > 0 && mappings.Load() >= maxMappings {
		whole, err := m.unshared()
		if err != nil {
			return nil, err
		}
		return whole.enter()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Load() {
		return nil, errClosed
	}
	mappings.Add(m.mapped())
	m.users++
	return m, nil
}

// unshared returns the same image without sharing, and makes it at the first call.
func (m *Image) unshared() (*Image, error) {
	m.making.Lock()
	defer m.making.Unlock()
	if whole := m.whole.Load(); whole != nil {
		return whole, nil
	}
	if m.closed.Load() {
		return nil, errClosed
	}
	contents := make([]byte, m.size)
	for _, p := range m.parts {
		if _, err := p.file.memfd.ReadAt(contents[p.from:p.to], int64(p.at)); err != nil {
			return nil, fmt.Errorf("copy an image of %d bytes: %w", m.size, err)
		}
	}
	whole, err := Take(contents, nil)
	if err == nil {
		m.whole.Store(whole)
	}
	return whole, err
}

// exit ends a space's use of the image. A nil m is for a space that maps no image.
func (m *Image) exit() error {
	if m == nil {
		return nil
	}
	mappings.Add(-m.mapped())
	return m.leave()
}

// leave ends one use of the image.
func (m *Image) leave() error {
	m.mu.Lock()
	m.users--
	last := m.users == 0
	m.mu.Unlock()
	if !last {
		return nil
	}
	return errors.Join(m.own.leave(), m.shared.leave())
}
