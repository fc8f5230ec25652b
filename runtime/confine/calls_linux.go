//go:build amd64 || arm64

package confine

import (
	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// calls are those that the host and its compile children make, whatever their arguments.
var calls = []string{
	// Memory: Go's, that of guests, and the code that wazero makes. memfd_create makes their images.
	"mmap", "munmap", "mremap", "mprotect", "madvise", "mincore", "brk", "memfd_create",
	// Threads, time and signals: Go's runtime.
	"futex", "sched_yield", "sched_getaffinity", "set_tid_address", "set_robust_list", "rseq", "gettid", "exit",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "getrandom", "restart_syscall",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "tgkill",
	// Files: plugins, secrets, the compile cache, the system's own settings.
	"openat", "close", "read", "write", "readv", "writev", "pread64", "pwrite64", "lseek", "fcntl", "ftruncate", "fsync",
	"fstat", fstatat, "statfs", "fstatfs", "faccessat", "faccessat2", "getdents64", "readlinkat", "getcwd", "chdir",
	"mkdirat", "unlinkat", "renameat", "fchmod", "fchmodat", "utimensat",
	"inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	// Network: Redis, handlers' requests, metrics. What sockets there may be, argumentsOf tells.
	"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "bind", "listen", "accept4", "connect", "shutdown",
	"getsockname", "getpeername", "getsockopt", "setsockopt", "sendto", "sendmsg", "recvfrom", "recvmsg", "sendfile", "splice",
	// Compile children: started, bounded by themselves, waited for, ended.
	"execve", "pipe2", "dup3", "setpgid", "getpgid", "getppid", "setpriority", "wait4", "waitid", "pidfd_open", "pidfd_send_signal", "kill",
	"exit_group",
	// What tells of this process.
	"getpid", "getuid", "geteuid", "getgid", "getegid", "uname", "sysinfo", "getrusage",
}

const (
	// namespaces are the flags of clone that make any.
	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET
	// pagemapScan is the ioctl by which the changed pages of a guest's memory are found.
	pagemapScan = 0xc0606610
)

// argumentsOf are the calls that may be made with some arguments only; any of a call's entries will do.
var argumentsOf = []seccomp.NameWithConditions{
	argument("ioctl", 1, seccomp.Equal, pagemapScan),
	argument("ioctl", 1, seccomp.Equal, unix.TCGETS),           // is it a terminal?
	argument("clone", 0, seccomp.BitsNotSet, namespaces),       // threads and compile children
	argument("prlimit64", 0, seccomp.Equal, 0),                 // of this process
	argument("prctl", 0, seccomp.Equal, unix.PR_SET_PDEATHSIG), // ends a compile child with its host
	argument("prctl", 0, seccomp.Equal, unix.PR_SET_VMA),       // names Go's memory
	argument("socket", 0, seccomp.Equal, unix.AF_INET),
	argument("socket", 0, seccomp.Equal, unix.AF_INET6),
	argument("socket", 0, seccomp.Equal, unix.AF_UNIX),
}

// absent are calls whose callers probe whether the kernel has them, and can do without.
var absent = []string{"clone3"}

func argument(call string, number uint32, is seccomp.Operation, value uint64) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: call, Conditions: seccomp.ArgumentConditions{{Argument: number, Operation: is, Value: value}}}
}
