package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// maxIDs is the maximum number of tasks in one command line.
const maxIDs = 1000

// idErrors collects the errors of a command that goes on with the other IDs after an error. It prints all errors but
// the last, which the command returns.
type idErrors struct {
	cmd  *cobra.Command
	last error
}

func (e *idErrors) add(err error) {
	if err == nil {
		return
	}
	if e.last != nil {
		cli.Report(cli.WithHints(e.cmd, e.last), e.cmd.ErrOrStderr())
	}
	e.last = err
}

// each calls do with each ID, until Redis is unavailable or the command is interrupted.
func (e *idErrors) each(ids []string, do func(id string) error) {
	for _, id := range ids {
		err := do(id)
		e.add(err)
		if queue.IsUnavailable(err) || e.cmd.Context().Err() != nil {
			return
		}
	}
}

// checkIDs refuses a command with an invalid ID before it changes any task.
func checkIDs(_ *cobra.Command, ids []string) error {
	for _, id := range ids {
		if err := queue.ValidID(id); err != nil {
			return err
		}
	}
	return nil
}

// eachTask calls do with the task of each ID, until Redis is unavailable or the command is interrupted.
func eachTask(cmd *cobra.Command, client admin.Tenant, ids []string, do func(*admin.Task) error) *idErrors {
	errs := &idErrors{cmd: cmd}
	errs.each(ids, func(id string) error {
		task, err := findTask(cmd.Context(), client, id) // to learn its queue
		if err != nil {
			return err
		}
		return do(task)
	})
	return errs
}

func newTaskDelete(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete ID...", Short: "Delete finished tasks", Args: cli.Arguments(1, maxIDs),
		PreRunE: checkIDs,
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, ids []string, _ bool) error {
		return eachTask(cmd, client, ids, func(task *admin.Task) error {
			err := client.Queue(task.Queue).Delete(cmd.Context(), task.ID)
			if errors.Is(err, queue.ErrStatus) {
				return cli.Refusedf("task %s is %s: only complete and failed tasks can be deleted; cancel it first with `quern task cancel %s`",
					task.ID, task.Status, cli.ShellWord(task.ID))
			}
			return err
		}).last
	})
}

func newTaskCancel(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel ID... | --queue QUEUE", Short: "Cancel waiting tasks, and stop running ones; or all that wait in a queue",
		Long: "Cancels tasks. A waiting task fails at once, with the reason cancelled. A running one is stopped by its\n" +
			"host; the command waits until it has ended. A Python listener cannot stop a task: that is refused.\n\n" +
			"With --dependents also what waits for it, directly or not; with --flow also what these wait for: all\n" +
			"that is connected. Tasks that wait for others are cancelled first, so that none of them starts.\n\n" +
			"With --queue all tasks that wait in a queue: those in a misspelled one, for example. An empty queue that\n" +
			"nobody serves is forgotten within a minute, after `quern queue purge QUEUE --all`.",
		Args: cli.Arguments(0, maxIDs),
	}
	from := cmd.Flags().String("queue", "", "`QUEUE` whose waiting tasks to cancel")
	dependents := cmd.Flags().Bool("dependents", false, "cancel also all tasks that wait for it, directly or not")
	flow := cmd.Flags().Bool("flow", false, "cancel also all tasks that it waits for, what waits for those, and so on")
	noWait := cmd.Flags().Bool("no-wait", false, "do not wait until running tasks have ended")
	var timeout time.Duration
	option.Duration(cmd.Flags(), &timeout, "wait-timeout", 0, "how long to wait for each at most (default without end)")
	cmd.PreRunE = func(cmd *cobra.Command, ids []string) error {
		if *noWait && cmd.Flags().Changed("wait-timeout") {
			return cli.Usagef("both --no-wait and --wait-timeout: give one of them")
		}
		if (len(ids) == 0) == (*from == "") {
			return cli.Usagef("cancel needs tasks or a queue: use `quern task cancel ID...`, or --queue QUEUE for all that wait in one")
		}
		return checkIDs(cmd, ids)
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, ids []string, _ bool) error {
		ctx, running := cmd.Context(), []string(nil)
		if *from != "" {
			if err := needKnown(ctx, client, *from); err != nil {
				return err
			}
		}
		cancel := func(task *admin.Task) error {
			if *dependents || *flow {
				stopped, err := cancelFlow(cmd, client, task.ID, *flow)
				running = append(running, stopped...)
				return err
			}
			if *from != "" {
				err := client.Queue(task.Queue).CancelWaiting(ctx, task.ID)
				if err == nil {
					cli.Note(cmd, "cancelled %s", task.ID)
				}
				return err
			}
			done, err := client.Queue(task.Queue).Cancel(ctx, task.ID)
			if errors.Is(err, queue.ErrStatus) {
				return notCancelled(ctx, client, task)
			}
			if err == nil && !done {
				running = append(running, task.ID)
			} else if err == nil {
				cli.Note(cmd, "cancelled %s", task.ID)
			}
			return err
		}
		errs := &idErrors{cmd: cmd}
		if *from == "" {
			errs = eachTask(cmd, client, ids, cancel)
		} else if n := eachWaiting(client, *from, errs, cancel); n == 0 && errs.last == nil {
			cli.Note(cmd, "no task waits in the queue %q, so nothing was cancelled", *from)
		}
		for _, id := range running {
			if *noWait {
				cli.Note(cmd, "%s runs, and its host stops it now", id)
				continue
			}
			err := awaitCancelled(ctx, client, id, timeout)
			if err == nil {
				cli.Note(cmd, "stopped %s", id)
			}
			errs.add(err)
		}
		return errs.last
	})
}

