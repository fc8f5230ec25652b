package tenant

import (
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
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
