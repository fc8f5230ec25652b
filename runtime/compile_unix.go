//go:build linux || darwin

package runtime

import (
	"errors"
	"os"
	"syscall"
)

// limitsProcessor tells whether the system ends a child that has used up its processor time.
const limitsProcessor = true

// killChild ends the child and whatever it has started.
func killChild(p *os.Process) error {
	return errors.Join(syscall.Kill(-p.Pid, syscall.SIGKILL), p.Kill())
}

// limitChild bounds this process, for good, and drops what it does not need.
func limitChild(memory, seconds int64) error {
	space, err := addressSpace(memory)
	if err == nil && space > 0 {
		err = lower(syscall.RLIMIT_AS, space)
	}
	if err := errors.Join(
		lower(syscall.RLIMIT_CORE, 0),
		lower(syscall.RLIMIT_CPU, uint64(seconds)), // the hard limit is a SIGKILL
		err,
		closeInherited(),
	); err != nil {
		return err
	}
	if syscall.Getpgrp() == syscall.Getpid() {
		const nice = 10
		// Linux takes a process for one thread, and a group for all threads in it.
		return syscall.Setpriority(syscall.PRIO_PGRP, 0, nice)
	}
	return nil
}

// lower sets a limit, unless there is a lower one already.
func lower(resource int, limit uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	limit = min(limit, now.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit})
}
