package chaos

import (
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// However Redis's clock is set while hosts and Redis break, no key has more tasks inside than it may, the fleet runs no more than
// the tenant's quota, and nothing runs again that nothing hit. The tasks have no delays: those that end in an hour by a clock
// that is set back by an hour are right to take two.
func TestClock(t *testing.T) {
	beside(t)
	const running = 6
	tasks, length, rest, redisRest := 200, 6*time.Second, time.Second, time.Second
	s := settings{hosts: 3, concurrency: 16, lease: 2 * time.Second, grace: time.Second, patience: 4 * time.Minute}
	if full {
		tasks, length, rest, redisRest = 2000, time.Minute, 4*time.Second, 3*time.Second
		s.patience = 12 * time.Minute
	}
	var clock *queuetest.Clock
	var ahead time.Duration
	s.startRedis = func(t testing.TB, options ...string) (server *queuetest.Server) {
		server, clock = queuetest.StartAhead(t, ahead, options...)
		return server
	}
	s.setClock = func(d time.Duration) { ahead = d; clock.Set(t, d) }
	seed := newSeed(t)
	plan := newPlan(seed, s, []string{hostVictims, redisVictim}, length, rest, redisRest)
	orders := newLaneOrders(newRandom(seed, 105), tasks, "ok")
	t.Logf("QUERN_CHAOS_SEED=%d:", seed)
	for _, one := range plan {
		t.Log(one)
		length = max(length, one.at+one.length)
	}
	lanes := newLanes(t)
	s.heard = lanes.heard
	f := newFleet(t, s)
	lanes.serve(f)
	if err := manage.SetQuotas(f.ctx, f.client, manage.Quotas{"running": "6"}); err != nil {
		t.Fatal(err)
	}
	p := newProducers(f, newProxy(t, f.address.addr()))
	began := time.Now()
	produced := make(chan error, 1)
	go func() { produced <- p.produceInOrder(f.ctx, orders, length) }()
	f.suffer(plan, nil)
	if err := <-produced; err != nil {
		t.Fatal(err)
	}
	f.settled(len(orders), laned)
	l := f.audit(orders)
	wrong, fullest := lanes.audit(orders, running)
	l.wrong = append(l.wrong, wrong...)
	t.Logf("\n%s", l.report(seed, p, time.Since(began)))
	t.Logf("%d of %d that may run at once of a key did", fullest, widest)
	l.complain()
	f.leave()
}
