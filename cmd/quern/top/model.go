package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
)

// Config configures the screen.
type Config struct {
	Every time.Duration // pause between two looks
	Plain bool          // no colors
	Input io.Reader     // the terminal
	Out   io.Writer
}

// lookTimeout bounds one look, and one change of a task.
const lookTimeout = 10 * time.Second

// Run shows the screen of a tenant until the user leaves it, or ctx ends.
func Run(ctx context.Context, tenant admin.Tenant, config Config) error {
	m := &model{ctx: ctx, source: &source{client: tenant}, config: config, orders: make(map[View]order)}
	m.orders[Queues] = order{by: 1, descending: true}
	m.orders[Running] = order{by: 2, descending: true}
	m.orders[Failures] = order{by: 2}
	m.orders[inQueue] = order{by: 2}
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(config.Input), tea.WithOutput(config.Out),
		tea.WithFPS(30))
	_, err := program.Run()
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return nil
	}
	return err
}

type order struct {
	by         int
	descending bool
}

// model is the state of the screen. Update changes any of it; View changes only top.
type model struct {
	ctx    context.Context //nolint:containedctx // of the program: commands of bubbletea get none
	source *source
	config Config

	width, height int
	at            place
	back          []place // where Escape leads, the last place first
	orders        map[View]order
	typing        bool // true while the user types the filter
	paused, help  bool

	last, before *Look // the last two looks at this place; nil before they are read
	task         *Task
	failed       error     // why the last look failed; nil if it succeeded
	seen         time.Time // time of the last look that succeeded
	reading      int       // number of the current look; results of earlier looks are ignored
	end          func()    // cancels the current look
	top          int       // index of the first row or line on the screen
	asking       *action
	told         string // message about the last action
}

// action is a change of a task that the user is asked to confirm.
type action struct{ verb, queue, task string }

type (
	looked struct {
		number int
		look   *Look
		task   *Task
		err    error
	}
	tick struct{ number int }
	done struct{ text string }
)

func (m *model) Init() tea.Cmd { return m.read() }

// read returns a command that reads what the current place shows. It cancels the look before.
func (m *model) read() tea.Cmd {
	if m.end != nil {
		m.end()
	}
	m.reading++
	number, at, task, last := m.reading, m.at, m.task, m.last
	ctx, cancel := context.WithTimeout(m.ctx, lookTimeout)
	m.end = cancel
	return func() tea.Msg {
		defer cancel()
		if at.view == inTask {
			task, err := m.source.task(ctx, at.task, task)
			return looked{number: number, task: task, err: err}
		}
		look, err := m.source.look(ctx, at, last)
		return looked{number: number, look: look, err: err}
	}
}

// Update handles a message: an event of the terminal, a result of a look or an action, or the time for the next look.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tick:
		if msg.number == m.reading && !m.paused {
			return m, m.read()
		}
	case looked:
		return m, m.take(msg)
	case done:
		m.told = msg.text
		return m, m.read()
	case tea.PasteMsg:
		if m.typing {
			m.at.filter += clean(msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// take stores the result of a look, and schedules the next look.
func (m *model) take(got looked) tea.Cmd {
	if got.number != m.reading {
		return nil
	}
	m.failed = got.err
	switch {
	case got.err != nil && !errors.Is(got.err, queue.ErrNoTask):
	case m.at.view == inTask:
		m.task, m.seen = got.task, time.Now()
	case got.look != nil:
		m.before, m.last, m.seen = m.last, got.look, time.Now()
		if m.at.row != "" { // otherwise the cursor stays on the first row
			t := m.table()
			m.chooseRow(t, m.chosen(t))
		}
	}
	number := m.reading
	return tea.Tick(m.config.Every, func(time.Time) tea.Msg { return tick{number} })
}

// goTo shows another place. If deeper is true, Escape leads back to the current place.
func (m *model) goTo(to place, deeper bool) tea.Cmd {
	if deeper {
		m.back = append(m.back, m.at)
	} else {
		m.back = nil
	}
	return m.show(to)
}

func (m *model) show(to place) tea.Cmd {
	m.at, m.last, m.before, m.task, m.failed, m.top, m.asking, m.told, m.seen = to, nil, nil, nil, nil, 0, nil, "", time.Time{}
	return m.read()
}

// act returns a command that carries out the confirmed action.
func (m *model) act(a action) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, lookTimeout)
		defer cancel()
		var err error
		outcome := "task " + a.task + " waits in its queue again"
		if a.verb == "retry" {
			_, err = m.source.client.Retry(ctx, a.task)
		} else {
			var ended bool
			if ended, err = m.source.client.Queue(a.queue).Cancel(ctx, a.task); ended {
				outcome = "task " + a.task + " is cancelled"
			} else {
				outcome = "its host is told to stop task " + a.task
			}
		}
		if err != nil {
			outcome = fmt.Sprintf("%s: %v", a.verb, err)
		}
		return done{outcome}
	}
}

