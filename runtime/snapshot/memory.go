package snapshot

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// anonymous are the flags of a mapping that reads as zero until it is written. With MAP_NORESERVE, the kernel does not
// count the memory at the time of the mapping. The host's memory plan counts what a guest can take.
const anonymous = unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_NORESERVE

// guard is the size of the inaccessible range below and above a memory, in bytes: the reach of a 32-bit index.
const guard = 4 << 30

// reserve maps size bytes of zeroes, between guards if there are addresses for them. all is the memory with its guards.
// reserve does not use unix.Mmap, which would hold a lock while the kernel unmaps gigabytes, for a quarter of a second.
func reserve(size uint64) (memory, all []byte, err error) {
	if size == 0 {
		return nil, nil, nil
	}
	const use = unix.PROT_READ | unix.PROT_WRITE
	if at, err := unix.MmapPtr(-1, 0, nil, uintptr(guard+size+guard), unix.PROT_NONE, anonymous); err == nil {
		all = unsafe.Slice((*byte)(at), guard+size+guard)
		memory = all[guard:][:size]
		if unix.Mprotect(memory, use) == nil {
			return memory, all, nil
		}
		// Mprotect splits the mapping in three, and the number of mappings of a process is limited.
		if err := unmap(all); err != nil {
			return nil, nil, err
		}
	}
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(size), use, anonymous)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	memory = unsafe.Slice((*byte)(at), size)
	return memory, memory, nil
}

// clean replaces the contents by zeroes.
func clean(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(memory)), uintptr(len(memory)),
		unix.PROT_READ|unix.PROT_WRITE, anonymous|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map %d bytes of zeroes: %w", len(memory), err)
	}
	return nil
}

func unmap(mapped []byte) error {
	if len(mapped) == 0 {
		return nil
	}
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mapped)), uintptr(len(mapped))); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(mapped), err)
	}
	return nil
}
