package top

import (
	"slices"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// statuses lists what ← and → choose from in the tasks of a queue; "" stands for any status.
var statuses = append([]queue.Status{""}, queue.Statuses()...)

var helpLines = []string{
	"",
	"  1 2 3 4, Tab   queues, running tasks, failures, hosts",
	"  ↑ ↓, j k       move; PgUp, PgDn, Home, End",
	"  Enter          the tasks of a queue, or all of a task",
	"  ← →            in a queue: another status",
	"  Esc            back",
	"  s, S           sort by the next column; the other way round",
	"  /              filter: only lines with a text; Esc clears it",
	"  c              cancel the task, after y",
	"  r              retry the failed task, after y",
	"  Space          pause, and go on",
	"  q, Ctrl-C      leave",
}

func (m *model) keys() string {
	switch {
	case m.help:
		return "any key: back"
	case m.typing:
		return "Enter: keep it  Esc: clear it"
	case m.at.view == inTask:
		return "Esc back  c cancel  r retry  Space pause  ? help  q leave"
	case m.at.view == Queues:
		return "Enter tasks  s sort  / filter  Space pause  ? help  q leave"
	case m.at.view == inQueue:
		return "Enter all of it  ← → status  c cancel  r retry  s sort  / filter  ? help  q leave"
	case m.at.view == Hosts:
		return "s sort  / filter  Space pause  ? help  q leave"
	}
	return "Enter all of it  c cancel  r retry  s sort  / filter  Space pause  ? help  q leave"
}

// press handles a key.
func (m *model) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case m.typing:
		m.typeFilter(key)
		return nil
	case m.asking != nil:
		a := *m.asking
		if m.asking = nil; name == "y" || name == "Y" {
			m.told = a.verb + " …"
			return m.act(a)
		}
		return nil
	case m.help:
		m.help = false
		return nil
	}
	m.told = ""
	switch name {
	case "q":
		return tea.Quit
	case "?":
		m.help = true
	case "1", "2", "3", "4":
		return m.goTo(place{view: View(name[0] - '1')}, false)
	case "tab":
		return m.goTo(place{view: (m.root() + 1) % (Hosts + 1)}, false)
	case "shift+tab":
		return m.goTo(place{view: (m.root() + Hosts) % (Hosts + 1)}, false)
	case "space":
		if m.paused = !m.paused; !m.paused {
			return m.read()
		}
	case "/":
		m.typing = m.at.view != inTask
	case "esc", "backspace":
		return m.leave()
	case "s", "S":
		m.reorder(name == "S")
	case "left", "right":
		return m.otherStatus(name == "right")
	case "enter", "c", "r":
		return m.choose(name)
	default:
		m.move(name)
	}
	return nil
}

// leave clears the filter, or goes back if there is none.
func (m *model) leave() tea.Cmd {
	if m.at.filter != "" && m.at.view != inTask {
		m.at.filter = ""
		return nil
	}
	if n := len(m.back); n > 0 {
		to := m.back[n-1]
		m.back = m.back[:n-1]
		return m.show(to)
	}
	return nil
}

func (m *model) typeFilter(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.at.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.at.filter)
		m.at.filter = m.at.filter[:len(m.at.filter)-size]
	default:
		m.at.filter += clean(key.Text)
	}
}

// reorder sorts by the next visible column. If turn is true, it reverses the order instead.
func (m *model) reorder(turn bool) {
	o := m.orders[m.at.view]
	if turn {
		o.descending = !o.descending
	} else if t := m.table(); len(t.columns) > 0 {
		widths := t.widths(m.width)
		for o.by = (o.by + 1) % len(widths); widths[o.by] == 0; o.by = (o.by + 1) % len(widths) {
		}
		o.descending = t.columns[o.by].right // numbers are sorted from the largest
	}
	m.orders[m.at.view] = o
}

func (m *model) otherStatus(next bool) tea.Cmd {
	if m.at.view != inQueue {
		return nil
	}
	step := len(statuses) - 1
	if next {
		step = 1
	}
	to := m.at
	to.status, to.row, to.index = statuses[(slices.Index(statuses, m.at.status)+step)%len(statuses)], "", 0
	return m.show(to)
}

// choose opens the selected row, or asks the user to confirm a change of its task.
func (m *model) choose(key string) tea.Cmd {
	var of string
	var status queue.Status
	id := m.at.task
	if m.at.view == inTask {
		if m.task == nil {
			return nil
		}
		of, status = m.task.Queue, m.task.Status
	} else {
		t := m.table()
		i := m.chosen(t)
		if i < 0 {
			return nil
		}
		m.at.row = t.rows[i].key
		of, id = t.rows[i].queue, t.rows[i].key
		if j := slices.IndexFunc(m.last.Tasks, func(t admin.Task) bool { return t.ID == id }); j >= 0 {
			status = m.last.Tasks[j].Status
		}
	}
	tasks := m.at.view != Queues && m.at.view != Hosts
	switch {
	case key == "enter" && m.at.view == Queues:
		return m.goTo(place{view: inQueue, queue: of}, true)
	case key == "enter" && tasks && m.at.view != inTask:
		return m.goTo(place{view: inTask, task: id}, true)
	case key == "enter" || !tasks:
	case key == "r" && status != queue.Failed:
		m.told = "only failed tasks are retried: this one is " + string(status)
	case key == "c" && status.Finished():
		m.told = "only waiting and running tasks are cancelled: this one is " + string(status)
	default:
		m.asking = &action{verb: map[string]string{"c": "cancel", "r": "retry"}[key], queue: of, task: id}
	}
	return nil
}

// move moves the cursor, or scrolls the lines of a task.
func (m *model) move(key string) {
	step := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -m.room(), "pgdown": m.room(), "home": -1 << 30, "g": -1 << 30,
		"end": 1 << 30, "G": 1 << 30,
	}[key]
	if m.at.view == inTask {
		m.top = max(0, m.top+step)
		return
	}
	if t := m.table(); step != 0 {
		m.chooseRow(t, m.chosen(t)+step)
	}
}
