//go:build amd64 || arm64

package confine_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/confine"
)

// prisoner builds the program of that name as releases are built.
var prisoner = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "prisoner")
	build := exec.Command("go", "build", "-o", path, "./testdata/prisoner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	return path, build.Run()
})

// folder is where it lies.
var folder string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if folder, err = os.MkdirTemp("", "confine-*"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(folder)
		return m.Run()
	}())
}

// try lets a prisoner try something. It is confined in all ways, or the test is skipped.
func try(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	program, err := prisoner()
	if err != nil {
		t.Fatal(err)
	}
	var out, report bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // a call that is not forbidden may have made another process
	cmd.Env = []string{"GOTRACEBACK=single"}
	cmd.Stdout, cmd.Stderr = &out, &report
	_ = cmd.Run() // the state tells
	first, rest, _ := strings.Cut(out.String(), "\n")
	if first != "calls: <nil>, files: <nil>" {
		if strings.HasPrefix(first, "calls: ") {
			t.Skip("this kernel does not confine: " + first)
		}
		t.Fatalf("%s\n%s", out.String(), report.String())
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(rest), report.String()
}

// What an attacker would reach for ends the process with a report that names it, also on a thread that was there before.
func TestForbidden(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		call string
		args []string
	}{
		{"ptrace", nil},
		{"process_vm_readv", nil},
		{"process_vm_writev", nil},
		{"mount", nil},
		{"umount2", nil},
		{"pivot_root", nil},
		{"chroot", nil},
		{"unshare", []string{"0x10000000"}}, // CLONE_NEWUSER
		{"setns", nil},
		{"clone", []string{"0x10000011"}}, // CLONE_NEWUSER|SIGCHLD
		{"bpf", nil},
		{"perf_event_open", nil},
		{"userfaultfd", nil},
		{"io_uring_setup", nil},
		{"keyctl", nil},
		{"add_key", nil},
		{"init_module", nil},
		{"finit_module", nil},
		{"delete_module", nil},
		{"kexec_load", nil},
		{"reboot", nil},
		{"swapon", nil},
		{"acct", nil},
		{"quotactl", nil},
		{"settimeofday", nil},
		{"clock_settime", nil},
		{"setuid", nil},
		{"setresuid", nil},
		{"capset", nil},
		{"personality", []string{"0x0400000"}}, // READ_IMPLIES_EXEC
		{"mknodat", nil},
		{"symlinkat", nil},
		{"linkat", nil},
		{"fchownat", nil},
		{"open_by_handle_at", nil},
		{"pidfd_getfd", nil},
		{"execveat", nil},
		{"seccomp", nil},
		{"landlock_restrict_self", nil},
		{"prctl", []string{"22"}},          // PR_SET_SECCOMP
		{"prlimit64", []string{"1"}},       // of another process
		{"ioctl", []string{"0", "0x5412"}}, // TIOCSTI
		{"socket", []string{"16", "3"}},    // AF_NETLINK
		{"socket", []string{"17", "3"}},    // AF_PACKET
		{"socket", []string{"40", "1"}},    // AF_VSOCK
		{"socket", []string{"38", "5"}},    // AF_ALG
		{"socketpair", []string{"1", "1"}},
	} {
		t.Run(strings.Join(append([]string{test.call}, test.args...), " "), func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := try(t, append([]string{"call", test.call}, test.args...)...)
			if call, ok := confine.Forbidden([]byte(stderr)); !ok || call != test.call || stdout != "" {
				t.Errorf("exit %d, %q, Forbidden = %q, %v; report:\n%s", status, stdout, call, ok, stderr)
			}
		})
	}
}

// Another numbering of the calls leads around no filter.
func TestForbiddenNumbers(t *testing.T) {
	t.Parallel()
	if _, stdout, stderr := try(t, "number", "9999"); stdout != "" {
		t.Errorf("a call that does not exist: %s", stdout)
	} else if call, ok := confine.Forbidden([]byte(stderr)); !ok || call != "number 0x270f" {
		t.Errorf("Forbidden = %q, %v", call, ok)
	}
	if goruntime.GOARCH != "amd64" {
		return
	}
	const x32 = "0x40000000" // read
	if status, stdout, _ := try(t, "number", x32, "0", "0", "0"); status != 1 || stdout != "function not implemented" {
		t.Errorf("read by x32: exit %d, %q", status, stdout)
	}
}

