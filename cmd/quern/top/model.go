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

// Config says how a screen looks.
type Config struct {
	Every time.Duration // how long after a look the next one is
	Plain bool          // without colors
	Input io.Reader     // the terminal
	Out   io.Writer
}

// lookTimeout bounds one read.
const lookTimeout = 10 * time.Second

// Run shows the screen of a tenant until somebody leaves it, or ctx ends.
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

// model is the screen. Update changes it; View changes only the first visible line.
type model struct {
	ctx    context.Context //nolint:containedctx // of the program: commands of bubbletea get none
	source *source
	config Config

	width, height int
	at            place
	back          []place // where Escape leads
	orders        map[View]order
	typing        bool // the filter
	paused, help  bool

	last, before *Look // of the same place; nil while nothing was read
	task         *Task
	failed       error     // why the last look failed
	seen         time.Time // when the last one succeeded
	reading      int       // numbers the looks: an answer to an earlier one is not shown
	end          func()    // ends the look that is under way
	top          int       // the first row or line on the screen
	asking       *action
	told         string // what became of the last action
}

// action is what somebody is asked to confirm.
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

// read looks at what the present place shows.
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

// Update takes what happens.
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

// take shows what was read, and waits for the next look.
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
		if m.at.row != "" { // else the first one, whichever it is
			t := m.table()
			m.chooseRow(t, m.chosen(t))
		}
	}
	number := m.reading
	return tea.Tick(m.config.Every, func(time.Time) tea.Msg { return tick{number} })
}

// goTo shows another place. Escape leads back from it if deeper.
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

// act does what was confirmed.
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

// chosen is the table's row under the cursor, -1 if there is none.
func (m *model) chosen(t table) int {
	if len(t.rows) == 0 {
		return -1
	}
	if i := slices.IndexFunc(t.rows, func(r row) bool { return r.key == m.at.row }); i >= 0 {
		return i
	}
	return min(m.at.index, len(t.rows)-1)
}

// chooseRow puts the cursor on a row, or on the first or last one.
func (m *model) chooseRow(t table, i int) {
	if len(t.rows) > 0 {
		m.at.index = min(max(i, 0), len(t.rows)-1)
		m.at.row = t.rows[m.at.index].key
	}
}

// table is what the present place shows, sorted and filtered.
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

// room is how many lines there are between heading and foot.
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

// paint gives a text SGR parameters. Reverse and bold stay without colors.
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

// wrong is the doctor's worst finding, and how many others there are; notes do not count.
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

// root is the view at the top level.
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

// left tells how much is not shown.
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
