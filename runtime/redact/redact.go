// Package redact makes the text of a guest safe for logs, terminals and errors: it replaces each secret that the guest
// was given by the secret's name, and escapes unprintable characters. One function does both on the original bytes, so
// that neither step changes the form of a secret before the other step looks for it.
//
//	bytes of the guest ──▶ fold: read escapes, ─▶ places of ─▶ escape the text ─▶ safe text
//	                       repair UTF-8           secrets      between them
//
// # What is found
//
// A secret's value and each of its lines are found if they have at least eight bytes, not counting backslashes. They
// are found as plain text, escaped once or several times as in quotes and JSON, and with U+FFFD in place of invalid
// UTF-8. Parts are found as well: any sixteen consecutive bytes, and eight bytes if the text begins or ends within the
// secret. If a secret has several lines, a line of fewer than eight bytes is found if it is the whole text, or all of
// the text after the last ": ". A line that is found in this way has a letter, a digit or more than two bytes.
//
// # What is not found
//
// A value of fewer than eight bytes, a line of fewer than eight bytes next to other text, and a secret that the guest
// has encoded, changed or cut up.
package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// least is the minimum length of a text that counts as a secret, in bytes: shorter texts occur in many words.
	least = 8
	// minRun is the minimum number of consecutive bytes that count as a part of a secret.
	minRun = 16
	// maxPlaces is the maximum number of places that the index keeps for the same eight bytes. One lookup compares all of
	// them.
	maxPlaces = 16
	// likelyBits is the binary logarithm of the length of Secrets.likely.
	likelyBits = 10
)

// Secrets are the secrets that a task was given. The zero value and nil are empty. Only one goroutine uses them.
type Secrets struct {
	given      map[string]string // values by name
	patterns   []pattern
	known      map[pattern]bool   // the patterns, so that each is added once
	index      map[uint64][]place // places in patterns, by the eight bytes at the place
	likely     []bool             // by hash of eight bytes: false if the index does not have them, to save lookups
	shortLines map[string]string  // names by folded line, for lines too short for a pattern
}

// pattern is a folded text to look for, and the secret's name.
type pattern struct{ text, name string }

// place is an offset in the pattern with the given number.
type place struct{ pattern, at int }

// Add adds a secret. It reports whether the secret is new.
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
			// A single brace is no secret.
			tells := len(line) > 2 || strings.ContainsFunc(line,
				func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
			if folded, _ := fold([]byte(line), false); len(lines) > 1 && len(folded) < least && tells {
				s.shortLines[string(folded)] = name
			}
		}
	}
	return true
}

// add adds the patterns of a value or a line: as it is, and with its backslashes read as escapes, because the texts of
// guests are read both ways.
func (s *Secrets) add(name, value string) {
	for _, escapes := range []bool{false, true} {
		folded, _ := fold([]byte(strings.TrimSpace(value)), escapes)
		p := pattern{string(folded), name}
		if len(p.text) < least || s.known[p] {
			continue
		}
		s.known[p] = true
		s.patterns = append(s.patterns, p)
		// Any fifteen consecutive bytes of the pattern contain the eight bytes at one of these places. The place noted
		// after the loop is for a text that begins with the last eight bytes of the pattern.
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

// hash is a Fibonacci hash.
func hash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - likelyBits) }

// Any reports whether there are secrets.
func (s *Secrets) Any() bool { return s != nil && len(s.given) > 0 }

// In reports whether a text contains a secret.
func (s *Secrets) In(text []byte) bool { return len(s.find(text)) > 0 }

// Text returns a guest's text with secrets replaced and the rest escaped. Safe text does not change.
func (s *Secrets) Text(text []byte) string { return s.replace(text, Escape) }

// Lines is Text for a text of several lines, and keeps their newlines. It redacts the text as a whole, and then each
// line by itself.
func (s *Secrets) Lines(text []byte) string {
	lines := strings.Split(s.replace(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), escapeLines), "\n")
	for i, line := range lines {
		lines[i] = s.Text([]byte(line))
	}
	return strings.Join(lines, "\n")
}

// replace replaces secrets, and escapes the text between them.
func (s *Secrets) replace(text []byte, escape func([]byte) string) string {
	found := s.find(text)
	if len(found) == 0 {
		return escape(text)
	}
	var out strings.Builder
	end := 0
	for _, f := range found {
		if f.from < end { // the same secret, found in another form as well
			end = max(end, f.to)
			continue
		}
		out.WriteString(escape(text[end:f.from]))
		out.WriteString("[secret " + f.name + "]")
		end = f.to
	}
	out.WriteString(escape(text[end:]))
	return out.String()
}

