//go:build linux || darwin

package runtime

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reserve maps size bytes of zeroes. MAP_NORESERVE: what a guest may take is counted by the host's
// memory plan, not by the kernel at the time of the mapping. unix.Mmap would hold a lock of its own for as
// long as the kernel takes to unmap some gigabytes, which is a quarter of a second.
func reserve(size uint64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of guest memory: %w", size, err)
	}
	return unsafe.Slice((*byte)(at), size), nil
}

func unreserve(mapped []byte) error {
	if len(mapped) == 0 {
		return nil
	}
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mapped)), uintptr(len(mapped))); err != nil {
		return fmt.Errorf("unmap %d bytes of guest memory: %w", len(mapped), err)
	}
	return nil
}
