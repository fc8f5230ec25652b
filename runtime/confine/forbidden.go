package confine

import (
	"regexp"
	goruntime "runtime"
	"strconv"

	"github.com/elastic/go-seccomp-bpf/arch"
)

// trapped matches the beginning of the crash report that Go writes when the filter has refused a call. sigcode 1 is
// SYS_SECCOMP.
var trapped = regexp.MustCompile(`(?m)^SIGSYS: bad system call\nPC=0x[0-9a-f]+ m=\d+ sigcode=1\b`)

// numberIn matches, for each processor architecture, the register that holds the number of the call.
var numberIn = map[string]*regexp.Regexp{
	"amd64": regexp.MustCompile(`(?m)^rax +0x([0-9a-f]+)$`),
	"arm64": regexp.MustCompile(`(?m)^r8 +0x([0-9a-f]+)$`),
}

// Forbidden reads the report that Go writes to stderr when a process crashes. It reports whether a forbidden call ended
// the process, and names the call. The process must have run on this processor architecture.
func Forbidden(report []byte) (call string, ok bool) { return forbidden(report, goruntime.GOARCH) }

func forbidden(report []byte, processor string) (call string, ok bool) {
	at := trapped.FindIndex(report)
	if at == nil {
		return "", false
	}
	info, err := arch.GetInfo(processor)
	if register := numberIn[processor]; err == nil && register != nil {
		if found := register.FindSubmatch(report[at[1]:]); found != nil {
			number, err := strconv.ParseInt(string(found[1]), 16, 32)
			if name := info.SyscallNumbers[int(number)]; err == nil && name != "" {
				return name, true
			}
			return "number 0x" + string(found[1]), true
		}
	}
	return "unknown", true // GOTRACEBACK=none leaves the registers out
}
