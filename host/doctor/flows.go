package doctor

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	// An open task is a finding if it has got no more dependencies for longOpen. A queue's blocked tasks are a finding if
	// no host has checked their dependencies for longUnseen.
	longOpen   = time.Hour
	longUnseen = 10 * time.Minute
	// maxOpen is the maximum number of queues in which open tasks are searched for, and of blocked tasks that are read
	// from each.
	maxOpen = 20
	// openBytes bounds the bytes of blocked tasks that are read from each queue.
	openBytes = 256 << 10
)

var flowChecks = []check{
	{"flow-open", func(p *patient) {
		for _, task := range p.blocked {
			if age := p.now.Sub(task.Updated); task.After != nil && task.After.Open && age > longOpen {
				p.found(Warning, "if whoever made it is gone, end the list of what it waits for",
					"the task %s of the queue %s is open: for %s nobody has named more tasks for it to wait for",
					task.ID, task.Queue, age.Round(time.Second)).by("task", "await", task.ID, "--close").in(task.Queue)
			}
		}
	}},
	{"flow-unseen", func(p *patient) {
		for i, backlog := range p.backlogs {
			unseen := p.now.Sub(backlog.Looked)
			// queue-unserved reports queues that nobody serves
			if backlog.Looked.IsZero() || unseen < longUnseen || i >= len(p.stats) || !p.served[backlog.Queue] {
				continue
			}
			remedy := "see the log of its hosts for the queue: they cannot look"
			if len(p.alive()) == 0 {
				remedy = "start a host with `quern serve`; none runs"
			}
			p.found(Error, remedy, "%s for others in the queue %s, and for %s nobody has looked whether these have ended",
				wait(p.stats[i].Blocked), backlog.Queue, unseen.Round(time.Second)).in(backlog.Queue)
		}
	}},
}

// readFlows reads the backlogs of the queues, and some of their blocked tasks. It needs the queues' stats.
func (p *patient) readFlows(ctx context.Context, client *queue.Client) error {
	backlogs, err := listen.NewFleet(client).Backlogs(ctx, p.queues)
	p.backlogs = backlogs.Queues
	looked := 0
	for i, stats := range p.stats {
		if stats.Blocked == 0 || looked == maxOpen || err != nil {
			continue
		}
		looked++
		timed := int(stats.Depth[queue.Scheduled] - stats.Blocked) // tasks that wait for a time come first
		var tasks []*queue.Task
		tasks, err = manage.New(client).Queue(p.queues[i]).List(ctx,
			manage.ListOptions{Status: queue.Scheduled, Offset: timed, Limit: maxOpen, Bytes: openBytes})
		p.blocked = append(p.blocked, tasks...)
	}
	return err
}
