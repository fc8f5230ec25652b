package rollout

import (
	"testing"
	"time"
)

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
