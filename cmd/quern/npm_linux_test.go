package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A signal for npm's starter alone reaches the program, also on a terminal, which would send it to both.
func TestNpmStarterSignals(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node")
	}
	arch := strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	program := filepath.Join(t.TempDir(), "node_modules", "@quern", "linux-"+arch, "quern")
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\ntrap 'kill $!; exit 7' INT\ntrap 'kill $!; exit 8' TERM\nsleep 600 &\necho ready\nwait\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	starter := filepath.Join(filepath.Dir(program), "..", "..", "quern", "quern.js")
	if err := os.Mkdir(filepath.Dir(starter), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(starter, content(t, "deploy/npm/quern.js"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, signal := range map[string]struct {
		signal   os.Signal
		terminal bool
		status   int
	}{
		"interrupt":   {os.Interrupt, false, 7},
		"on terminal": {os.Interrupt, true, 7},
		"terminate":   {syscall.SIGTERM, true, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := exec.CommandContext(t.Context(), node, starter)
			if signal.terminal {
				_, keyboard := terminal(t)
				c.Stdin = keyboard
			}
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Errorf("%q: %v", line, err)
			}
			if err := c.Process.Signal(signal.signal); err != nil {
				t.Fatal(err)
			}
			var ended *exec.ExitError
			if err := c.Wait(); !errors.As(err, &ended) || ended.ExitCode() != signal.status {
				t.Errorf("%v, want exit status %d", err, signal.status)
			}
		})
	}
}
