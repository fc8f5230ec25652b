package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// twoHosts starts two hosts without a plugin directory, each a process of its own.
func (u *user) twoHosts(t *testing.T) (hosts [2]*child) {
	for i := range hosts {
		cache := filepath.Join(t.TempDir(), "cache")
		hosts[i] = u.spawn("serve", "--plugins", filepath.Join(cache, "none"), "--http", "127.0.0.1:0", "--cache", cache, "--lease", "2s")
		hosts[i].stderr.await(t, regexp.MustCompile(`joined: `))
	}
	return hosts
}

// listed waits until the releases of a plugin are listed with a line that matches.
func (u *user) listed(plugin, line string) {
	u.t.Helper()
	row := regexp.MustCompile(`(?m)^` + line + `$`)
	eventually(u.t, line, func() bool { return row.MatchString(u.must("plugin", "releases", plugin)) })
}

// A canary gets its share on two hosts. One host is killed under load: no task is lost, and each ran on its side. It
// is halted, and another one grows in steps until it serves.
func TestCanary(t *testing.T) {
	ofProcesses(t)
	overBoth(t, func(t *testing.T, by over) {
		u := by.tenant(t)
		hosts := u.twoHosts(t)
		plugin := folder(t, map[string][]byte{"version": runtimetest.Version(t, "one")})
		manifest := filepath.Join(plugin, "version.yaml")
		write(t, manifest, "version: 1.0.0\nretry: {max_attempts: 3}\n")
		if r := u.run("plugin", "push", plugin, "--canary", "20%"); r.status != exitRefused || !strings.Contains(r.stderr, "push without --canary and --steps") {
			t.Errorf("pushed a canary of nothing: %+v", r)
		}
		u.must("plugin", "push", plugin)
		u.rolledOut("version", 1)
		write(t, manifest, "version: 2.0.0\n")
		write(t, filepath.Join(plugin, "version.wasm"), string(runtimetest.Version(t, "two")))
		r := u.run("plugin", "push", plugin, "--canary", "20%")
		if r.stdout != "version 2\n" || !strings.Contains(r.stderr, "is a canary for 20%: end with `quern plugin promote version` or `quern plugin halt version`") {
			t.Errorf("pushed a canary: %+v", r)
		}
		if r := u.run("plugin", "push", plugin, "--canary", "20%"); r.stdout != "version 2\n" || !strings.Contains(r.stderr, "nothing was pushed") {
			t.Errorf("pushed it again: %+v", r)
		}
		u.listed("version", `2 +version +2.0.0 +canary +20% .* 2`)
		if said := u.must("plugin", "ls"); !regexp.MustCompile(`version +2.0.0 .* canary .* 2 +release 2`).MatchString(said) {
			t.Errorf("the canary is not in\n%s", said)
		}

		const tasks = 300
		var lines strings.Builder
		for i := range tasks {
			fmt.Fprintf(&lines, "{\"id\": \"t%d\", \"parameters\": \"\"}\n", i)
		}
		if r := u.feed(lines.String(), "enqueue", "version", "--file", "-"); r.status != exitDone {
			t.Fatalf("enqueue: %+v", r)
		}
		if err := hosts[1].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		hosts[1].wait(t)
		type ran struct{ ID, Version string }
		var all []ran
		eventually(t, "all tasks are complete", func() bool {
			r := u.run("task", "ls", "version", "--status", "complete", "--limit", "1000", "-o", "json")
			all = nil
			return r.status == exitDone && json.Unmarshal([]byte(r.stdout), &all) == nil && len(all) == tasks
		})
		stage, sides := release.Stage{Share: release.Share{Steps: []release.Step{{Percent: 20}}}}, map[string]int{}
		for _, task := range all {
			want := "1.0.0"
			if stage.Takes(2, task.ID, nil) {
				want = "2.0.0"
			}
			if task.Version != want {
				t.Errorf("%s ran on %s, want %s", task.ID, task.Version, want)
			}
			sides[task.Version]++
		}
		if len(sides) != 2 {
			t.Errorf("the tasks ran on %v", sides)
		}

		if got := u.must("plugin", "halt", "version", "--reason", "it is too slow"); got != "version 2\n" {
			t.Errorf("halted %q", got)
		}
		u.listed("version", `2 +version +2.0.0 +halted +20% .* it is too slow +0`)
		for _, args := range [][]string{{"promote", "version"}, {"promote", "version", "2"}, {"halt", "version"}} {
			if r := u.run(append([]string{"plugin"}, args...)...); r.status != exitRefused || !strings.Contains(r.stderr, "quern plugin releases version") {
				t.Errorf("%v without a canary: %+v", args, r)
			}
		}
		u.must("plugin", "push", plugin, "--canary", "label:customer=acme")
		u.listed("version", `3 +version +2.0.0 +canary +label:customer=acme .* 1`)
		for customer, want := range map[string]string{"acme": "two", "other": "one"} {
			if got := u.must("enqueue", "version", "--label", "customer="+customer, "--wait"); got != want {
				t.Errorf("the task of %s wrote %q", customer, got)
			}
		}
		u.must("plugin", "promote", "version", "3")
		u.listed("version", `3 +version +2.0.0 +serving +- .* 1`)
		write(t, manifest, "version: 3.0.0\n")
		r = u.run("plugin", "push", plugin, "--steps", "1%/1s,50%/1s")
		if r.stdout != "version 4\n" {
			t.Errorf("pushed %+v", r)
		}
		u.listed("version", `4 +version +3.0.0 +serving .*`)
		if r := u.run("plugin", "delete", "version", "4"); r.status != exitRefused {
			t.Errorf("deleted what serves: %+v", r)
		}
		if by == "server" {
			audit := u.must("audit")
			for _, want := range []string{"promote-release", "halt-release", "canary=20%", "reason=it is too slow"} {
				if !strings.Contains(audit, want) {
					t.Errorf("the audit log lacks %s:\n%s", want, audit)
				}
			}
		}
	})
}

