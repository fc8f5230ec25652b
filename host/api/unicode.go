package api

import (
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// errNoUnicode is the error of JSON with texts that are none: decoded, each such byte or half would become U+FFFD.
var errNoUnicode = errors.New("it has a text that is not UTF-8, or half a surrogate pair: write bytes in base64, such as parameters_base64")

// CheckUnicode refuses JSON with bytes that are not UTF-8, and escapes of half a surrogate pair.
func CheckUnicode(text []byte) error {
	if !utf8.Valid(text) {
		return errNoUnicode
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' { // which JSON has in texts alone
			continue
		}
		i++
		unit := escapedUnit(text, i)
		switch {
		case !utf16.IsSurrogate(unit):
		case unit < 0xdc00 && i+5 < len(text) && text[i+5] == '\\' && utf16.DecodeRune(unit, escapedUnit(text, i+6)) != utf8.RuneError:
			i += 10
		default:
			return errNoUnicode
		}
	}
	return nil
}

// escapedUnit is the UTF-16 unit of the escape uXXXX at i; 0 for another one.
func escapedUnit(text []byte, i int) rune {
	if i+5 > len(text) || text[i] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(text[i+1:i+5]), 16, 16)
	return rune(unit)
}
