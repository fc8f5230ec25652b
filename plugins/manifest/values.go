package manifest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime/units"
)

// number is a value that hosts may bound. 0 is one that is not set.
type number interface {
	value
	get() int64
	set(value int64)
	format(value int64) string
}

// textTags are those of the scalars that are texts as they are written.
var textTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}

// text reports what is not a text. One is taken as it is written, so that `version: 1.10` does not become 1.1.
func (d *decoder) text(n node, remedy string) bool {
	if n.Kind == yaml.ScalarNode && slices.Contains(textTags, n.Tag) {
		return true
	}
	d.wrong(n, "is "+kindOf(n), remedy)
	return false
}

// bad reports the text of a scalar.
func (d *decoder) bad(n node, what, remedy string) { d.wrong(n, Quote(n.Value)+" "+what, remedy) }

// twice reports a name that a list has already.
func (d *decoder) twice(n node, name string) {
	d.wrong(n, Quote(name)+" is in the list twice", "name it once")
}

// word reports what is not a word.
func (d *decoder) word(n node) bool {
	if !d.text(n, "write "+WordRule) {
		return false
	}
	err := CheckWord(n.Value)
	if err != nil {
		d.bad(n, err.Error(), "write "+WordRule)
	}
	return err == nil
}

// pattern reports a name with more than one wildcard.
func (d *decoder) pattern(n node) bool {
	if strings.Count(n.Value, wildcard) <= 1 {
		return true
	}
	d.bad(n, "has more than one "+wildcard, "write a name, or one with a single * for any text, such as mail.*")
	return false
}

// choose reads one of a few words; "" for another.
func (d *decoder) choose(n node, words ...string) string {
	remedy := "write " + strings.Join(words, " or ")
	if !d.text(n, remedy) {
		return ""
	}
	if !slices.Contains(words, n.Value) {
		d.bad(n, "is not allowed", remedy)
	}
	return n.Value
}

// ownValue is a value with a reader and a property of its own.
type ownValue struct {
	reader func(d *decoder, n node)
	schema *property
}

func (o ownValue) read(d *decoder, n node) { o.reader(d, n) }
func (o ownValue) property() *property     { return o.schema }

// wordValue is a name, a queue or a version.
type wordValue struct {
	at       *string
	examples []any
}

func (w wordValue) read(d *decoder, n node) {
	if d.word(n) {
		*w.at = n.Value
	}
}

func (w wordValue) property() *property { return textProperty(wordPattern, w.examples...) }

// lineValue is any text.
type lineValue struct {
	at     *string
	remedy string
}

func (l lineValue) read(d *decoder, n node) {
	if d.text(n, l.remedy) {
		*l.at = n.Value
	}
}

func (l lineValue) property() *property { return textProperty("") }

// pathValue is that of a file in the folder of the manifest.
type pathValue struct {
	at      *string
	line    *int   // where it stands; nil if nobody asks
	remedy  string // examples, for a message
	example string
}

func (p pathValue) read(d *decoder, n node) {
	remedy := "write one without . and .. between its slashes, such as " + p.remedy
	switch {
	case !d.text(n, remedy):
		return
	case !isPath(n.Value):
		d.bad(n, "is not a path inside the folder of the manifest", remedy)
		return
	case p.line != nil:
		*p.line = n.Line
	}
	*p.at = n.Value
}

func (p pathValue) property() *property { return textProperty(fromPattern, p.example) }

// choiceValue is one of a few words.
type choiceValue struct {
	at    *string
	words []string
}

func (c choiceValue) read(d *decoder, n node) { *c.at = d.choose(n, c.words...) }
func (c choiceValue) property() *property     { return &property{Type: "string", Enum: c.words} }

// flagValue is one of two words.
type flagValue struct {
	at      *bool
	no, yes string
}

func (f flagValue) read(d *decoder, n node) { *f.at = d.choose(n, f.no, f.yes) == f.yes }
func (f flagValue) property() *property {
	return &property{Type: "string", Enum: []string{f.no, f.yes}}
}

// booleanValue is true or false as YAML writes them.
type booleanValue struct{ at **bool }

func (b booleanValue) read(d *decoder, n node) {
	if n.Tag == "!!bool" {
		if value, err := strconv.ParseBool(n.Value); err == nil {
			*b.at = &value
			return
		}
	}
	if d.text(n, "write true or false") {
		d.bad(n, "is not allowed", "write true or false")
	}
}

func (b booleanValue) property() *property { return &property{Type: "boolean"} }

// sizeValue is a number of bytes.
type sizeValue struct {
	at          *int64
	least, most int64
	standard    int64
}

