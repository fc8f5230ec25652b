package main

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/top"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

func newTop(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Watch queues, running tasks, failures and hosts in the whole terminal; cancel and retry",
		Long: "Shows the tenant's queues, running tasks, failures and hosts in the whole terminal, and looks again every\n" +
			"2 seconds. Enter shows the tasks of a queue and all of a task, c cancels and r retries one; ? lists the\n" +
			"keys, q leaves. Each look reads at most 500 queues, and 200 tasks of 20 queues, or 200 hosts. Listeners of\n" +
			"Python have no lease, and are in `quern node ls` alone.",
		Args: arguments(0, 0),
	}
	clientFlags(cmd)
	every := 2 * time.Second
	newPeriodWithin(cmd.Flags(), &every, "every", every, 100*time.Millisecond, math.MaxInt64, "use at least 100ms", "how long after a look the next one is")
	notSettings(cmd.Flags(), "every")
	cmd.RunE = withClient(env, nil, func(cmd *cobra.Command, client backend, _ []string, _ bool) error {
		if !isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.OutOrStdout()) {
			return usagef("top needs a terminal: use `quern queue ls --watch`, or `quern task ls --watch`")
		}
		if _, err := client.Clock(cmd.Context()); err != nil {
			return err
		}
		return top.Run(cmd.Context(), &topSource{client: client}, top.Config{
			Title: client.Tenant() + " at " + client.Address(), Every: every, Plain: cmd.Root().Annotations[noColour] != "",
			Input: cmd.InOrStdin(), Out: cmd.OutOrStdout(),
		})
	})
	return cmd
}

// What one look reads at most.
const (
	topQueues     = 500
	topTasks      = 200
	topTaskQueues = 20 // from which tasks are read
	topHosts      = 200
	topLog        = 500
)

// topSource reads a tenant for `quern top`.
type topSource struct {
	client backend
	failed map[string]int64 // tasks of each queue that had failed at the last look
}

// Look implements top.Source.
func (s *topSource) Look(ctx context.Context, want top.Want) (look *top.Look, err error) {
	look = &top.Look{}
	if look.Clock, err = s.client.Clock(ctx); err != nil {
		return nil, err
	}
	switch {
	case want.Queue != "":
		look.Tasks, err = s.client.List(ctx, &api.Filter{Queue: want.Queue, Status: string(want.Status)}, 0, topTasks)
		return look, err
	case want.View == top.Hosts:
		look.Hosts, err = s.client.Leased(ctx, topHosts+1)
		look.All = int64(len(look.Hosts))
		look.Hosts = look.Hosts[:min(len(look.Hosts), topHosts)]
		return look, err
	}
	queues, all, err := s.client.BusiestQueues(ctx, topQueues)
	if err != nil {
		return nil, err
	}
	look.All = all
	for i := range queues {
		look.Queues = append(look.Queues, top.Queue{Name: queues[i].Queue, Stats: queues[i].Stats()})
	}
	switch want.View {
	case top.Running:
		look.Tasks, err = s.tasks(ctx, look.Queues, queue.Started, func(q top.Queue) int64 { return q.Depth[queue.Started] })
	case top.Failures:
		before := s.failed
		s.failed = make(map[string]int64, len(look.Queues))
		look.Tasks, err = s.tasks(ctx, look.Queues, queue.Failed, func(q top.Queue) int64 {
			total := q.Totals["failed"]
			s.failed[q.Name] = total
			if old, known := before[q.Name]; known && total > old && q.Depth[queue.Failed] > 0 {
				return math.MaxInt32 + total - old // where tasks fail now
			}
			return q.Depth[queue.Failed]
		})
	}
	return look, err
}

// tasks reads tasks of a status from the queues of the largest weight, as many of each.
func (s *topSource) tasks(ctx context.Context, queues []top.Queue, status queue.Status, weigh func(top.Queue) int64) (tasks []*queue.Task, err error) {
	weights := make(map[string]int64, len(queues))
	var names []string
	for _, q := range queues {
		if weights[q.Name] = weigh(q); weights[q.Name] > 0 && q.Err == nil {
			names = append(names, q.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b)) })
	names = names[:min(len(names), topTaskQueues)]
	for _, name := range names {
		some, err := s.client.List(ctx, &api.Filter{Queue: name, Status: string(status)}, 0, topTasks/len(names))
		if err != nil && !errors.Is(err, queue.ErrDamaged) {
			return nil, err
		}
		tasks = append(tasks, some...)
	}
	return tasks, nil
}

// Task implements top.Source.
func (s *topSource) Task(ctx context.Context, id string) (*top.Task, error) {
	task, err := s.client.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	history, err := s.client.History(ctx, task)
	if err != nil {
		return nil, err
	}
	lines, err := s.client.Log(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	return &top.Task{Task: task, History: history, Log: lines[max(0, len(lines)-topLog):]}, nil
}

// Cancel implements top.Source.
func (s *topSource) Cancel(ctx context.Context, name, id string) (bool, error) {
	return s.client.Queue(name).Cancel(ctx, id)
}

// Retry implements top.Source.
func (s *topSource) Retry(ctx context.Context, id string) error {
	_, err := s.client.Retry(ctx, id)
	return err
}