// Cut returns the offset at which to cut a text so that no secret is cut. That is the given offset, or, if a secret
// extends across it, the beginning or the end of the secret. text should continue for Reach bytes after the given
// offset, if the whole text is that long.
func (s *Secrets) Cut(text []byte, at int) int {
	found := s.find(text)
	move := func(cut int, to func(h hit) int) int {
		for moved := true; moved; {
			moved = false
			for _, h := range found {
				if h.from < cut && cut < h.to {
					cut, moved = to(h), true
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

// MaxReach is the maximum that Reach returns.
const MaxReach = 16 << 10

// Head returns about the first n bytes of a text. If a secret extends across that offset, Head cuts the text before or
// after the secret, so that the result does not end with a part of a secret. text should have at least n plus Reach
// bytes, if the whole text is that long.
func (s *Secrets) Head(text []byte, n int) []byte {
	if len(text) <= n {
		return text
	}
	return text[:s.Cut(text[:min(len(text), n+s.Reach())], len(Prefix(text, n)))]
}

// Reach returns roughly the maximum length of a secret in a text, in bytes. Escapes make a secret longer than its
// value.
func (s *Secrets) Reach() int {
	const escaped = 2
	if !s.Any() {
		return 0
	}
	longest := 0
	for _, value := range s.given {
		longest = max(longest, len(value))
	}
	return min(escaped*longest, MaxReach)
}

// hit is the place of a secret in a text.
type hit struct {
	from, to int
	name     string
}

// find returns the places of secrets, sorted by their beginnings. The places can overlap.
func (s *Secrets) find(text []byte) []hit {
	if !s.Any() {
		return nil
	}
	found := s.scan(fold(text, false))
	if bytes.IndexByte(text, '\\') >= 0 {
		folded, at := fold(text, true)
		found = append(found, s.scan(folded, at)...)
		found = append(found, s.inside(text, folded, at)...)
	}
	if h, ok := s.alone(text); ok {
		found = append(found, h)
	}
	slices.SortStableFunc(found, func(a, b hit) int { return a.from - b.from })
	return found
}

// alone finds a short line that is the whole text, or all of it after the last ": ".
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

// scan finds secrets in a folded text.
func (s *Secrets) scan(text []byte, at origin) (found []hit) {
	end := 0 // the end of the last hit
	for i := 0; i+least <= len(text); i++ {
		key := binary.LittleEndian.Uint64(text[i:])
		if !s.likely[hash(key)] {
			continue
		}
		from, to, best := 0, 0, pattern{}
		for _, place := range s.index[key] {
			p := s.patterns[place.pattern]
			f, t, ok := p.around(text, max(0, end-minRun), i, place.at)
			// of equally long hits, the one of the shorter pattern counts: that pattern is complete
			if ok && cmp.Or(t-f-(to-from), len(best.text)-len(p.text)) > 0 {
				from, to, best = f, t, p
			}
		}
		if to > end {
			found = append(found, hit{at.source(from), at.source(to), best.name})
			end, i = to, max(i, to-least) // another pattern can overlap the end of this hit
		}
	}
	return found
}

// inside finds secrets that begin within an escape. fold reads a backslash and the text after it as an escape, but the
// backslash can also precede a secret, as in a path. From the end of the escape on, both readings are the same.
func (s *Secrets) inside(text, folded []byte, at origin) (found []hit) {
	var room [2 * minRun]byte
	for i, next := 0, 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		_, end := unescape(room[:0], text, i)
		from := bytes.LastIndexByte(text[i:end], '\\') + i + 1
		i = end - 1
		if from == end {
			continue // no escape
		}
		for at[next] < end {
			next++
		}
		if at[next] > end { // the escape and the text after it are one character in the folded text
			_, n := utf8.DecodeLastRune(folded[:next])
			next -= n
		}
		// If the secret continues beyond reading, the scan of the folded text finds that part.
		reading := append(append(room[:0], text[from:end]...), folded[next:min(len(folded), next+minRun)]...)
		for j := range min(end-from, len(reading)-least+1) {
			if !s.likely[hash(binary.LittleEndian.Uint64(reading[j:]))] {
				continue
			}
			for _, h := range s.scan(reading, nil) {
				if h.from < end-from {
					found = append(found, hit{from + h.from, at[next+max(0, h.to-(end-from))], h.name})
				}
			}
			break
		}
	}
	return found
}

// around extends a match of eight bytes, at text[i] and p.text[at], in both directions, but not before text[first]. It
// returns the range of the match in text; ok reports whether the range is long enough to count as the secret.
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
