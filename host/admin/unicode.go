package admin

import (
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON with these errors is refused, because decoding replaces each byte that is not UTF-8, and each half of a
// surrogate pair, by U+FFFD.
var (
	errNoUTF8     = errors.New("not UTF-8: write bytes as parameters_base64")
	errHalfOfPair = errors.New(`half a surrogate pair (\ud800 to \udfff), which is not UTF-8: write both halves, or bytes as parameters_base64`)
)

// CheckUnicode returns an error if JSON has bytes that are not UTF-8, or an escape of half a surrogate pair.
func CheckUnicode(text []byte) error {
	if !utf8.Valid(text) {
		return errNoUTF8
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' { // JSON has backslashes only in strings
			continue
		}
		i++
		unit := escapedUnit(text, i)
		switch {
		case !utf16.IsSurrogate(unit):
		case unit < 0xdc00 && i+5 < len(text) && text[i+5] == '\\' &&
			utf16.DecodeRune(unit, escapedUnit(text, i+6)) != utf8.RuneError:
			i += 10
		default:
			return errHalfOfPair
		}
	}
	return nil
}

// escapedUnit returns the UTF-16 unit of an escape like \ud800. i is the index after the backslash. It returns 0 for
// other escapes, such as \n.
func escapedUnit(text []byte, i int) rune {
	if i+5 > len(text) || text[i] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(text[i+1:i+5]), 16, 16)
	return rune(unit)
}
