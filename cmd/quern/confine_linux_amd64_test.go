package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// confinedHost is a host as users have it. The test is skipped where the system lacks what confines it.
func confinedHost(t *testing.T, plugins string, args ...string) (*user, *child) {
	t.Helper()
	tenant := queuetest.Tenant()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{
		"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant, "XDG_CACHE_HOME": t.TempDir(), // where nothing is compiled yet
	})
	c := u.spawn(append([]string{"serve", "--plugins", plugins, "--http", "127.0.0.1:0"}, args...)...)
	address := c.stderr.await(t, regexp.MustCompile(`(?:listening: http=|"@message":"listening",.*"http":")([\d.:]+)`))
	if said := c.stderr.String(); strings.Count(said, "needed ones") < 2 {
		t.Skip("this system lacks what confines a host: " + said)
	}
	awaitStatus(t, "http://"+address+"/readyz", http.StatusOK)
	return u, c
}

func TestConfinedThreads(t *testing.T) {
	t.Parallel()
	_, c := confinedHost(t, t.TempDir())
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.Process.Pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		for _, line := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
			if !strings.Contains(string(status), line) {
				t.Errorf("%s: no %q in\n%s", task, line, status)
			}
		}
	}
}

// A plugin is compiled and found by a confined host, also when its folder is replaced as a whole.
func TestConfinedPlugins(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	echo := string(runtimetest.Echo(t))
	write(t, base+"/release1/handlers/one.wasm", echo)
	write(t, base+"/release2/handlers/two.wasm", echo)
	write(t, base+"/aside/three.wasm", echo)
	for _, step := range []struct{ target, link string }{{"release1", base + "/current"}, {"release2", base + "/next"}} {
		if err := os.Symlink(step.target, step.link); err != nil {
			t.Fatal(err)
		}
	}
	u, _ := confinedHost(t, base+"/current/handlers")
	served := func(queue string) {
		eventually(t, queue+" is served", func() bool { return u.feed(queue, "enqueue", queue, "-", "--wait").stdout == queue })
	}
	served("one")
	rename(t, base+"/next", base+"/current")
	served("two")
	rename(t, base+"/release2/handlers", base+"/release2/old")
	rename(t, base+"/aside", base+"/release2/handlers")
	served("three")
}

