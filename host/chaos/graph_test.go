package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// newGraph draws tasks of which most wait for up to three of the last thirty before them, in any queue.
func newGraph(random *rand.Rand, count int) []order {
	graph := make([]order, count)
	for i := range graph {
		o := order{id: fmt.Sprintf("node-%05d", i), queue: queues[random.IntN(len(queues))], manner: "ok", takes: between(random, 0, 20*time.Millisecond)}
		for range min(i, random.IntN(4)) {
			o.after = append(o.after, graph[i-1-random.IntN(min(i, 30))].id)
		}
		if len(o.after) > 0 {
			o.when = []queue.When{queue.WhenComplete, queue.WhenComplete, queue.WhenEnded, queue.WhenAny}[random.IntN(4)]
		}
		graph[i] = o
	}
	return graph
}

// produceGraph enqueues a graph in its order, at an even pace.
func (p *producers) produceGraph(ctx context.Context, graph []order, length time.Duration) error {
	begun := time.Now()
	for i, o := range graph {
		if err := p.enqueue(ctx, begun.Add(length*time.Duration(i)/time.Duration(len(graph))), o); err != nil {
			return err
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
		history, err := l.fleet.client.History(l.fleet.ctx, task)
		if err != nil {
			l.blame("history of %s: %v", o.id, err)
		}
		for _, run := range history {
			if !run.Started.IsZero() && run.Started.Before(begun) {
				begun = run.Started
			}
		}
		early := 0
		for _, id := range o.after {
			if begun.Before(tasks[id].FinishedAt) {
				early++
			}
		}
		if early > 0 && (o.when != queue.WhenAny || early == len(o.after)) {
			l.blame("%s began at %s, before %d of %v had ended", o.id, begun, early, o.after)
		}
		if a := task.After; len(o.after) > 0 && (a == nil || a.Blocked || a.Failed > 0 || o.when != queue.WhenAny && a.Ended != a.Of) {
			l.blame("%s waits for %v, and notes %+v", o.id, o.after, a)
		}
		waited += len(o.after)
	}
	l.fleet.t.Logf("graph     %d tasks in their order, with %d dependencies", len(graph), waited)
}
