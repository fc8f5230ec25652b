package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestGoldenSchedules(t *testing.T) { overBoth(t, testGoldenSchedules) }

func testGoldenSchedules(t *testing.T, by over) {
	s := &transcript{user: by.user(t, queuetest.Start(t).URL())}
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.run("schedule", "create", "a b", "--queue", "q", "--cron", "@daily")
	s.run("schedule", "create", "nightly", "--queue", "reports")
	s.run("schedule", "create", "nightly", "--queue", "reports", "--cron", "61 * * * *")
	s.run("schedule", "create", "nightly", "--queue", "reports", "--cron", "@daily", "--timezone", "Berlin")
	s.run("schedule", "create", "nightly", "--queue", "reports", "--cron", "@daily", "--missed", "some")
	s.run("schedule", "create", "nightly", "--queue", "reports", "--cron", "@daily", "--max-missed", "3")
	s.must("schedule", "create", "nightly", "--queue", "reports", "--cron", "0 0 1 1 *", "--timezone", "Europe/Berlin", "--parameters", "all",
		"--missed", "all", "--max-missed", "3", "--window", "1h", "--overlap", "queue", "--priority", "70", "--timeout", "1m", "--max-attempts", "unlimited",
		"--max-age", "1d", "--label", "a=b")
	if r := s.user.feed("\xff\xfe", "schedule", "create", "bytes", "--queue", "reports", "--cron", "@yearly", "--parameters", "-"); r.status != exitDone {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"nightly", "bytes"} {
		s.run("schedule", "pause", name)
		s.run("schedule", "show", name)
		s.run("schedule", "show", name, "-o", "json")
	}
	s.run("schedule", "delete", "bytes")
	s.run("schedule", "pause", "none")
	s.run("schedule", "ls")
	s.run("schedule", "show", "none")
	s.run("schedule", "delete", "none")
	write("schedules:\n- {name: a, queue: q, crn: \"@daily\"}\n- {queue: q, cron: \"@daily\"}\n")
	if r := s.user.run("schedule", "sync", file); r.status != exitUsage || !strings.Contains(r.stderr, `schedules.yaml:2: schedules[0]: unknown key "crn"`) ||
		!strings.Contains(r.stderr, "schedules.yaml:3: schedules[1]: has no name") {
		t.Errorf("%+v", r)
	}
	write("schedules:\n- {name: a, queue: q, cron: \"@daily\"}\n- {name: b, queue: q, cron: \"@hourly\"}\n")
	for _, args := range [][]string{{"--dry-run"}, nil, nil, {"-o", "json"}, {"--owner", "hand"}} {
		s.run(append([]string{"schedule", "sync", file}, args...)...)
	}
	write("schedules: [{name: nightly, queue: q, cron: \"@daily\"}]")
	if r := s.user.run("schedule", "sync", file); r.status != exitRefused || !strings.Contains(r.stderr, "another owner: hand") {
		t.Errorf("%+v", r)
	}
	write("schedules: []")
	s.must("schedule", "sync", file)
	s.run("schedule", "ls")
	s.run("schedule", "delete", "nightly")
	s.run("schedule", "ls", "-o", "json")
	golden(t, "schedules", strings.ReplaceAll(s.String(), file, "FILE"))
}

// A schedule of a host's plugin runs, is shown with its next ticks, and cannot be deleted while the plugin is there.
func TestScheduleOfAPlugin(t *testing.T) { overBoth(t, testScheduleOfAPlugin) }

func testScheduleOfAPlugin(t *testing.T, by over) {
	u := by.user(t, queuetest.Start(t).URL())
	dir := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	if err := os.WriteFile(filepath.Join(dir, "echo.yaml"), []byte(`schedule: [{cron: "* * * * * *", parameters: hello}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	u.host(dir)
	var shown struct {
		LastID    string  `json:"last_id"`
		Absent    float64 // until the host has told its plugins
		NextTicks []int64 `json:"next_ticks"`
		Owner     string
	}
	eventually(t, "a tick is fired", func() bool {
		shown.Absent = 0
		r := u.run("schedule", "show", "echo", "-o", "json")
		return r.status == exitDone && json.Unmarshal([]byte(r.stdout), &shown) == nil && shown.LastID != "" && shown.Absent == 0
	})
	if shown.Owner != "plugin echo" || len(shown.NextTicks) != 5 || shown.NextTicks[1] != shown.NextTicks[0]+1 {
		t.Errorf("%+v", shown)
	}
	if out := u.must("task", "wait", shown.LastID); out != "hello" {
		t.Errorf("result %q", out)
	}
	if r := u.run("schedule", "delete", "echo"); r.status != exitRefused || !strings.Contains(r.stderr, "pause it with `quern schedule pause") {
		t.Errorf("%+v", r)
	}
	if id := strings.TrimSpace(u.must("schedule", "run", "echo")); !regexp.MustCompile(`^echo@run-[0-9a-f-]+$`).MatchString(id) || u.must("task", "wait", id) != "hello" {
		t.Errorf("run by hand: %q", id)
	}
}