// chosen returns the index of the row under the cursor; -1 if the table is empty.
func (m *model) chosen(t table) int {
	if len(t.rows) == 0 {
		return -1
	}
	if i := slices.IndexFunc(t.rows, func(r row) bool { return r.key == m.at.row }); i >= 0 {
		return i
	}
	return min(m.at.index, len(t.rows)-1)
}

// chooseRow puts the cursor on the row with the index i, or else on the first or last row.
func (m *model) chooseRow(t table, i int) {
	if len(t.rows) > 0 {
		m.at.index = min(max(i, 0), len(t.rows)-1)
		m.at.row = t.rows[m.at.index].key
	}
}

// table returns what the current place shows, filtered and sorted.
func (m *model) table() table {
	var t table
	if m.last != nil {
		switch m.at.view {
		case Queues:
			t = queuesTable(m.before, m.last)
		case Running:
			t = runningTable(m.last)
		case Failures:
			t = failuresTable(m.last)
		case Hosts:
			t = hostsTable(m.last)
		case inQueue:
			t = tasksTable(m.last)
		}
	}
	t.filter(m.at.filter)
	if o := m.orders[m.at.view]; o.by < len(t.columns) {
		t.sort(o.by, o.descending)
	}
	return t
}

// room returns the number of lines between heading and foot.
func (m *model) room() int { return max(1, m.height-5) }

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView("")
	v.AltScreen = true
	if m.width < 1 || m.height < 1 {
		return v
	}
	lines := []string{m.heading(), m.tabs()}
	switch {
	case m.help:
		lines = append(lines, helpLines...)
	case m.at.view == inTask:
		lines = append(lines, m.taskView()...)
	default:
		lines = append(lines, m.tableView()...)
	}
	lines = slices.Grow(lines[:min(len(lines), max(0, m.height-2))], m.height)
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	lines = append(lines, m.status(), m.keys())
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	v.Content = strings.Join(lines[:min(len(lines), m.height)], "\n")
	return v
}

