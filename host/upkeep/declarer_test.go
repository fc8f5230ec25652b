package upkeep

import (
	"context"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
)

// declarer is a host whose plugin declares a schedule.
func (f *fleet) declarer(cron string, behind bool) *Declarer {
	h := f.host(f.client)
	d := h.Declarer
	d.Declared = func() []Declaration {
		one := DeclaredSchedule(queue.Schedule{ID: "nightly", Owner: queue.OwnedByPlugin("mail"), Queue: "q00", Cron: cron})
		one.Behind = behind
		return []Declaration{one}
	}
	d.Publish = func(context.Context) error { return nil }
	d.Serves = func(string) bool { return true }
	d.Running = func(context.Context, *queue.Client) (map[string]bool, error) { return nil, nil }
	return d
}

// The schedules of a plugin with releases are those of the release to serve, and not those of the host that wrote last.
func TestDeclarationsFollowTheRelease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	says := func(d *Declarer, want string) {
		t.Helper()
		if _, _, err := d.RunOnce(f.ctx); err != nil {
			t.Fatal(err)
		}
		s, err := f.client.Schedule(f.ctx, "nightly")
		if err != nil {
			t.Fatal(err)
		}
		if s.Cron != want {
			t.Errorf("the schedule is %q, want %q", s.Cron, want)
		}
	}
	behind := f.declarer("0 1 * * *", true)
	says(behind, "0 1 * * *") // better than none
	says(f.declarer("0 2 * * *", false), "0 2 * * *")
	says(f.declarer("0 1 * * *", true), "0 2 * * *")
	says(behind, "0 2 * * *")
	says(f.declarer("0 3 * * *", false), "0 3 * * *")
}
