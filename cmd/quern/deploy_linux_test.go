package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// runAlone runs the program of an image where nothing else is, as its user.
func runAlone(t *testing.T, root string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("not root: the program was not tried alone")
		return
	}
	if err := os.Chmod(root+"/quern", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/quern", "health", "--http", "0.0.0.0:1")
	cmd.Dir, cmd.Env = "/", []string{"HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exitRefused || !strings.Contains(string(out), "connection refused") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}
