package sdk

import (
	"errors"
	"io"
	"syscall"
	"time"
)

// What a process has of its system, without package os: that would be a twentieth of a small plugin.

func stdin() io.Reader  { return descriptor(0) }
func stdout() io.Writer { return descriptor(1) }
func stderr() io.Writer { return descriptor(2) }

func getenv(name string) string {
	value, _ := syscall.Getenv(name)
	return value
}

func exit(status int) { syscall.Exit(status) }

// descriptor is an open file.
type descriptor int

// Read implements io.Reader.
func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(d), p)
		switch {
		case again(err):
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer: it writes all, or says why it could not.
func (d descriptor) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := syscall.Write(int(d), p[written:])
		switch {
		case again(err):
		case err != nil:
			return written, err
		case n == 0:
			return written, io.ErrUnexpectedEOF
		default:
			written += n
		}
	}
	return written, nil
}

// notReady is how long a descriptor is left alone that does not block and is not ready. Other goroutines run meanwhile.
const notReady = time.Millisecond

// again tells whether the call is to be repeated.
func again(err error) bool {
	if errors.Is(err, syscall.EAGAIN) {
		<-time.After(notReady)
		return true
	}
	return errors.Is(err, syscall.EINTR)
}
