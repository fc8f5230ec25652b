package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue/manage"

	"github.com/quern-project/quern/sdk/queue"
)

// taskView is a task as `task show` prints it for people.
func taskView(tenant string, t *queue.Task, history []manage.Attempt) view {
	var labels view
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		labels = append(labels, field{"", "label " + name, t.Labels[name]})
	}
	var headers view
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		if name != queue.HeaderTraceparent { // which has a line of its own
			headers = append(headers, field{"", "header " + name, t.Headers[name]})
		}
	}
	progress := ""
	if t.Progress > 0 {
		progress = fmt.Sprintf("%.0f %%", 100*t.Progress)
	}
	return slices.Concat(
		view{
			{"", "id", t.ID},
			{"", "tenant", tenant},
			{"", "queue", t.Queue},
			{"", "status", statusText(t)},
		},
		bytesView("parameters", t.Parameters),
		bytesView("result", t.Result),
		failureView(t),
		attemptsView(t),
		view{
			{"", "crashes", count(t.Crashes)},
			{"", "reschedules", count(t.Reschedules)},
			{"", "rejects", count(t.Rejects)},
			{"", "run", count(t.Run)},
			{"", "node", given(t.Node)},
			{"", "pid", given(t.PID)},
			{"", "created", moment(t.Created)},
			{"", "eta", moment(t.ETA)},
			{"", "reserved", moment(t.ReservedAt)},
			{"", "started", moment(t.StartedAt)},
			{"", "finished", moment(t.FinishedAt)},
			{"", "retried", moment(t.RetriedAt)},
			{"", "updated", moment(t.Updated)},
			{"", "expires", moment(t.Expires)},
			{"", "deadline", moment(t.Deadline)},
			{"", "timeout", given(span(t.Timeout))},
			{"", "", retryView(t.Retry)},
			{"", "waits for", afterText(t.After)},
			{"", "plugin", given(t.Plugin)},
			{"", "digest", given(t.Digest)},
			{"", "version", given(t.Version)},
			{"", "priority", t.Priority},
			{"", "progress", progress},
			{"", "message", given(t.Message)},
			{"", "key", given(t.Key)},
		},
		labels,
		view{
			{"", "parent", given(t.Parent)},
			{"", "depth", given(t.Depth)},
			{"", "traceparent", given(t.Traceparent)},
		},
		headers,
		view{
			{"", "live id", given(t.LiveID)},
			{"", "dead id", given(t.DeadID)},
			{"", "dead queue", given(t.Dead)},
			{"", "dead error", given(t.DeadError)},
			{"", "handled by", t.Handled},
		},
		historyView(history),
	)
}

// statusText is the task's status for people.
func statusText(t *queue.Task) string {
	switch {
	case t.Status == queue.Failed && t.Handled != "":
		return "failed (handled)"
	case t.Status == queue.Scheduled && t.After != nil && t.After.Blocked:
		return "scheduled (waits for tasks)"
	case t.CancelAsked:
		return string(t.Status) + " (to be cancelled)"
	}
	return string(t.Status)
}

// failure is a failure that people see with all lines of its message.
type failure queue.Failure

func (f failure) String() string { return fmt.Sprintf("(%s) %s", f.Reason, f.Message) }

// failureView is why the task failed, and why its attempt before.
func failureView(t *queue.Task) view {
	var v view
	if t.Status == queue.Failed {
		f := t.Failure()
		v = view{{"", "error", failure(f)}, {"", "limit", f.Limit}, {"", "stderr", shorten(f.Stderr, shownBytes, fmt.Sprintf("\n… %d bytes left out: `quern task logs %s` …\n", len(f.Stderr)-shownBytes, t.ID))}}
		for i, frame := range f.Backtrace {
			v = append(v, field{"", fmt.Sprintf("frame %d", i), frame})
		}
	}
	if t.LastError != "" {
		v = append(v, field{"", "last error", failure((&queue.Task{Error: t.LastError}).Failure())})
	}
	return v
}

// attemptsView is how many attempts there were and may be.
func attemptsView(t *queue.Task) view {
	most := t.MaxAttempts
	if most == 0 && t.Retry.MaxAge > 0 {
		most = t.Retry.Attempts()
	}
	text := given(most)
	if most == queue.Unlimited {
		text = unlimited
	}
	return view{{"", "attempts", count(t.Attempts)}, {"", "max attempts", text}}
}

// retryView is a retry policy, without the attempts.
func retryView(r queue.Retry) any {
	if r == (queue.Retry{MaxAttempts: r.MaxAttempts}) {
		return nil
	}
	var jitter any
	if r.Jitter != nil {
		jitter = *r.Jitter
	}
	return view{
		{"", "backoff", given(r.Backoff)},
		{"", "backoff base", given(span(r.Base))},
		{"", "backoff min", given(span(r.Min))},
		{"", "backoff max", given(span(r.Max))},
		{"", "jitter", jitter},
		{"", "max age", given(span(r.MaxAge))},
		{"", "max reschedules", given(r.MaxReschedules)},
	}
}

func afterText(a *queue.After) any {
	if a == nil {
		return nil
	}
	text := fmt.Sprintf("%d of %d ended, %d failed; runs when %s", a.Ended, a.Of, a.Failed, map[queue.When]string{
		queue.WhenComplete: "all are complete", queue.WhenEnded: "all have ended", queue.WhenAny: "one is complete", queue.WhenFailed: "one has failed",
	}[a.When])
	if a.Open {
		text += "; open: more may be added, until `quern task await ID --close`"
	}
	return text
}

// mostDependencies is how many dependencies of a task are shown.
const mostDependencies = 1000

// dependenciesView names dependencies of a task, which has that many.
func dependenciesView(of int, some []manage.Dependency) view {
	slices.SortStableFunc(some, func(a, b manage.Dependency) int { return cmp.Compare(min(len(a.End), 1), min(len(b.End), 1)) })
	var names []string
	for _, d := range some[:min(len(some), 10)] {
		if d.End != "" {
			d.ID += " (" + d.End + ")"
		}
		names = append(names, d.ID)
	}
	if left := of - len(names); left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	return view{{"", "dependencies", strings.Join(names, ", ")}}
}

// historyView is each ended run: in a line its outcome, after how long, where, and why.
func historyView(attempts []manage.Attempt) (v view) {
	for _, a := range attempts {
		line := a.Outcome
		if !a.Started.IsZero() && !a.Ended.IsZero() {
			line += fmt.Sprintf(" after %.1fs", a.Ended.Sub(a.Started).Seconds())
		}
		if a.Node != "" {
			line += " on " + a.Node
		}
		if a.Failure != nil {
			line += fmt.Sprintf(": (%s) %s", a.Failure.Reason, a.Failure.Headline())
		}
		v = append(v, field{"", fmt.Sprintf("history %d", a.Run), line})
	}
	return v
}

// age is how long ago a time was.
func age(t time.Time) string {
	switch d := time.Since(t); {
	case t.IsZero():
		return ""
	case d < 0:
		return "now"
	default:
		return period(d)
	}
}
