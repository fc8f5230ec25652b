package confine

import "testing"

func TestForbiddenReport(t *testing.T) {
	t.Parallel()
	const goroutines = "\n\ngoroutine 7 gp=0x31f58a1b5c20 m=2 mp=0x31f58a1ec808 [syscall]:\nsyscall.Syscall(0x65, 0x0, 0x0, 0x0)\n\t/usr/local/go/src/syscall/syscall_linux.go:74 +0x25\n\n"
	for _, test := range []struct {
		name, report, processor string
		want                    string
		ok                      bool
	}{
		{"amd64", "SIGSYS: bad system call\nPC=0x40866e m=2 sigcode=1" + goroutines + "rax    0x65\nrbx    0x0\n", "amd64", "ptrace", true},
		{"arm64", "SIGSYS: bad system call\nPC=0x40866e m=2 sigcode=1" + goroutines + "r0      0x0\nr8      0x75\nr9      0x0\n", "arm64", "ptrace", true},
		{"lines before", "a log\nSIGSYS: bad system call\nPC=0x40866e m=2 sigcode=1" + goroutines + "rax    0x65\n", "amd64", "ptrace", true},
		{"unknown number", "SIGSYS: bad system call\nPC=0x40866e m=2 sigcode=1" + goroutines + "rax    0x270f\n", "amd64", "number 0x270f", true},
		{"no registers", "SIGSYS: bad system call\nPC=0x40866e m=2 sigcode=1\n", "amd64", "unknown", true},
		{"sent by a process", "SIGSYS: bad system call\nPC=0x40866e m=2 sigcode=0" + goroutines + "rax    0x65\n", "amd64", "", false},
		{"another signal", "SIGSEGV: segmentation violation\nPC=0x40866e m=2 sigcode=1 addr=0x0" + goroutines + "rax    0x65\n", "amd64", "", false},
		{"nothing", "", "amd64", "", false},
	} {
		if got, ok := forbidden([]byte(test.report), test.processor); got != test.want || ok != test.ok {
			t.Errorf("%s: %q, %v, want %q, %v", test.name, got, ok, test.want, test.ok)
		}
	}
}
