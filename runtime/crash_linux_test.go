package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// The modes of this test binary as a host that its guest ends, and as the monitor of that host.
const (
	doomedMode    = "doomed-"
	doomedHost    = doomedMode + "host"
	doomedMonitor = doomedMode + "monitor"
	doomedCode    = doomedMode + "code" // makes an engine where nothing that was written can be executed
)

func beDoomed(mode string) int {
	var err error
	switch mode {
	case doomedMonitor:
		err = crash.Watch(os.Stdin, os.Stderr)
	case doomedHost:
		err = crashInGuest(os.Args[2])
	case doomedCode:
		const refuseExecGain = 1
		if err = unix.Prctl(unix.PR_SET_MDWE, refuseExecGain, 0, 0, 0); err == nil {
			_, err = New(context.Background(), Config{})
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// crashInGuest takes a guest's memory away while it waits for the host, so that its own code faults afterwards. It is
// built with other guests beside it that compute, and some that are idle.
func crashInGuest(file string) error {
	ctx := context.Background()
	monitor, err := crash.Start(itself(doomedMonitor), func(error) {})
	if err != nil {
		return err
	}
	engine, err := newEngine(ctx, Config{Crash: monitor.Table}, testVersion)
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	module, err := engine.Load(ctx, binary)
	if err != nil {
		return err
	}
	for _, pool := range []string{"idle", "busy", "guilty"} {
		bound(module, pool, Profile{Tenant: "acme"}).Run(ctx, Call{TaskID: "earlier", Plugin: pool})
	}
	waiting := make(chan struct{})
	go bound(module, "busy", Profile{Tenant: "acme"}).Run(ctx, Call{TaskID: "other", Plugin: "busy", Log: func(string) {
		close(waiting)
		select {}
	}})
	<-waiting
	memory := bound(module, "guilty", Profile{Tenant: "acme"}).idle[0].memories[0].contents()
	bound(module, "guilty", Profile{Tenant: "acme"}).Run(ctx, Call{TaskID: "4711", Plugin: "guilty", Log: func(string) {
		if err := unix.Mprotect(memory, unix.PROT_NONE); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}})
	return errors.New("the guest has not faulted")
}

// TestCrashNamesTheTask: a fault in a guest's code ends the host, and a line on stderr says which plugin and task it was,
// though another computes as well.
func TestCrashNamesTheTask(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/guest.wasm"
	guest := runtimetest.BuildWAT(t, `(module
		(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
		(memory (export "memory") 2) (data (i32.const 0) "\10\00\00\00\02\00\00\00") (data (i32.const 16) "x\0a")
		(func (export "_start")
			(drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
			(i32.store (i32.const 70000) (i32.const 1))))`)
	if err := os.WriteFile(file, guest, 0o600); err != nil {
		t.Fatal(err)
	}
	program := itself(doomedHost)
	out, err := exec.CommandContext(t.Context(), program[0], program[1], file).CombinedOutput()
	var said []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "quern: ") {
			said = append(said, line)
		}
	}
	if err == nil || len(said) != 1 || !strings.HasPrefix(said[0], "quern: the host has crashed (SIGSEGV at 0x") ||
		!strings.Contains(said[0], `while plugin "guilty" of tenant "acme" computed for task "4711", beside whose memory that address lies: `) {
		t.Errorf("%v, %q\n%s", err, said, out)
	}
}

// TestNoExecutableMemory: where a system gives none, there is no engine, and not a slow one without a word.
func TestNoExecutableMemory(t *testing.T) {
	t.Parallel()
	program := itself(doomedCode)
	out, err := exec.CommandContext(t.Context(), program[0], program[1]).CombinedOutput()
	if strings.Contains(string(out), "invalid argument") && !strings.Contains(string(out), compile.ErrCompiler.Error()) {
		t.Skip("Linux before 6.3 cannot refuse executable memory to a process")
	}
	if err == nil || !strings.HasPrefix(string(out), "WebAssembly engine refused: the compiler for ") || !strings.Contains(string(out), "maybe because this system gives no executable memory") {
		t.Errorf("%v: %s", err, out)
	}
}
