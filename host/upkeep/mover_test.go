package upkeep

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/periodic"
)

// feed keeps a mover busy until ctx ends.
func feed(ctx context.Context, m *Mover) {
	for ctx.Err() == nil {
		for i := range 5000 {
			m.Add(fmt.Sprint("busy", i), Moves{Due: true})
		}
		periodic.Sleep(ctx, 20*time.Millisecond)
	}
}

// With more to do than one host can, others get the duty as well.
func TestMoversTakeTurns(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	hosts := []*host{f.host(f.client), f.host(f.client)}
	ctx, cancel := context.WithCancel(f.ctx)
	var movers sync.WaitGroup
	defer func() { cancel(); movers.Wait() }()
	for _, h := range hosts {
		stop := periodic.Start(ctx, h.Mover)
		movers.Go(func() { feed(ctx, h.Mover); stop() })
	}
	for _, h := range hosts {
		f.eventually("each has the duty", func() bool { return f.rdb.Get(f.ctx, f.tenant+"_duty_due").Val() == h.node.ID() })
	}
}

// Redis serves again when it answers that another host has the duty.
func TestMoverRecoversWhileAnotherHasTheDuty(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.host(f.as("mover", "-pttl"))
	ctx, cancel := context.WithCancel(f.ctx)
	stop := periodic.Start(ctx, h.Mover)
	defer func() { cancel(); stop() }()
	h.Mover.Add("q00", Moves{Due: true})
	f.eventually("trouble", func() bool { return !h.health.healthy() })
	other := func() bool {
		return f.rdb.Set(f.ctx, f.tenant+"_duty_due", "another", moveTerm).Err() == nil
	}
	other()
	f.allow("mover", "+pttl")
	f.eventually("the end of the trouble", func() bool { return other() && h.health.healthy() })
}