// A share that is wrong is refused before anything is read, with what would be right.
func TestShareRefused(t *testing.T) {
	t.Parallel()
	u := over("redis").tenant(t)
	for _, of := range []struct{ flag, value, want string }{
		{"--canary", "", `--canary "": write a share, such as 10%; without the flag the release serves all tasks`},
		{"--steps", "", `--steps "": write steps, such as 10%/10m`},
		{"--canary", "10", `--canary "10": "10": use a percentage, such as 10%`},
		{"--canary", "x%", "use a percentage, such as 10%"},
		{"--canary", "0%", `--canary "0%": 0%: use more than 0%, and at most 100%`},
		{"--canary", "101%", "at most 100%"},
		{"--canary", "NaN%", "use more than 0%"},
		{"--canary", "10%/1h", "use one percentage, such as 10%, or --steps"},
		{"--canary", "label:customer", "write label:NAME=VALUE, such as label:customer=acme"},
		{"--steps", "1%,50%", "step 1, 1%: only the last step can be without an end: use 1%/10m, or 1%/500 for 500 tasks"},
		{"--steps", "1%/soon", `"1%/soon": use a duration of 1s or more, or a number of tasks after the slash, such as 1%/10m or 1%/500`},
		{"--steps", "1%/10m,10%/1h/500", `step 2, "10%/1h/500": use a duration of 1s or more, or a number of tasks after the slash`},
		{"--steps", "50%/1h,10%", "step 2, 10%: use more than 50%"},
		{"--steps", "1%/-5", `"1%/-5": use a duration of 1s or more, or a number of tasks`},
		{"--steps", "1%/0,50%/1h", `step 1, "1%/0": use a duration of 1s or more, or a number of tasks`},
		{"--steps", "1%/10m,", `step 2, "": use a percentage, such as 10%`},
		{"--steps", "10%/1ms", `"10%/1ms": use a duration of 1s or more`},
		{"--steps", "1%/10m;50%", `"1%/10m;50%": use a duration of 1s or more, or a number of tasks after the slash, such as 1%/10m`},
		{"--steps", "1%/9000h", "1%: it lasts for 3.24e+07 s: use at most 366 days, such as 1%/1h"},
		{"--steps", strings.Repeat("1%/1m,", 20) + "2%", "it has 21 steps: use at most 20"},
	} {
		r := u.run("plugin", "push", "nowhere", of.flag, of.value)
		if r.status != exitUsage || !strings.Contains(r.stderr, of.want) {
			t.Errorf("%s %s: exit %d, %s; want %s", of.flag, of.value, r.status, r.stderr, of.want)
		}
	}
	if r := u.run("plugin", "push", "nowhere", "--canary", "1%", "--steps", "1%/1h"); r.status != exitUsage || !strings.Contains(r.stderr, "use either --canary or --steps") {
		t.Errorf("both flags: %+v", r)
	}
}
