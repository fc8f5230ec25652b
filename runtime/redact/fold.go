package redact

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// replacement is what stands for what is no UTF-8.
const replacement = string(utf8.RuneError)

// fold is a text in the one form in which secrets are looked for, and of each byte of it, and of its end, where it comes
// from. Lines end with a newline alone, and several U+FFFD are one: some write one for each byte that is no UTF-8, others
// one for all.
//
// With escapes any number of backslashes and what they escape, in the quotes of JSON and of most languages, is the
// character that is meant, and the backslashes before anything else are nothing: they are as many as there are quotes in
// quotes. A text that is folded so is the same whether it was quoted before or not.
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
		switch {
		case string(unit) == "\n" && bytes.HasSuffix(folded, []byte("\r")):
			folded[len(folded)-1] = '\n'
			continue
		case string(unit) == replacement && bytes.HasSuffix(folded, unit):
			continue
		}
		for _, b := range unit {
			folded, at = append(folded, b), append(at, from)
		}
	}
	return folded, append(at, len(text))
}

// origin is where each byte of a folded text comes from, and its end; nil if that is the same place.
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

// controls are the letters that stand for control characters behind a backslash, and meant are those.
const controls, meant = "abfnrtv", "\a\b\f\n\r\t\v"

// unescape reads the backslashes at i and what they escape, appends that, a rune or a byte that is none, and returns where
// it ends. It appends nothing where they escape nothing.
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

// unescapeRune reads what stands behind \u, and returns how long that is: four digits, of which those of a surrogate are
// followed by another one, or any number of them in braces. It is 0 for anything else.
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
		if second, ok := hexadecimal(text[min(len(text), low+1):], 4); ok && low > 4 && text[low] == 'u' && utf16.IsSurrogate(second) {
			return utf16.DecodeRune(r, second), low + 5
		}
	}
	return r, 4
}

// backslashes is how many of them a text begins with.
func backslashes(text []byte) int { return len(text) - len(bytes.TrimLeft(text, `\`)) }

// hexadecimal reads n digits, eight at most.
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
