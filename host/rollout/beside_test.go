package rollout

import (
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/release"
)

// The tasks of a canary run on the release that serves once no host has had the canary for absentTime, however long ago
// its step began.
func TestAbsentCanary(t *testing.T) {
	t.Parallel()
	tenant, _ := fetching(t, &down{})
	canary, other := &release.Release{Plugin: "mail", Number: 2}, &release.Release{Plugin: "mail", Number: 3}
	note := func(canary *release.Release) {
		tenant.note(map[string]release.Served{"mail": {Release: release.Release{Number: 1}, Canary: canary}})
	}
	note(canary)
	now := time.Unix(1e9, 0)
	for i, tt := range []struct {
		after  time.Duration
		has    bool
		absent bool
	}{
		{0, true, false},
		{time.Hour, false, false}, // the only host restarts
		{absentTime - 1, false, false},
		{1, false, true},
		{time.Hour, false, true},
		{time.Second, true, false},
		{time.Hour, false, false},
		{absentTime, false, true},
	} {
		now = now.Add(tt.after)
		note(canary)
		tenant.setPresent(canary, tt.has, now)
		if got, _ := tenant.Staged("mail"); (got == nil) != tt.absent {
			t.Errorf("look %d: the canary of the tenant is %v", i, got)
		}
	}
	note(other)
	if got, _ := tenant.Staged("mail"); got == nil {
		t.Error("the next canary is absent at once")
	}
}
