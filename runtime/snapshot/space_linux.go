package snapshot

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// replace maps the image over the start of the memory, and zeroes over the rest.
func (s *Space) replace(image *Image) error {
	mapped := uint64(0) // end of the last part
	for _, p := range image.parts {
		if err := clean(s.memory[mapped:p.from]); err != nil {
			return err
		}
		_, err := mapFile(p.file.memfd, p.at, s.memory[p.from:], p.to-p.from, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
		mapped = p.to
	}
	if err := clean(s.memory[mapped:]); err != nil {
		return err
	}
	// Without this, a system that uses huge pages by default would make 512 pages private for one written byte, to be
	// compared in each Reset. Errors are ignored: a kernel may lack huge pages.
	_ = unix.Madvise(s.memory, unix.MADV_NOHUGEPAGE)
	return nil
}

// mapFile maps size bytes of a file, beginning at offset. If at is not nil, they are mapped at the address of at.
func mapFile(file *os.File, offset uint64, at []byte, size uint64, prot, flags int) ([]byte, error) {
	mapped, err := unix.MmapPtr(int(file.Fd()), int64(offset), unsafe.Pointer(unsafe.SliceData(at)), uintptr(size), prot,
		flags)
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
