package sdk

import (
	"errors"
	"io"
	"syscall"
	"time"
)

// Access to the process without package os, which would be a twentieth of a small plugin.

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

// Write writes all of p, or returns why it could not.
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

// notReady is the pause, for other goroutines, before a nonblocking descriptor that is not ready is tried again.
const notReady = time.Millisecond

// again reports whether to repeat the call.
func again(err error) bool {
	if errors.Is(err, syscall.EAGAIN) {
		<-time.After(notReady)
		return true
	}
	return errors.Is(err, syscall.EINTR)
}
