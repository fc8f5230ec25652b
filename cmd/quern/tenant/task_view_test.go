package tenant

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// A task that another one has enqueued shows how long the chain is; one without parents has none.
func TestTaskDepth(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]bool{0: false, 2: true} {
		var shown strings.Builder
		if err := taskView(&admin.Task{ID: "a", Parent: "b", Depth: depth}).Lines(&shown, show.Screen{}); err != nil {
			t.Fatal(err)
		}
		if got := regexp.MustCompile(`(?m)^depth +2$`).MatchString(shown.String()); got != want || strings.Contains(shown.String(), "depth") != want {
			t.Errorf("%d: %s", depth, shown.String())
		}
	}
}

// A task that has been released no longer says when it runs.
func TestWaitedFor(t *testing.T) {
	t.Parallel()
	for blocked, want := range map[bool]string{true: "waits for  2 of 2 ended, 1 failed; runs when all have ended\n", false: "waited for  2 of 2 ended, 1 failed\n"} {
		var shown strings.Builder
		after := &queue.After{When: queue.WhenEnded, Blocked: blocked, Of: 2, Ended: 2, Failed: 1}
		if err := taskView(&admin.Task{ID: "a", After: after}).Lines(&shown, show.Screen{}); err != nil {
			t.Fatal(err)
		}
		if got := regexp.MustCompile(` {2,}`).ReplaceAllString(shown.String(), "  "); !strings.Contains(got, "\n"+want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Runs in a row that ended alike share a line of the history; fewer than three have their own.
func TestFoldedHistory(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	task := admin.Task{ID: "a", Status: queue.Scheduled, Reschedules: 97}
	for run := range int64(100) {
		ended := admin.Seconds(begin.Add(time.Duration(run) * time.Minute))
		a := admin.Attempt{Run: run + 1, Started: ended - 2, Ended: ended, Node: "n", Outcome: "rescheduled", Error: &queue.Failure{Reason: "error", Message: "not yet"}}
		if run < 2 || run == 99 {
			a.Outcome = "retried"
		}
		task.History = append(task.History, a)
	}
	var shown strings.Builder
	if err := taskView(&task).Lines(&shown, show.Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`status +scheduled \(put off 97 times\)`, `run 1 +retried; ran 2.0s, on n: \(error\) not yet`, `run 2 +retried; ran .*`,
		`runs 3 to 99 +rescheduled 97 times between 2026-05-01 12:02:00.000 UTC and 2026-05-01 13:38:00.000 UTC: \(error\) not yet`, `run 100 +retried; ran .*`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(shown.String()) {
			t.Errorf("no %q in:\n%s", want, shown.String())
		}
	}
	if n := len(regexp.MustCompile(`(?m)^runs? \d`).FindAllString(shown.String(), -1)); n != 4 {
		t.Errorf("%d lines of history, want 4", n)
	}
}

// A task that has run for long shows how to find out where it is.
func TestRunningForLong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		task admin.Task
		want bool
	}{
		"long":     {admin.Task{Status: queue.Started, StartedAt: admin.Seconds(time.Now().Add(-time.Hour))}, true},
		"not long": {admin.Task{Status: queue.Started, StartedAt: admin.Seconds(time.Now())}, false},
		"over":     {admin.Task{Status: queue.Complete, StartedAt: 1}, false},
	} {
		tt.task.ID = "a b"
		var shown strings.Builder
		if err := taskView(&tt.task).Lines(&shown, show.Screen{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(shown.String(), "`quern task cancel 'a b'` ends it"); got != tt.want {
			t.Errorf("%s: %s", name, shown.String())
		}
	}
}

// A task that runs says for how long, and after a while how to find out where it is.
func TestRunning(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status queue.Status
		ago    time.Duration
		want   string
	}{
		"new":     {queue.Started, 2 * time.Second, `(?m)^running +for [2-9]\.\ds$`},
		"long":    {queue.Started, 2 * time.Minute, "(?m)^running +for 2m: .*`quern task logs a`; `quern task cancel a` ends it"},
		"waiting": {queue.Pending, time.Minute, `^[^!]*$`},
	} {
		var shown strings.Builder
		task := &admin.Task{ID: "a", Status: test.status, StartedAt: admin.Seconds(time.Now().Add(-test.ago))}
		if err := taskView(task).Lines(&shown, show.Screen{}); err != nil {
			t.Fatal(err)
		}
		if got := shown.String(); !regexp.MustCompile(test.want).MatchString(got) || test.status == queue.Pending && strings.Contains(got, "running") {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
