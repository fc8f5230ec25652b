package tenant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// taskView returns a task as `task show` prints it for people.
func taskView(t *admin.Task) show.View {
	var labels show.View
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		labels = append(labels, show.Field{"", "label " + name, t.Labels[name]})
	}
	var headers show.View
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		if name != queue.HeaderTraceparent { // shown on its own line below
			headers = append(headers, show.Field{"", "header " + name, t.Headers[name]})
		}
	}
	progress := ""
	if t.Progress > 0 {
		progress = fmt.Sprintf("%.0f %%", 100*t.Progress)
	}
	return slices.Concat(
		show.Lines("id", t.ID, "tenant", t.Tenant, "queue", t.Queue, "status", statusText(t), "waits because",
			show.Given(t.WaitsBecause)),
		runningView(t),
		show.Lines("encrypted by key", show.Given(t.Sealed)),
		bytesView("parameters", t.Parameters, t.ParametersBase64),
		bytesView("result", t.Result, t.ResultBase64),
		failureView(t),
		show.Lines(
			"attempts", show.Given(t.Attempts), "max attempts", attemptsWord(t.MaxAttempts), "crashes", show.Given(t.Crashes),
			"reschedules", show.Given(t.Reschedules),
			"rejects", show.Given(t.Rejects), "run", show.Given(t.Run), "node", show.Given(t.Node),
			"pid", show.Given(t.PID), "created", moment(t.Created), "eta", moment(t.ETA),
			"reserved", moment(t.ReservedAt), "started", moment(t.StartedAt),
			"finished", moment(t.FinishedAt), "retried", moment(t.RetriedAt),
			"updated", moment(t.Updated), "expires", moment(t.Expires),
			"deadline", moment(t.Deadline), "timeout", show.Given(show.Span(admin.Period(t.TimeoutSeconds))),
			"", retryView(t.Retry.Policy()), waitsFor(t.After), afterText(t.After), "plugin", show.Given(t.Plugin),
			"digest", show.Given(t.Digest), "version", show.Given(t.Version), "release", show.Given(t.Release),
			"priority", t.Priority,
			"progress", progress, "message", show.Given(t.Message), "key", show.Given(t.Key),
			"fair key", show.Given(t.FairKey), "fair weight", show.Given(t.FairWeight), "concurrency key", laneText(t.Lane),
		),
		labels,
		show.Lines(
			"parent", show.Given(t.Parent), "depth", show.Given(t.Depth),
			"traceparent", show.Given(t.Traceparent),
		),
		headers,
		show.Lines(
			"live id", show.Given(t.LiveID), "dead id", show.Given(t.DeadID),
			"dead queue", show.Given(t.DeadQueue), "dead error", show.Given(t.DeadError), "handled by", t.Handled,
		),
		recordView(t),
		historyView(t.History),
	)
}

// laneText names the concurrency key of a task, and says how many tasks with the same key come first.
func laneText(l *admin.Lane) string {
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("%s, %d at once", l.Key, l.Max)
	if l.Waits {
		text += fmt.Sprintf("; waits in line behind %s and %d in line", units.Count(int(l.Taken), "task", "tasks"), l.Ahead)
	}
	return text
}

// recordView says which run can be replayed, and how.
func recordView(t *admin.Task) show.View {
	switch r := t.Record; {
	case r == nil:
		return nil
	case r.Size == 0:
		return show.Lines("record", fmt.Sprintf("of run %d was larger than limits.record of its plugin, and is not kept", r.Run))
	default:
		encrypted, identity := "", ""
		if r.Encrypted {
			encrypted, identity = ", encrypted", " --identity FILE"
		}
		return show.Lines("record", fmt.Sprintf("of run %d, %s%s: replay it by `quern task replay %s%s`", r.Run,
			units.FormatSize(r.Size), encrypted, cli.ShellWord(t.ID), identity))
	}
}

// longRun is how long a task runs before people are told how to find out where it is.
const longRun = 10 * time.Second

// runningView says for how long a task runs.
func runningView(t *admin.Task) show.View {
	text, _ := runningText(t)
	return show.Lines("running", text)
}

