package tenant

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/cmd/quern/top"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
)

func newTop(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Watch queues, running tasks, failures and hosts in the whole terminal; cancel and retry",
		Long: "Shows the tenant's queues, running tasks, failures and hosts in the whole terminal, and looks again every\n" +
			"2 seconds. Enter shows the tasks of a queue and all of a task, c cancels and r retries one; ? lists the\n" +
			"keys, q leaves. Each look reads at most 500 queues, those with the most pending tasks of priority 50 or the\n" +
			"most listeners, and 200 tasks of 20 queues, or 200 hosts. Listeners of Python have no lease, and are in\n" +
			"`quern node ls` alone.",
		Args: cli.Arguments(0, 0),
	}
	every := 2 * time.Second
	option.DurationWithin(cmd.Flags(), &every, "every", every, 100*time.Millisecond, math.MaxInt64, "use at least 100ms", "how long after a look the next one is")
	return connecting(env, cmd, func(cmd *cobra.Command, tenant admin.Tenant, _ []string, _ bool) error {
		if !show.IsTerminal(cmd.InOrStdin()) || !show.IsTerminal(cmd.OutOrStdout()) {
			return cli.Usagef("top needs a terminal: use `quern queue ls --watch`, or `quern task ls --watch`")
		}
		if env.Get("TERM") == "dumb" {
			return cli.Usagef("top draws on the whole terminal, and TERM says that this one is dumb: set another TERM, or use `quern queue ls --watch`")
		}
		if _, err := tenant.Clock(cmd.Context()); err != nil {
			return err
		}
		if remote, ok := tenant.(*client.Client); ok {
			remote.Withheld = nil // it would write into the screen
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGQUIT) // which would leave the terminal as it is
		defer stop()
		return top.Run(ctx, &topSource{client: tenant}, top.Config{
			Title: tenant.Tenant() + " at " + tenant.Address(), Every: every, Plain: cmd.Root().Annotations[show.NoColor] != "",
			Input: cmd.InOrStdin(), Out: cmd.OutOrStdout(),
		})
	})
}

// What one look reads at most.
const (
	topQueues     = 500
	topTasks      = 200
	topTaskQueues = 20 // from which tasks are read
	topHosts      = 200
	topLog        = 500
)

// topSource is the top.Source of a tenant.
type topSource struct {
	client admin.Tenant

	mu       sync.Mutex // guards what follows, and is held while the doctor looks
	examined time.Time
	wrong    []doctor.Finding
}

// examineEvery is how old the doctor's findings may be.
const examineEvery = 10 * time.Second

// examine stores the doctor's findings, none if it has no permission.
func (s *topSource) examine(ctx context.Context) []doctor.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.examined) > examineEvery {
		s.wrong, _ = s.client.Findings(ctx, s.client.Tenant())
		s.examined = time.Now()
	}
	return s.wrong
}

// Look implements top.Source.
func (s *topSource) Look(ctx context.Context, want top.Want) (look *top.Look, err error) {
	look = &top.Look{}
	if look.Clock, err = s.client.Clock(ctx); err != nil {
		return nil, err
	}
	look.Wrong = s.examine(ctx)
	switch {
	case want.Queue != "":
		look.Tasks, err = s.client.List(ctx, &admin.Filter{Queue: want.Queue, Status: string(want.Status)}, 0, topTasks)
		if len(look.Tasks) > 0 && errors.Is(err, queue.ErrDamaged) {
			err = nil
		}
		return look, err
	case want.View == top.Hosts:
		look.Hosts, err = s.client.Leased(ctx, topHosts+1)
		look.All = int64(len(look.Hosts))
		look.Hosts = look.Hosts[:min(len(look.Hosts), topHosts)]
		return look, err
	}
	if look.Queues, look.All, err = s.client.BusiestQueues(ctx, topQueues); err != nil {
		return nil, err
	}
	switch want.View {
	case top.Running:
		err = s.tasks(ctx, look, queue.Started, nil)
	case top.Failures:
		before := make(map[string]int64)
		if want.Before != nil {
			for _, q := range want.Before.Queues {
				before[q.Queue] = q.Totals["failed"]
			}
		}
		err = s.tasks(ctx, look, queue.Failed, before)
	}
	return look, err
}

// tasks reads tasks of a status from the queues with the most of them, beginning with queues whose totals grew.
func (s *topSource) tasks(ctx context.Context, look *top.Look, status queue.Status, before map[string]int64) error {
	weights := make(map[string]int64, len(look.Queues))
	var names []string
	look.All = 0
	for _, q := range look.Queues {
		n := q.Depth(status)
		if n == 0 || q.Err != nil {
			continue
		}
		look.All += n
		names, weights[q.Queue] = append(names, q.Queue), n
		if old, known := before[q.Queue]; known && q.Totals[string(status)] > old {
			weights[q.Queue] = math.MaxInt32 + q.Totals[string(status)] - old
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b)) })
	names = names[:min(len(names), topTaskQueues)]
	for _, name := range names {
		some, err := s.client.List(ctx, &admin.Filter{Queue: name, Status: string(status)}, 0, topTasks/len(names))
		if err != nil && !errors.Is(err, queue.ErrDamaged) {
			return err
		}
		look.Tasks = append(look.Tasks, some...)
	}
	return nil
}

// Task implements top.Source. Parameters and result may be large, and do not change as long as the status does not.
func (s *topSource) Task(ctx context.Context, id string, before *top.Task) (*top.Task, error) {
	clock, err := s.client.Clock(ctx)
	if err != nil {
		return nil, err
	}
	task, err := s.client.Summary(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case before != nil && before.Status == task.Status && before.Run == task.Run:
		task.Parameters, task.Result = before.Parameters, before.Result
	default:
		if task, err = s.client.Task(ctx, id); err != nil {
			return nil, err
		}
	}
	history, err := s.client.History(ctx, task)
	if err != nil {
		return nil, err
	}
	lines, err := s.client.Log(ctx, id, 0)
	if err != nil && !cli.IsStatus(err, http.StatusForbidden) { // the token may not see it
		return nil, err
	}
	return &top.Task{Task: task, Clock: clock, History: history, Log: lines[max(0, len(lines)-topLog):]}, nil
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
