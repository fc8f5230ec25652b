// Package show prints what commands return: as JSON, or for people as lines and tables that fit their terminal.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/runtime/units"
)

// View is what a command shows of one thing. In JSON it is an object of the fields with a key; for people it is lines,
// or a row of a table, of the fields with a name.
type View []Field

// Field is a value with its key in JSON and its name for people. JSON leaves out nil, lines also what has no text.
// It is a plain struct, so that views are written without the names of its fields.
type Field = struct {
	Key, Name string
	Value     any
}

// Lines is a view for people: names and values in turn.
func Lines(pairs ...any) (v View) {
	for i := 0; i < len(pairs); i += 2 {
		v = append(v, Field{"", fmt.Sprint(pairs[i]), pairs[i+1]})
	}
	return v
}

// Object is a view in JSON: keys and values in turn.
func Object(pairs ...any) (v View) {
	for i := 0; i < len(pairs); i += 2 {
		v = append(v, Field{fmt.Sprint(pairs[i]), "", pairs[i+1]})
	}
	return v
}

// textOf is a value for people, "" for none.
func textOf(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case bool:
		if value {
			return "yes"
		}
		return "no"
	case []string:
		return strings.Join(value, ",")
	case View:
		return value.Line()
	}
	return fmt.Sprint(value)
}

// Given is a value, nil for zero.
func Given[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

// MarshalJSON implements json.Marshaler.
func (v View) MarshalJSON() ([]byte, error) {
	out, comma := bytes.NewBufferString("{"), ""
	for _, f := range v {
		if f.Key == "" || f.Value == nil {
			continue
		}
		fmt.Fprintf(out, "%s%q:", comma, f.Key)
		comma = ","
		if err := JSON(out, f.Value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// Row is a row of a table that is not JSON.
func Row(cells ...any) (v View) {
	for _, cell := range cells {
		v = append(v, Field{"", "-", cell})
	}
	return v
}

// Rows are the rows of a list.
func Rows[T any](list []T, row func(*T) View) []View {
	rows := make([]View, len(list))
	for i := range list {
		rows[i] = row(&list[i])
	}
	return rows
}

// named lists the fields for people. Those of a view without a name take its place.
func (v View) named() []Field {
	var fields []Field
	for _, f := range v {
		if part, ok := f.Value.(View); ok && f.Name == "" {
			fields = append(fields, part.named()...)
		} else if f.Name != "" {
			fields = append(fields, f)
		}
	}
	return fields
}

// Line is the view in one line.
func (v View) Line() string {
	var words []string
	for _, f := range v.named() {
		if text := textOf(f.Value); text != "" {
			words = append(words, f.Name+" "+text)
		}
	}
	return strings.Join(words, ", ")
}

// JSON writes a value as one line of JSON.
func JSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Print prints a value as JSON, or the view of it as lines.
func Print(cmd *cobra.Command, json bool, value any, v View) error {
	if json {
		return JSON(cmd.OutOrStdout(), value)
	}
	return v.Lines(cmd.OutOrStdout(), ScreenOf(cmd))
}

// Line prints a result, as JSON or as one line of text.
func Line(cmd *cobra.Command, json bool, v any, line string) error {
	if json {
		return JSON(cmd.OutOrStdout(), v)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
	return err
}

// seconds is a time in seconds, as in Redis.
type seconds time.Time

func (s seconds) String() string { return time.Time(s).Format("2006-01-02 15:04:05.000 MST") }

func (s seconds) MarshalJSON() ([]byte, error) {
	micros := time.Time(s).UnixMicro()
	return fmt.Appendf(nil, "%d.%06d", micros/1e6, micros%1e6), nil
}

// Moment is a time in a view, nil if there is none.
func Moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return seconds(t)
}

// Span is a duration, in JSON in seconds.
type Span time.Duration

func (s Span) String() string { return time.Duration(s).String() }

// MarshalJSON writes seconds.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// Size is a number of bytes.
type Size int64

func (s Size) String() string { return units.FormatSize(int64(s)) }

// Head returns a text of at most `most` bytes as it is, and of a longer one the beginning and its size.
func Head(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}

// IsText reports whether data is text without control characters other than line breaks and tabs.
func IsText(data []byte) bool {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }
	return utf8.Valid(data) && !bytes.ContainsFunc(data, control)
}

// Pairs are names with values, printed in the order of names.
type Pairs map[string]string

func (p Pairs) String() string {
	words := make([]string, 0, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		words = append(words, name+"="+p[name])
	}
	return strings.Join(words, " ")
}

// Rate is how many tasks a second were done.
func Rate(tasks int, took time.Duration) float64 {
	return float64(tasks) / max(took, time.Microsecond).Seconds()
}

// Shorten keeps the head and the tail of a text longer than most bytes, with a mark between them.
func Shorten(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most/2], "") + mark + strings.ToValidUTF8(text[len(text)-most/2:], "")
}

// OneLine makes untrusted text one line without control characters.
func OneLine(text string) string { return Escape(strings.Join(strings.Fields(text), " ")) }

// Escape replaces control characters and bytes that are not UTF-8: no task may control a terminal. A tab becomes four
// blanks.
func Escape(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "    ").Replace(quoted[1 : len(quoted)-1])
}

// DigestPrefix begins a digest.
const DigestPrefix = "sha256:"

// Digest is a digest for people: its first twelve digits.
func Digest(digest string) string { return digest[:min(len(DigestPrefix)+12, len(digest))] }
