package crash

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/runtime/confine"
)

// maxPart is how much is kept of the beginning, and of the end, of what Go writes about a crash, in bytes. The reason stands
// in the first lines and registers in the last ones, with all goroutines between them.
const maxPart = 1 << 20

// report is what is to be said of a crash: one line for the guest that has caused it, or for each that computed then. It
// is nothing if the text is empty, which is a process that has not crashed, or if somebody has asked for the text by SIGQUIT.
func report(text string, table []byte) (lines []string) {
	reason := reasonOf(text)
	if text == "" || strings.HasPrefix(reason, "SIGQUIT") {
		return nil
	}
	const computed = "the host has crashed (%s) while plugin %q of tenant %q computed for task %q"
	fault, faulted := faultOf(text)
	for _, v := range victims(table) {
		switch {
		case !v.computes:
		case faulted && v.from <= fault && fault < v.to:
			return []string{fmt.Sprintf(computed+", beside whose memory that address lies: take the plugin out of the directory, and report it as SECURITY.md says",
				reason, v.plugin, v.tenant, v.task)}
		default:
			lines = append(lines, fmt.Sprintf(computed+", which may have nothing to do with it: report it with the text above", reason, v.plugin, v.tenant, v.task))
		}
	}
	if lines == nil {
		lines = []string{fmt.Sprintf("the host has crashed (%s), and no plugin is known to have computed: report it with the text above", reason)}
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
func watch(pipe io.Reader, table func() ([]byte, error), stderr io.Writer) error {
	var text ends
	if _, err := io.Copy(&text, pipe); err != nil {
		return fmt.Errorf("read what is told of a crash: %w", err)
	}
	entries, err := table()
	if err != nil {
		err = fmt.Errorf("read which guests computed: %w", err)
	}
	for _, line := range report(string(slices.Concat(text.head, text.tail)), entries) {
		if _, wrong := fmt.Fprintln(stderr, "quern: "+line); wrong != nil {
			return errors.Join(err, wrong)
		}
	}
	return err
}

// ends keeps the beginning and the end of what is written to it.
type ends struct{ head, tail []byte }

func (e *ends) Write(p []byte) (int, error) {
	n := min(len(p), maxPart-len(e.head))
	e.head = append(e.head, p[:n]...)
	e.tail = append(e.tail, p[n:]...)
	if over := len(e.tail) - maxPart; over > maxPart {
		e.tail = slices.Delete(e.tail, 0, over)
	}
	return len(p), nil
}
