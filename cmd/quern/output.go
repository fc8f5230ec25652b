package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/runtime/units"
)

// view is what a command shows of a thing. In JSON it is an object of the fields with a key; for people it is lines, or a
// row of a table, of the fields with a name.
type view []field

// field is a value with its key in JSON and its name for people. JSON leaves out nil, lines also what has no text.
type field struct {
	key, name string
	value     any
}

// text is the value for people, "" for none.
func (f field) text() string {
	switch value := f.value.(type) {
	case nil:
		return ""
	case bool:
		if value {
			return "yes"
		}
		return "no"
	case []string:
		return strings.Join(value, ",")
	case view:
		return value.line()
	}
	return fmt.Sprint(f.value)
}

// given is a value, nil for zero.
func given[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

// MarshalJSON implements json.Marshaler.
func (v view) MarshalJSON() ([]byte, error) {
	out, comma := bytes.NewBufferString("{"), ""
	for _, f := range v {
		if f.key == "" || f.value == nil {
			continue
		}
		fmt.Fprintf(out, "%s%q:", comma, f.key)
		comma = ","
		if err := writeJSON(out, f.value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// row is a row of a table that is not JSON.
func row(cells ...any) (v view) {
	for _, cell := range cells {
		v = append(v, field{"", "-", cell})
	}
	return v
}

// rowsOf are the rows of a list.
func rowsOf[T any](list []T, row func(*T) view) []view {
	rows := make([]view, len(list))
	for i := range list {
		rows[i] = row(&list[i])
	}
	return rows
}

// named lists the fields for people. Those of a view without a name take its place.
func (v view) named() []field {
	var fields []field
	for _, f := range v {
		if part, ok := f.value.(view); ok && f.name == "" {
			fields = append(fields, part.named()...)
		} else if f.name != "" {
			fields = append(fields, f)
		}
	}
	return fields
}

// line is the view in one line.
func (v view) line() string {
	var words []string
	for _, f := range v.named() {
		if text := f.text(); text != "" {
			words = append(words, f.name+" "+text)
		}
	}
	return strings.Join(words, ", ")
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// show prints a view, as JSON or as lines.
func show(cmd *cobra.Command, json bool, v view) error {
	if json {
		return writeJSON(cmd.OutOrStdout(), v)
	}
	return v.lines(cmd.OutOrStdout(), screenOf(cmd))
}

// showLine prints a result, as JSON or as one line of text.
func showLine(cmd *cobra.Command, json bool, v any, line string) error {
	if json {
		return writeJSON(cmd.OutOrStdout(), v)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
	return err
}

// seconds is a time in seconds, as in Redis.
type seconds time.Time

func (s seconds) String() string { return time.Time(s).Format("2006-01-02 15:04:05.000 MST") }

func (s seconds) MarshalJSON() ([]byte, error) { //nolint:unparam // json.Marshaler has the error
	micros := time.Time(s).UnixMicro()
	return fmt.Appendf(nil, "%d.%06d", micros/1e6, micros%1e6), nil
}

// moment is a time in a view, nil if there is none.
func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return seconds(t)
}

// span is a duration, in JSON in seconds.
type span time.Duration

func (s span) String() string               { return time.Duration(s).String() }
func (s span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// size is a number of bytes.
type size int64

func (s size) String() string { return units.FormatSize(int64(s)) }

// count is a number that lines leave out if it is zero.
type count int64

func (n count) String() string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// shownBytes bounds a value on a terminal.
const shownBytes = 2000

// bytesView is a value: text if it is UTF-8, else base64. People see the beginning of a long text, and the size of bytes.
func bytesView(key string, value []byte) view {
	text := string(value)
	switch {
	case value == nil:
		return nil
	case !utf8.Valid(value):
		return view{{key + "_base64", "", value}, {"", key, fmt.Sprintf("(%d bytes)", len(value))}}
	}
	return view{{key, "", text}, {"", key, headOf(text, shownBytes)}}
}

// headOf is the beginning of a text that has more bytes than most, with its size.
func headOf(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}

// writeResult writes a result's bytes to stdout, to a terminal only without control characters; again says how to get those.
func writeResult(cmd *cobra.Command, result []byte, again string) error {
	terminal := isTerminal(cmd.OutOrStdout())
	if terminal && !isText(result) {
		return refusedf("the result has %d bytes that are not plain text, which a terminal should not get: %s", len(result), again)
	}
	if _, err := cmd.OutOrStdout().Write(result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	if terminal && len(result) > 0 && result[len(result)-1] != '\n' {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	return nil
}

// isTerminal reports whether the other end of a stream is a person.
func isTerminal(stream any) bool { return terminalOf(stream) != nil }

// terminalOf returns the terminal of a person at the other end of a stream; nil if there is none.
func terminalOf(stream any) *os.File {
	if of, ok := stream.(*frame); ok {
		stream = of.out
	}
	if f, ok := stream.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

func isText(data []byte) bool {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }
	return utf8.Valid(data) && !bytes.ContainsFunc(data, control)
}
