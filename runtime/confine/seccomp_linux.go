//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filterCalls applies the filter to all threads, or to none if it fails. A process can also make system calls by the
// call numbers of another processor architecture: the filter forbids these calls. Calls of x32 fail as if they did not
// exist.
func filterCalls() error {
	policy := seccomp.Policy{
		DefaultAction: seccomp.ActionTrap,
		Syscalls: []seccomp.SyscallGroup{
			{
				Action: seccomp.ActionAllow, Names: slices.Concat(calls, ofProcessor[goruntime.GOARCH]),
				NamesWithCondtions: argumentsOf,
			},
			{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: absent},
		},
	}
	program, err := policy.Assemble()
	if err != nil {
		return fmt.Errorf("assemble filter of system calls: %w", err)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assemble filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, instruction := range raw {
		filter[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
	}
	goruntime.LockOSThread() // the other threads get no_new_privs from this thread, together with the filter
	defer goruntime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_LOG
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&fprog)))
	switch {
	case errno == unix.ENOSYS || errno == unix.EINVAL:
		return errors.New("this kernel has no seccomp filters with a log, Linux 4.14 has")
	case errno != 0:
		return fmt.Errorf("set filter of system calls: %w", errno)
	case thread != 0:
		return fmt.Errorf("set filter of system calls: thread %d has another one", thread)
	}
	return nil
}
