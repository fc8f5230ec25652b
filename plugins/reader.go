package plugins

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/quern-project/quern/runtime/units"
)

// settle is how old a file's last change must be before its stamp is trusted to tell the next one:
// the coarsest clock that a file system writes into a stamp ticks every two seconds (FAT).
const settle = 2 * time.Second

// stamp tells whether a file may have changed since it was read, without reading it again. Its zero
// value is that of no file.
type stamp struct {
	info    fs.FileInfo
	changed time.Time // of the inode; zero where the platform does not say
}

func newStamp(info fs.FileInfo) stamp { return stamp{info: info, changed: changeTime(info)} }

// same reports whether both are of the same file in the same state, as far as stamps can tell.
func (s stamp) same(other stamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) &&
		s.info.Size() == other.info.Size() &&
		s.info.ModTime().Equal(other.info.ModTime()) &&
		s.changed.Equal(other.changed)
}

// young reports whether the last change is so near to now that another one could follow within the
// same tick of the file system's clock and leave the stamp as it is. A time in the future is young.
func (s stamp) young(now time.Time, within time.Duration) bool {
	if s.info == nil {
		return false
	}
	return now.Sub(s.info.ModTime()) < within || now.Sub(s.changed) < within
}

// content is a file that was read whole and did not change meanwhile.
type content struct {
	data  []byte
	stamp stamp
}

// readStable reads the regular file name inside the folder root. It never waits for the other end of
// a pipe and never opens a device: what the name stands for is looked at before and after opening,
// and no link can lead it out of root. A file that changes while it is read is errUnstable.
func readStable(root, name string, most int64) (content, error) {
	folder, err := os.OpenRoot(root)
	if err != nil {
		return content{}, err
	}
	defer folder.Close()
	info, err := folder.Lstat(name)
	if err != nil {
		return content{}, err
	}
	if err := checkFile(info, most); err != nil {
		return content{}, err
	}
	file, err := folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return content{}, err
	}
	defer file.Close()
	return readOpen(file, most)
}

func readOpen(file *os.File, most int64) (content, error) {
	info, err := file.Stat()
	if err != nil {
		return content{}, err
	}
	if err := checkFile(info, most); err != nil {
		return content{}, err
	}
	before := newStamp(info)
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(file, data); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return content{}, errUnstable
		}
		return content{}, err
	}
	if before.young(time.Now(), settle) {
		// Within one tick of its clock the file could change and show the same stamp.
		if err := compare(file, data); err != nil {
			return content{}, err
		}
	}
	if info, err = file.Stat(); err != nil {
		return content{}, err
	}
	if !before.same(newStamp(info)) {
		return content{}, errUnstable
	}
	return content{data: data, stamp: before}, nil
}

// compare reads the file once more, and is errUnstable if it has other bytes by now.
func compare(file *os.File, data []byte) error {
	again := io.NewSectionReader(file, 0, int64(len(data))+1)
	chunk := make([]byte, 64<<10)
	for {
		n, err := again.Read(chunk)
		if n > len(data) || !bytes.Equal(chunk[:n], data[:n]) {
			return errUnstable
		}
		data = data[n:]
		switch {
		case errors.Is(err, io.EOF) && len(data) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return errUnstable
		case err != nil:
			return err
		}
	}
}

const makeSmaller = "make it smaller"

// checkFile refuses what is not a regular file of at most so many bytes.
func checkFile(info fs.FileInfo, most int64) error {
	if !info.Mode().IsRegular() {
		return &fault{"it is " + typeName(info.Mode()), "put a regular file in its place"}
	}
	if info.Size() > most {
		return &fault{fmt.Sprintf("it has %d bytes, more than %s", info.Size(), units.FormatSize(most)), makeSmaller}
	}
	return nil
}

func typeName(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSymlink != 0:
		return "a link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}
