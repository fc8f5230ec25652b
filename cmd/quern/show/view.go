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

// View is what a command shows of one thing. In JSON it is an object with the fields that have a key. For people, the
// fields that have a name become lines, or a row of a table.
type View []Field

// Field is a value with its key in JSON and its name for people. JSON leaves out nil values. Lines also leave out
// values without text. It is a plain struct, so that views can be written without the names of its fields.
type Field = struct {
	Key, Name string
	Value     any
}

// Lines returns a view for people from alternating names and values.
func Lines(pairs ...any) (v View) {
	for i := 0; i < len(pairs); i += 2 {
		v = append(v, Field{"", fmt.Sprint(pairs[i]), pairs[i+1]})
	}
	return v
}

// Object returns a view for JSON from alternating keys and values.
func Object(pairs ...any) (v View) {
	for i := 0; i < len(pairs); i += 2 {
		v = append(v, Field{fmt.Sprint(pairs[i]), "", pairs[i+1]})
	}
	return v
}

// textOf returns a value as text for people; "" if there is none.
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

// Given returns the value, or nil if it is the zero value.
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

// Row returns a row of a table. Its cells have no keys, so it cannot be written as JSON.
func Row(cells ...any) (v View) {
	for _, cell := range cells {
		v = append(v, Field{"", "-", cell})
	}
	return v
}

// Rows returns the rows of a table for a list. The function row makes the row of one element.
func Rows[T any](list []T, row func(*T) View) []View {
	rows := make([]View, len(list))
	for i := range list {
		rows[i] = row(&list[i])
	}
	return rows
}

// named returns the fields that have a name. A field without a name whose value is a View is replaced by that view's
// fields.
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

// Line returns the view as one line.
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

// seconds is a time. In JSON it is written in seconds since the epoch, as in Redis.
type seconds time.Time

func (s seconds) String() string { return time.Time(s).Format("2006-01-02 15:04:05.000 MST") }

func (s seconds) MarshalJSON() ([]byte, error) {
	micros := time.Time(s).UnixMicro()
	return fmt.Appendf(nil, "%d.%06d", micros/1e6, micros%1e6), nil
}

// Moment returns a time as a value of a view; nil for the zero time.
func Moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return seconds(t)
}

// Span is a duration. In JSON it is written in seconds.
type Span time.Duration

func (s Span) String() string { return time.Duration(s).String() }

// MarshalJSON writes seconds.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// Size is a number of bytes.
type Size int64

func (s Size) String() string { return units.FormatSize(int64(s)) }

// Head returns a text of at most limit bytes unchanged, and of a longer text the beginning and the size.
func Head(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:limit], ""), len(text))
}

// IsText reports whether data is text without control characters other than line breaks and tabs.
func IsText(data []byte) bool {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }
	return utf8.Valid(data) && !bytes.ContainsFunc(data, control)
}

// Pairs maps names to values. They are printed in the order of the names.
type Pairs map[string]string

func (p Pairs) String() string {
	words := make([]string, 0, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		words = append(words, name+"="+p[name])
	}
	return strings.Join(words, " ")
}

// Rate returns the number of tasks per second.
func Rate(tasks int, took time.Duration) float64 {
	return float64(tasks) / max(took, time.Microsecond).Seconds()
}

// Shorten keeps the beginning and the end of a text that is longer than limit bytes, and puts mark between them.
func Shorten(text string, limit int, mark string) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit/2], "") + mark + strings.ToValidUTF8(text[len(text)-limit/2:], "")
}

// OneLine makes untrusted text one line without control characters.
func OneLine(text string) string { return Escape(strings.Join(strings.Fields(text), " ")) }

// Escape replaces control characters and bytes that are not UTF-8, so that no task can control a terminal. A tab
// becomes four blanks.
func Escape(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "    ").Replace(quoted[1 : len(quoted)-1])
}

// DigestPrefix is the beginning of every digest.
const DigestPrefix = "sha256:"

// Digest shortens a digest for people to its first twelve digits.
func Digest(digest string) string { return digest[:min(len(DigestPrefix)+12, len(digest))] }