// waitingPage is how many waiting tasks are listed at a time.
const waitingPage = 100

// eachWaiting calls do with each task that waits in a queue, and that was there when it began, until Redis is
// unavailable or the command is interrupted. It leaves out tasks that have started since they were listed. n is the
// number of calls.
func eachWaiting(client admin.Tenant, name string, errs *idErrors, do func(*admin.Task) error) (n int) {
	ctx := errs.cmd.Context()
	now, err := client.Clock(ctx)
	if err != nil {
		errs.add(err)
		return 0
	}
	later := 0
	for _, status := range []queue.Status{queue.Scheduled, queue.Pending} {
		stay := 0 // how many tasks of the list stay in it
		for {
			tasks, err := client.List(ctx, &admin.Filter{Queue: name, Status: string(status)}, stay, waitingPage)
			if err != nil {
				errs.add(err)
				return n
			}
			for _, listed := range tasks {
				task, err := client.Summary(ctx, listed.ID)
				switch {
				case errors.Is(err, queue.ErrNoTask):
					continue
				case err == nil && task.Status != queue.Scheduled && task.Status != queue.Pending:
					continue
				case err == nil && task.Created > admin.Seconds(now):
					stay, later = stay+1, later+1
					continue
				case err == nil:
					if err = do(task); errors.Is(err, queue.ErrStatus) {
						continue // it has started since
					}
					n++
				}
				if errs.add(err); queue.IsUnavailable(err) || ctx.Err() != nil {
					return n
				}
				if err != nil {
					stay++
				}
			}
			if len(tasks) < waitingPage {
				break
			}
		}
	}
	if later > 0 {
		cli.Note(errs.cmd, "%s enqueued since the command began: run it again to cancel also these",
			units.Count(later, "task was", "tasks were"))
	}
	return n
}

// cancelFlow cancels a task and its dependents or, if whole is true, all tasks of its flow. It prints how many tasks
// are cancelled, and returns the IDs of the running ones, which are being stopped.
func cancelFlow(cmd *cobra.Command, client admin.Tenant, id string, whole bool) (running []string, err error) {
	done, err := client.CancelFlow(cmd.Context(), id, whole)
	if err != nil {
		return nil, err
	}
	cli.Note(cmd, "%s cancelled, %s being stopped, %d had ended", units.Count(done.Cancelled, "task is", "tasks are"),
		units.Count(len(done.Running), "runs and is", "run and are"), done.Finished)
	if len(done.Python) > 0 {
		err = cli.Refusedf("%s on Python listeners, which cannot stop them, such as %s: end its process there, then `quern node reclaim`",
			units.Count(len(done.Python), "task runs", "tasks run"), done.Python[0])
	}
	return done.Running, err
}

