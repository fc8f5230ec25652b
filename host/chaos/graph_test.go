package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// newGraph draws tasks of which most wait for up to three of the last thirty before them, and some for a hundred, every other of which
// is the task of a batch, in any queue; the last one waits for all. Some fail, and so it is known of each what is to become of it.
func newGraph(random *rand.Rand, count int) []order {
	whens := []queue.When{queue.WhenComplete, queue.WhenEnded, queue.WhenEnded, queue.WhenAny, queue.WhenAny, queue.WhenFailed}
	graph := make([]order, count)
	all := make(map[string]order, count)
	for i := range graph {
		o := order{id: fmt.Sprintf("node-%05d", i), queue: queues[random.IntN(len(queues))], manner: "ok", takes: between(random, 0, 20*time.Millisecond)}
		if random.IntN(10) == 0 {
			o.manner = "never"
		}
		switch {
		case i == count-1:
			for _, before := range graph[:i] {
				o.after = append(o.after, before.id)
			}
			o.when = queue.WhenEnded
		case i%50 == 49:
			for _, before := range graph[max(0, i-100):i] {
				o.after = append(o.after, before.id)
			}
			o.when, o.open = whens[random.IntN(len(whens))], i%100 == 49
		default:
			for range min(i, random.IntN(4)) {
				if id := graph[i-1-random.IntN(min(i, 30))].id; !slices.Contains(o.after, id) {
					o.after = append(o.after, id)
				}
			}
			if len(o.after) > 0 {
				o.when = whens[random.IntN(len(whens))]
			}
		}
		if failures := failures(o, all); o.when == queue.WhenComplete && failures > 0 || o.when == queue.WhenAny && failures == len(o.after) {
			o.manner = unmet
		} else if o.when == queue.WhenFailed && failures == 0 {
			o.manner = skipped
		}
		graph[i], all[o.id] = o, o
	}
	return graph
}

// failures is how many of those that a task waits for are to fail.
func failures(o order, all map[string]order) (n int) {
	for _, id := range o.after {
		if manners[all[id].manner].status == queue.Failed {
			n++
		}
	}
	return n
}

// produceInOrder enqueues tasks one after the other, at an even pace.
func (p *producers) produceInOrder(ctx context.Context, orders []order, length time.Duration) error {
	begun := time.Now()
	for i, o := range orders {
		if err := p.enqueue(ctx, begun.Add(length*time.Duration(i)/time.Duration(len(orders))), o); err != nil {
			return err
		}
	}
	return nil
}

// newDoomed draws flows that are to be cancelled before their first task has ended: it is due in an hour, or would run as long.
func newDoomed(random *rand.Rand, count int) (flows [][]order) {
	for i := range count {
		id := func(name string) string { return fmt.Sprintf("doomed-%03d-%s", i, name) }
		flow := []order{
			{id: id("first"), delay: time.Hour},
			{id: id("next"), after: []string{id("first")}},
			{id: id("last"), after: []string{id("next")}},
			{id: id("all"), after: []string{id("first"), id("last")}, when: queue.WhenEnded},
		}
		if random.IntN(2) == 0 {
			flow[0].delay, flow[0].takes = 0, time.Hour
		}
		for i := range flow {
			flow[i].queue, flow[i].manner = queues[random.IntN(len(queues))], cancelled
		}
		flows = append(flows, flow)
	}
	return flows
}

// produceDoomed enqueues flows at an even pace, and cancels each.
func (p *producers) produceDoomed(ctx context.Context, flows [][]order, length time.Duration) error {
	begun := time.Now()
	for i, flow := range flows {
		for _, o := range flow {
			if err := p.enqueue(ctx, begun.Add(length*time.Duration(i)/time.Duration(len(flows))), o); err != nil {
				return err
			}
		}
		err := p.insist(ctx, func() error { _, err := manage.New(p.client).CancelFlow(ctx, flow[0].id, false); return err })
		if err != nil {
			return fmt.Errorf("cancel the flow of %s: %w", flow[0].id, err)
		}
	}
	return nil
}

// order: no task of a graph began before what it waited for had ended.
func (l *ledger) order(graph []order) {
	tasks := make(map[string]*queue.Task, len(graph))
	for _, o := range graph {
		task, err := l.fleet.client.Task(l.fleet.ctx, o.id)
		if err != nil {
			l.blame("%v", err)
			return
		}
		tasks[o.id] = task
	}
	waited := 0
	for _, o := range graph {
		task := tasks[o.id]
		begun := task.StartedAt
		history, err := manage.New(l.fleet.client).History(l.fleet.ctx, task)
		if err != nil {
			l.blame("history of %s: %v", o.id, err)
		}
		for _, run := range history {
			if !run.Started.IsZero() && run.Started.Before(begun) {
				begun = run.Started
			}
		}
		early, wanted := 0, 0 // of those that let it run
		for _, id := range o.after {
			if o.when == queue.WhenAny && tasks[id].Status != queue.Complete || o.when == queue.WhenFailed && tasks[id].Status != queue.Failed {
				continue
			}
			if wanted++; begun.Before(tasks[id].FinishedAt) {
				early++
			}
		}
		runs := o.manner != unmet && o.manner != skipped
		if runs && early > 0 && (o.when == queue.WhenComplete || o.when == queue.WhenEnded || early == wanted) {
			l.blame("%s began at %s, before %d of %v had ended", o.id, begun, early, o.after)
		}
		if a := task.After; len(o.after) > 0 && (a == nil || a.Blocked == runs || a.Of != len(o.after) || a.Ended != a.Of || a.Failed != failures(o, l.orders)) {
			l.blame("%s waits for %v, and notes %+v", o.id, o.after, a)
		}
		waited += len(o.after)
	}
	l.fleet.t.Logf("graph     %d tasks in their order, with %d dependencies", len(graph), waited)
}
