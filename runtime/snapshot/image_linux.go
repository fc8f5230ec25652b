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

// seal writes the contents into a memfd, leaving holes for zeroes, seals it and maps it for reading.
func seal(contents []byte) (file *os.File, view []byte, err error) {
	if len(contents) == 0 {
		return nil, nil, nil // a mapping cannot be empty
	}
	file, err = memfd()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
			file = nil
		}
	}()
	if err := file.Truncate(int64(len(contents))); err != nil {
		return nil, nil, err
	}
	for at := 0; at < len(contents); at += int(pageSize) {
		end := at
		for end < len(contents) && !bytes.Equal(contents[end:][:pageSize], zeroes) {
			end += int(pageSize)
		}
		if _, err := file.WriteAt(contents[at:end], int64(at)); err != nil {
			return nil, nil, err
		}
		at = end // a hole, or the end
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, nil, fmt.Errorf("seal it: %w", err)
	}
	// Private although nobody writes: Linux before 6.7 refuses a shared mapping of a sealed file.
	view, err = mapFile(file, nil, uint64(len(contents)), unix.PROT_READ, unix.MAP_PRIVATE)
	return file, view, err
}

// memfd makes a file without a name. Nobody can execute it if the kernel can forbid that (6.3 and later).
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
