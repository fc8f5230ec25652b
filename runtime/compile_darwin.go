package runtime

import "syscall"

// childAttributes make a child the leader of a group.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// addressSpace sets no limit: macOS does not enforce one. Go's collector has its own.
func addressSpace(int64) (uint64, error) { return 0, nil }

// closeInherited leaves them: there is no list of what is open.
func closeInherited() error { return nil }
