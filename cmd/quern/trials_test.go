package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// A canary that fails is halted by itself, also if only its manifest is another one. The doctor, the list of releases and
// the log say why, and one command runs its failed tasks on the release that serves, and no others.
func TestBadCanary(t *testing.T) {
	overBoth(t, func(t *testing.T, by over) {
		u := by.tenant(t)
		host := u.spawn("serve", "--plugins", filepath.Join(t.TempDir(), "none"), "--http", "127.0.0.1:0")
		host.stderr.await(t, regexp.MustCompile(`joined: `))
		plugin := folder(t, map[string][]byte{"mail": runtimetest.Echo(t)})
		write(t, filepath.Join(plugin, "mail.yaml"), "version: 1.0.0\nlimits: {output: 3KiB}\n")
		u.must("plugin", "push", plugin)
		served := func(row string) {
			t.Helper()
			found := regexp.MustCompile(row)
			eventually(t, row, func() bool { return found.MatchString(u.must("plugin", "ls")) })
		}
		served(`serving .* release 1\b`)
		write(t, filepath.Join(plugin, "mail.yaml"), "version: 1.0.0\nlimits: {output: 1KiB}\n")
		u.must("plugin", "push", plugin, "--canary", "50%")
		served(`canary .* release 2\b`)
		releases := func() (all []struct {
			Number int
			Stage  *struct{ Reason string }
		},
		) {
			t.Helper()
			if err := json.Unmarshal([]byte(u.must("plugin", "releases", "mail", "-o", "json")), &all); err != nil {
				t.Fatal(err)
			}
			return all
		}
		stage := release.Stage{Share: release.Share{Steps: []release.Step{{Percent: 50}}}}
		old := "old"
		for stage.Takes(2, old, nil) {
			old += "+"
		}
		u.run("enqueue", "mail", strings.Repeat("x", 4<<10), "--id", old, "--wait") // fails on the release that serves
		halted := func() bool { all := releases(); return len(all) == 2 && all[0].Stage.Reason != "" }
		for i := 0; i < 20 && !halted(); i++ {
			for range 10 {
				u.run("enqueue", "mail", strings.Repeat("x", 2<<10), "--wait") // fails on the canary
			}
		}
		eventually(t, "the canary is halted", halted)
		host.stderr.await(t, regexp.MustCompile(`release stopped: .*plugin=mail.* release=2 .*remedy="quern plugin halt mail --retry-failed --tenant \S+"`))
		if said := u.must("plugin", "releases", "mail"); !regexp.MustCompile(`tasks failed \(limit: \d+\); of the release before, 1 of`).MatchString(said) {
			t.Errorf("the list of releases does not say why:\n%s", said)
		}
		if found := u.run("doctor"); !strings.Contains(found.stdout, "hosts stopped release 2 of the plugin mail, so release 1 serves") {
			t.Errorf("the doctor found\n%s", found.stdout)
		}
		tasks := func(status string) int {
			t.Helper()
			var all []any
			if err := json.Unmarshal([]byte(u.must("task", "ls", "mail", "--status", status, "-o", "json")), &all); err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		failed := tasks("failed")
		again := u.run("plugin", "halt", "mail", "--retry-failed")
		if again.status != exitDone || again.stdout != "mail 2\n" || failed == 0 || !strings.Contains(again.stderr, "failed tasks of release 2 of mail are retried") {
			t.Errorf("%d tasks had failed: %+v", failed, again)
		}
		eventually(t, "all tasks are complete", func() bool {
			return tasks("failed") == 1 && tasks("complete") >= failed
		})
		if shown := u.must("task", "show", old); !regexp.MustCompile(`(?m)^status +failed`).MatchString(shown) || !regexp.MustCompile(`(?m)^release +1$`).MatchString(shown) {
			t.Errorf("the task that failed on release 1 is\n%s", shown)
		}
		if once := u.run("plugin", "halt", "mail"); once.status == exitDone {
			t.Errorf("halted a canary that is halted: %+v", once)
		}
	})
}

// A canary whose task takes its host down again and again is halted when the second host has died, each a process of its
// own. The task then runs on the release that serves.
func TestCanaryInCrashLoop(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	u := over("redis").tenant(t)
	host := func() *child {
		c := u.spawn("serve", "--plugins", filepath.Join(t.TempDir(), "none"), "--http", "127.0.0.1:0", "--lease", "2s")
		c.stderr.await(t, regexp.MustCompile(`joined: `))
		return c
	}
	one := host()
	plugin := folder(t, map[string][]byte{"mail": runtimetest.Echo(t)})
	u.must("plugin", "push", plugin)
	one.stderr.await(t, regexp.MustCompile(`plugin loaded: plugin=mail `))
	write(t, filepath.Join(plugin, "mail.wasm"), string(runtimetest.Sleep(t)))
	u.must("plugin", "push", plugin, "--canary", "100%")
	one.stderr.await(t, regexp.MustCompile(`plugin loaded: plugin=mail .*beside=2`))
	id := strings.TrimSpace(u.must("enqueue", "mail", "600000"))
	dies := func(c *child) {
		t.Helper()
		c.stderr.await(t, regexp.MustCompile(`plugin says: .*ready`))
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.wait(t)
	}
	dies(one)
	dies(host())
	last := host()
	last.stderr.await(t, regexp.MustCompile(`release stopped: .*release=2 .*measure=crashes reason="2 hosts died over its tasks"`))
	eventually(t, "the task has ended", func() bool {
		return strings.Contains(u.must("task", "show", id), "complete")
	})
}
