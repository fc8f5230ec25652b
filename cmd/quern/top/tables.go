package top

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// The colors of `quern task ls`: green for success, red for failure, yellow for waiting, cyan for running.
const (
	green, red, yellow, cyan = "32", "31", "33", "36"
)

var statusColors = map[queue.Status]string{
	queue.Complete: green, queue.Failed: red, queue.Scheduled: yellow, queue.Pending: yellow, queue.Reserved: cyan, queue.Started: cyan,
}

// rates are how many tasks of each queue complete and fail in a second, by two looks.
func rates(before, now *Look) map[string][2]float64 {
	if before == nil || now == nil {
		return nil
	}
	seconds := now.Clock.Sub(before.Clock).Seconds()
	if seconds < 0.1 {
		return nil
	}
	was := make(map[string]admin.Queue, len(before.Queues))
	for _, q := range before.Queues {
		was[q.Queue] = q
	}
	all := make(map[string][2]float64, len(now.Queues))
	for _, q := range now.Queues {
		old, known := was[q.Queue]
		if !known {
			continue
		}
		per := func(what string) float64 { return max(0, float64(q.Totals[what]-old.Totals[what])) / seconds }
		all[q.Queue] = [2]float64{per("complete"), per("failed")}
	}
	return all
}

func queuesTable(l *Look, rates map[string][2]float64) table {
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
		count := func(n int64) cell { return number(float64(n)) }
		failed := rate(rates[q.Queue][1])
		failed.color = red
		t.rows = append(t.rows, row{key: q.Queue, queue: q.Queue, cells: []cell{
			text(q.Queue), count(q.Pending), count(q.Started), age(q.OldestPendingAge()), rate(rates[q.Queue][0]), failed, count(q.Failed),
			count(q.Scheduled), count(q.Reserved), count(q.Complete), count(q.Listeners), state,
		}})
	}
	return t
}

// since is how long ago a time in seconds was, nothing if it is not known.
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
			text(task.ID), text(task.Queue), since(l.Clock, task.StartedAt), progress, number(float64(task.Attempts + 1)), text(task.Plugin), text(task.Node), message,
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
			text(task.ID), text(task.Queue), since(l.Clock, task.FinishedAt), colored(string(failure.Reason), red), number(float64(task.Attempts)), text(failure.Headline()),
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
			message = fmt.Sprintf("(%s) %s", failure.Reason, failure.Headline())
		}
		t.rows = append(t.rows, row{key: task.ID, queue: task.Queue, cells: []cell{
			text(task.ID), colored(string(task.Status), statusColors[task.Status]), since(l.Clock, task.Created), number(float64(task.Priority)),
			number(float64(task.Attempts)), text(task.Key), text(message),
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
			text(n.Listener), state, slots, age(time.Duration(n.Uptime * float64(time.Second))), text(n.Version), text(strings.Join(n.Queues, " ")),
		}})
	}
	return t
}

// taskLines are the lines about one task.
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
	add("status", status, statusColors[t.Status])
	if t.Status == queue.Failed {
		failure := t.Failure()
		for i, line := range strings.Split(strings.TrimRight(failure.Message, "\n"), "\n") {
			if i == 0 {
				line = fmt.Sprintf("(%s) %s", failure.Reason, line)
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
			why = fmt.Sprintf(": (%s) %s", a.Error.Reason, a.Error.Headline())
		}
		add(fmt.Sprintf("run %d", a.Run), a.Outcome+why, "")
	}
	for _, line := range t.Log {
		add("log "+admin.Moment(line.Time).UTC().Format("15:04:05"), line.Text, "")
	}
	return lines
}

// shortened is the beginning of a payload.
func shortened(payload []byte) string {
	const most = 1000
	if len(payload) > most {
		return fmt.Sprintf("%s … (%d bytes)", payload[:most], len(payload))
	}
	return string(payload)
}
