package crash

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/runtime/confine"
)

// maxPart is the number of bytes kept from the beginning, and the minimum kept from the end, of Go's crash report. The
// report begins with the reason and ends with the registers; the stacks of all goroutines are between them.
const maxPart = 1 << 20

// report returns one line that names the guest that has caused a crash. If that guest is not known, it returns one line
// for each guest that computed at the time. It returns nil if the process has not crashed: text is empty, or was
// requested by a SIGQUIT.
func report(text string, table []byte) (lines []string) {
	reason, fault, faulted := reasonOf(text)
	if text == "" || strings.HasPrefix(reason, "SIGQUIT") {
		return nil
	}
	const computed = "the host has crashed (%s) while plugin %q of tenant %q computed for task %q"
	for _, v := range victims(table) {
		switch {
		case !v.computes:
		case faulted && v.from <= fault && fault < v.to:
			return []string{fmt.Sprintf(computed+", beside whose memory that address lies: take the plugin out of the directory, and report it as SECURITY.md says",
				reason, v.plugin, v.tenant, v.task)}
		default:
			lines = append(lines, fmt.Sprintf(computed+", which may have nothing to do with it: report it with the text above",
				reason, v.plugin, v.tenant, v.task))
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

// reasonOf returns why a process has crashed, in a few words. If the text names the address of a fault, reasonOf also
// returns that address, and faulted is true.
func reasonOf(text string) (reason string, fault uint64, faulted bool) {
	reason, _, _ = strings.Cut(text, "\n")
	reason = cmp.Or(fatal.FindString(text), reason)
	if found := signals.FindStringSubmatch(text); found != nil {
		reason = found[1] + " at 0x" + found[2]
		address, err := strconv.ParseUint(found[2], 16, 64)
		fault, faulted = address, err == nil
	}
	if call, ok := confine.Forbidden([]byte(text)); ok {
		reason = "forbidden system call " + call
	}
	return reason, fault, faulted
}

// watch reads Go's crash report from the pipe until the host ends, and then writes its own report to stderr.
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

// ends keeps the beginning and the end of the data written to it.
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
