package queue

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// selection finds the values that JSON pointers (RFC 6901) lead to in a JSON text. It walks the text once for all
// pointers. It decodes nothing: the values are slices of a compact copy of the text. So even a text of some megabytes
// takes little memory in addition to that copy.
type selection struct {
	root  pointed
	named map[string]*pointed // by pointer
	steps uint64              // number of values begun so far
}

// pointed is a place in the text to which a pointer leads, or through which it passes.
type pointed struct {
	around  *pointed // the place around this one; nil for the root
	value   []byte   // the JSON value at this place
	began   uint64   // the step at which value began; 0 if there is no value
	within  uint64   // the step at which the value around this one began
	members map[string]*pointed
	entries map[int]*pointed // the members whose names are indices, for a list
	longest int              // length of the longest name in members, in bytes
}

// add adds a pointer.
func (s *selection) add(pointer string) {
	if s.named[pointer] != nil {
		return
	}
	at := &s.root
	for _, name := range segments(pointer) {
		next := at.members[name]
		if next == nil {
			next = &pointed{around: at}
			if at.members == nil {
				at.members = make(map[string]*pointed)
			}
			at.members[name] = next
			at.longest = max(at.longest, len(name))
			if i, err := strconv.ParseUint(name, 10, 31); err == nil && name == strconv.FormatUint(i, 10) {
				if at.entries == nil {
					at.entries = make(map[int]*pointed)
				}
				at.entries[int(i)] = next
			}
		}
		at = next
	}
	if s.named == nil {
		s.named = make(map[string]*pointed)
	}
	s.named[pointer] = at
}

// segments splits a pointer into its names, unescaped.
func segments(pointer string) []string {
	if pointer == "" {
		return nil
	}
	names := strings.Split(pointer[1:], "/")
	for i, name := range names {
		names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return names
}

// read walks the text and records the values. It returns false if the text is not JSON in UTF-8.
func (s *selection) read(text []byte) bool {
	if !utf8.Valid(text) || !json.Valid(text) {
		return false
	}
	var compact bytes.Buffer // the text without spaces, so that comparing values never skips megabytes of spaces
	compact.Grow(len(text))
	if json.Compact(&compact, text) != nil {
		return false
	}
	s.take(&s.root, 0, compact.Bytes(), 0)
	return true
}

// at returns the value that a pointer leads to in the text; nil if there is none. The pointer must have been added
// before the text was read.
func (s *selection) at(pointer string) []byte {
	found := s.named[pointer]
	for at := found; at.around != nil; at = at.around {
		// No value, or a value inside a member that was replaced by a later member of the same name.
		if at.began == 0 || at.within != at.around.began {
			return nil
		}
	}
	return found.value
}

// take stores the value that begins at text[i] in the place at, and returns the index of the value's end. within is the
// step at which the enclosing value began. If at is nil, take only skips the value.
func (s *selection) take(at *pointed, within uint64, text []byte, i int) (end int) {
	if at == nil {
		return skip(text, i)
	}
	s.steps++
	at.began, at.within = s.steps, within
	began := at.began
	switch {
	case at.members == nil:
		end = skip(text, i)
	case text[i] == '{':
		end = eachMember(text, i, func(name []byte, value int) int {
			return s.take(at.member(name), began, text, value)
		})
	case text[i] == '[' && at.entries != nil:
		n := 0
		end = eachEntry(text, i, func(value int) int {
			n++
			return s.take(at.entries[n-1], began, text, value)
		})
	default:
		end = skip(text, i)
	}
	at.value = text[i:end]
	return end
}

// member returns the place of the member whose name is the JSON string quoted. It returns nil if no pointer leads
// there.
func (p *pointed) member(quoted []byte) *pointed {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return p.members[string(quoted[1:len(quoted)-1])]
	}
	if len(quoted) > len(`\u0000`)*p.longest+2 {
		return nil
	}
	return p.members[unquote(quoted)]
}

// unquote decodes a valid JSON string.
func unquote(quoted []byte) (text string) {
	_ = json.Unmarshal(quoted, &text) // it is valid
	return text
}

// eachMember calls visit for each member of the object at text[i:], which is compact JSON. visit gets the member's
// quoted name and the index at which its value begins, and returns the index at which the value ends. eachMember
// returns the index of the object's end.
func eachMember(text []byte, i int, visit func(name []byte, value int) (end int)) (end int) {
	for i++; text[i] != '}'; {
		if text[i] == ',' {
			i++
		}
		value := skip(text, i) + 1 // after the colon
		i = visit(text[i:value-1], value)
	}
	return i + 1
}

