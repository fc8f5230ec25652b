package crash

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/runtime/confine"
)

// maxText is how much of what Go writes about a crash is read, in bytes: what matters stands in its first lines and its
// last ones, with all goroutines between them.
const maxText = 64 << 20

// report is what is to be said of a crash: one line for each guest that may have caused it, and nothing if the text is
// empty, which is a process that has not crashed.
func report(text string, table []byte) (lines []string) {
	if text == "" {
		return nil
	}
	reason := reasonOf(text)
	all := victims(table)
	if fault, ok := faultOf(text); ok {
		if i := slices.IndexFunc(all, func(v victim) bool { return v.computes && v.from <= fault && fault < v.to }); i >= 0 {
			all = all[i : i+1]
		}
	}
	for _, v := range all {
		if v.computes {
			lines = append(lines, fmt.Sprintf("the host has crashed (%s) while plugin %q of tenant %q computed for task %q: "+
				"quarantine the plugin, and report it as SECURITY.md says", reason, v.plugin, v.tenant, v.task))
		}
	}
	if lines == nil {
		lines = []string{fmt.Sprintf("the host has crashed (%s) while no plugin computed: report it with the text above", reason)}
	}
	return lines
}

var (
	signals = regexp.MustCompile(`\[signal (SIG[A-Z]+)[^\]]*? addr=0x([0-9a-f]+)`)
	fatal   = regexp.MustCompile(`(?m)^(fatal error: .*|panic: .*|SIG[A-Z]+: .*)$`)
)

// faultOf is the address of the fault that a text tells of.
func faultOf(text string) (address uint64, ok bool) {
	found := signals.FindStringSubmatch(text)
	if found == nil {
		return 0, false
	}
	address, err := strconv.ParseUint(found[2], 16, 64)
	return address, err == nil
}

// reasonOf is why a process has crashed, in a few words.
func reasonOf(text string) string {
	if call, ok := confine.Forbidden([]byte(text)); ok {
		return "forbidden system call " + call
	}
	if found := signals.FindStringSubmatch(text); found != nil {
		return found[1] + " at 0x" + found[2]
	}
	if line := fatal.FindString(text); line != "" {
		return line
	}
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// watch reads the text about a crash to its end, which is that of the host, and reports it.
func watch(pipe io.Reader, table func() []byte, stderr io.Writer) error {
	text, err := io.ReadAll(io.LimitReader(pipe, maxText))
	if err != nil {
		return fmt.Errorf("read what is told of a crash: %w", err)
	}
	if _, err := io.Copy(io.Discard, pipe); err != nil { // the host must not wait for a reader
		return fmt.Errorf("read what is told of a crash: %w", err)
	}
	for _, line := range report(string(text), table()) {
		if _, err := fmt.Fprintln(stderr, "quern: "+line); err != nil {
			return err
		}
	}
	return nil
}
