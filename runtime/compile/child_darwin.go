package compile

import "syscall"

// childAttributes make a child the leader of its own process group.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// addressSpace sets no limit: macOS does not enforce one. The memory limit of Go's collector applies nevertheless.
func addressSpace(int64) (uint64, error) { return 0, nil }

// closeInherited does nothing: macOS has no /proc/self/fd that lists open files.
func closeInherited() error { return nil }
