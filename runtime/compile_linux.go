package runtime

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes make a child the leader of a group, and end it with its host.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limitMemory bounds the address space to what the process has now and so many bytes more: Go reserves
// more from the start than most modules need. Where the whole machine is short of memory, this process
// is the one to end, not its host.
func limitMemory(more int64) error {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	total, _, _ := bytes.Cut(statm, []byte(" "))
	pages, err := strconv.ParseUint(string(total), 10, 64)
	if err != nil {
		return fmt.Errorf("read /proc/self/statm: %w", err)
	}
	if err := lower(syscall.RLIMIT_AS, pages*uint64(os.Getpagesize())+uint64(more)); err != nil {
		return err
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // some containers hide it
	return nil
}

// closeInherited closes what the host has got from whoever started it and has handed on: all that Go opens
// itself is marked to be closed when a program begins.
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
