package manifest

import (
	"fmt"
	"testing"
	"time"
)

// What a manifest declares is bounded by the host, whose messages have the key and the line to add.
func TestCheckDeclared(t *testing.T) {
	t.Parallel()
	const all = "schedule: [{cron: '* * * * * *', parameters: '12345'}, {name: b, cron: '@every 1h'}]\nsubscribe: [{topic: orders}]"
	tests := map[string]struct {
		grants, manifest string
		ceilings         []string
		others           Declared
		want             string
	}{
		"no grants":          {"", all, nil, Declared{}, ""},
		"no ceiling":         {"acme: {}", all, nil, Declared{}, ""},
		"granted nothing":    {"acme: {capabilities: {}}", "queues: [a]", nil, Declared{9, 9}, ""},
		"granted by entries": {"acme: {capabilities: {}, schedule: {entries: 2}, subscribe: {entries: 1}}", all, nil, Declared{}, ""},
		"granted by another": {"acme: {capabilities: {}, schedule: {parameters: 5B}, subscribe: {entries: 1}}", all, nil, Declared{}, ""},
		"none": {
			"acme: {capabilities: {}}", all, nil,
			Declared{3, 0},
			`x.yaml: schedule: has 2 entries, and the host grants the tenant none: remove them, or add schedule: {entries: 5} to "acme" in g.yaml; ` +
				`x.yaml: subscribe: has 1 entries, and the host grants the tenant none: remove them, or add subscribe: {entries: 1} to "acme" in g.yaml`,
		},
		"everyone's none": {
			`"*": {capabilities: {}}`, "subscribe: [{topic: orders}]", nil,
			Declared{},
			`x.yaml: subscribe: has 1 entries, and the host grants the tenant none: remove them, or add subscribe: {entries: 1} to "*" in g.yaml`,
		},
		"another tenant's": {
			"beta: {}", "subscribe: [{topic: orders}]", nil,
			Declared{},
			`x.yaml: subscribe: has 1 entries, and the host grants the tenant none: remove them, or add subscribe: {entries: 1} to "acme" in g.yaml`,
		},
		"too many": {
			"acme: {schedule: {entries: 4}}", all, nil,
			Declared{3, 0},
			`x.yaml: schedule: has 2 entries, with which the plugins of this folder have 5, more than the 4 that the host allows: remove some, or raise schedule.entries to 5 in "acme" in g.yaml`,
		},
		"too many by the flag": {
			"", all,
			[]string{"subscribe.entries=1"},
			Declared{0, 1},
			`x.yaml: subscribe: has 1 entries, with which the plugins of this folder have 2, more than the 1 that the host allows: remove some, or raise subscribe.entries to 2 in --ceiling`,
		},
		"too many by default": {
			"", all, nil,
			Declared{999, 0},
			`x.yaml: schedule: has 2 entries, with which the plugins of this folder have 1001, more than the 1000 that the host allows: remove some, or raise schedule.entries to 1001 in --ceiling`,
		},
		"the default is raised": {"", all, []string{"schedule.entries=2000"}, Declared{999, 0}, ""},
		"too often": {
			"acme: {schedule: {every: 1m}}", all,
			[]string{"schedule.every=1s"},
			Declared{},
			`x.yaml: schedule[0].cron: "* * * * * *" is due 1s after the tick before, and the host allows no less than 1m0s: write a longer period, such as @every 1m0s, or lower schedule.every to 1s in "acme" in g.yaml`,
		},
		"too much": {
			"", all,
			[]string{"schedule.parameters=4B"},
			Declared{},
			`x.yaml: schedule[0].parameters: has 5 bytes, more than the 4B that the host allows: write fewer, or raise schedule.parameters to 5B in --ceiling`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := Parse("x.yaml", []byte(tt.manifest))
			check(t, err)
			var grants *Grants
			if tt.grants != "" {
				grants, err = ParseGrants("g.yaml", []byte(tt.grants))
				check(t, err)
			}
			ceilings, err := ParseCeilings("--ceiling", tt.ceilings)
			check(t, err)
			got := m.CheckDeclared("x.yaml", tt.others, grants, "acme", ceilings)
			if got == nil {
				got = NewPermissions(&m, grants, "acme", ceilings).Undeclared("x.yaml")
			}
			if text := fmt.Sprint(got); text != tt.want && (got != nil || tt.want != "") {
				t.Errorf("got  %v\nwant %s", got, tt.want)
			}
			if err := m.CheckDeclared("x.yaml", Declared{}, grants, "", nil); err != nil {
				t.Errorf("a plugin of every tenant: %v", err)
			}
		})
	}
}

// The least time between two ticks, wherever it comes.
func TestSchedulePeriod(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]time.Duration{
		"* * * * *": time.Minute, "* * * * * *": time.Second, "0,59 * * * * *": time.Second, "0,59 0,59 * * * *": time.Second,
		"*/10 * * * *": 10 * time.Minute, "0 30 * * * *": time.Hour, "30 6 * * *": 24 * time.Hour, "@every 90s": 90 * time.Second, "@hourly": time.Hour,
		"* * * * * 6": time.Second, "0 0 29 2 *": 4 * 365 * 24 * time.Hour, "0,1 0 0 1 1 *": time.Second,
	} {
		s := Schedule{Cron: expression}
		if got := s.period(); got != want && (got < want || got > want+48*time.Hour || want < 1000*time.Hour) {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}
