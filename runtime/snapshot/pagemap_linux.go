package snapshot

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bits of an entry of /proc/self/pagemap. Source: Documentation/admin-guide/mm/pagemap.rst of Linux.
const (
	entryIsFile    = 1 << 61
	entryIsSwapped = 1 << 62
	entryIsPresent = 1 << 63
)

// entriesAtOnce is the number of pages that one read asks about (8 KiB).
const entriesAtOnce = 1024

// readPagemap finds the same pages as scanPages. It does not know which of them were only read, and so reports no
// categories.
func readPagemap(b *buffer, memory []byte, from, to uint64) ([]region, uint64, error) {
	fd, err := openPagemap()
	if err != nil {
		return nil, 0, err
	}
	if b.entries == nil {
		b.entries = make([]uint64, entriesAtOnce)
	}
	base := addressOf(memory)
	entries := b.entries[:min(entriesAtOnce, (to-from)/pageSize)]
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(entries))), 8*len(entries))
	n, err := unix.Pread(fd, raw, int64((base+from)/pageSize*8))
	if err != nil {
		return nil, 0, fmt.Errorf("read a pagemap: %w", err)
	}
	regions, count := b.room(), 0
	for _, entry := range entries[:n/8] { // the next call reads the rest
		if entry&(entryIsPresent|entryIsSwapped) == 0 || entry&entryIsFile != 0 {
			from += pageSize
			continue
		}
		start := base + from
		if count > 0 && regions[count-1].end == start {
			regions[count-1].end += pageSize
		} else {
			if count == len(regions) {
				break
			}
			regions[count] = region{start: start, end: start + pageSize}
			count++
		}
		from += pageSize
	}
	return regions[:count], from, nil
}