// clone3 hides its flags from a filter. Who uses it asks for it first.
func TestAbsent(t *testing.T) {
	t.Parallel()
	if status, stdout, stderr := try(t, "call", "clone3"); status != 1 || stdout != "function not implemented" {
		t.Errorf("exit %d, %q, %s", status, stdout, stderr)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	const denied = "permission denied"
	for _, test := range []struct {
		name string
		rule string // of the folder in
		try  []string
		want string
	}{
		{"read", "-read", []string{"read", "in/file"}, ""},
		{"list", "-read", []string{"list", "in"}, ""},
		{"read below", "-read", []string{"read", "in/below/file"}, ""},
		{"read outside", "-read", []string{"read", "out/file"}, denied},
		{"list outside", "-read", []string{"list", "out"}, denied},
		{"read by dots", "-read", []string{"read", "in/../out/file"}, denied},
		{"read by a link", "-read", []string{"read", "in/link"}, denied},
		{"write what may be read", "-read", []string{"write", "in/file"}, denied},
		{"make where it may be read", "-read", []string{"write", "in/new"}, denied},
		{"run what may be read", "-read", []string{"run", "in/program", "nothing"}, denied},
		{"write", "-write", []string{"write", "in/file"}, ""},
		{"make", "-write", []string{"write", "in/below/new"}, ""},
		{"make outside", "-write", []string{"write", "out/new"}, denied},
		{"move", "-write", []string{"move", "in/file", "in/below/moved"}, ""},
		{"move away", "-write", []string{"move", "in/file", "out/moved"}, denied},
		{"remove", "-write", []string{"remove", "in/file"}, ""},
		{"remove outside", "-write", []string{"remove", "out/file"}, denied},
		{"run what was written", "-write", []string{"run", "in/program", "nothing"}, denied},
		{"modify", "-modify", []string{"write", "in/file"}, ""},
		{"make where it may be modified", "-modify", []string{"write", "in/new"}, denied},
		{"read what may be modified", "-modify", []string{"read", "in/file"}, denied},
		{"tidy", "-tidy", []string{"remove", "in/empty"}, ""},
		{"tidy a file", "-tidy", []string{"remove", "in/file"}, denied},
		{"a rule of nothing", "-read=missing -read", []string{"read", "in/file"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range []string{"in/below", "in/empty", "out"} {
				check(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
			}
			for _, name := range []string{"in/file", "in/below/file", "out/file"} {
				check(t, os.WriteFile(filepath.Join(dir, name), []byte("content"), 0o600))
			}
			check(t, os.Symlink("../out/file", filepath.Join(dir, "in/link")))
			program, err := prisoner()
			check(t, err)
			check(t, os.Link(program, filepath.Join(dir, "in/program")))
			args := append(strings.Fields(test.rule), filepath.Join(dir, "in"), test.try[0])
			for _, name := range test.try[1:] {
				if name != "nothing" {
					name = dir + "/" + name // as it is, dots and all
				}
				args = append(args, name)
			}
			status, stdout, stderr := try(t, args...)
			if test.want == "" && (status != 0 || stdout != "") || !strings.Contains(stdout, test.want) {
				t.Errorf("exit %d: %s\n%s", status, stdout, stderr)
			}
		})
	}
}

// A child is confined as its parent is.
func TestChildren(t *testing.T) {
	t.Parallel()
	program, err := prisoner()
	check(t, err)
	secret := filepath.Join(t.TempDir(), "secret")
	check(t, os.WriteFile(secret, []byte("content"), 0o600))
	child := []string{"-execute", program, "-read", "/proc", "run", program, "-free"}
	if status, stdout, _ := try(t, append(child, "list", "/proc/self/fd")...); status != 0 {
		t.Errorf("exit %d: %s", status, stdout)
	}
	if status, stdout, _ := try(t, append(child, "read", secret)...); status != 1 || !strings.Contains(stdout, "permission denied") {
		t.Errorf("exit %d: %s", status, stdout)
	}
	_, stdout, _ := try(t, append(child, "call", "ptrace")...)
	if call, ok := confine.Forbidden([]byte(stdout)); !ok || call != "ptrace" {
		t.Errorf("Forbidden = %q, %v:\n%s", call, ok, stdout)
	}
	for _, other := range []string{"/bin/sh", "/bin/true"} {
		if status, stdout, _ := try(t, "-execute", program, "run", other); status != 1 || !strings.Contains(stdout, "permission denied") {
			t.Errorf("%s: exit %d: %s", other, status, stdout)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
