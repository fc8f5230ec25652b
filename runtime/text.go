package runtime

import (
	"strings"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/redact"
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

// firstLine is the first line of a text that is not blank.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// maxLabel bounds a label, in bytes.
const maxLabel = 200

// label makes a name from a file, or a text with such a name, fit for a message.
func label(name string) string {
	if len(name) > maxLabel {
		name = prefix(name, maxLabel) + "…"
	}
	return redact.Escape([]byte(name))
}
