package sdk

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Progress reports how much of the task is done, from 0 to 1, and what the handler is doing, cut to 1 KiB. The host shows
// the last report, so calls may be frequent. Reports are not part of the task's log.
func Progress(fraction float64, message string) {
	_ = services().Progress(portion(fraction), cut(message, maxMessage))
}

// maxMessage is the longest message that quern_v1 takes, in bytes.
const maxMessage = 1 << 10

// portion clamps a fraction to 0 to 1; NaN is 0.
func portion(fraction float64) float64 {
	if !(fraction > 0) { // NaN, too
		return 0
	}
	return min(fraction, 1)
}

// cut returns the longest prefix of text with at most most bytes that splits no rune.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// reportProgress reports progress for a command: as one line, in one write.
func reportProgress(stderr io.Writer, fraction float64, message string) error {
	line := "quern:progress=" + strconv.FormatFloat(portion(fraction), 'g', 6, 64)
	if message != "" {
		line += " " + strings.NewReplacer("\n", " ", "\r", " ").Replace(message)
	}
	_, err := io.WriteString(stderr, line+"\n")
	return err
}