// runningText says for how long a task runs, and if that is long how to find the place in the source at which it is:
// only the end of a run tells it. The text is "" for a task that does not run.
func runningText(t *admin.Task) (text string, long bool) {
	if t.Status != queue.Started || t.StartedAt == 0 {
		return "", false
	}
	since := max(0, time.Since(admin.Moment(t.StartedAt)))
	text, id := "for "+show.Age(since), cli.ShellWord(t.ID)
	if since < longRun {
		return text, false
	}
	return text + fmt.Sprintf(": see its log with `quern task logs %s`; `quern task cancel %s` ends it, and its error then "+
		"names the line at which it was", id, id), true
}

// statusText returns the task's status for people.
func statusText(t *admin.Task) string {
	switch {
	case t.Status == queue.Failed && t.Handled != "":
		return "failed (handled)"
	case t.Status == queue.Scheduled && t.After != nil && t.After.Blocked:
		return "scheduled (waits for tasks)"
	case t.KeyHeld:
		return "scheduled (its key is held)"
	case t.Lane != nil && t.Lane.Waits:
		return "pending (waits in line)"
	case t.CancelAsked:
		return string(t.Status) + " (to be cancelled)"
	case t.Reschedules > 0 && (t.Status == queue.Scheduled || t.Status == queue.Pending):
		return fmt.Sprintf("%s (put off %s)", t.Status, units.Count(t.Reschedules, "time", "times"))
	}
	return string(t.Status)
}

// failureView returns why the task failed, and its last error.
func failureView(t *admin.Task) show.View {
	var v show.View
	if f := t.Error; f != nil {
		v = show.Lines(
			"error", f, "limit", f.Limit,
			"stderr", show.Shorten(f.Stderr, shownBytes, fmt.Sprintf("\n… %d bytes left out: `quern task logs %s` …\n",
				len(f.Stderr)-shownBytes, t.ID)),
		)
		for i, frame := range f.Backtrace {
			v = append(v, show.Field{"", fmt.Sprintf("frame %d", i), frame})
		}
	}
	if f := t.Error; f != nil && f.Reason == queue.ReasonExhausted && strings.HasPrefix(f.Message, "put off ") {
		v = append(v, show.Field{"", "remedy", "raise max_reschedules, or fail so that it counts an attempt: quern.Failure in Python, " +
			"Failure in JavaScript, an error in Go"})
	}
	// An exhausted task's error is its last one with what was counted before it.
	if t.LastError != nil && (t.Error == nil || !strings.HasSuffix(t.Error.Message, t.LastError.Message)) {
		v = append(v, show.Field{"", "last error", t.LastError})
	}
	return v
}

func attemptsWord(most int) any {
	if most == queue.Unlimited {
		return option.Unlimited
	}
	return show.Given(most)
}

// retryView returns a retry policy without its number of attempts; nil if nothing else is set.
func retryView(r queue.Retry) any {
	if r == (queue.Retry{MaxAttempts: r.MaxAttempts}) {
		return nil
	}
	var jitter any
	if r.Jitter != nil {
		jitter = *r.Jitter
	}
	return show.Lines(
		"backoff", show.Given(r.Backoff), "backoff base", show.Given(show.Span(r.Base)),
		"backoff min", show.Given(show.Span(r.Min)), "backoff max", show.Given(show.Span(r.Max)),
		"jitter", jitter, "max age", show.Given(show.Span(r.MaxAge)),
		"max reschedules", show.Given(r.MaxReschedules),
	)
}

func waitsFor(a *queue.After) string {
	if a != nil && !a.Blocked {
		return "waited for"
	}
	return "waits for"
}

func afterText(a *queue.After) any {
	if a == nil {
		return nil
	}
	if !a.Blocked {
		return fmt.Sprintf("%d of %d ended, %d failed", a.Ended, a.Of, a.Failed)
	}
	text := fmt.Sprintf("%d of %d ended, %d failed; runs when %s", a.Ended, a.Of, a.Failed, map[queue.When]string{
		queue.WhenComplete: "all are complete", queue.WhenEnded: "all have ended", queue.WhenAny: "one is complete",
		queue.WhenFailed: "one has failed",
	}[a.When])
	if a.Open {
		text += "; open: more may be added, until `quern task await ID --close`"
	}
	return text
}

// maxDependencies is the maximum number of a task's dependencies that are read.
const maxDependencies = 1000

// dependenciesView has the dependencies of a task as dependenciesText names them.
func dependenciesView(total int, some []listen.Dependency) show.View {
	return show.Lines("dependencies", dependenciesText(total, some))
}

