package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// mostIDs is how many tasks one command line may name.
const mostIDs = 1000

// taskAction does something with one task.
type taskAction func(context.Context, *queue.Client, *queue.Task) error

// taskErrors are those of several tasks. One that is refused does not keep a command from the others:
// each is told, the last one by being returned, which decides the exit status.
type taskErrors struct {
	cmd  *cobra.Command
	last error
}

func (e *taskErrors) add(err error) {
	if err == nil {
		return
	}
	if e.last != nil {
		report(e.last, e.cmd.ErrOrStderr())
	}
	e.last = err
}

// each does something with each task; when Redis is away, with no further one.
func (e *taskErrors) each(client *queue.Client, ids []string, do taskAction) {
	ctx := e.cmd.Context()
	for _, id := range ids {
		task, err := client.Task(ctx, id) // whose hash names the queue
		if err == nil {
			err = do(ctx, client, task)
		}
		e.add(err)
		if queue.IsUnavailable(err) || ctx.Err() != nil {
			return
		}
	}
}

// withTasks wraps a command that does something with each task that its arguments name.
func withTasks(env environment, do taskAction) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, ids []string) error {
		client, err := connectFor(cmd, env, ids)
		if err != nil {
			return err
		}
		defer client.Close()
		errs := taskErrors{cmd: cmd}
		errs.each(client, ids, do)
		return errs.last
	}
}

// connectFor is connect for IDs of tasks; if one cannot be an ID, nothing is done with any.
func connectFor(cmd *cobra.Command, env environment, ids []string) (*queue.Client, error) {
	for _, id := range ids {
		if err := queue.ValidID(id); err != nil {
			return nil, err
		}
	}
	return connect(cmd, env, queue.Config{})
}

func newTaskDelete(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID...", Short: "Delete finished tasks", Args: arguments(1, mostIDs),
		RunE: withTasks(env, func(ctx context.Context, client *queue.Client, task *queue.Task) error {
			err := client.Queue(task.Queue).Delete(ctx, task.ID)
			if errors.Is(err, queue.ErrStatus) {
				return refusedf("task %s is %s: only complete and failed tasks can be deleted; cancel it first with `quern task cancel %s`",
					task.ID, task.Status, task.ID)
			}
			return err
		}),
	}
}

func newTaskCancel(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel ID...", Short: "Cancel tasks: those that wait at once, those that run are stopped",
		Long: "Cancels tasks. One that waits fails at once, with the reason cancelled. One that runs is stopped by its\n" +
			"host, and waited for. A Python listener cannot be told to stop a task: that is refused.",
		Args: arguments(1, mostIDs),
	}
	noWait := cmd.Flags().Bool("no-wait", false, "do not wait until those that run have ended")
	var timeout time.Duration
	newPeriod(cmd.Flags(), &timeout, "wait-timeout", 0, "how long to wait for each at most (default without end)")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if *noWait && cmd.Flags().Changed("wait-timeout") {
			return usagef("both --no-wait and --wait-timeout: give one of them")
		}
		client, err := connectFor(cmd, env, ids)
		if err != nil {
			return err
		}
		defer client.Close()
		errs := taskErrors{cmd: cmd}
		var running []string
		errs.each(client, ids, func(ctx context.Context, client *queue.Client, task *queue.Task) error {
			done, err := client.Queue(task.Queue).Cancel(ctx, task.ID)
			if errors.Is(err, queue.ErrStatus) {
				return notCancelled(ctx, client, task)
			}
			if err == nil && !done {
				running = append(running, task.ID)
			}
			return err
		})
		if !*noWait {
			for _, id := range running {
				errs.add(awaitCancelled(cmd.Context(), client, id, timeout))
			}
		}
		return errs.last
	}
	return cmd
}

// notCancelled says why a task could not be cancelled: it is finished, if not by then, or in the hands
// of a Python listener.
func notCancelled(ctx context.Context, client *queue.Client, task *queue.Task) error {
	task, err := client.Task(ctx, task.ID)
	switch {
	case err != nil:
		return err
	case task.Status.Finished():
		return refusedf("task %s is %s: only tasks that wait or run can be cancelled", task.ID, task.Status)
	}
	return refusedf("task %s is held by the Python listener %s, which cannot be told to stop it: end its process there, then `quern node reclaim %s`",
		task.ID, task.Node, task.Node)
}

// awaitCancelled waits for the end of a task that is being stopped.
func awaitCancelled(ctx context.Context, client *queue.Client, id string, timeout time.Duration) error {
	task, err := waitTask(ctx, client, id, timeout, outageTimeout)
	switch {
	case errors.Is(err, queue.ErrNoTask):
		return nil // ended, and deleted since
	case err != nil:
		return err
	case task.Reason != queue.ReasonCancelled:
		return refusedf("task %s was %s before it could be stopped: see `quern task show %s`", id, task.Status, id)
	}
	return nil
}

// failedTasks choose among the failed tasks of a queue.
type failedTasks struct {
	queue     string
	reason    string
	key       string
	labels    map[string]string
	olderThan time.Duration
	limit     int
}

