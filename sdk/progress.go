package sdk

import (
	"io"
	"strconv"
	"strings"
)

// Progress reports how much of the task is done, from 0 to 1, and a message, which the host cuts to 1 KiB. The host
// shows only the last report, so calls may be frequent. Reports are not part of the task's log.
func Progress(fraction float64, message string) {
	_ = services().Progress(portion(fraction), message)
}

// portion clamps a fraction to 0 to 1; NaN is 0.
func portion(fraction float64) float64 {
	if !(fraction > 0) { // also for NaN
		return 0
	}
	return min(fraction, 1)
}

// reportProgress reports progress in a command, as one line to standard error, in one write.
func reportProgress(stderr io.Writer, fraction float64, message string) error {
	line := "quern:progress=" + strconv.FormatFloat(portion(fraction), 'g', 6, 64)
	if message != "" {
		line += " " + strings.NewReplacer("\n", " ", "\r", " ").Replace(message)
	}
	_, err := io.WriteString(stderr, line+"\n")
	return err
}
