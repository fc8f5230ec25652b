package rollout

import (
	"testing"

	"github.com/quern-project/quern/sdk/queue/release"
)

// The remedy can be pasted into a shell, whatever the plugin is called.
func TestRemedy(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"mail":    "quern plugin halt mail --retry-failed --tenant acme",
		"$(id)'x": `quern plugin halt '$(id)'\''x' --retry-failed --tenant acme`,
	} {
		if got := Remedy("acme", &release.Release{Plugin: name}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What runs beside a canary counts, also on a host that refuses the release that is to serve.
func TestCountsBesideCanary(t *testing.T) {
	t.Parallel()
	tenant, _ := fetching(t, NoArtifacts{})
	j := &Judge{Tenant: tenant}
	canary := release.Release{Plugin: "mail", Number: 3, Queues: []string{"mail"}, Stage: &release.Stage{}}
	serving := release.Release{Plugin: "other", Number: 2}
	tenant.trials.set(map[string]release.Served{
		"mail":  {Release: release.Release{Plugin: "mail", Number: 2}, Canary: &canary},
		"other": {Release: serving, Before: &release.Release{Plugin: "other", Number: 1}},
	}, nil)
	for number, tasks := range []int{5, 4, 3, 2} { // of the plugin directory, and of the releases 1 to 3
		for range tasks {
			j.Ran("mail", "mail", number)
			j.Ran("mail", "unlike", number)
			j.Ran("other", "other", number)
		}
	}
	for _, tt := range []struct {
		of       onTrial
		old, new int64
	}{{onTrial{canary}, 7, 2}, {onTrial{serving}, 0, 3}} {
		counts := j.take(&tt.of)
		step := counts.At(0)
		if step.Old.Runs != tt.old || step.New.Runs != tt.new {
			t.Errorf("%s: counted %d tasks, and %d beside", tt.of.Plugin, step.New.Runs, step.Old.Runs)
		}
	}
}
