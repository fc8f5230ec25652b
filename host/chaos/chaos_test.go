package chaos

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// An accepted task is run to one final state, whatever dies, as long as Redis keeps its data; and
// nothing runs again that nothing hit.
func TestLedger(t *testing.T) {
	beside(t)
	tasks, length, rest, redisRest := 400, 5*time.Second, 500*time.Millisecond, 2*time.Second
	s := settings{hosts: 4, concurrency: 16, lease: 2 * time.Second, grace: time.Second, patience: 3 * time.Minute}
	if full {
		tasks, length, rest, redisRest = 20_000, time.Minute, 3*time.Second, 8*time.Second
		s.concurrency, s.patience = 48, 10*time.Minute
	}
	seed := newSeed(t)
	plan := newPlan(seed, s, victims(t), length, rest, redisRest)
	orders := newOrders(newRandom(seed, 100), tasks)
	graph := newGraph(newRandom(seed, 101), tasks/4)
	inLanes := newLaneOrders(newRandom(seed, 104), max(100, tasks/10), "ok", "ok", "ok", "slip", "yield")
	doomed := newDoomed(newRandom(seed, 103), tasks/100)
	t.Logf("QUERN_CHAOS_SEED=%d:", seed)
	for _, one := range plan {
		t.Log(one)
		length = max(length, one.at+one.length)
	}
	lanes := newLanes(t)
	s.heard = lanes.heard
	f := newFleet(t, s)
	lanes.serve(f)
	through := newProxy(t, f.address.addr())
	p := newProducers(f, through)

	f.schedule()
	begun := time.Now()
	produced := make(chan error, 1)
	go func() { produced <- p.produce(f.ctx, orders, length) }()
	go func() { produced <- p.produceInOrder(f.ctx, graph, length) }()
	go func() { produced <- p.produceInOrder(f.ctx, inLanes, length) }()
	go func() { produced <- p.produceDoomed(f.ctx, doomed, length) }()
	f.suffer(plan, through)
	if err := errors.Join(<-produced, <-produced, <-produced, <-produced); err != nil {
		t.Fatal(err)
	}
	orders = slices.Concat(orders, graph, inLanes, slices.Concat(doomed...))
	f.settled(len(orders), laned)
	took := time.Since(begun)
	f.auditTicks(took)
	l := f.audit(orders)
	l.order(graph)
	wrong, fullest := lanes.audit(inLanes, 0)
	l.wrong = append(l.wrong, wrong...)
	t.Logf("lanes     %d tasks with a concurrency key; at most %d of %d that may run at once did", len(inLanes), fullest, widest)
	t.Logf("\n%s", l.report(seed, p, took))
	l.complain()
	f.leave()
}

// leave ends all hosts in good order: nothing in Redis speaks of them any more.
func (f *fleet) leave() {
	f.t.Helper()
	for _, difference := range f.strangers(f.ctx) {
		f.t.Error(difference)
	}
	for _, h := range f.hosts {
		if err := h.terminate(); err != nil {
			f.t.Error(err)
		}
		if code := h.process().shell.ProcessState.ExitCode(); code != 0 {
			f.t.Errorf("%s ended with %d", h.name, code)
		}
	}
	for _, pattern := range []string{"nodes", "node_*", "listeners_*", "reserved_tasks_*"} {
		keys, err := f.rdb.Keys(f.ctx, key(pattern)).Result()
		if err != nil || len(keys) > 0 {
			f.t.Errorf("keys are left: %v, %v", keys, err)
		}
	}
}

// The same seed makes the same plan, and every plan has a fault of each kind.
func TestPlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		draw := func() []fault {
			return newPlan(seed, settings{hosts: 3, lease: 2 * time.Second}, allVictims, 5*time.Second, time.Second, time.Second)
		}
		plan := draw()
		if other := draw(); fmt.Sprint(plan) != fmt.Sprint(other) {
			t.Fatalf("seed %d:\n%v\n%v", seed, plan, other)
		}
		seen := make(map[kind]bool)
		for _, one := range plan {
			seen[one.kind] = true
		}
		if len(seen) != len(hostFaults)+len(redisFaults) {
			t.Errorf("seed %d has only %v", seed, seen)
		}
	}
}
