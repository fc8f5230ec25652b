package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
)

// Screen says how a stream shows text: in which width, whether in color, and whether times get their age. The zero
// Screen is for a pipe or a file: plain text of any width.
type Screen struct {
	width int // number of columns; 0 if unlimited
	color bool
	now   time.Time // the current time; if zero, times are shown without their age
}

// NoColor is the annotation of the root command if the user's environment asks for no color.
const NoColor = "no-color"

// ScreenOf returns the screen of a command's output.
func ScreenOf(cmd *cobra.Command) Screen {
	f := terminalOf(cmd.OutOrStdout())
	if f == nil {
		return Screen{}
	}
	return Screen{width: widthOf(f), color: cmd.Root().Annotations[NoColor] == "", now: time.Now()}
}

// colors maps a state to its color on a terminal: green for success, red for failure, yellow for waiting, cyan for
// running.
var colors = map[string]string{
	"complete": "32", "serving": "32", "alive": "32",
	"failed": "31", "refused": "31", "unbuilt": "31", "quarantined": "31", "over": "31",
	"scheduled": "33", "pending": "33", "reserved": "36", "started": "36",
}

// Color returns the number of a state's color, which the state's first word determines; "" if it has none.
func Color(state string) string {
	first, _, _ := strings.Cut(state, " ")
	return colors[first]
}

// paint colors a state.
func (s Screen) paint(text string) string { return s.Code(Color(text), text) }

// Code returns the text in the terminal's color with that number. If number is "", it returns the text as it is.
func (s Screen) Code(number, text string) string {
	if !s.color || number == "" {
		return text
	}
	return "\x1b[" + number + "m" + text + "\x1b[0m"
}

// text returns a field's value as text. On a terminal, lists are shortened, and times get their age.
func (s Screen) text(f Field) string {
	switch value := f.Value.(type) {
	case []string:
		if s.width > 0 && len(value) > 1 && len(strings.Join(value, ",")) > listWidth {
			return fmt.Sprintf("%s +%d", value[0], len(value)-1)
		}
	case seconds:
		if at := time.Time(value); !s.now.IsZero() && at.After(s.now) {
			return fmt.Sprintf("%s (in %s)", value, Age(at.Sub(s.now)))
		} else if !s.now.IsZero() {
			return fmt.Sprintf("%s (%s ago)", value, Age(s.now.Sub(at)))
		}
	}
	return textOf(f.Value)
}

const (
	// listWidth is the maximum width of a list in a table on a terminal.
	listWidth = 24
	// minWidth is the width below which no column is cut on a narrow terminal.
	minWidth = 8
	// gap is the number of blanks between columns.
	gap = 2
)

// table writes rows with aligned columns. It colors the columns whose indexes are in states. It never cuts the first
// column, because people copy from it.
func (s Screen) table(w io.Writer, rows [][]string, states ...int) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	for s.width > 0 && TableWidth(widths) > s.width {
		widest := 1
		for i := 1; i < len(widths); i++ {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if len(widths) < 2 || widths[widest] <= minWidth {
			break
		}
		widths[widest]--
	}
	var out strings.Builder
	for _, row := range rows {
		out.WriteString(Layout(row, widths, func(int) bool { return false }, func(i int, cell string) string {
			if slices.Contains(states, i) {
				return s.paint(cell)
			}
			return cell
		}) + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// TableWidth returns the width of a table with columns of these widths. Columns of width 0 are left out.
func TableWidth(columns []int) int {
	sum := -gap
	for _, width := range columns {
		if width > 0 {
			sum += width + gap
		}
	}
	return sum
}

// Layout returns a line with the cells in columns of these widths. It cuts wider cells, and leaves out columns of width
// 0. right reports whether a column is aligned to the right. paint colors a cell.
func Layout(cells []string, widths []int, right func(column int) bool,
	paint func(column int, cell string) string,
) string {
	var b strings.Builder
	space := -gap // blanks to write before the next cell, in addition to gap
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}
		cell = ansi.Truncate(cell, widths[i], "…")
		before, after := space+gap, widths[i]-ansi.StringWidth(cell)
		if right(i) {
			before, after = before+after, 0
		}
		b.WriteString(strings.Repeat(" ", max(before, 0)) + paint(i, cell))
		space = after
	}
	return b.String()
}

// Lines writes the name and value of each field on a line.
func (v View) Lines(w io.Writer, s Screen) error {
	var rows [][]string
	for _, f := range v.named() {
		value := s.text(f)
		if value == "" {
			continue
		}
		name := Escape(f.Name)
		for _, line := range strings.Split(strings.TrimRight(value, "\n"), "\n") {
			line = Escape(line)
			if name == "status" {
				line = s.paint(line)
			}
			rows = append(rows, []string{name, line})
			name = ""
		}
	}
	s.width = 0 // no cutting: terminals wrap long values, and people read all of them
	return s.table(w, rows)
}

// Table prints a list, as JSON or as rows below a heading. list must not be nil.
func Table(cmd *cobra.Command, json bool, list any, heading string, rows []View) error {
	if json {
		return JSON(cmd.OutOrStdout(), list)
	}
	s, names := ScreenOf(cmd), strings.Split(heading, " ")
	cells := [][]string{names}
	for _, row := range rows {
		var line []string
		for _, f := range row.named() {
			line = append(line, cmp.Or(Escape(s.text(f)), "-"))
		}
		cells = append(cells, line)
	}
	var states []int
	for i, name := range names {
		if name == "STATUS" || name == "STATE" || name == "LEASE" {
			states = append(states, i)
		}
	}
	return s.table(cmd.OutOrStdout(), cells, states...)
}

// Age formats a duration with at most two units.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
