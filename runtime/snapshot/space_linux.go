package snapshot

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// replace maps the image, followed by zeroes.
func (s *Space) replace(file *os.File, size uint64) error {
	if size > 0 {
		_, err := mapFile(file, s.memory, size, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
	}
	behind := s.memory[size:]
	if err := clean(behind); err != nil {
		return err
	}
	if len(behind) > 0 {
		// Without this, a system that uses huge pages by default would make 512 pages private for one written byte, to
		// be compared in each Reset. Errors are ignored: a kernel may lack huge pages.
		_ = unix.Madvise(behind, unix.MADV_NOHUGEPAGE)
	}
	return nil
}

// mapFile maps the first size bytes of a file, at the address of at unless that is nil.
func mapFile(file *os.File, at []byte, size uint64, prot, flags int) ([]byte, error) {
	mapped, err := unix.MmapPtr(int(file.Fd()), 0, unsafe.Pointer(unsafe.SliceData(at)), uintptr(size), prot, flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s: %w", size, file.Name(), err)
	}
	return unsafe.Slice((*byte)(mapped), size), nil
}

// giveBack drops the private pages in memory[from:to], which then reads as the image and zeroes again.
func (s *Space) giveBack(from, to uint64) error {
	if from == to {
		return nil
	}
	if err := unix.Madvise(s.memory[from:to], unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("give back %d bytes: %w", to-from, err)
	}
	return nil
}
