package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	// A task is a note if it was rescheduled oftenPutOff times, and a warning from veryOftenPutOff times on.
	oftenPutOff     = 10
	veryOftenPutOff = 100
	// maxTimed is the maximum number of queues of plugins, and of queues of webhooks, whose tasks are read, and of tasks
	// that are read from each.
	maxTimed = 20
)

var timedChecks = []check{
	{"task-rescheduled", func(p *patient) {
		for i, tasks := range p.timed {
			often := 0
			for _, task := range tasks {
				if task.Reschedules >= oftenPutOff {
					often++
				}
			}
			if often == 0 {
				continue
			}
			most, name := slices.MaxFunc(tasks, byReschedules), p.queues[i]
			level, remedy := Note, "see its history for how long it waits each time; if what it waits for does not come, mend that or cancel the task"
			if most.Reschedules >= veryOftenPutOff {
				level = Warning
			}
			if queue.ReservedQueue(name) {
				remedy = "see what the server answers: it asks for a pause each time"
			}
			f := p.found(level, remedy, "the task %s of the queue %s was put off %s since %s", most.ID, name,
				units.Count(most.Reschedules, "time", "times"), utc(most.Created))
			if often > 1 {
				f.Problem += fmt.Sprintf("; %d more of its tasks: %d times or more", often-1, oftenPutOff)
			}
			f.by("task", "show", most.ID).in(name).hurts(int64(often)).since(most.Created).
				like("tasks of %d queues are put off again and again")
		}
	}},
}

func byReschedules(a, b *queue.Task) int { return cmp.Compare(a.Reschedules, b.Reschedules) }

// readTimed reads some of the tasks that wait for a time, those that are due first, and for each queue of a webhook the
// last failed delivery. It needs the queues' stats.
func (p *patient) readTimed(ctx context.Context, client *queue.Client) error {
	p.timed = make([][]*queue.Task, len(p.stats))
	looked := map[bool]int{}
	for i, stats := range p.stats {
		hook := queue.ReservedQueue(p.queues[i])
		waiting := int(stats.Depth[queue.Scheduled] - stats.Blocked)
		failed := hook && stats.Depth[queue.Failed] > 0
		if waiting <= 0 && !failed || looked[hook] == maxTimed {
			continue
		}
		looked[hook]++
		list := func(status queue.Status, limit int) ([]*queue.Task, error) {
			return manage.New(client).Queue(p.queues[i]).List(ctx,
				manage.ListOptions{Status: status, Limit: limit, Bytes: openBytes})
		}
		var err error
		if waiting > 0 {
			if p.timed[i], err = list(queue.Scheduled, min(waiting, maxTimed)); err != nil {
				return err
			}
		}
		if failed {
			tasks, err := list(queue.Failed, 1)
			if err != nil {
				return err
			}
			p.undelivered = append(p.undelivered, tasks...)
		}
	}
	return nil
}
