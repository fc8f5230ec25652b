//go:build amd64 || arm64

package confine

import (
	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// calls are the system calls that the host and its compile children are allowed to make with any arguments.
var calls = []string{
	// Memory: Go's, the guests', and wazero's machine code; memfd_create for snapshots.
	"mmap", "munmap", "mremap", "mprotect", "madvise", "mincore", "brk", "memfd_create",
	// Threads, time and signals: Go's runtime.
	"futex", "sched_yield", "sched_getaffinity", "set_tid_address", "set_robust_list", "rseq", "gettid", "exit",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "getrandom", "restart_syscall",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "tgkill",
	// Files: plugins, secrets, the compile cache, the system's own settings.
	"openat", "close", "read", "write", "readv", "writev", "pread64", "pwrite64", "lseek", "fcntl", "flock", "ftruncate",
	"fsync", "fstat", "statfs", "fstatfs", "faccessat", "faccessat2", "getdents64", "readlinkat", "getcwd", "chdir",
	"mkdirat", "unlinkat", "renameat", "fchmod", "fchmodat", "utimensat",
	"inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	// Network: Redis, handlers' requests, metrics. argumentsOf limits the kinds of sockets.
	"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "bind", "listen", "accept4", "connect", "shutdown",
	"getsockname", "getpeername", "getsockopt", "setsockopt", "sendto", "sendmsg", "recvfrom", "recvmsg", "sendfile",
	"splice",
	// Compile children: the host starts them, waits for them and ends them; they set limits for themselves.
	"execve", "pipe2", "dup3", "setpgid", "getpgid", "getppid", "setpriority", "wait4", "waitid", "pidfd_open",
	"pidfd_send_signal", "kill",
	"exit_group",
	// Facts about this process and the system.
	"getpid", "getuid", "geteuid", "getgid", "getegid", "uname", "sysinfo", "getrusage",
}

// ofProcessor are further calls that are allowed with any arguments. They exist only on one processor architecture, or
// have another name there. On amd64, Go's threads use arch_prctl; the C library, if it is linked, uses access, readlink
// and poll.
var ofProcessor = map[string][]string{
	"amd64": {"newfstatat", "arch_prctl", "access", "readlink", "poll"},
	"arm64": {"fstatat"},
}

const (
	// namespaces are the flags of clone that create a namespace.
	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET
	// pagemapScan is the ioctl that finds the changed pages of a guest's memory.
	pagemapScan = 0xc0606610
)

// argumentsOf are the calls that are allowed only with certain arguments. A call is allowed if it matches any entry.
var argumentsOf = []seccomp.NameWithConditions{
	argument("ioctl", 1, seccomp.Equal, pagemapScan),
	argument("ioctl", 1, seccomp.Equal, unix.TCGETS),           // asks whether a file is a terminal
	argument("clone", 0, seccomp.BitsNotSet, namespaces),       // threads and compile children
	argument("prlimit64", 0, seccomp.Equal, 0),                 // 0 is this process
	argument("prctl", 0, seccomp.Equal, unix.PR_SET_PDEATHSIG), // ends a compile child with its host
	argument("prctl", 0, seccomp.Equal, unix.PR_SET_VMA),       // names Go's memory
	argument("socket", 0, seccomp.Equal, unix.AF_INET),
	argument("socket", 0, seccomp.Equal, unix.AF_INET6),
	argument("socket", 0, seccomp.Equal, unix.AF_UNIX),
}

// absent are calls that fail with ENOSYS. Their callers probe whether the kernel has the call, and can do without it.
var absent = []string{"clone3"}

func argument(call string, number uint32, is seccomp.Operation, value uint64) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: call, Conditions: seccomp.ArgumentConditions{{
		Argument: number, Operation: is,
		Value: value,
	}}}
}
