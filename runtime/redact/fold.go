package redact

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// replacement is the character U+FFFD, which replaces invalid UTF-8.
const replacement = string(utf8.RuneError)

// fold returns a text in the form in which secrets are looked for, and the origin of each byte. In this form, lines end
// with only a newline, and adjacent U+FFFD become one: some programs write a U+FFFD for each invalid byte, others one
// for several bytes.
//
// If escapes is true, fold also reads escapes as in JSON and most languages: any number of backslashes and the escape
// after them become the character that they stand for. Backslashes before anything else are dropped, because nested
// quotes multiply backslashes. So quoting a text does not change its folded form.
func fold(text []byte, escapes bool) (folded []byte, at origin) {
	if isASCII(text) && bytes.IndexByte(text, '\r') < 0 && !(escapes && bytes.IndexByte(text, '\\') >= 0) {
		return text, nil
	}
	folded, at = make([]byte, 0, len(text)), make(origin, 0, len(text)+1)
	for i := 0; i < len(text); {
		from := i
		var room [utf8.UTFMax]byte
		unit := room[:0]
		if escapes {
			unit, i = unescape(unit, text, i)
		}
		if len(unit) == 0 {
			_, n := utf8.DecodeRune(text[i:])
			unit, i = text[i:i+n], i+n
		}
		if string(unit) == "\n" && bytes.HasSuffix(folded, []byte("\r")) {
			folded[len(folded)-1] = '\n'
			continue
		}
		for _, b := range unit {
			folded, at = append(folded, b), append(at, from)
		}
		// This is checked after each unit, because some programs escape each byte of U+FFFD.
		if bytes.HasSuffix(folded, []byte(replacement+replacement)) {
			end := len(folded) - len(replacement)
			folded, at = folded[:end], at[:end]
		}
	}
	return folded, append(at, len(text))
}

// origin holds the offset in the original text for each byte of a folded text, and for its end. It is nil if folding
// has not changed the text.
type origin []int

func (o origin) source(i int) int {
	if o == nil {
		return i
	}
	return o[i]
}

func isASCII(text []byte) bool {
	for _, b := range text {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// controls are the letters that stand for control characters after a backslash. meant are these control characters, in
// the same order.
const controls, meant = "abfnrtv", "\a\b\f\n\r\t\v"

// unescape reads the backslashes at i and the escape after them. It appends the rune or byte that the escape stands for
// to unit, and returns the offset of the escape's end. If the backslashes escape nothing, it appends nothing.
func unescape(unit, text []byte, i int) (_ []byte, end int) {
	before := backslashes(text[i:])
	if i += before; before == 0 || i == len(text) {
		return unit, i
	}
	c := text[i]
	if at := strings.IndexByte(controls, c); at >= 0 {
		return append(unit, meant[at]), i + 1
	}
	rest := text[i+1:]
	switch c {
	case '0':
		if len(rest) == 0 || rest[0] < '0' || rest[0] > '9' {
			return append(unit, 0), i + 1
		}
	case 'x':
		if r, ok := hexadecimal(rest, 2); ok {
			return append(unit, byte(r)), i + 3
		}
	case 'u':
		if r, n := unescapeRune(rest); n > 0 {
			return utf8.AppendRune(unit, r), i + 1 + n
		}
	case 'U':
		if r, ok := hexadecimal(rest, 8); ok {
			return utf8.AppendRune(unit, r), i + 9
		}
	}
	return unit, i
}

// unescapeRune reads the text after \u and returns the rune and the text's length. The text is four digits, followed by
// a second escape for a surrogate pair, or digits in braces. The length is 0 for anything else.
func unescapeRune(text []byte) (r rune, n int) {
	if inner, ok := bytes.CutPrefix(text, []byte("{")); ok {
		if end := bytes.IndexByte(inner[:min(len(inner), 7)], '}'); end > 0 {
			if r, ok := hexadecimal(inner, end); ok {
				return r, end + 2
			}
		}
		return 0, 0
	}
	r, ok := hexadecimal(text, 4)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		low := 4 + backslashes(text[4:])
		if second, ok := hexadecimal(text[min(len(text), low+1):], 4); ok && low > 4 && text[low] == 'u' &&
			utf16.IsSurrogate(second) {
			return utf16.DecodeRune(r, second), low + 5
		}
	}
	return r, 4
}

// backslashes counts the backslashes that a text begins with.
func backslashes(text []byte) int { return len(text) - len(bytes.TrimLeft(text, `\`)) }

// hexadecimal reads a hexadecimal number with the given number of digits, at most eight. If the number is too large for
// a rune, the result is utf8.MaxRune+1.
func hexadecimal(text []byte, digits int) (rune, bool) {
	if digits > len(text) {
		return 0, false
	}
	var n uint32
	for _, c := range text[:digits] {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | uint32(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | uint32(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return rune(min(n, utf8.MaxRune+1)), true
}
