package compile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes make a child the leader of its own process group, and make the kernel kill it when its host ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// addressSpace returns the limit of a child's address space: its present size plus extra bytes. The present size is
// added, since Go reserves more at its start than most modules need. addressSpace also makes the kernel kill this
// process instead of its host if the machine runs out of memory.
func addressSpace(extra int64) (uint64, error) {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // some containers hide this file
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	total, _, _ := bytes.Cut(statm, []byte(" "))
	pages, err := strconv.ParseUint(string(total), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read /proc/self/statm: %w", err)
	}
	return pages*uint64(os.Getpagesize()) + uint64(extra), nil
}

// closeInherited closes files that the host itself inherited. The files that Go opens are closed on exec anyway.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= syscall.Stderr {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
