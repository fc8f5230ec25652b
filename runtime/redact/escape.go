package redact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes a line safe for a terminal and for a log that is read line by line: what cannot be printed is escaped as
// in Go source, what is not UTF-8 is replaced, and tabs stay.
func Escape(line []byte) string {
	if isPlain(line) {
		return string(line)
	}
	var out strings.Builder
	out.Grow(len(line) + len(line)/4)
	for _, r := range string(line) {
		switch {
		case r == '\t' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r < utf8.RuneSelf:
			escape(&out, `\x`, r, 2)
		case r <= 0xffff:
			escape(&out, `\u`, r, 4)
		default:
			escape(&out, `\U`, r, 8)
		}
	}
	return out.String()
}

// escape writes a rune by its number.
func escape(out *strings.Builder, prefix string, r rune, digits int) {
	out.WriteString(prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		out.WriteByte("0123456789abcdef"[r>>shift&0xf])
	}
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
