package runtime

import "syscall"

// childAttributes make a child the leader of a group.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limitMemory leaves it to Go's collector: macOS does not hold processes to an address space.
func limitMemory(int64) error { return nil }

// closeInherited leaves them: there is no list of what is open.
func closeInherited() error { return nil }
