//go:build unix

package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// isUnread reports whether a stream is a pipe that nobody reads any more.
func isUnread(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	state := []unix.PollFd{{Fd: int32(file.Fd())}}
	_, err := unix.Poll(state, 0)
	return err == nil && state[0].Revents&unix.POLLERR != 0
}
