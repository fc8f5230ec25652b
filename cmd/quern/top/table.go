package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// Colors in addition to those of show.Color.
const green, red, yellow = "32", "31", "33"

// queuesTable lists the queues. It computes from two looks how many tasks of each queue complete and fail per second.
func queuesTable(before, l *Look) table {
	seconds, was := 0.0, make(map[string]admin.Queue)
	if before != nil {
		seconds = l.Clock.Sub(before.Clock).Seconds()
		for _, q := range before.Queues {
			was[q.Queue] = q
		}
	}
	t := table{columns: []column{
		{title: "QUEUE"},
		{title: "PENDING", most: 9, right: true},
		{title: "RUNNING", most: 8, right: true},
		{title: "OLDEST", most: 7, right: true},
		{title: "DONE/S", most: 8, right: true, drop: 2},
		{title: "FAIL/S", most: 8, right: true, drop: 1},
		{title: "FAILED", most: 9, right: true, drop: 3},
		{title: "SCHEDULED", most: 10, right: true, drop: 5},
		{title: "RESERVED", most: 9, right: true, drop: 6},
		{title: "COMPLETE", most: 9, right: true, drop: 7},
		{title: "LISTENERS", most: 10, right: true, drop: 4},
		{title: "STATE", most: 8, drop: 1},
	}}
	for _, q := range l.Queues {
		state := cell{}
		switch {
		case q.Err != nil:
			state = colored("damaged", red)
		case q.Paused:
			state = colored("paused", yellow)
		case q.Listeners == 0 && q.Pending > 0:
			state = colored("unserved", red)
		}
		perSecond := func(what string) cell {
			old, known := was[q.Queue]
			if !known || seconds < 0.1 {
				return cell{}
			}
			return rate(max(0, float64(q.Totals[what]-old.Totals[what])) / seconds)
		}
		failed := perSecond("failed")
		failed.color = red
		t.rows = append(t.rows, row{key: q.Queue, queue: q.Queue, cells: []cell{
			text(q.Queue), number(q.Pending), number(q.Started), age(q.OldestPendingAge()), perSecond("complete"), failed,
			number(q.Failed),
			number(q.Scheduled), number(q.Reserved), number(q.Complete), number(q.Listeners), state,
		}})
	}
	return t
}

// since returns how long ago a time in seconds was; an empty cell if the time is unknown.
func since(now time.Time, then float64) cell {
	if then < 1 {
		return cell{}
	}
	return age(max(now.Sub(admin.Moment(then)), time.Millisecond))
}

func runningTable(l *Look) table {
	t := table{columns: []column{
		{title: "TASK"},
		{title: "QUEUE", most: 24},
		{title: "RUNS", most: 7, right: true},
		{title: "PROGRESS", most: 9, right: true, drop: 3},
		{title: "ATTEMPT", most: 8, right: true, drop: 4},
		{title: "PLUGIN", most: 24, drop: 5},
		{title: "LISTENER", most: 32, drop: 6},
		{title: "MESSAGE", drop: 2},
	}}
	for _, task := range l.Tasks {
		progress := cell{}
		if task.Progress > 0 {
			progress = cell{text: fmt.Sprintf("%.0f%%", 100*task.Progress), number: task.Progress}
		}
		message := text(task.Message)
		if task.CancelAsked {
			message = colored("to be cancelled", yellow)
		}
		t.rows = append(t.rows, row{key: task.ID, queue: task.Queue, cells: []cell{
			text(task.ID), text(task.Queue), since(l.Clock, task.StartedAt), progress, number(task.Attempts + 1),
			text(task.Plugin), text(task.Node), message,
		}})
	}
	return t
}

func failuresTable(l *Look) table {
	t := table{columns: []column{
		{title: "TASK"},
		{title: "QUEUE", most: 24},
		{title: "AGO", most: 6, right: true},
		{title: "REASON", most: 10, drop: 2},
		{title: "ATTEMPTS", most: 9, right: true, drop: 3},
		{title: "ERROR", drop: 1},
	}}
	for _, task := range l.Tasks {
		failure := task.Failure()
		t.rows = append(t.rows, row{key: task.ID, queue: task.Queue, cells: []cell{
			text(task.ID), text(task.Queue), since(l.Clock, task.FinishedAt), colored(string(failure.Reason), red),
			number(task.Attempts), text(failure.Headline()),
		}})
	}
	return t
}

func tasksTable(l *Look) table {
	t := table{columns: []column{
		{title: "TASK"},
		{title: "STATUS", most: 10},
		{title: "CREATED", most: 8, right: true},
		{title: "PRIORITY", most: 9, right: true, drop: 4},
		{title: "ATTEMPTS", most: 9, right: true, drop: 3},
		{title: "KEY", most: 24, drop: 5},
		{title: "MESSAGE", drop: 1},
	}}
	for _, task := range l.Tasks {
		message := task.Message
		if task.Status == queue.Failed {
			failure := task.Failure()
			message = fmt.Sprintf("(%s) %s", failure.Word(), failure.Headline())
		}
		t.rows = append(t.rows, row{key: task.ID, queue: task.Queue, cells: []cell{
			text(task.ID), colored(string(task.Status), show.Color(string(task.Status))), since(l.Clock, task.Created),
			number(task.Priority),
			number(task.Attempts), text(task.Key), text(message),
		}})
	}
	return t
}

