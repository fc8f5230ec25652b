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

// A task that waits a minute for its release gets it if one of the four that others needed is idle by then.
func TestRoomForReleases(t *testing.T) {
	t.Parallel()
	tenant := &Tenant{staged: make(map[string]*staged)}
	now := time.Now()
	for number := 1; number <= maxNeeded; number++ {
		if !tenant.Need("mail", number, now) {
			t.Errorf("no room for release %d", number)
		}
	}
	if tenant.Need("mail", 5, now.Add(busyTime-time.Second)) {
		t.Error("a release that was needed just now makes room")
	}
	for number := 2; number <= maxNeeded; number++ {
		tenant.Need("mail", number, now.Add(30*time.Second))
	}
	if !tenant.Need("mail", 5, now.Add(40*time.Second)) || tenant.Need("mail", 1, now.Add(41*time.Second)) {
		t.Error("the idle release made no room")
	}
}
