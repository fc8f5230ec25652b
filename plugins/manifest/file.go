package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/quern-project/quern/runtime/units"
)

// CheckFile returns a *Fault unless info describes a regular file of at most limit bytes.
func CheckFile(info fs.FileInfo, limit int64) error {
	if !info.Mode().IsRegular() {
		return &Fault{"it is " + typeName(info.Mode()), "put a regular file in its place"}
	}
	if info.Size() > limit {
		return &Fault{fmt.Sprintf("it has %d bytes, more than %s", info.Size(), units.FormatSize(limit)), makeSmaller}
	}
	return nil
}

// makeSmaller is the remedy for a file that is too large.
const makeSmaller = "make it smaller"

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
	return "not a regular file"
}

// Cause returns the system's error without the path, which our own messages name.
func Cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// open opens a file for reading. If the file is a pipe, open does not wait for its other end.
func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) }

// read reads the first limit bytes of a regular file, or the whole file if it is smaller.
func read(file *os.File, limit int64) (data []byte, info fs.FileInfo, err error) {
	info, err = file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is " + typeName(info.Mode()))
	}
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(file, limit))
	}
	return data, info, Cause(err)
}
