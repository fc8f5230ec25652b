package snapshot

import (
	"errors"
	"fmt"
	"unsafe"
)

// Bits of an entry of /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
const (
	entryFile    = 1 << 61
	entrySwapped = 1 << 62
	entryPresent = 1 << 63
)

// entriesAtOnce is how many pages one read asks for.
const entriesAtOnce = 1024

// readPagemap asks the same as scanPages, page by page.
func readPagemap(b *buffer, memory []byte, from, to uint64) ([]region, uint64, error) {
	file, err := openPagemap()
	if err != nil {
		return nil, 0, err
	}
	if b.entries == nil {
		b.entries = make([]uint64, entriesAtOnce)
	}
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	entries := b.entries[:min(entriesAtOnce, (to-from)/pageSize)]
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(entries))), len(entries)*8)
	if _, err := file.ReadAt(raw, int64((base+from)/pageSize*8)); err != nil {
		return nil, 0, fmt.Errorf("read a pagemap: %w", err)
	}
	regions, n := b.room(), 0
	at := base + from
	for _, entry := range entries {
		if entry&(entryPresent|entrySwapped) != 0 && entry&entryFile == 0 {
			switch {
			case n > 0 && regions[n-1].end == at:
				regions[n-1].end += pageSize
			case n == len(regions):
				return regions, at - base, nil // the rest is read again
			default:
				regions[n] = region{start: at, end: at + pageSize}
				n++
			}
		}
		at += pageSize
	}
	if at == base+from {
		return nil, 0, errors.New("read a pagemap: nothing there")
	}
	return regions[:n], at - base, nil
}