func (s sizeValue) read(d *decoder, n node) {
	remedy := fmt.Sprintf("write a size from %s to %s, such as %s",
		units.FormatSize(s.least), units.FormatSize(s.most), units.FormatSize(min(16<<20, s.most)))
	switch bytes, err := units.ParseSize(n.Value); {
	case !d.text(n, remedy):
	case err != nil && isDigits(n.Value):
		d.bad(n, "has no unit", remedy)
	case err != nil:
		d.bad(n, "is not a size", remedy)
	case bytes < s.least:
		d.bad(n, "is too small", remedy)
	case bytes > s.most:
		d.bad(n, "is too large", remedy)
	default:
		*s.at = bytes
	}
}

func (s sizeValue) property() *property {
	return stringProperty(sizePattern, units.FormatSize(s.standard))
}
func (s sizeValue) get() int64                { return *s.at }
func (s sizeValue) set(value int64)           { *s.at = value }
func (s sizeValue) format(value int64) string { return units.FormatSize(value) }

// durationValue is a time above 0.
type durationValue struct {
	at       *time.Duration
	without  string // holds if the key is left out
	examples []any
}

func (t durationValue) read(d *decoder, n node) {
	remedy := "write a duration such as 30s, 5m, 24h or 7d, or leave the key out for " + t.without
	switch parsed, err := parseDuration(n.Value); {
	case !d.text(n, remedy):
	case err != nil && isDigits(n.Value):
		d.bad(n, "has no unit", remedy)
	case err != nil:
		d.bad(n, "is not a duration", remedy)
	case parsed <= 0:
		d.bad(n, "is not above zero", remedy)
	case parsed > maxDuration:
		d.bad(n, "is more than 365d", remedy)
	default:
		*t.at = parsed
	}
}

func (t durationValue) property() *property       { return stringProperty(durationPattern, t.examples...) }
func (t durationValue) get() int64                { return int64(*t.at) }
func (t durationValue) set(value int64)           { *t.at = time.Duration(value) }
func (t durationValue) format(value int64) string { return time.Duration(value).String() }

// countValue is a whole number from 1 up.
type countValue struct {
	at      *int
	most    int
	without string // holds if the key is left out
}

func (c countValue) read(d *decoder, n node) {
	d.integer(n, c.at, 1, c.most, fmt.Sprintf("write a whole number from 1 to %d, or leave the key out for %s", c.most, c.without))
}

func (c countValue) property() *property       { return numberProperty(1, int64(c.most)) }
func (c countValue) get() int64                { return int64(*c.at) }
func (c countValue) set(value int64)           { *c.at = int(value) }
func (c countValue) format(value int64) string { return strconv.FormatInt(value, 10) }

// integer reads a number into at, if it is allowed.
func (d *decoder) integer(n node, at *int, least, most int, remedy string) {
	number, err := strconv.Atoi(n.Value)
	switch {
	case !d.text(n, remedy):
	case err != nil || number < least || number > most:
		d.bad(n, "is not allowed", remedy)
	default:
		*at = number
	}
}

// attemptsValue is a count, or unlimited.
type attemptsValue struct{ countValue }

const unlimitedWord = "unlimited"

func (a attemptsValue) read(d *decoder, n node) {
	if n.Kind == yaml.ScalarNode && n.Value == unlimitedWord {
		*a.at = Unlimited
		return
	}
	d.integer(n, a.at, 1, a.most, fmt.Sprintf("write a whole number from 1 to %d, or unlimited", a.most))
}

func (a attemptsValue) property() *property {
	return &property{AnyOf: []*property{a.countValue.property(), {Type: "string", Enum: []string{unlimitedWord}}}}
}

func (a attemptsValue) format(value int64) string {
	if value == Unlimited {
		return unlimitedWord
	}
	return a.countValue.format(value)
}

// statusValue is what a guest may end with.
type statusValue struct{ at *int }

func (s statusValue) read(d *decoder, n node) {
	d.integer(n, s.at, math.MinInt32, math.MaxInt32, fmt.Sprintf("write a whole number, such as 65, from %d to %d", math.MinInt32, math.MaxInt32))
}

func (s statusValue) property() *property { return numberProperty(math.MinInt32, math.MaxInt32) }

// maxDuration bounds every duration: "no limit" is written by leaving the key out.
const maxDuration = 365 * 24 * time.Hour

// parseDuration reads Go's durations and, before them, whole days: "30s", "7d", "1d12h".
func parseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	count, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("parse days %q: %w", days, err)
	}
	whole := time.Duration(count) * 24 * time.Hour
	if rest == "" {
		return whole, nil
	}
	part, err := time.ParseDuration(rest)
	if err != nil || part < 0 {
		return 0, fmt.Errorf("parse duration %q after the days", rest)
	}
	return whole + part, nil
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