// dependenciesText names at most ten of a task's dependencies, first those that have not ended. total is the number of
// all its dependencies. It sorts some.
func dependenciesText(total int, some []listen.Dependency) string {
	slices.SortStableFunc(some, func(a, b listen.Dependency) int {
		return cmp.Compare(min(len(a.End), 1),
			min(len(b.End), 1))
	})
	var names []string
	for _, d := range some[:min(len(some), 10)] {
		if d.End != "" {
			d.ID += " (" + d.End + ")"
		}
		names = append(names, d.ID)
	}
	if left := total - len(names); left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	return strings.Join(names, ", ")
}

// foldedRuns is the minimum number of runs in a row with the same end that share a line of the history.
const foldedRuns = 3

// historyView returns a line for each ended run: its outcome, run time, delay, node and failure. Runs in a row that
// ended alike share one line.
func historyView(attempts []admin.Attempt) (v show.View) {
	for len(attempts) > 0 {
		n := 1
		for n < len(attempts) && endedAlike(&attempts[0], &attempts[n]) {
			n++
		}
		if n < foldedRuns {
			n = 1
		}
		first, last := attempts[0], attempts[n-1]
		name, line := fmt.Sprintf("run %d", first.Run), outcomeText(first.Outcome)
		if n > 1 {
			name = fmt.Sprintf("runs %d to %d", first.Run, last.Run)
			line += fmt.Sprintf(" %d times", n)
			if first.Ended > 0 && last.Ended > 0 {
				line += fmt.Sprintf(" between %s and %s", moment(first.Ended), moment(last.Ended))
			}
		} else if line += runText(&first); first.Node != "" {
			line += ", on " + first.Node
		}
		if first.Error != nil {
			line += fmt.Sprintf(": (%s) %s", first.Error.Word(), first.Error.Headline())
		}
		v = append(v, show.Field{"", name, line})
		attempts = attempts[n:]
	}
	return v
}

// outcomeText returns what became of a run, for people.
func outcomeText(outcome string) string {
	switch outcome {
	case string(listen.RequeueRetry):
		return "failed, tried again"
	case string(listen.RequeueReschedule):
		return "put itself off"
	case string(listen.RequeueReject):
		return "rejected, for another host"
	}
	return outcome
}

// runText returns how long a run took, and how long the task had waited for it beyond its due time.
func runText(a *admin.Attempt) (text string) {
	if a.Started > 0 && a.Ended > 0 {
		text += fmt.Sprintf("; ran %.1fs", a.Ended-a.Started)
	}
	if a.DelaySeconds > 0 && text != "" {
		text += fmt.Sprintf(", waited %.1fs", a.DelaySeconds)
	}
	return text
}

// endedAlike reports whether two runs have the same outcome and failure.
func endedAlike(a, b *admin.Attempt) bool {
	if a.Outcome != b.Outcome || (a.Error == nil) != (b.Error == nil) {
		return false
	}
	return a.Error == nil || a.Error.Reason == b.Error.Reason && a.Error.Headline() == b.Error.Headline()
}

// age returns how long ago a time in seconds was.
func age(seconds float64) string {
	switch d := time.Since(admin.Moment(seconds)); {
	case seconds == 0:
		return ""
	case d < 0:
		return "now"
	default:
		return show.Age(d)
	}
}

// treeText returns a line for each task of a tree. stem is the beginning of the node's own line, and trunk that of the
// lines below it.
func treeText(node *admin.TreeNode, stem, trunk string) string {
	line := stem + node.ID
	if t := node.Task; t == nil {
		line += "  deleted"
	} else {
		line += fmt.Sprintf("  %s  %s", t.Queue, statusText(t))
		if t.Reason != "" {
			line += fmt.Sprintf(" (%s)", t.Reason)
		}
		if t.After != nil && t.After.Blocked {
			line += fmt.Sprintf(", %d of %d ended", t.After.Ended, t.After.Of)
		}
	}
	if node.Again {
		line += "  again"
	}
	text := show.Escape(line) + "\n"
	for i, child := range node.Children {
		branch, rest := "├─ ", "│  "
		if i == len(node.Children)-1 && node.Left == 0 {
			branch, rest = "└─ ", "   "
		}
		if child.Dependent {
			branch = strings.Replace(branch, "─ ", "▶ ", 1)
		}
		text += treeText(child, trunk+branch, trunk+rest)
	}
	if node.Left > 0 {
		text += fmt.Sprintf("%s└─ %d more: `quern task show %s --tree`\n", trunk, node.Left, cli.ShellWord(node.ID))
	}
	return text
}
