package queue_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// Forgetting a source that was renamed leaves the reports to the source that has them now.
func TestForgetRelay(t *testing.T) {
	w := setup(t)
	fleet, key, reports := listen.NewFleet(w.Client), w.Tenant()+"_relays", w.Tenant()+"_reports_r"
	for _, name := range []string{"old", "new"} {
		if err := w.rdb.HSet(w.ctx, key, name, `{"name":"`+name+`","reports":"r","told":1}`).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.rdb.XAdd(w.ctx, &redis.XAddArgs{Stream: reports, Values: []string{"task", "t"}}).Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		name string
		left int64
	}{{"old", 1}, {"new", 0}} {
		if err := fleet.ForgetRelay(w.ctx, want.name); err != nil {
			t.Fatal(err)
		}
		if left := must[int64](t)(w.rdb.Exists(w.ctx, reports).Result()); left != want.left {
			t.Errorf("after %s: %d streams of reports, want %d", want.name, left, want.left)
		}
	}
	if err := fleet.ForgetRelay(w.ctx, "old"); !errors.Is(err, listen.ErrNoRelay) {
		t.Errorf("forgotten twice: %v", err)
	}
}
