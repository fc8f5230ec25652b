// Package redact makes what a guest wrote fit for logs, terminals and errors: the secrets that the guest was given are
// replaced by their names, and what cannot be printed is escaped. One function does both, on the bytes as they were
// written, so that no step sees a form of a secret that another one has made.
//
//	bytes of the guest ──▶ fold: escapes read, ─▶ places where ─▶ text between ─▶ safe text
//	                       what is no UTF-8       a secret is     them escaped
//
// # What is found
//
// The value of a secret, and each of its lines, if they have eight bytes at least, backslashes not counted: as they are,
// with a backslash before what quotes and JSON escape, once or several times, and with U+FFFD for what is no UTF-8. Of
// longer ones, any sixteen consecutive bytes; eight where a text has been cut within one, at its beginning or end. A
// shorter line of a secret that has several, with a letter, a digit or more than two bytes, is found where it is the whole text, or all of
// it behind the last ": ".
//
// # What is not
//
// A value below eight bytes. A short line beside other text. What a guest has encoded, changed or cut into pieces.
package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
)

const (
	// least is how many bytes of a secret are found at least: fewer stand in many words.
	least = 8
	// minRun is how many consecutive bytes of a secret are found although more follow in it.
	minRun = 16
	// maxPlaces bounds the places of a secret at which the same eight bytes are looked up.
	maxPlaces = 16
	// likelyBits is the size of the table that spares a text most of the lookups, as a power of two.
	likelyBits = 10
)

// Secrets are those that a task was given. The zero value, and nil, has none. It belongs to one goroutine.
type Secrets struct {
	given      map[string]string // values by name
	patterns   []pattern
	known      map[pattern]bool // the patterns
	index      map[uint64][]place
	likely     []bool            // by hash: whether the index may have it, which spares most lookups
	shortLines map[string]string // names by lines, folded, that are too short to be found everywhere
}

// pattern is a text that is looked for, folded.
type pattern struct{ text, name string }

// place is where in a pattern eight bytes stand.
type place struct{ pattern, at int }

// Add notes that the task was given a secret. False means that it was known, so that there was little to do.
func (s *Secrets) Add(name string, value []byte) bool {
	if known, ok := s.given[name]; ok && known == string(value) {
		return false
	}
	if s.given == nil {
		s.given, s.shortLines = map[string]string{}, map[string]string{}
		s.known, s.index, s.likely = map[pattern]bool{}, map[uint64][]place{}, make([]bool, 1<<likelyBits)
	}
	s.given[name] = string(value)
	for _, form := range slices.Compact([]string{string(value), strings.ToValidUTF8(string(value), replacement)}) {
		s.add(name, form)
		lines := slices.Collect(strings.Lines(form))
		for _, line := range lines {
			s.add(name, line)
			line = strings.TrimSpace(line)
			if folded, _ := fold([]byte(line), false); len(lines) > 1 && len(folded) < least && tells(line) {
				s.shortLines[string(folded)] = name
			}
		}
	}
	return true
}

// tells says whether a short line is one to be hidden: a brace tells nothing.
func tells(line string) bool {
	return len(line) > 2 || strings.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// add makes a value or a line of it one that is looked for, as it is and with its own backslashes read as escapes: a text
// in which it stands is read both ways.
func (s *Secrets) add(name, value string) {
	for _, escapes := range []bool{false, true} {
		folded, _ := fold([]byte(strings.TrimSpace(value)), escapes)
		p := pattern{string(folded), name}
		if len(p.text) < least || s.known[p] {
			continue
		}
		s.known[p] = true
		s.patterns = append(s.patterns, p)
		// Whoever has fifteen bytes of it has eight of these; the last eight are for a text that begins with them.
		for at := 0; at+least <= len(p.text); at += least {
			s.note(p, at)
		}
		s.note(p, len(p.text)-least)
	}
}

func (s *Secrets) note(p pattern, at int) {
	key := binary.LittleEndian.Uint64([]byte(p.text[at : at+least]))
	if len(s.index[key]) < maxPlaces {
		s.index[key] = append(s.index[key], place{len(s.patterns) - 1, at})
		s.likely[hash(key)] = true
	}
}

// hash is Fibonacci's.
func hash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - likelyBits) }

// Any tells whether there are any.
func (s *Secrets) Any() bool { return s != nil && len(s.given) > 0 }

// In tells whether a text has one of them.
func (s *Secrets) In(text []byte) bool { return s.Any() && len(s.find(text)) > 0 }

