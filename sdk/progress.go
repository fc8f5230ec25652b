package sdk

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Progress tells the host how much of the task is done, from 0 to 1, and what the handler is doing;
// the message may be empty, and 1 KiB of it are shown. The host shows the last one: call it as often as it is convenient. It is
// no part of the task's log.
func Progress(fraction float64, message string) {
	if !hostProgress(portion(fraction), cut(message, maxMessage)) {
		reportProgress(stderr(), fraction, message)
	}
}

// maxMessage is the longest message that quern_v1 takes, in bytes.
const maxMessage = 1 << 10

// portion is a fraction as it is shown: one that is none counts as nothing done.
func portion(fraction float64) float64 {
	if !(fraction > 0) { // not a number, too
		return 0
	}
	return min(fraction, 1)
}

// cut returns the longest beginning of text that has at most so many bytes and splits no rune.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// reportProgress is how a command says it: a line, written in one piece. One that cannot be written has nowhere to go.
func reportProgress(stderr io.Writer, fraction float64, message string) {
	line := "quern:progress=" + strconv.FormatFloat(portion(fraction), 'g', 6, 64)
	if message != "" {
		line += " " + strings.NewReplacer("\n", " ", "\r", " ").Replace(message)
	}
	_, _ = io.WriteString(stderr, line+"\n")
}
