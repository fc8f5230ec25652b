//go:build linux || darwin

package runtime

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reserve maps size bytes of zeroes. MAP_NORESERVE: what a guest may take is counted by the host's
// memory plan, not by the kernel at the time of the mapping.
func reserve(size uint64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	mapped, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of guest memory: %w", size, err)
	}
	return mapped, nil
}

func unreserve(mapped []byte) error {
	if len(mapped) == 0 {
		return nil
	}
	if err := unix.Munmap(mapped); err != nil {
		return fmt.Errorf("unmap %d bytes of guest memory: %w", len(mapped), err)
	}
	return nil
}
