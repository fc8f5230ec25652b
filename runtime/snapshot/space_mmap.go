//go:build linux || darwin

package snapshot

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// anonymous memory reads as zero until it is written. MAP_NORESERVE: what a guest may take is counted by the
// host's memory plan, not by the kernel at the time of the mapping.
const anonymous = unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_NORESERVE

// guard is the address space below and above a memory that nobody can touch, in bytes: as far as an index of 32 bits
// leads. It takes addresses and no memory.
const guard = 4 << 30

// reserve maps size bytes of zeroes, and guards around them if there are addresses for those. unix.Mmap would hold a
// lock of its own for as long as the kernel takes to unmap some gigabytes, which is a quarter of a second.
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
		if err := unmap(all); err != nil { // it made one mapping into three, of which a process has only so many
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

// clean maps zeroes in the place of what is there.
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
