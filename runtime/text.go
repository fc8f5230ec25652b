package runtime

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// prefix returns the longest beginning of text that has at most n bytes and splits no rune.
func prefix[T string | []byte](text T, n int) T {
	if len(text) <= n {
		return text
	}
	for cut := n; cut >= 0 && cut > n-utf8.UTFMax; cut-- {
		if utf8.RuneStart(text[cut]) {
			return text[:cut]
		}
	}
	return text[:n] // no UTF-8 at all
}

// suffix returns the longest end of text that has at most n bytes and splits no rune.
func suffix[T string | []byte](text T, n int) T {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	for cut := range utf8.UTFMax {
		if cut == len(text) || utf8.RuneStart(text[cut]) {
			return text[cut:]
		}
	}
	return text // no UTF-8 at all
}

// maxLabel bounds what a file may put into a message at once, in bytes.
const maxLabel = 200

// label makes a name out of a file, or a text with such a name in it, fit for a message.
func label(name string) string {
	if len(name) > maxLabel {
		name = prefix(name, maxLabel) + "…"
	}
	return sanitize([]byte(name))
}

// clean makes what a guest chose safe like a line of its log, and bounds it to n bytes.
func clean[T string | []byte](text T, n int) string {
	return prefix(sanitize([]byte(prefix(text, n))), n)
}

// sanitize makes a line of a guest safe for a terminal and for a log that is read line by line: what
// cannot be printed is escaped as in Go source, what is not UTF-8 is replaced, and tabs stay.
func sanitize(line []byte) string {
	if isPlain(line) {
		return string(line)
	}
	var out strings.Builder
	out.Grow(len(line))
	for _, r := range string(line) {
		switch {
		case r == '\t' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	return out.String()
}

// isPlain is the quick way for the lines that need nothing, which are nearly all.
func isPlain(line []byte) bool {
	for _, b := range line {
		if b != '\t' && (b < ' ' || b > '~') {
			return false
		}
	}
	return true
}