// Text is what may be shown of a text that a guest wrote. Of what is safe already nothing is changed.
func (s *Secrets) Text(text []byte) string {
	if !s.Any() {
		return Escape(text)
	}
	found := s.find(text)
	if len(found) == 0 {
		return Escape(text)
	}
	var out strings.Builder
	end := 0
	for _, f := range found {
		if f.from < end { // found in another form as well
			end = max(end, f.to)
			continue
		}
		out.WriteString(Escape(text[end:f.from]))
		out.WriteString("[secret " + f.name + "]")
		end = f.to
	}
	out.WriteString(Escape(text[end:]))
	return out.String()
}

// Cut is where a text may be cut in two so that neither part has a piece of a secret: at that place, or else before or
// behind the secret that stands there. Behind the place the text should go on for Reach bytes, if there are as many.
func (s *Secrets) Cut(text []byte, at int) int {
	if !s.Any() {
		return at
	}
	found := s.find(text)
	move := func(cut int, to func(h hit) int) int {
		for again := true; again; {
			again = false
			for _, h := range found {
				if h.from < cut && cut < h.to {
					cut, again = to(h), true
				}
			}
		}
		return cut
	}
	if cut := move(at, func(h hit) int { return h.from }); cut > 0 {
		return cut
	}
	return move(at, func(h hit) int { return h.to })
}

// Reach is about how long a secret is as it stands in a text, in bytes: some of its bytes may be escaped.
func (s *Secrets) Reach() int {
	const escaped, most = 2, 16 << 10
	longest := 0
	if s.Any() {
		for _, value := range s.given {
			longest = max(longest, len(value))
		}
	}
	return min(escaped*longest, most)
}

// hit is where a secret stands in a text.
type hit struct {
	from, to int
	name     string
}

// find returns where secrets stand, by their beginnings.
func (s *Secrets) find(text []byte) []hit {
	found := s.scan(fold(text, false))
	if bytes.IndexByte(text, '\\') >= 0 {
		found = append(found, s.scan(fold(text, true))...)
	}
	if h, ok := s.alone(text); ok {
		found = append(found, h)
	}
	slices.SortStableFunc(found, func(a, b hit) int { return a.from - b.from })
	return found
}

// alone finds a short line that is all of the text, or all behind a word for it.
func (s *Secrets) alone(text []byte) (hit, bool) {
	trimmed := bytes.TrimSpace(text)
	if at := bytes.LastIndex(trimmed, []byte(": ")); at >= 0 {
		trimmed = bytes.TrimSpace(trimmed[at+1:])
	}
	folded, _ := fold(trimmed, false)
	name, ok := s.shortLines[string(folded)]
	if !ok {
		return hit{}, false
	}
	from := bytes.LastIndex(text, trimmed)
	return hit{from, from + len(trimmed), name}, true
}

// scan finds secrets in a folded text; at maps its bytes to those of the original.
func (s *Secrets) scan(text []byte, at origin) (found []hit) {
	end := 0 // of the last one
	for i := 0; i+least <= len(text); i++ {
		key := binary.LittleEndian.Uint64(text[i:])
		if !s.likely[hash(key)] {
			continue
		}
		from, to, best := 0, 0, pattern{}
		for _, place := range s.index[key] {
			p := s.patterns[place.pattern]
			f, t, ok := p.around(text, max(0, end-minRun), i, place.at)
			if ok && cmp.Or(t-f-(to-from), len(best.text)-len(p.text)) > 0 { // of two the one that is there as a whole
				from, to, best = f, t, p
			}
		}
		if to > end {
			found = append(found, hit{at.source(from), at.source(to), best.name})
			end, i = to, max(i, to-least) // what this form of it ends with may go on in another one
		}
	}
	return found
}

// around is how far text and pattern are the same around eight bytes that are, at i and at, but not before first. It is
// ok if that is enough to be the secret.
func (p pattern) around(text []byte, first, i, at int) (from, to int, ok bool) {
	for from = 0; i-from > first && at-from > 0 && text[i-from-1] == p.text[at-from-1]; from++ {
	}
	for to = least; i+to < len(text) && at+to < len(p.text) && text[i+to] == p.text[at+to]; to++ {
	}
	begins, ends := at == from, at+to == len(p.text)
	from, to = i-from, i+to
	ok = to-from >= minRun || begins && ends || ends && from == 0 || begins && to == len(text)
	return from, to, ok
}
