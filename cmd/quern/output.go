package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

func writeJSON(w io.Writer, value any) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// show prints a result, as JSON or as text.
func show(cmd *cobra.Command, json bool, view any, text func(io.Writer) error) error {
	if json {
		return writeJSON(cmd.OutOrStdout(), view)
	}
	return text(cmd.OutOrStdout())
}

// showLine prints a result, as JSON or as one line of text.
func showLine(cmd *cobra.Command, json bool, view any, line string) error {
	return show(cmd, json, view, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, line)
		return err
	})
}

// showList prints a list, as JSON or as a table with a heading and a row for each view.
func showList[T any](cmd *cobra.Command, json bool, views []T, heading string, row func(T) []any) error {
	return show(cmd, json, append([]T{}, views...), func(w io.Writer) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, strings.ReplaceAll(heading, " ", "\t"))
		for _, view := range views {
			cells := row(view)
			for i, cell := range cells {
				if cell == "" {
					cells[i] = "-"
				}
			}
			fmt.Fprintf(table, strings.TrimRight(strings.Repeat("%v\t", len(cells)), "\t")+"\n", cells...)
		}
		return table.Flush()
	})
}

// field is a name and a value for people. A zero value is not shown.
type field struct {
	name  string
	value any
}

// text is the value for people, "" for a zero one. A float64 is a number of seconds.
func (f field) text() string {
	switch value := f.value.(type) {
	case *seconds:
		if value != nil {
			return time.Time(*value).Format("2006-01-02 15:04:05.000 MST")
		}
	case float64:
		if value != 0 {
			return time.Duration(math.Round(value * float64(time.Second))).String()
		}
	default:
		if value != 0 {
			return fmt.Sprint(value)
		}
	}
	return ""
}

// writeFields writes a name and a value a line.
func writeFields(w io.Writer, fields []field) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fields {
		value := f.text()
		if value == "" {
			continue
		}
		lines := strings.Split(strings.TrimRight(value, "\n"), "\n")
		for i, line := range lines {
			lines[i] = escape(line)
		}
		fmt.Fprintf(table, "%s\t%s\n", escape(f.name), strings.Join(lines, "\n\t"))
	}
	return table.Flush()
}

// seconds is a time in seconds, as in Redis.
type seconds time.Time

func (s seconds) MarshalJSON() ([]byte, error) { //nolint:unparam // json.Marshaler has the error
	micros := time.Time(s).UnixMicro()
	return fmt.Appendf(nil, "%d.%06d", micros/1e6, micros%1e6), nil
}

// moment is a time for JSON, nil if there is none.
func moment(t time.Time) *seconds {
	if t.IsZero() {
		return nil
	}
	s := seconds(t)
	return &s
}

// textOrBytes returns a value as text if it is UTF-8, else as bytes, which are base64 in JSON.
func textOrBytes(value []byte) (*string, []byte) {
	if value == nil {
		return nil, nil
	}
	if utf8.Valid(value) {
		text := string(value)
		return &text, nil
	}
	return nil, value
}

// yesNo is a bool for people.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// shownBytes bounds a value on a terminal.
const shownBytes = 2000

// printable is a value for a terminal: short text, the beginning of a long one, or the size of other bytes.
func printable(text *string, data []byte) string {
	switch {
	case data != nil:
		return fmt.Sprintf("(%d bytes)", len(data))
	case text == nil:
		return ""
	case len(*text) > shownBytes:
		return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8((*text)[:shownBytes], ""), len(*text))
	}
	return *text
}

// writeResult writes a result's bytes to stdout, and nothing else. It refuses control characters for a terminal; again
// says how to get them.
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
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

func isText(data []byte) bool {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }
	return utf8.Valid(data) && !bytes.ContainsFunc(data, control)
}
