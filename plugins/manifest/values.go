package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime/units"
)

// textTags are the YAML tags of the scalars that count as texts. Each of them counts as it is written.
var textTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}

// text reports a value that is not a text, and returns false for it. A number counts as a text exactly as it is
// written, so that `version: 1.10` does not become 1.1.
func (d *decoder) text(n node, remedy string) bool {
	if n.Kind == yaml.ScalarNode && slices.Contains(textTags, n.Tag) {
		return true
	}
	d.wrong(n, "is "+kindOf(n), remedy)
	return false
}

// bad reports a problem of a scalar, with the scalar's text in the message.
func (d *decoder) bad(n node, what, remedy string) { d.wrong(n, Quote(n.Value)+" "+what, remedy) }

// twice reports a name that a list has already.
func (d *decoder) twice(n node, name string) {
	d.wrong(n, Quote(name)+" is in the list twice", "name it once")
}

// word reports a value that is not a word, and returns false for it.
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

// pattern reports a name with more than one wildcard, and returns false for it.
func (d *decoder) pattern(n node) bool {
	if strings.Count(n.Value, wildcard) <= 1 {
		return true
	}
	d.bad(n, "has more than one "+wildcard, "write a name, or one with a single * for any text, such as mail.*")
	return false
}

// wordPattern reports a value that is neither a name nor a name with a single * for any text, and returns false for it.
func (d *decoder) wordPattern(n node) bool { return d.word(n) && d.pattern(n) }

// choose reads one of a few words, and reports any other value.
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

// checkedValue describes a text that is read into at if check accepts it. check reports any other value.
func checkedValue(at *string, schema *property, check func(d *decoder, n node) bool) value {
	return value{schema: schema, read: func(d *decoder, n node) {
		if check(d, n) {
			*at = n.Value
		}
	}}
}

// textValue describes any text.
func textValue(at *string, remedy string, schema *property) value {
	return checkedValue(at, schema, func(d *decoder, n node) bool { return d.text(n, remedy) })
}

// wordValue describes a name, a queue or a version.
func wordValue(at *string, examples ...any) value {
	return checkedValue(at, textProperty(wordPattern, examples...), (*decoder).word)
}

// pathValue describes the path of a file in the folder of the manifest. *line is set to the value's line, unless line
// is nil. examples are for messages, and example for the schema.
func pathValue(at *string, line *int, examples, example string) value {
	return checkedValue(at, textProperty(fromPattern, example), func(d *decoder, n node) bool {
		remedy := "write one without . and .. between its slashes, such as " + examples
		ok := d.text(n, remedy)
		if ok && !isPath(n.Value) {
			d.bad(n, "is not a path inside the folder of the manifest", remedy)
			return false
		}
		if ok && line != nil {
			*line = n.Line
		}
		return ok
	})
}

// entriesValue describes a list of at most limit entries with these keys.
func entriesValue[T any](at *[]T, read func(d *decoder, n node) []T, limit int, keys []key) value {
	return value{schema: listProperty(limit, objectProperty(keys)), read: func(d *decoder, n node) { *at = read(d, n) }}
}

// choiceValue describes one of a few words.
func choiceValue(at *string, words ...string) value {
	return value{
		schema: &property{Type: "string", Enum: words},
		read:   func(d *decoder, n node) { *at = d.choose(n, words...) },
	}
}

// flagValue describes one of two words.
func flagValue(at *bool, no, yes string) value {
	return value{
		schema: &property{Type: "string", Enum: []string{no, yes}},
		read:   func(d *decoder, n node) { *at = d.choose(n, no, yes) == yes },
	}
}

// booleanValue describes true or false as YAML writes them.
func booleanValue(at **bool) value {
	return value{schema: &property{Type: "boolean"}, read: func(d *decoder, n node) {
		value, err := strconv.ParseBool(n.Value)
		switch {
		case n.Tag == "!!bool" && err == nil:
			*at = &value
		case d.text(n, "write true or false"):
			d.bad(n, "is not allowed", "write true or false")
		}
	}}
}

// sizeValue describes a number of bytes with its unit.
func sizeValue(at *int64, least, most, standard int64) value {
	return value{schema: stringProperty(sizePattern, units.FormatSize(standard)), read: func(d *decoder, n node) {
		remedy := fmt.Sprintf("write a size from %s to %s, such as %s",
			units.FormatSize(least), units.FormatSize(most), units.FormatSize(min(16<<20, most)))
		switch bytes, err := units.ParseSize(n.Value); {
		case !d.text(n, remedy):
		case err != nil && isDigits(n.Value):
			d.bad(n, "has no unit", remedy)
		case err != nil:
			d.bad(n, "is not a size", remedy)
		case bytes < least:
			d.bad(n, "is too small", remedy)
		case bytes > most:
			d.bad(n, "is too large", remedy)
		default:
			*at = bytes
		}
	}}
}

// durationValue describes a duration above 0. without says what applies if the key is left out, for messages.
func durationValue(at *time.Duration, without string, examples ...any) value {
	return value{schema: stringProperty(durationPattern, examples...), read: func(d *decoder, n node) {
		remedy := "write a duration such as 30s, 5m, 24h or 7d, or leave the key out for " + without
		switch parsed, err := units.ParseDuration(n.Value); {
		case !d.text(n, remedy):
		case err != nil && isDigits(n.Value):
			d.bad(n, "has no unit", remedy)
		case err != nil && !errors.Is(err, units.ErrTooLong):
			d.bad(n, "is not a duration", remedy)
		case err == nil && parsed <= 0:
			d.bad(n, "is not above zero", remedy)
		case err != nil || parsed > maxDuration:
			d.bad(n, "is more than 365d", remedy)
		default:
			*at = parsed
		}
	}}
}

// integerValue describes a whole number.
func integerValue(at *int, least, most int, remedy string) value {
	return value{schema: numberProperty(int64(least), int64(most)), read: func(d *decoder, n node) {
		number, err := strconv.Atoi(n.Value)
		switch {
		case !d.text(n, remedy):
		case err != nil || number < least || number > most:
			d.bad(n, "is not allowed", remedy)
		default:
			*at = number
		}
	}}
}

// countValue describes a whole number of at least 1. without says what applies if the key is left out, for messages.
func countValue(at *int, most int, without string) value {
	return integerValue(at, 1, most, fmt.Sprintf("write a whole number from 1 to %d, or leave the key out for %s", most,
		without))
}

const unlimitedWord = "unlimited"

// attemptsValue describes a whole number of at least 1, or the word unlimited.
func attemptsValue(at *int, most int) value {
	count := integerValue(at, 1, most, fmt.Sprintf("write a whole number from 1 to %d, or unlimited", most))
	schema := &property{AnyOf: []*property{count.schema, {Type: "string", Enum: []string{unlimitedWord}}}}
	return value{schema: schema, read: func(d *decoder, n node) {
		if n.Kind == yaml.ScalarNode && n.Value == unlimitedWord {
			*at = Unlimited
			return
		}
		count.read(d, n)
	}}
}

func formatAttempts(attempts int) string {
	if attempts == Unlimited {
		return unlimitedWord
	}
	return strconv.Itoa(attempts)
}

// maxDuration bounds every duration: "no limit" is written by leaving the key out.
const maxDuration = 365 * 24 * time.Hour

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
