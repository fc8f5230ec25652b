package replay

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime/redact"
)

// secrets are the values of a run's secrets, and find them in what a guest gets.
type secrets struct {
	values map[string][]byte // by name
	names  []string          // without those of empty values; longest first, because a value can be a part of another one
	forms  *redact.Secrets   // finds other forms of the values, and parts of them
	room   int               // how many bytes may still be written; if it is below 0, what was written is not complete
}

// pieceBytes is about how much of a text is searched for other forms at once: the search takes ten times as much
// memory.
const pieceBytes = 16 << 10

func newSecrets(values map[string][]byte, forms *redact.Secrets) *secrets {
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(len(values[b])-len(values[a]), strings.Compare(a, b))
	})
	names = slices.DeleteFunc(names, func(name string) bool { return len(values[name]) == 0 })
	return &secrets{values, names, forms, math.MaxInt}
}

// in reports whether a text contains a value.
func (s *secrets) in(text []byte) bool {
	return slices.ContainsFunc(s.names, func(name string) bool { return bytes.Contains(text, s.values[name]) })
}

// cut passes the text between the values, and the names of the values, in their order.
func (s *secrets) cut(text []byte, names []string, between func([]byte), value func(name string)) {
	if len(names) == 0 {
		if len(text) > 0 {
			between(text)
		}
		return
	}
	for {
		before, after, found := bytes.Cut(text, s.values[names[0]])
		s.cut(before, names[1:], between, value)
		if !found {
			return
		}
		value(names[0])
		text = after
	}
}

// other replaces other forms of the values, which cannot be undone.
func (s *secrets) other(text []byte) []byte {
	if len(text) == 0 {
		return text
	}
	var out []byte
	for len(text) > 0 && s.room >= 0 {
		piece := s.forms.Head(text, pieceBytes)
		text = text[len(piece):]
		if s.forms.In(piece) {
			piece = []byte(s.forms.Text(piece))
		}
		out = s.write(out, piece)
	}
	return out
}

// write appends p to out if there is room.
func (s *secrets) write(out, p []byte) []byte {
	if s.room -= len(p); s.room < 0 {
		return out
	}
	return append(out, p...)
}

// name returns a text with the names of secrets in place of their values, for comparisons and for people.
func (s *secrets) name(text string) string {
	var out []byte
	s.cut([]byte(text), s.names, func(p []byte) { out = append(out, s.other(p)...) },
		func(name string) { out = s.write(out, []byte("[secret "+name+"]")) })
	return string(out)
}

// hide returns a text with a mark in place of each value: a zero byte, the secret's name and a zero byte. Other zero
// bytes are doubled. show undoes it.
func (s *secrets) hide(text []byte) []byte {
	if text == nil {
		return nil
	}
	out := make([]byte, 0, len(text))
	s.cut(text, s.names, func(p []byte) {
		out = append(out, bytes.ReplaceAll(s.other(p), []byte{0}, []byte{0, 0})...)
	}, func(name string) { out = s.write(out, []byte("\x00"+name+"\x00")) })
	return out
}

// show puts the values back in place of the marks.
func (s *secrets) show(text []byte) []byte {
	if text == nil {
		return nil
	}
	out := make([]byte, 0, len(text))
	for {
		before, after, found := bytes.Cut(text, []byte{0})
		out = append(out, before...)
		if !found {
			return out
		}
		name, rest, _ := bytes.Cut(after, []byte{0})
		if len(name) == 0 {
			out = append(out, 0)
		}
		out, text = append(out, s.values[string(name)]...), rest
	}
}

// hideEvent removes the values from an event. The answer gets marks, and the kind says so.
func (s *secrets) hideEvent(e *event) {
	if e.kind < firstService || e.kind == secretGet { // names of secrets are not secret
		return
	}
	for i, word := range e.asked {
		e.asked[i] = s.name(word)
	}
	change := s.other
	if s.in([]byte(e.text)) || slices.ContainsFunc(e.parts, s.in) {
		e.kind |= withSecrets
		change = s.hide
	}
	e.text = string(change([]byte(e.text)))
	for i, part := range e.parts {
		e.parts[i] = change(part)
	}
}

// showEvent undoes hideEvent for an answer with marks.
func (s *secrets) showEvent(e *event) {
	e.text = string(s.show([]byte(e.text)))
	for i, part := range e.parts {
		e.parts[i] = s.show(part)
	}
}

// SecretNames returns the names of the secrets that the run has read, sorted.
func (r *Record) SecretNames() []string { return slices.Sorted(maps.Keys(r.Secrets)) }

// IsSecret reports whether the run has read the value, as far as the record can tell: it is wrong for 1 of 256 others.
func (r *Record) IsSecret(name string, value []byte) bool {
	return r.Secrets[name] == r.check(name, value)
}

// check returns 8 bits of a hash of the value, too few to find the value by. They are the same in all records of the
// tenant: bits that differ would add up.
func (r *Record) check(name string, value []byte) byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", r.Tenant, name, value))
	return sum[0]
}
