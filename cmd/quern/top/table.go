package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/quern-project/quern/cmd/quern/show"
)

// column is a column of a table. A narrow screen omits the columns with the highest drop first, and none with drop 0.
type column struct {
	title string
	most  int  // columns of the screen that it takes at most; 0: what is left
	right bool // aligned there, as numbers are
	drop  int
}

// cell is one value: its text, and what it is sorted by if it is a number.
type cell struct {
	text   string
	number float64
	color  string // SGR parameters, "" for none
}

// row is a line of a table. key identifies what it shows.
type row struct {
	key, queue string // queue is that of a task, or of a queue itself
	cells      []cell
}

// table is what a view shows.
type table struct {
	columns []column
	rows    []row
}

// clean replaces characters that would control a terminal or reverse the text. Anybody may have written it.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, strings.ToValidUTF8(text, "·"))
}

func text(s string) cell { return cell{text: clean(s)} }

func colored(s, color string) cell { return cell{text: clean(s), color: color} }

// number is a count, which is empty if it is 0.
func number(n float64) cell {
	if n == 0 {
		return cell{}
	}
	return cell{text: fmt.Sprintf("%.0f", n), number: n}
}

// rate is a number in a second.
func rate(n float64) cell {
	switch {
	case n == 0:
		return cell{}
	case n < 10:
		return cell{text: fmt.Sprintf("%.1f", n), number: n}
	}
	return cell{text: fmt.Sprintf("%.0f", n), number: n}
}

// age is a duration as people read it.
func age(d time.Duration) cell {
	return cell{text: period(d), number: d.Seconds()}
}

func period(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	}
	return fmt.Sprintf("%.0fd", d.Hours()/24)
}

// sort orders rows by a column: by its numbers, then by its texts, then by the rows' keys.
func (t *table) sort(by int, descending bool) {
	slices.SortFunc(t.rows, func(a, b row) int {
		x, y := a.cells[by], b.cells[by]
		order := cmp.Or(cmp.Compare(x.number, y.number), strings.Compare(x.text, y.text))
		if descending {
			order = -order
		}
		return cmp.Or(order, strings.Compare(a.key, b.key))
	})
}

// filter leaves the rows in which a text occurs, whatever its case.
func (t *table) filter(by string) {
	if by = strings.ToLower(by); by == "" {
		return
	}
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool {
		return !slices.ContainsFunc(r.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), by) })
	})
}

// widths returns the columns' widths on a screen of that width; 0 for a hidden column.
func (t *table) widths(screen int) []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = ansi.StringWidth(c.title) + 1 // for the arrow of the order
		for _, r := range t.rows {
			widths[i] = max(widths[i], ansi.StringWidth(r.cells[i].text))
		}
		if c.most > 0 {
			widths[i] = min(widths[i], c.most)
		}
	}
	least := func(i int) int {
		few := 12
		if i == 0 { // by which people know the line
			few = 24
		}
		return min(widths[i], max(few, ansi.StringWidth(t.columns[i].title)+1))
	}
	for show.TableWidth(widths) > screen {
		widest, last := -1, -1
		for i, c := range t.columns {
			if widths[i] > 0 && c.most == 0 && widths[i] > least(i) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
			if widths[i] > 0 && c.drop > 0 && (last < 0 || c.drop > t.columns[last].drop) {
				last = i
			}
		}
		switch {
		case widest >= 0:
			widths[widest] = max(least(widest), widths[widest]-(show.TableWidth(widths)-screen))
		case last >= 0:
			widths[last] = 0
		default:
			return widths // lines are cut
		}
	}
	return widths
}

// line lays cells out, in their colors unless plain.
func (t *table) line(cells []cell, widths []int, plain bool) string {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = c.text
	}
	return show.Layout(texts, widths, func(i int) bool { return t.columns[i].right }, func(i int, shown string) string {
		if plain || cells[i].color == "" {
			return shown
		}
		return "\x1b[" + cells[i].color + "m" + shown + "\x1b[m"
	})
}
