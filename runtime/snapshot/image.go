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
	size uint64 // size of the memory in bytes
	// parts are the contents, in ascending order. Between and after the parts, the memory is zero. The files of the parts
	// live until users is 0.
	parts  []part
	own    *file       // holds the pages that are not shared
	shared *file       // the file of another image; nil if nothing is shared
	closed atomic.Bool // set while mu is held

	mu    sync.Mutex
	users int // 1 until Close, and 1 for each space that maps the image; guarded by mu

	making sync.Mutex            // held by Close, and while whole is made
	whole  atomic.Pointer[Image] // a copy that shares nothing, for spaces over maxMappings; nil until needed
}

// part is a range of an image whose contents are in a file.
type part struct {
	from, to uint64 // offsets in the memory
	file     *file
	at       uint64 // offset in the file
}

// file has the contents of one image, or contents that several images share. The last user closes it.
type file struct {
	memfd *os.File // nil if size is 0
	size  uint64
	view  []byte // the file, mapped for reading

	mu    sync.Mutex
	users int // number of images that use the file; guarded by mu
}

// Take makes an image of contents, which it copies. The length of contents must be a multiple of 64 KiB. The image
// shares pages with like if the equal pages make up at least a quarter of contents and half of like. like can be nil or
// closed. On systems other than Linux, Take fails with [errors.ErrUnsupported].
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
	at := uint64(0) // end of the last part, in the memory
	share := func(to uint64) {
		if m.shared != nil && at < min(to, m.shared.size) {
			m.parts = append(m.parts, part{at, min(to, m.shared.size), m.shared, at})
		}
	}
	used := uint64(0) // end of the last part in the own file
	for _, p := range own {
		share(p.from)
		m.parts = append(m.parts, part{p.from, p.to, m.own, used})
		used += p.to - p.from
		at = p.to
	}
	share(m.size)
}

// ownRanges returns the maximum number of ranges in which an image of size bytes can differ from the file that it
// shares. Each range takes two mappings in each space, and makes a Reset 0.3 µs slower. Fewer ranges take more memory,
// because they contain equal pages.
func ownRanges(size uint64) int { return int(min(16, max(2, size/(2<<20)))) }

// compare returns the ranges of whole pages in which contents differ from the file other, which must hold the whole
// contents of an image. If there are more than ownRanges allows, compare joins the ranges with the smallest gaps.
func compare(contents []byte, other *file) (differing []part, err error) {
	want := make([]byte, wasmPage)
	for at := uint64(0); at < uint64(len(contents)); at += pageSize {
		switch {
		case at%wasmPage > 0:
		case at < other.size:
			if _, err := other.memfd.ReadAt(want, int64(at)); err != nil { // reading the view would fill the file's holes
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
	limit := ownRanges(uint64(len(contents)))
	if len(differing) <= limit {
		return differing, nil
	}
	gaps := make([]uint64, 0, len(differing))
	for i, p := range differing[1:] {
		gaps = append(gaps, p.from-differing[i].to)
	}
	slices.Sort(gaps)
	least := gaps[len(gaps)-limit+1] // the smallest gap that stays
	joined := differing[:1]
	for _, p := range differing[1:] {
		if last := &joined[len(joined)-1]; p.from-last.to < least || len(joined) == limit {
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

// lend returns the file that another image can share, and counts one more user of that file. It returns nil if the file
// is closed.
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

// leave ends one use of the file. The last user closes it.
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

// held returns the file's size divided by the number of its users.
func (f *file) held() uint64 {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size / uint64(max(1, f.users))
}

// alone returns the file's size if the file has at most one user, else 0.
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

// Held returns the maximum number of bytes that the image takes, including its part of a file that several images
// share. At first the image takes the pages that are not zero. A page of zeroes takes memory once any space touches it.
func (m *Image) Held() uint64 { return m.sum((*file).held) }

// Alone returns the maximum number of bytes that Close frees, once no space maps the image.
func (m *Image) Alone() uint64 { return m.sum((*file).alone) }

func (m *Image) sum(of func(*file) uint64) uint64 {
	bytes := of(m.own) + of(m.shared)
	if whole := m.whole.Load(); whole != nil {
		bytes += whole.sum(of)
	}
	return bytes
}

// original returns the image's page at an offset in the memory.
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

// Close frees the image. Spaces that map it keep their contents, but can no longer be Reset. Close can be called twice.
func (m *Image) Close() error {
	m.making.Lock() // otherwise unshared might make a whole image after this
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

// maxMappings is the maximum number of mappings for spaces whose images share pages. A process can have 65,530
// mappings, unless vm.max_map_count is changed.
const maxMappings = 30_000

// mappings counts the mappings that mapped returns, for all images of the process: maxMappings applies to the process.
var mappings atomic.Int64

// mapped returns the number of mappings that the image takes in a space. It returns 0 for an image to which maxMappings
// does not apply.
func (m *Image) mapped() int64 {
	if len(m.parts) <= 1 {
		return 0
	}
	return int64(len(m.parts)) + 1 // one for the zeroes after the parts
}

// enter counts a space as a user, and returns the image that the space maps. That is m, or the copy without sharing if
// there are too many mappings.
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

// unshared returns a copy of the image that shares nothing. It makes the copy at the first call.
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

// leave ends one use of the image. The last user leaves the image's files.
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
