package upkeep

import (
	"context"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
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

// A queue's concurrency is that of the version that serves. It stays while no host serves the queue, and goes ten
// minutes after the last version that had it, if another one serves the queue.
func TestDeclaredConcurrency(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	rules := listen.NewRules(f.client)
	d := f.declarer("0 1 * * *", false)
	rule := "1 queue"
	d.Declared = func() []Declaration {
		if rule == "" {
			return nil
		}
		return []Declaration{DeclaredConcurrency("mail", "q00", rule)}
	}
	says := func(want string) {
		t.Helper()
		if _, _, err := d.RunOnce(f.ctx); err != nil {
			t.Fatal(err)
		}
		if got, err := rules.Of(f.ctx, "q00"); err != nil || got != want {
			t.Errorf("the rule is %q, want %q: %v", got, want, err)
		}
	}
	says("1 queue")
	if put, err := rules.Declare(f.ctx, "q00", "2 queue", true); put != queue.PutKept || err != nil {
		t.Error(put, err)
	}
	rule = listen.ConcurrencyRule{Key: listen.KeyLabels + "a", Max: 2}.String()
	says(`2 label "a":`)
	rule = ""
	says(`2 label "a":`)
	for _, step := range []struct {
		declared bool
		age      time.Duration
		gone     bool
	}{{false, 0, false}, {false, time.Hour, false}, {true, time.Hour, false}, {false, time.Nanosecond, false}, {false, time.Nanosecond, true}} {
		if gone, err := rules.Note(f.ctx, "q00", step.declared, step.age); gone != step.gone || err != nil {
			t.Errorf("%+v: %v, %v", step, gone, err)
		}
	}
	says("")
}
