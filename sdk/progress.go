package sdk

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// Progress tells the host how much of the task is done, from 0 to 1, and what the handler is doing;
// the message may be empty. The host shows the last one: call it as often as it is convenient. It is no
// part of the task's log.
func Progress(fraction float64, message string) {
	reportProgress(os.Stderr, fraction, message)
}

// reportProgress writes the line in one piece. A fraction that is none counts as nothing done, and a
// line that cannot be written has nowhere to go.
func reportProgress(stderr io.Writer, fraction float64, message string) {
	if !(fraction > 0) { // not a number, too
		fraction = 0
	}
	line := "quern:progress=" + strconv.FormatFloat(min(fraction, 1), 'g', 6, 64)
	if message != "" {
		line += " " + strings.NewReplacer("\n", " ", "\r", " ").Replace(message)
	}
	_, _ = io.WriteString(stderr, line+"\n")
}