// notCancelled explains why a task could not be cancelled: it has finished, or a Python listener runs it.
func notCancelled(ctx context.Context, client admin.Tenant, task *admin.Task) error {
	task, err := client.Task(ctx, task.ID)
	switch {
	case err != nil:
		return err
	case task.Status.Finished():
		return cli.Refusedf("task %s is %s: only waiting and running tasks can be cancelled", task.ID, task.Status)
	}
	return cli.Refusedf("task %s runs on the Python listener %s, which cannot stop it: end its process there, then `quern node reclaim %s`",
		task.ID, task.Node, cli.ShellWord(task.Node))
}

// awaitCancelled waits until a task that is being stopped has ended.
func awaitCancelled(ctx context.Context, client admin.Tenant, id string, timeout time.Duration) error {
	task, err := waitTask(ctx, client, id, timeout, connect.OutageTimeout)
	switch {
	case errors.Is(err, queue.ErrNoTask):
		return nil // ended, and deleted since
	case err != nil:
		return err
	case task.Reason != queue.ReasonCancelled:
		return cli.Refusedf("task %s was %s before it could be stopped: see `quern task show %s`", id, task.Status,
			cli.ShellWord(id))
	}
	return nil
}

// failedTasks holds the flags that select failed tasks of a queue.
type failedTasks struct {
	taskFilter
	queue string
	limit int
}

func newTaskRetry(env cli.Environment) *cobra.Command {
	var o failedTasks
	cmd := &cobra.Command{
		Use: "retry ID... | --queue QUEUE", Short: "Retry failed tasks: named ones, or many of a queue",
		Long: "Retries failed tasks: they wait in their queue like new ones, with attempts and crashes counted from 0,\n" +
			"and without a deadline that has passed. Either name tasks, or select among the failed ones of a queue,\n" +
			"the oldest first; then it prints the ID of each that it retries. It selects cancelled tasks only with\n" +
			"--reason cancelled.\n\n" +
			"A task that failed because one that it waits for did, with the reason dependency, is not retried by\n" +
			"itself: it waits again when that one is retried.\n\n" +
			"A task that is named and waits for its next attempt runs at once; its attempts count on.\n\n" +
			"A dead letter stands for a task that failed: to retry the one is to retry the other. The letters of a task\n" +
			"that is retried are deleted, unless a handler works on them.",
		Example: "  quern task retry 5c92ebad-78be-49e3-ac34-5e929c5b0b88\n" +
			"  quern task retry --queue mail --reason timeout --older-than 1h --limit 100",
		Args: cli.Arguments(0, maxIDs),
	}
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", "", "`QUEUE` whose failed tasks to retry")
	filters := append(o.flags(f, "failed"), "limit", "queue")
	option.Count(f, &o.limit, "limit", "most tasks to retry, the oldest ones (default all)")
	cmd.PreRunE = func(cmd *cobra.Command, ids []string) error {
		filter := slices.IndexFunc(filters, f.Changed)
		switch {
		case len(ids) > 0 && filter >= 0:
			return cli.Usagef("both tasks and --%s: name tasks, or select them with --queue", filters[filter])
		case len(ids) == 0 && o.queue == "":
			return cli.Usagef("neither tasks nor a queue: use `quern task retry ID...`, or --queue QUEUE for the failed tasks of one")
		}
		return checkIDs(cmd, ids)
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, ids []string, _ bool) error {
		if len(ids) == 0 {
			return o.retry(cmd, client)
		}
		return eachTask(cmd, client, ids, func(task *admin.Task) error {
			retried, err := client.Retry(cmd.Context(), task.ID)
			switch {
			case errors.Is(err, queue.ErrUnique):
				return notUnique(err)
			case errors.Is(err, queue.ErrStatus) && retried != nil && retried.Status == queue.Failed:
				return cli.Refusedf("%w", err)
			case errors.Is(err, queue.ErrStatus) && retried != nil: // without a task, the server's error says this
				return cli.Refusedf("task %s is %s: only failed tasks, and those that wait for their next attempt, can be retried",
					retried.ID, retried.Status)
			}
			if err == nil && retried.ID != task.ID {
				cli.Note(cmd, "%s is a dead letter: the task %s of the queue %q, for which it stands, is retried", task.ID,
					retried.ID, retried.Queue)
			}
			return err
		}).last
	})
}

