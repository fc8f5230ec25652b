package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seals forbid every later change, also by this process.
const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// write writes parts of the contents into a new memfd, one after the other, with holes for pages of zeroes. Then it
// seals the memfd and maps it for reading.
func write(contents []byte, parts []part) (_ *file, err error) {
	f := &file{size: total(parts), users: 1}
	if f.size == 0 {
		return f, nil // a mapping cannot be empty
	}
	if f.memfd, err = memfd(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.memfd.Close())
		}
	}()
	if err := f.memfd.Truncate(int64(f.size)); err != nil {
		return nil, err
	}
	start := int64(0) // of the next part, in the file
	for _, p := range parts {
		if err := writePages(f.memfd, contents[p.from:p.to], start); err != nil {
			return nil, err
		}
		start += int64(p.to - p.from)
	}
	if _, err := unix.FcntlInt(f.memfd.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal it: %w", err)
	}
	// The mapping is private although nobody writes: Linux before 6.7 refuses a shared mapping of a sealed file.
	f.view, err = mapFile(f.memfd, 0, nil, f.size, unix.PROT_READ, unix.MAP_PRIVATE)
	return f, err
}

// writePages writes contents at an offset, and leaves holes for pages of zeroes.
func writePages(memfd *os.File, contents []byte, offset int64) error {
	for at := 0; at < len(contents); at += int(pageSize) {
		end := at
		for end < len(contents) && !bytes.Equal(contents[end:][:pageSize], zeroes) {
			end += int(pageSize)
		}
		if _, err := memfd.WriteAt(contents[at:end], offset+int64(at)); err != nil {
			return err
		}
		at = end // a hole, or the end
	}
	return nil
}

// memfd makes a file that exists only in memory. On Linux 6.3 and later, nobody can execute it.
func memfd() (*os.File, error) {
	const name, flags = "quern-image", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("create a memfd: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
