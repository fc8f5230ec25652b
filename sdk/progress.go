package sdk

import (
	"io"
	"strconv"
	"strings"
)

// Progress reports the part of the task that is done, from 0 to 1, and a message, which the host cuts to 1 KiB. The
// host shows only the last report, so frequent calls do no harm. Reports are not part of the task's log.
func Progress(fraction float64, message string) {
	_ = services().Progress(portion(fraction), message)
}

// portion limits a fraction to the range from 0 to 1. NaN becomes 0.
func portion(fraction float64) float64 {
	if !(fraction > 0) { // also for NaN
		return 0
	}
	return min(fraction, 1)
}

// reportProgress reports the progress of a command: it writes one line to standard error, in one write.
func reportProgress(stderr io.Writer, fraction float64, message string) error {
	line := "quern:progress=" + strconv.FormatFloat(portion(fraction), 'g', 6, 64)
	if message != "" {
		line += " " + strings.NewReplacer("\n", " ", "\r", " ").Replace(message)
	}
	_, err := io.WriteString(stderr, line+"\n")
	return err
}
