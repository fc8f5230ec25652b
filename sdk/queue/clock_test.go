package queue_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// A lease of before the clock was set back ends an hour later than it is long: who sees it stand still for its length
// takes the tasks of its listener, and a listener that renews is safe.
func TestLeaseOfBeforeTheClockWasSetBack(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", queue.Options{})
		dead, silent := w.node(t, "q"), w.node(t, "q")
		live := listen.New(must[*Client](t)(NewFromRedis(w.rdb, Config{Tenant: w.Tenant(), Lease: time.Minute})))
		renew := func(node *listen.Node) {
			t.Helper()
			node.Client.Store().Clock = w.Store().Clock
			if _, err := node.Renew(w.ctx, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, node := range []*listen.Node{dead, silent} {
			renew(node)
		}
		live.Client.Store().Clock = w.Store().Clock
		if err := live.Join(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.reserve(t, dead, "q", true)
		renew(live)
		if far := must[[]listen.OverlongLease](t)(listen.NewFleet(w.Client).OverlongLeases(w.ctx)); len(far) != 0 {
			t.Errorf("far from the beginning: %+v", far)
		}

		w.at(-3600)
		renew(live)
		far := must[[]listen.OverlongLease](t)(listen.NewFleet(w.Client).OverlongLeases(w.ctx))
		if len(far) == 2 && far[0].Listener == silent.ID() {
			far[0], far[1] = far[1], far[0]
		}
		if len(far) != 2 || far[0].Listener != dead.ID() || far[1].Listener != silent.ID() || far[0].Length != 10*time.Second {
			t.Fatalf("after the clock was set back: %+v", far)
		}
		if _, err := listen.NewFleet(w.Client).Reclaim(w.ctx, dead.ID(), 0); err == nil {
			t.Error("reclaimed from a listener whose lease runs")
		}
		renew(silent)
		if ended := must[bool](t)(listen.NewFleet(w.Client).EndLease(w.ctx, far[1])); ended {
			t.Error("a listener that has renewed was condemned")
		}
		w.at(-5) // now it may be right
		if ended := must[bool](t)(listen.NewFleet(w.Client).EndLease(w.ctx, far[0])); !ended {
			t.Error("a lease of 15 s that is 10 s long was not ended")
		}
		if ended := must[bool](t)(listen.NewFleet(w.Client).EndLease(w.ctx, far[0])); ended {
			t.Error("a second host ended the same lease")
		}
		w.at(-3600)
		if gone, _, _, err := listen.NewFleet(w.Client).Leases(w.ctx); err != nil || !slices.Equal(gone, []string{dead.ID()}) {
			t.Errorf("dead are %v, %v", gone, err)
		}
		if got := must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, dead.ID(), 0)); got.Returned != 1 || w.task(t, id).Status != queue.Pending {
			t.Errorf("reclaimed %+v", got)
		}
		if ended := must[bool](t)(listen.NewFleet(w.Client).EndLease(w.ctx, far[0])); ended {
			t.Error("a third host ended the lease of a listener that is forgotten")
		}
		renew(silent)
		renew(live)
	})
}

// What may be right is not ended, whoever saw it stand still.
func TestLeaseThatIsNotFar(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node := w.node(t, "q")
		w.at(-20)
		far := must[[]listen.OverlongLease](t)(listen.NewFleet(w.Client).OverlongLeases(w.ctx))
		if len(far) != 0 {
			t.Errorf("%+v, and it did not say how long its lease is", far)
		}
		w.at(0)
		if _, err := node.Renew(w.ctx, nil); err != nil {
			t.Fatal(err)
		}
		w.at(-20)
		far = must[[]listen.OverlongLease](t)(listen.NewFleet(w.Client).OverlongLeases(w.ctx))
		w.at(0)
		if len(far) != 1 || must[bool](t)(listen.NewFleet(w.Client).EndLease(w.ctx, far[0])) {
			t.Errorf("%+v was ended at a time when it was right", far)
		}
		if _, err := node.Renew(w.ctx, nil); err != nil {
			t.Error(err)
		}
	})
}

// A duty of before the clock was set back, or without an end, is nobody's.
func TestDutyOfBeforeTheClockWasSetBack(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := listen.New(w.Client)
		for _, left := range []time.Duration{time.Hour, 0} { // a life of 0 is one without an end
			w.rdb.Set(w.ctx, w.Store().Keys.Duty("due"), "dead", left)
			if !must[bool](t)(node.TakeDuty(w.ctx, "due", time.Minute)) {
				t.Errorf("a duty that lasts %s longer is still a dead host's", left)
			}
			if again := must[bool](t)(node.TakeDuty(w.ctx, "due", time.Minute)); again {
				t.Error("a duty was taken twice")
			}
		}
	})
}
