package sdk

import (
	"errors"
	"io"
	"syscall"
	"time"
)

// The functions below access the process without package os, which would be a twentieth of a small plugin.

func stdin() io.Reader  { return descriptor(0) }
func stdout() io.Writer { return descriptor(1) }
func stderr() io.Writer { return descriptor(2) }

func getenv(name string) string {
	value, _ := syscall.Getenv(name)
	return value
}

func exit(status int) { syscall.Exit(status) }

// descriptor is the file descriptor of an open file.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(d), p)
		switch {
		case mayRepeat(err):
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write writes all of p, or returns an error.
func (d descriptor) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := syscall.Write(int(d), p[written:])
		switch {
		case mayRepeat(err):
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

// notReady is the pause before another try at a nonblocking descriptor that was not ready. Other goroutines run
// meanwhile.
const notReady = time.Millisecond

// mayRepeat reports whether to repeat a call that returned err. For EAGAIN, it first waits for notReady.
func mayRepeat(err error) bool {
	if errors.Is(err, syscall.EAGAIN) {
		<-time.After(notReady)
		return true
	}
	return errors.Is(err, syscall.EINTR)
}