// A confined host finds out whether a public address is its own, and lives on, whoever answers there.
func TestConfinedRequest(t *testing.T) {
	t.Parallel()
	const url = "http://11.22.33.44:9"
	plugins := t.TempDir()
	write(t, plugins+"/asking.wasm", string(runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	static const char head[] = "{\"url\":\"`+url+`\",\"timeout_ms\":100}";
	return quern_http(head, sizeof head - 1, "", 0) == QUERN_EDENIED;
}`)))
	write(t, plugins+"/asking.yaml", "capabilities: {http: [{host: \""+url+"\", methods: [GET]}]}\n")
	u, _ := confinedHost(t, plugins)
	if r := u.run("enqueue", "asking", "--wait"); r.status != exitDone {
		t.Errorf("%+v", r)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// What a host opens is what it needs.
func TestConfinedFiles(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	plugins, secrets, other := base+"/app/handlers", base+"/secrets/all", base+"/other"
	write(t, plugins+"/readme", "")
	write(t, secrets+"/acme/key", "")
	write(t, other+"/file", "")
	granted := write(t, base+"/granted/key", "")
	grants := write(t, base+"/grants.yaml", fmt.Sprintf("\"*\":\n  secrets: {key: {file: %q}}\n", granted))
	write(t, granted, "value")
	u, c := confinedHost(t, plugins, "--secrets", secrets, "--grants", grants)
	cache := u.env["XDG_CACHE_HOME"] + "/quern/compiled"
	const create = unix.O_CREAT | unix.O_WRONLY
	for _, file := range []struct {
		path  string
		flags uint64
		want  unix.Errno
	}{
		{plugins + "/readme", unix.O_RDONLY, 0},
		{plugins + "/readme", unix.O_WRONLY, unix.EACCES},
		{plugins + "/new", create, unix.EACCES},
		{secrets + "/acme/key", unix.O_RDONLY, 0},
		{secrets + "/acme/key", unix.O_WRONLY, unix.EACCES},
		{granted, unix.O_RDONLY, 0},
		{grants, unix.O_RDONLY, unix.EACCES}, // is read once
		{cache, unix.O_RDONLY, 0},
		{cache + "/new", create, 0},
		{cache + "/../new", create, unix.EACCES},
		{other + "/file", unix.O_RDONLY, unix.EACCES},
		{other + "/new", create, unix.EACCES},
		{base, unix.O_RDONLY, unix.EACCES},
		{"/", unix.O_RDONLY, unix.EACCES},
		{"/etc/hosts", unix.O_RDONLY, 0},
		{"/proc/self/pagemap", unix.O_RDONLY, 0},
		{"/proc/1/environ", unix.O_RDONLY, unix.EACCES},
		{"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", unix.O_WRONLY, unix.EACCES},
		{"/dev/null", unix.O_WRONLY, unix.EACCES},
	} {
		if got := openIn(t, c.Process.Pid, file.path, file.flags); got != file.want {
			t.Errorf("open %s with %#x: %v, want %v", file.path, file.flags, got, file.want)
		}
	}
}

// A forbidden call ends the host, and a line names it.
func TestForbiddenCall(t *testing.T) {
	t.Parallel()
	_, c := confinedHost(t, t.TempDir())
	traced(t, c.Process.Pid, func(registers *unix.PtraceRegs) { registers.Rax = unix.SYS_PTRACE })
	if state := c.wait(t); state.Success() {
		t.Errorf("%v", state)
	}
	if line := "\nquern: the host has crashed (forbidden system call ptrace)"; !strings.Contains(c.stderr.String(), line) {
		t.Errorf("%s is not in\n%s", line, c.stderr)
	}
}

// openIn opens a file in another process.
func openIn(t *testing.T, pid int, path string, flags uint64) (result unix.Errno) {
	t.Helper()
	traced(t, pid, func(registers *unix.PtraceRegs) {
		before := *registers
		const unused = 4096 // bytes of the stack, more than anybody leaves below its end
		at := uintptr(registers.Rsp) - unused
		if _, err := unix.PtracePokeData(pid, at, append([]byte(path), 0)); err != nil {
			t.Error(err)
			return
		}
		const here = -100 // AT_FDCWD
		registers.Rax, registers.Rdi, registers.Rsi, registers.Rdx, registers.R10 = unix.SYS_OPENAT, uint64(1<<64+here), uint64(at), flags, 0o600
		var status unix.WaitStatus
		if err := unix.PtraceSetRegs(pid, registers); err != nil {
			t.Error(err)
		} else if err := step(pid, &status); err != nil || status.StopSignal() != unix.SIGTRAP {
			t.Errorf("%v, %v", err, status.StopSignal())
		} else if err := unix.PtraceGetRegs(pid, registers); err != nil {
			t.Error(err)
		} else if int64(registers.Rax) < 0 {
			result = unix.Errno(-int64(registers.Rax))
		}
		*registers = before
	})
	return result
}

// step lets a traced process run one instruction. Go's signals for preemption may come before.
func step(pid int, status *unix.WaitStatus) error {
	for {
		if err := unix.PtraceSingleStep(pid); err != nil {
			return err
		}
		if _, err := unix.Wait4(pid, status, unix.WALL, nil); err != nil || status.StopSignal() != unix.SIGURG {
			return err
		}
	}
}

// traced interrupts the first thread of a process in a system call, and lets change the registers with which it makes
// the call again.
func traced(t *testing.T, pid int, change func(*unix.PtraceRegs)) {
	t.Helper()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	eventually(t, "the first thread is in a system call", func() bool {
		if err := unix.PtraceAttach(pid); err != nil {
			t.Skip("this system lets nobody trace a process: " + err.Error())
		}
		defer func() {
			if err := unix.PtraceDetach(pid); err != nil {
				t.Error(err)
			}
		}()
		var status unix.WaitStatus
		var registers unix.PtraceRegs
		// Another signal may come before that of the attachment, which would stop the process after the detachment.
		for status.StopSignal() != unix.SIGSTOP {
			if status.Stopped() {
				if err := unix.PtraceCont(pid, int(status.StopSignal())); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
				t.Fatalf("%v, %v", err, status)
			}
		}
		if err := unix.PtraceGetRegs(pid, &registers); err != nil {
			t.Fatal(err)
		}
		const restart, none = -512, -1 // ERESTARTSYS
		if int64(registers.Orig_rax) == none || int64(registers.Rax) != restart && unix.Errno(-registers.Rax) != unix.EINTR {
			return false
		}
		const length = 2 // of the instruction that the thread stands behind
		registers.Rip -= length
		registers.Rax, registers.Orig_rax = registers.Orig_rax, 1<<64-1
		change(&registers)
		if err := unix.PtraceSetRegs(pid, &registers); err != nil {
			t.Fatal(err)
		}
		return true
	})
}