// paint returns a text with SGR parameters. Without colors, only reverse and bold are kept.
func (m *model) paint(text, sgr string) string {
	if m.config.Plain && strings.HasPrefix(sgr, "3") || sgr == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[m"
}

func (m *model) heading() string {
	var state string
	switch {
	case m.paused:
		state = "paused, Space goes on"
	case m.seen.IsZero():
		state = "reading"
	default:
		state = m.seen.Format("15:04:05")
	}
	return m.paint("quern top", "1") + "  " + clean(m.source.client.Tenant()+" at "+m.source.client.Address()) + "  " +
		state + m.wrong()
}

// wrong returns the doctor's worst finding, and the number of its other findings. Notes do not count.
func (m *model) wrong() string {
	if m.last == nil {
		return ""
	}
	all := slices.DeleteFunc(slices.Clone(m.last.Wrong), func(f doctor.Finding) bool { return f.Level == doctor.Note })
	if len(all) == 0 {
		return ""
	}
	color, more := "33", ""
	if all[0].Level == doctor.Error {
		color = "31"
	}
	if len(all) > 1 {
		more = fmt.Sprintf(" (%d more: quern doctor)", len(all)-1)
	}
	return "  " + m.paint(clean(string(all[0].Level)+": "+all[0].Problem)+more, color)
}

func (m *model) tabs() string {
	var b strings.Builder
	for i, name := range []string{"Queues", "Running", "Failures", "Hosts"} {
		label := fmt.Sprintf(" %d %s ", i+1, name)
		if View(i) == m.root() {
			label = m.paint(label, "7")
		}
		b.WriteString(label)
	}
	switch m.at.view {
	case inQueue:
		status := string(m.at.status)
		if status == "" {
			status = "newest"
		}
		b.WriteString("  " + clean(m.at.queue) + " ◂ " + status + " ▸")
	case inTask:
		b.WriteString("  task")
	}
	return b.String()
}

// root returns the top-level view from which the current place was reached.
func (m *model) root() View {
	if len(m.back) > 0 {
		return m.back[0].view
	}
	return m.at.view
}

func (m *model) tableView() []string {
	t := m.table()
	if m.last == nil {
		return nil
	}
	widths := t.widths(m.width)
	o := m.orders[m.at.view]
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i].text = c.title
		if i == o.by {
			titles[i].text += map[bool]string{false: "▴", true: "▾"}[o.descending]
		}
	}
	lines := []string{m.paint(t.line(titles, widths, true), "1")}
	at := m.chosen(t)
	m.top = min(max(m.top, at-m.room()+1), max(0, at))
	for i := m.top; i < min(len(t.rows), m.top+m.room()); i++ {
		line := t.line(t.rows[i].cells, widths, m.config.Plain || i == at)
		if i == at {
			line = m.paint(line+strings.Repeat(" ", max(0, m.width-ansi.StringWidth(line))), "7")
		}
		lines = append(lines, line)
	}
	if len(t.rows) == 0 {
		lines = append(lines, m.nothing())
	}
	return lines
}

// nothing says why a table is empty.
func (m *model) nothing() string {
	if m.at.filter != "" {
		return "nothing here has " + m.at.filter
	}
	return map[View]string{
		Queues: "no queues yet", Running: "no task runs", Failures: "no task has failed", Hosts: "no hosts",
		inQueue: "no such tasks in this queue",
	}[m.at.view]
}

func (m *model) taskView() (lines []string) {
	if m.task == nil {
		if errors.Is(m.failed, queue.ErrNoTask) {
			return []string{"the task does not exist any more"}
		}
		return nil
	}
	all := taskLines(m.task, m.task.Clock)
	m.top = min(m.top, max(0, len(all)-m.room()))
	for _, line := range all[m.top:min(len(all), m.top+m.room())] {
		lines = append(lines, m.paint(line.text, line.color))
	}
	return lines
}

func (m *model) status() string {
	switch {
	case m.asking != nil:
		return m.paint(fmt.Sprintf(" %s task %s of %s? y: yes, any other key: no ", m.asking.verb, clean(m.asking.task),
			clean(m.asking.queue)), "7")
	case m.typing:
		return "filter: " + m.at.filter + "█"
	case m.failed != nil && !errors.Is(m.failed, queue.ErrNoTask):
		old := ""
		if !m.seen.IsZero() {
			old = ", this is from " + period(max(time.Since(m.seen), time.Millisecond)) + " ago"
		}
		return m.paint("cannot read; trying again"+old+": "+clean(m.failed.Error()), red)
	case m.told != "":
		return clean(m.told)
	case m.at.filter != "" && m.last != nil:
		return strings.TrimSuffix("filter: "+m.at.filter+"; "+m.left(), "; ")
	case m.last != nil:
		return m.left()
	}
	return ""
}

// left says how many entries are not shown; "" if all are.
func (m *model) left() string {
	shown, what := 0, ""
	switch m.at.view {
	case Queues:
		shown, what = len(m.last.Queues), "the %d queues with the most pending tasks of priority 50 or listeners, of %d"
	case Running, Failures:
		shown, what = len(m.last.Tasks), "%d tasks of %d: Enter in view 1 shows a queue's"
	case Hosts:
		shown, what = len(m.last.Hosts), "the %d hosts that renewed their lease last, of %d or more"
	}
	if m.last.All <= int64(shown) || what == "" {
		return ""
	}
	return fmt.Sprintf(what, shown, m.last.All)
}