// eachEntry does for the entries of a list what eachMember does for the members of an object.
func eachEntry(text []byte, i int, visit func(value int) (end int)) (end int) {
	for i++; text[i] != ']'; {
		if text[i] == ',' {
			i++
		}
		i = visit(i)
	}
	return i + 1
}

// skip returns the index at which the value at text[i:], which is compact JSON, ends.
func skip(text []byte, i int) (end int) {
	depth := 0
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':':
			continue
		default: // a number, or a word
			for i+1 < len(text) && !bytes.ContainsRune([]byte(",]}"), rune(text[i+1])) {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

// longestEqual is the maximum size of a text that is compared with a value of a subscription, in bytes. A text can be
// longer than an equal value, because its characters can be written like \u0000, and its numbers with more digits.
const longestEqual = 8 * maxSubscription

// equalJSON reports whether a value in compact JSON equals the decoded value want. Numbers are compared by value: 1,
// 1.0 and 1e0 are equal. A text longer than longestEqual equals nothing.
func equalJSON(text []byte, want any) bool {
	if len(text) > longestEqual {
		return false
	}
	switch want := want.(type) {
	case map[string]any:
		return text[0] == '{' && equalObject(text, want)
	case []any:
		return text[0] == '[' && equalList(text, want)
	case string:
		return text[0] == '"' && len(text) <= len(`\u0000`)*len(want)+2 && unquote(text) == want
	case bool:
		return string(text) == strconv.FormatBool(want)
	case nil:
		return string(text) == "null"
	}
	return equalNumber(text, want)
}

func equalObject(text []byte, want map[string]any) bool {
	longest := 0
	for name := range want {
		longest = max(longest, len(name))
	}
	found, alien := make(map[string]bool, len(want)), false
	eachMember(text, 0, func(quoted []byte, value int) int {
		if len(quoted) <= len(`\u0000`)*longest+2 {
			name := unquote(quoted)
			if wanted, is := want[name]; is {
				end := skip(text, value)
				found[name] = equalJSON(text[value:end], wanted) // of several members with the same name, the last one counts
				return end
			}
		}
		alien = true
		return len(text) - 1 // the rest does not matter
	})
	if alien || len(found) != len(want) {
		return false
	}
	for _, equal := range found {
		if !equal {
			return false
		}
	}
	return true
}

func equalList(text []byte, want []any) bool {
	n, equal := 0, true
	eachEntry(text, 0, func(value int) int {
		end := skip(text, value)
		if equal = n < len(want) && equalJSON(text[value:end], want[n]); !equal {
			return len(text) - 1
		}
		n++
		return end
	})
	return equal && n == len(want)
}

// equalNumber compares numbers by their decimal digits, exactly, without a conversion to float64.
func equalNumber(text []byte, want any) bool {
	var other string
	switch want := want.(type) {
	case json.Number:
		other = want.String()
	case float64:
		other = strconv.FormatFloat(want, 'g', -1, 64)
	case int:
		other = strconv.Itoa(want)
	case int64:
		other = strconv.FormatInt(want, 10)
	default:
		return false
	}
	if text[0] != '-' && (text[0] < '0' || text[0] > '9') || len(text) > maxSubscription {
		return false
	}
	if whole(string(text)) && whole(other) {
		return string(text) == other
	}
	a, isNumber := parseDecimal(string(text))
	b, alsoNumber := parseDecimal(other)
	return isNumber && alsoNumber && a == b || string(text) == other
}

// whole reports whether a number is an integer written with digits only. Two such numbers are equal only if their texts
// are.
func whole(number string) bool { return number != "-0" && !strings.ContainsAny(number, ".eE") }

// decimal is the value of a number: 0.DIGITS × 10^exponent, with no zero at either end of the digits.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// parseDecimal reads a JSON number. It returns false if the exponent has more than ten characters.
func parseDecimal(text string) (d decimal, ok bool) {
	rest, negative := strings.CutPrefix(text, "-")
	mantissa, power := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		var err error
		if power, err = strconv.Atoi(rest[i+1:]); err != nil || len(rest)-i > 11 {
			return decimal{}, false
		}
		mantissa = rest[:i]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return decimal{}, true
	}
	zeros := len(whole) + len(fraction) - len(digits) // number of leading zeros
	return decimal{negative, strings.TrimRight(digits, "0"), len(whole) - zeros + power}, true
}