func newTaskRetry(env environment) *cobra.Command {
	var o failedTasks
	cmd := &cobra.Command{
		Use: "retry ID... | --queue QUEUE", Short: "Try failed tasks again: those named, or many of a queue",
		Long: "Tries failed tasks again: they wait in their queue as if they were new, with their attempts and crashes\n" +
			"counted anew, and without a deadline that is over. Either name tasks, or choose among the failed ones of a\n" +
			"queue, the oldest first; then the ID of each that is tried again is printed. What somebody cancelled is\n" +
			"chosen only with --reason cancelled.",
		Example: "  quern task retry 5c92ebad-78be-49e3-ac34-5e929c5b0b88\n" +
			"  quern task retry --queue mail --reason timeout --older-than 1h --limit 100",
		Args: arguments(0, mostIDs),
	}
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", "", "`QUEUE` whose failed tasks to try again")
	f.StringVar(&o.reason, "reason", "", "only those that failed for this `REASON`, such as error, timeout or crashed")
	f.StringVar(&o.key, "key", "", "only those of this key")
	labels := f.StringArray("label", nil, "only those with this label, `NAME=VALUE`; may be given several times")
	newLasting(f, &o.olderThan, "older-than", "only those that failed longer ago than this")
	f.Var((*amount)(&o.limit), "limit", "at most so many, the oldest ones (default all)")
	filters := []string{"queue", "reason", "key", "label", "older-than", "limit"}
	notSettings(f, filters...)
	cmd.RunE = func(cmd *cobra.Command, ids []string) (err error) {
		chosen := ""
		for _, name := range filters {
			if f.Changed(name) {
				chosen = name
			}
		}
		switch {
		case len(ids) == 0 && o.queue == "":
			return usagef("neither tasks nor a queue: use `quern task retry ID...`, or --queue QUEUE for the failed tasks of one")
		case len(ids) > 0 && chosen != "":
			return usagef("both tasks and --%s: name tasks, or choose them with --queue", chosen)
		case len(ids) > 0:
			return withTasks(env, retryTask)(cmd, ids)
		}
		if o.labels, err = parseLabels(cmd, *labels); err != nil {
			return err
		}
		client, err := connect(cmd, env, queue.Config{})
		if err != nil {
			return err
		}
		defer client.Close()
		return o.retry(cmd, client)
	}
	return cmd
}

func retryTask(ctx context.Context, client *queue.Client, task *queue.Task) error {
	err := client.Queue(task.Queue).Retry(ctx, task.ID)
	if errors.Is(err, queue.ErrStatus) {
		return refusedf("task %s is %s: only failed tasks can be tried again", task.ID, task.Status)
	}
	return err
}

// retry tries the chosen tasks again and prints the ID of each. What is no longer failed by then is
// passed over.
func (o *failedTasks) retry(cmd *cobra.Command, client *queue.Client) error {
	ids, err := o.find(cmd.Context(), client)
	if err != nil {
		return err
	}
	retried := 0
	for _, id := range ids {
		err := client.Queue(o.queue).Retry(cmd.Context(), id)
		if errors.Is(err, queue.ErrStatus) || errors.Is(err, queue.ErrNoTask) {
			continue
		}
		if err != nil {
			return err
		}
		retried++
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), id); err != nil {
			return fmt.Errorf("write ID of task %s: %w", id, err)
		}
	}
	if retried == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "quern: the queue %q has no such failed task, so nothing is tried again\n", o.queue)
	}
	return nil
}

// find lists the chosen tasks, the oldest first. All of them are found before the first is tried again,
// which moves the list.
func (o *failedTasks) find(ctx context.Context, client *queue.Client) ([]string, error) {
	before, err := client.Clock(ctx)
	if err != nil {
		return nil, err
	}
	before = before.Add(-o.olderThan)
	failed, err := client.Queue(o.queue).Count(ctx, queue.Failed)
	if err != nil {
		return nil, err
	}
	page := queue.ListOptions{Status: queue.Failed, Limit: 1000}
	var ids []string
	seen := make(map[string]bool) // the list moves meanwhile, a page may repeat some
	for ; int64(page.Offset) < failed; page.Offset += page.Limit {
		tasks, err := client.Queue(o.queue).List(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, task := range tasks {
			if o.choose(task, before) && !seen[task.ID] {
				seen[task.ID] = true
				ids = append(ids, task.ID)
			}
		}
	}
	slices.Reverse(ids)
	if o.limit > 0 {
		ids = ids[:min(o.limit, len(ids))]
	}
	return ids, nil
}

func (o *failedTasks) choose(task *queue.Task, before time.Time) bool {
	for name, value := range o.labels {
		if is, ok := task.Labels[name]; !ok || is != value {
			return false
		}
	}
	failed := task.FinishedAt
	if failed.IsZero() { // in a Python listener's hands
		failed = task.Updated
	}
	reason := task.Failure().Reason
	wanted := string(reason) == o.reason || o.reason == "" && reason != queue.ReasonCancelled
	return wanted && (o.key == "" || task.Key == o.key) && !failed.After(before)
}
