//go:build !linux && !darwin

package runtime

import (
	"os"
	"syscall"
)

// limitsProcessor tells whether the system ends a child that has used up its processor time. Else the wall clock bounds it.
const limitsProcessor = false

func childAttributes() *syscall.SysProcAttr { return nil }

func killChild(p *os.Process) error { return p.Kill() }

// limitChild leaves memory to Go's collector, and time to the parent.
func limitChild(_, _ int64) error { return nil }