// notUnique adds the remedy to the error of a task that is not unique.
func notUnique(err error) error {
	return cli.Refusedf("%w: wait until that one is finished, or cancel it", err)
}

// retry retries the selected tasks, until Redis is unavailable, and prints the IDs of the retried tasks. It skips tasks
// that are no longer failed.
func (o *failedTasks) retry(cmd *cobra.Command, client admin.Tenant) error {
	ids, err := o.find(cmd.Context(), client)
	if err != nil {
		return err
	}
	retried, errs := 0, &idErrors{cmd: cmd}
	for _, id := range ids {
		task, err := client.Retry(cmd.Context(), id)
		switch {
		case errors.Is(err, queue.ErrUnique):
			err = notUnique(err)
		case errors.Is(err, queue.ErrStatus), errors.Is(err, queue.ErrNoTask):
			continue
		}
		errs.add(err)
		if err == nil || errors.Is(err, queue.ErrLetterStays) {
			retried++
			if task != nil {
				id = task.ID // for a dead letter: the ID of the task for which it stands
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), id); err != nil {
				return fmt.Errorf("write ID of task %s: %w", id, err)
			}
		}
		if queue.IsUnavailable(err) || cmd.Context().Err() != nil {
			break
		}
	}
	if retried == 0 && errs.last == nil {
		cli.Note(cmd, "the queue %q has no such failed task, so nothing was retried", o.queue)
	}
	return errs.last
}

// find returns the IDs of the selected tasks, the oldest first. It finds all of them before the first is retried,
// because a retry takes its task out of the list.
func (o *failedTasks) find(ctx context.Context, client admin.Tenant) (ids []string, err error) {
	f, since, until, err := o.filter(ctx, client, o.queue)
	if err != nil {
		return nil, err
	}
	f.Status, f.EndedSince, f.EndedUntil = string(queue.Failed), since, until
	tasks, err := client.List(ctx, &f, 0, 0)
	for _, task := range tasks {
		if f.Reason != "" || task.Failure().Reason != queue.ReasonCancelled {
			ids = append(ids, task.ID)
		}
	}
	if err == nil && f.Reason == "" && since == 0 && until == 0 { // waiting letters have neither a reason nor an end
		var letters []string
		letters, err = waitingLetters(ctx, client, f)
		ids = append(letters, ids...)
	}
	slices.Reverse(ids)
	if o.limit > 0 {
		ids = ids[:min(o.limit, len(ids))]
	}
	return ids, err
}

// waitingLetters returns the IDs of a queue's dead letters that nobody has handled, the newest first.
func waitingLetters(ctx context.Context, client admin.Tenant, f admin.Filter) (ids []string, err error) {
	if waiting, _, err := client.Queue(f.Queue).DeadLetters(ctx); err != nil || waiting == 0 {
		return nil, err // without letters, do not read all waiting tasks
	}
	f.DeadLetters = true
	for _, status := range []queue.Status{queue.Scheduled, queue.Pending} {
		f.Status = string(status)
		tasks, err := client.List(ctx, &f, 0, 0)
		if err != nil {
			return nil, err
		}
		for _, task := range tasks {
			ids = append(ids, task.ID)
		}
	}
	return ids, nil
}

func newTaskAwait(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "await ID [DEPENDENCY...]", Short: "Add tasks to those that an open task waits for, and close it",
		Long: "Makes an open task, of `quern enqueue --open` or --then, wait for more tasks. --close ends that: it runs\n" +
			"when those that it waits for have ended as its --when says. Both may be repeated.",
		Example: "  quern enqueue report --open --id report-7\n" +
			"  quern task await report-7 import-1 import-2 --close",
		Args: cli.Arguments(1, 1+maxIDs),
	}
	closes := cmd.Flags().Bool("close", false, "it waits for no more than these")
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		if len(args) == 1 && !*closes {
			return cli.Usagef("neither tasks nor --close: name tasks that %s is to wait for, or close it", args[0])
		}
		task, err := findTask(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		q := client.Queue(task.Queue)
		err = q.Await(cmd.Context(), task.ID, args[1:]...)
		if err == nil && *closes {
			err = q.Close(cmd.Context(), task.ID)
		}
		return err
	})
}
