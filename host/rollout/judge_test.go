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
