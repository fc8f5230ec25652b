package redact

import (
	"strings"
	"unicode/utf8"
)

// Prefix returns the longest prefix of text that has at most n bytes and splits no rune.
func Prefix[T string | []byte](text T, n int) T {
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

// Suffix returns the longest suffix of text that has at most n bytes and splits no rune.
func Suffix[T string | []byte](text T, n int) T {
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

// FirstLine returns the first line of a text that is not blank.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// Shorten is Prefix, and appends … if the text is cut.
func Shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return Prefix(text, n) + "…"
}
