package api

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// walker goes through a JSON text without decoding its values, so that values that a bound refuses take no memory. It
// finds where values begin and end. It does not find every error inside them; decoding does.
type walker struct {
	text []byte
	at   int
}

func (w *walker) wrong() error { return fmt.Errorf("this is no JSON from byte %d on", w.at) }

// next skips white space. It returns the byte that follows, without going past it, or 0 at the end.
func (w *walker) next() byte {
	for ; w.at < len(w.text); w.at++ {
		switch b := w.text[w.at]; b {
		case ' ', '\t', '\n', '\r':
		default:
			return b
		}
	}
	return 0
}

// enter goes past the opening byte of an array or object, whose closing byte is end. It reports whether the array or
// object has elements; if it has none, enter goes past the closing byte too.
func (w *walker) enter(end byte) (more bool) {
	w.at++ // the caller has seen the opening byte
	if w.next() != end {
		return true
	}
	w.at++
	return false
}

// another goes to the next element of an array or object, and returns true. If there is none, it goes past the closing
// byte, which must be end, and returns false.
func (w *walker) another(end byte) (more bool, err error) {
	switch w.next() {
	case ',':
		w.at++
		return true, nil
	case end:
		w.at++
		return false, nil
	}
	return false, w.wrong()
}

// name reads the name of a member, and goes to its value.
func (w *walker) name() ([]byte, error) {
	if w.next() != '"' {
		return nil, w.wrong()
	}
	begin := w.at
	if err := w.quoted(); err != nil {
		return nil, err
	}
	name := w.text[begin+1 : w.at-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var plain string
		if err := json.Unmarshal(w.text[begin:w.at], &plain); err != nil {
			return nil, err
		}
		name = []byte(plain)
	}
	if w.next() != ':' {
		return nil, w.wrong()
	}
	w.at++
	return name, nil
}

// quoted goes past a text in quotes.
func (w *walker) quoted() error {
	begin := w.at
	for w.at++; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case '\\':
			w.at++
		case '"':
			w.at++
			return nil
		}
	}
	w.at = begin
	return w.wrong()
}

// value goes past a value of any kind and depth, and returns its bytes.
func (w *walker) value() ([]byte, error) {
	w.next()
	begin := w.at
	for depth := 0; w.at < len(w.text); {
		switch w.text[w.at] {
		case '"':
			if err := w.quoted(); err != nil {
				return nil, err
			}
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			if depth == 0 {
				return nil, w.wrong()
			}
			depth--
			w.at++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return nil, w.wrong()
			}
			w.at++
		default:
			w.word()
		}
		if depth == 0 {
			return w.text[begin:w.at], nil
		}
	}
	return nil, w.wrong()
}

// word goes past a number, true, false or null.
func (w *walker) word() {
	for w.at++; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case ',', ':', ']', '}', '[', '{', '"', ' ', '\t', '\n', '\r':
			return
		}
	}
}
