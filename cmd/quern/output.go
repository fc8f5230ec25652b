package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// outputFlag adds -o. What JSON holds is relied upon by scripts: snake_case, times in seconds as in
// Redis, durations in fields that end in _seconds, sizes in bytes, missing values left out.
func outputFlag(cmd *cobra.Command) *choice {
	output := newChoice("text", "json")
	cmd.Flags().VarP(output, "output", "o", "text or json")
	return output
}

// json tells whether JSON was asked for.
func (c *choice) json() bool { return c.word == "json" }

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

// writeTable writes rows in columns under a heading.
func writeTable(w io.Writer, heading string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.ReplaceAll(heading, " ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			if cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// seconds is a time as Redis has it.
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

// textOrBytes gives a value as text if it is UTF-8, else as bytes, which JSON shows in base64.
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

// timestamp is a time for people, "" if there is none.
func timestamp(t *seconds) string {
	if t == nil {
		return ""
	}
	return time.Time(*t).Format("2006-01-02 15:04:05.000 MST")
}

// writeFields writes a name and a value a line, those that have a value, for people.
func writeFields(w io.Writer, rows [][2]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if name, value := row[0], row[1]; value != "" {
			lines := strings.Split(strings.TrimRight(value, "\n"), "\n")
			for i, line := range lines {
				lines[i] = escape(line)
			}
			fmt.Fprintf(table, "%s\t%s\n", escape(name), strings.Join(lines, "\n\t"))
		}
	}
	return table.Flush()
}

// shownBytes is the most of a value that a terminal gets.
const shownBytes = 2000

// printable is a value for a terminal: text in full if it is short, else its beginning or its size.
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

// writeResult writes a result's bytes to stdout, and nothing else. A terminal gets them only if it
// would show them and do nothing; again says how to get them otherwise.
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

// isTerminal tells whether a person sees what is written, or writes what is read.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

func isText(data []byte) bool {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }
	return utf8.Valid(data) && !bytes.ContainsFunc(data, control)
}

// escape replaces control characters and what is not UTF-8, so that no task can make a terminal do
// what it likes.
func escape(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}
