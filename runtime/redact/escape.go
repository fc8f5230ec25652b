package redact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes a line safe for a terminal and for a log that is read line by line: it escapes characters that cannot be
// printed, as Go source does, replaces invalid UTF-8, and keeps tabs.
func Escape(line []byte) string { return escapeBut("\t", line) }

// MaxLabel is the maximum length of a label before it is escaped, in bytes.
const MaxLabel = 200

// Label shortens and escapes a name from a file, or a text that contains such a name, for use in a message.
func Label(name string) string { return Escape([]byte(Shorten(name, MaxLabel))) }

// escapeLines is Escape for a text of several lines: it keeps newlines.
func escapeLines(text []byte) string { return escapeBut("\t\n", text) }

// escapeBut escapes a text as Escape does, but keeps only the control characters that kept contains.
func escapeBut(kept string, line []byte) string {
	if isPlain(line) {
		return string(line)
	}
	var out strings.Builder
	out.Grow(len(line) + len(line)/4)
	for _, r := range string(line) {
		switch {
		case unicode.IsPrint(r) || strings.ContainsRune(kept, r):
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

// escape writes a rune as a hexadecimal number.
func escape(out *strings.Builder, prefix string, r rune, digits int) {
	out.WriteString(prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		out.WriteByte("0123456789abcdef"[r>>shift&0xf])
	}
}

// isPlain reports whether a line needs no change. Nearly all lines need none.
func isPlain(line []byte) bool {
	for _, b := range line {
		if b != '\t' && (b < ' ' || b > '~') {
			return false
		}
	}
	return true
}
