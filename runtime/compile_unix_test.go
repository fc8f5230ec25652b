//go:build linux || darwin

package runtime

import (
	"errors"
	"syscall"
	"testing"
)

// TestCompileChildKilled: who ends a child from outside ends one compilation.
func TestCompileChildKilled(t *testing.T) {
	t.Parallel()
	u := startSlow(t)
	if err := syscall.Kill(u.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	refusedAs(t, u.end(t), "compiling it was ended by a SIGKILL")
}

// TestCompileChildCancelled: when the load is given up, the child is gone before it returns.
func TestCompileChildCancelled(t *testing.T) {
	t.Parallel()
	u := startSlow(t)
	errGone := errors.New("gone")
	u.cancel(errGone)
	var refused *RefusedError
	if err := u.end(t); !errors.Is(err, errGone) || errors.As(err, &refused) {
		t.Errorf("compile = %v, want the cause and no refusal", err)
	}
	if err := syscall.Kill(u.pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
}