func hostsTable(l *Look) table {
	t := table{columns: []column{
		{title: "LISTENER"},
		{title: "STATE", most: 10},
		{title: "SLOTS", most: 9, right: true},
		{title: "UP", most: 6, right: true, drop: 3},
		{title: "VERSION", most: 16, drop: 4},
		{title: "QUEUES", drop: 1},
	}}
	for _, n := range l.Hosts {
		state := colored("alive", green)
		switch {
		case n.Draining:
			state = colored("draining", yellow)
		case !n.Alive:
			state = colored("lease over", red)
		}
		slots := cell{}
		if n.Slots != nil && n.SlotsInUse != nil {
			slots = cell{text: fmt.Sprintf("%d/%d", *n.SlotsInUse, *n.Slots), number: float64(*n.SlotsInUse)}
		}
		t.rows = append(t.rows, row{key: n.Listener, cells: []cell{
			text(n.Listener), state, slots, age(time.Duration(n.Uptime * float64(time.Second))), text(n.Version),
			text(strings.Join(n.Queues, " ")),
		}})
	}
	return t
}

// taskLines returns the lines about one task.
func taskLines(t *Task, now time.Time) (lines []cell) {
	add := func(name, value, color string) {
		if value != "" {
			lines = append(lines, cell{text: fmt.Sprintf("%-14s %s", name, clean(value)), color: color})
		}
	}
	moment := func(name string, seconds float64) {
		if at := admin.Moment(seconds); !at.IsZero() {
			ago := ""
			if past := period(now.Sub(at)); past != "" {
				ago = ", " + past + " ago"
			}
			add(name, at.UTC().Format(time.RFC3339)+ago, "")
		}
	}
	status := string(t.Status)
	if t.CancelAsked {
		status += " (to be cancelled)"
	}
	add("task", t.ID, "")
	add("queue", t.Queue, "")
	add("status", status, show.Color(status))
	if t.Status == queue.Failed {
		failure := t.Failure()
		for i, line := range strings.Split(strings.TrimRight(failure.Message, "\n"), "\n") {
			if i == 0 {
				line = fmt.Sprintf("(%s) %s", failure.Word(), line)
			}
			add([]string{"error", ""}[min(i, 1)], line, red)
		}
	}
	add("parameters", shortened(admin.Bytes(t.Parameters, t.ParametersBase64)), "")
	add("result", shortened(admin.Bytes(t.Result, t.ResultBase64)), "")
	moment("created", t.Created)
	moment("due", t.ETA)
	moment("started", t.StartedAt)
	moment("finished", t.FinishedAt)
	add("attempts", strconv.Itoa(t.Attempts), "")
	if t.Progress > 0 || t.Message != "" {
		add("progress", fmt.Sprintf("%.0f%% %s", 100*t.Progress, t.Message), "")
	}
	add("plugin", strings.TrimSpace(t.Plugin+" "+t.Digest), "")
	add("listener", t.Node, "")
	add("key", t.Key, "")
	add("parent", t.Parent, "")
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		add("label", name+"="+t.Labels[name], "")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		add("header", name+": "+t.Headers[name], "")
	}
	for _, a := range t.History {
		why := ""
		if a.Error != nil {
			why = fmt.Sprintf(": (%s) %s", a.Error.Word(), a.Error.Headline())
		}
		add(fmt.Sprintf("run %d", a.Run), a.Outcome+why, "")
	}
	for _, line := range t.Log {
		add("log "+admin.Moment(line.Time).UTC().Format("15:04:05"), line.Text, "")
	}
	return lines
}

// shortened returns the beginning of a payload, and its size if that is not all.
func shortened(payload []byte) string {
	const most = 1000
	if len(payload) > most {
		return fmt.Sprintf("%s … (%d bytes)", payload[:most], len(payload))
	}
	return string(payload)
}

// column is a column of a table. If the screen is too narrow, the column with the highest drop is omitted first. A
// column with drop 0 is never omitted.
type column struct {
	title string
	most  int  // maximum width; 0 if bounded only by the screen
	right bool // aligned to the right, as numbers are
	drop  int
}

// cell is one value. Rows are sorted by number, then by text.
type cell struct {
	text   string
	number float64
	color  string // SGR parameters, "" for none
}

// row is a line of a table. key is the name or ID of what it shows.
type row struct {
	key, queue string // queue is the queue of a task, or the queue that the row shows
	cells      []cell
}

// table is what a view shows.
type table struct {
	columns []column
	rows    []row
}

// clean replaces characters that would control a terminal or reverse the text, because anybody can have written the
// text.
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

// number returns a count as a cell, which is empty if the count is 0.
func number[T int | int64](n T) cell {
	if n == 0 {
		return cell{}
	}
	return cell{text: strconv.FormatInt(int64(n), 10), number: float64(n)}
}

// rate returns a number per second as a cell.
func rate(n float64) cell {
	switch {
	case n == 0:
		return cell{}
	case n < 10:
		return cell{text: fmt.Sprintf("%.1f", n), number: n}
	}
	return cell{text: fmt.Sprintf("%.0f", n), number: n}
}

// age returns a duration as a cell.
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

// filter removes the rows that do not contain a text, ignoring case.
func (t *table) filter(by string) {
	if by = strings.ToLower(by); by == "" {
		return
	}
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool {
		return !slices.ContainsFunc(r.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), by) })
	})
}

// widths returns the widths of the columns on a screen of the given width; 0 for a hidden column.
func (t *table) widths(screen int) []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = ansi.StringWidth(c.title) + 1 // room for the arrow that shows the order
		for _, r := range t.rows {
			widths[i] = max(widths[i], ansi.StringWidth(r.cells[i].text))
		}
		if c.most > 0 {
			widths[i] = min(widths[i], c.most)
		}
	}
	least := func(i int) int {
		few := 12
		if i == 0 { // people recognize the row by it
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
			return widths // View cuts the lines
		}
	}
	return widths
}

// line returns a line with the cells, in their colors unless plain is true.
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
