package upkeep

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestClockWatch(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_700_000_000, 0)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	var watch clockWatch
	for i, look := range []struct {
		redis, host float64
		want        bool
	}{
		{300, 0, false},  // apart, but that is no jump
		{310, 10, false}, // both went on
		{321, 20, false}, // an answer that took its time
		{390, 30, true},
		{400, 40, false},
		{350, 50, true},
	} {
		if got := watch.jumped(at(look.redis), at(look.host), 3*time.Second); got != look.want {
			t.Errorf("look %d: jumped %v, want %v", i, got, look.want)
		}
	}
}

// A host that may not look for overlong leases takes the tasks of dead listeners all the same, and tells what is wrong.
func TestReclaimsThoughOverlongLeasesCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.deadNode("q00")
	h := f.host(f.as("short", "-zrangebyscore"))
	h.steady()
	if err := h.Recovery.look(f.ctx); err == nil || !strings.Contains(err.Error(), "zrangebyscore") {
		t.Errorf("the error of the overlong leases is %v", err)
	}
	if left := f.listeners(); len(left) != 0 {
		t.Errorf("nobody reclaimed from %v", left)
	}
}

// While a host's own renewals fail it ends no overlong lease.
func TestEndsNoOverlongLeaseWithoutRenewals(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.host(f.client)
	lease := redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: "host~01234567_8"}
	f.rdb.ZAdd(f.ctx, f.tenant+"_nodes", lease)
	f.rdb.HSet(f.ctx, f.tenant+"_node_host~01234567_8", "lease", "0.000001") // it stands still for longer at once
	condemn := func() (end float64) {
		for range 2 {
			if err := h.Recovery.condemn(f.ctx); err != nil {
				t.Error(err)
			}
		}
		return f.rdb.ZScore(f.ctx, f.tenant+"_nodes", "host~01234567_8").Val()
	}
	if end := condemn(); end != lease.Score {
		t.Errorf("the lease ends at %v", end)
	}
	h.steady()
	if end := condemn(); end != 0 {
		t.Errorf("with renewals the lease ends at %v", end)
	}
}

// A host with a short lease leaves a duty to a host with a longer one.
func TestDutiesOfHostsWithOtherLeases(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	long, short := f.host(f.client), f.host(f.clientOf(f.rdb, time.Second))
	if err := long.Recovery.runUnleased(f.ctx); err != nil {
		t.Fatal(err)
	}
	if scripts := f.server.Calls(t, func() {
		if err := short.Recovery.runUnleased(f.ctx); err != nil {
			t.Error(err)
		}
	}); scripts["zrange"] != 0 {
		t.Errorf("a second host looked for listeners without a lease: %v", scripts)
	}
	f.deadNode("q00")
	if got, err := long.node.TakeDuty(f.ctx, "reclaim", reclaimTerm); err != nil || !got {
		t.Fatalf("%v, %v", got, err)
	}
	short.steady()
	f.rdb.Expire(f.ctx, f.tenant+"_duty_reclaim", reclaimTerm) // the machine may be slow
	if err := short.Recovery.runDead(f.ctx); err != nil {
		t.Error(err)
	}
	if left := f.listeners(); len(left) != 1 {
		t.Errorf("a second host reclaimed: %v are left", left)
	}
}
