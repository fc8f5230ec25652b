package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// unseenInterval is the interval at which a command that waits looks at its task without a terminal.
const unseenInterval = 3 * time.Second

// outageInterval is the interval at which a waiting command checks whether Redis is available.
const outageInterval = 3 * time.Second

// waitFor waits for a task and writes its result to stdout, and nothing else.
func waitFor(cmd *cobra.Command, client admin.Tenant, id string, timeout time.Duration) error {
	ctx, stop := context.WithCancel(cmd.Context())
	var watching sync.WaitGroup
	told := 0
	watching.Go(func() { told = showWait(ctx, cmd, client, id, timeout > 0) })
	task, err := waitTask(cmd.Context(), client, id, timeout, connect.OutageTimeout)
	stop()
	watching.Wait()
	if err == nil && task.Attempts > told+1 {
		if ended, err := client.Summary(cmd.Context(), id); err == nil { // Wait returns no history
			noteFailures(cmd, ended, told)
		}
	}
	switch {
	case errors.Is(err, queue.ErrNoTask):
		return cli.Refusedf("task %s does not exist, or was deleted during the wait: see `quern task ls`", id)
	case err != nil:
		return err
	case task.Status == queue.Failed:
		failure := task.Failure()
		if cause := causeOf(cmd.Context(), client, &failure); cause != "" {
			failure.Message += "\ncaused by " + cause
		}
		return cli.TaskFailed(id, &failure)
	}
	result := admin.Bytes(task.Result, task.ResultBase64)
	if len(result) == 0 && task.Sealed != "" {
		return fmt.Errorf("the result of task %s: %w: key %s", id, seal.ErrKey, task.Sealed)
	}
	return cli.WriteResult(cmd, result,
		fmt.Sprintf("get it with `quern task wait %s > FILE`", cli.ShellWord(id)))
}

// culprit matches the message of a task that failed because a dependency did: see function culprit in prelude.lua.
var culprit = regexp.MustCompile(`^task (\S+), which it waited for, failed$`)

// maxCauses is the maximum number of tasks that causeOf reads.
const maxCauses = 20

// causeOf follows the dependencies that made a task fail to the one that failed by itself. It returns that one's ID,
// queue and error in one line; "" if there is none, or it cannot be read.
func causeOf(ctx context.Context, client admin.Tenant, failure *queue.Failure) (cause string) {
	for range maxCauses {
		found := culprit.FindStringSubmatch(failure.Message)
		if failure.Reason != queue.ReasonDependency || found == nil {
			break
		}
		task, err := client.Summary(ctx, found[1])
		if err != nil || task.Error == nil {
			break
		}
		failure = task.Error
		cause = fmt.Sprintf("task %s of %s: (%s) %s", task.ID, task.Queue, failure.Word(), failure.Headline())
	}
	return cause
}

// showWait tells why a task takes long, until ctx ends: on a terminal its progress, and everywhere that an attempt
// failed, or that it puts itself off. If the wait is not bounded, it tells once that the task's timeout does not bound
// it. It returns the number of failed attempts that it told.
func showWait(ctx context.Context, cmd *cobra.Command, client admin.Tenant, id string, bounded bool) (attempts int) {
	line, interval, told := show.NewProgress(cmd.ErrOrStderr()), unseenInterval, 0
	if line.Shows() {
		interval = show.ProgressInterval
	}
	defer line.Clear()
	slow := false // it was told that the task runs for long
	because, asked := "", time.Now()
	for begun := time.Now(); periodic.Sleep(ctx, interval); {
		task, err := client.Summary(ctx, id)
		if err != nil {
			continue // waitTask reports an outage
		}
		if (task.Status == queue.Pending || task.KeyHeld) && time.Since(asked) >= unseenInterval {
			asked = time.Now()
			whole, err := client.Task(ctx, id)
			if err == nil && whole.WaitsBecause != "" && whole.WaitsBecause != because {
				because = whole.WaitsBecause
				line.Clear()
				cli.Note(cmd, "task %s waits: %s", id, because)
			}
		}
		if text := putOff(task, told); text != "" {
			line.Clear()
			cli.Note(cmd, "%s", text)
			told = task.Reschedules
		}
		if task.Attempts > attempts {
			line.Clear()
		}
		attempts = noteFailures(cmd, task, attempts)
		if limit := admin.Period(task.TimeoutSeconds); !bounded && 0 < limit && limit < time.Since(begun) {
			line.Clear()
			cli.Note(cmd, "the timeout of %s is that of each attempt, and the wait has none: bound it with --wait-timeout", limit)
			bounded = true
		}
		if !line.Shows() {
			continue
		}
		if text, long := runningText(task); long && !slow {
			line.Clear()
			cli.Note(cmd, "task %s runs %s", task.ID, text)
			slow = true
		}
		text := fmt.Sprintf("%s, waiting for %.0f s", statusText(task), time.Since(begun).Seconds())
		if task.Attempts > 0 {
			text += fmt.Sprintf(", attempt %d", task.Attempts+1)
		}
		if task.Progress > 0 {
			text += fmt.Sprintf(", %.0f %%", 100*task.Progress)
		}
		if task.Message != "" {
			text += ", " + show.OneLine(task.Message)
		}
		line.Show("%s", text)
	}
	return attempts
}

// noteFailures tells each failed attempt of a task that was tried again, on a line of its own. told is the number of
// attempts that were told before; noteFailures returns the new number.
func noteFailures(cmd *cobra.Command, task *admin.Task, told int) int {
	var failed []admin.Attempt
	for _, run := range task.History {
		if run.Outcome == string(listen.RequeueRetry) {
			failed = append(failed, run)
		}
	}
	last := task.Attempts // the number of the last one that failed and was tried again
	if task.Status.Finished() && (len(failed) == 0 || failed[len(failed)-1].Run != task.Run) {
		last-- // another attempt finished the task
	}
	for i, run := range failed {
		number := last - len(failed) + 1 + i
		if number <= told {
			continue
		}
		text := fmt.Sprintf("attempt %d of task %s failed", number, task.ID)
		if run.Error != nil {
			text += fmt.Sprintf(": (%s) %s", run.Error.Word(), withPlace(run.Error))
		}
		if delay := nextAfter(task, run); delay >= 0 {
			text += fmt.Sprintf("; the next one in %.1f s", delay)
		}
		cli.Note(cmd, "%s", text)
	}
	return last
}

// withPlace returns the headline of a failure, with the first frame of the handler if that stands on a line of its own.
func withPlace(failure *queue.Failure) string {
	head := failure.Headline()
	_, rest, _ := strings.Cut(failure.Message, "\n")
	first, _, _ := strings.Cut(rest, "\n")
	place, ok := strings.CutPrefix(first, "    at ")
	if !ok && len(failure.Backtrace) > 0 && !strings.Contains(head, failure.Backtrace[0]) {
		place, ok = failure.Backtrace[0], true
	}
	if !ok {
		return head
	}
	return strings.TrimSuffix(head, "…") + " at " + place
}

// nextAfter returns how long after a run the next one began or is due, in seconds; -1 if that is not known.
func nextAfter(task *admin.Task, run admin.Attempt) float64 {
	for _, next := range task.History {
		if next.Run == run.Run+1 {
			return next.DelaySeconds
		}
	}
	at := task.ETA
	if task.Status != queue.Scheduled {
		at = task.ReservedAt
	}
	if run.Run != task.Run && run.Run+1 != task.Run || run.Ended == 0 || at < run.Ended {
		return -1
	}
	return at - run.Ended
}

// putOff tells that a task has put itself off, or that its host has, because its database does not serve. told is the number of reschedules that were told. It returns "" if there
// is nothing new: people learn of the first reschedule, of manage.ManyReschedules, and of 10, 100 and so on.
func putOff(task *admin.Task, told int) string {
	why := ""
	if task.LastError != nil {
		why = ": " + task.LastError.Headline()
	}
	if f := task.LastError; f != nil && f.Reason == queue.ReasonError && f.ExitCode != nil && *f.ExitCode == 1 &&
		task.Reschedules > 0 { // only a handler's own request has another code
		if magnitude(task.Reschedules) == magnitude(told) && told > 0 {
			return ""
		}
		return fmt.Sprintf("the host has put task %s off (%d so far), without counting an attempt%s: make the database serve, "+
			"or see `quern help sql`", task.ID, task.Reschedules, why)
	}
	switch times := task.Reschedules; {
	case times >= manage.ManyReschedules && magnitude(times) > magnitude(told):
		return fmt.Sprintf("task %s has put itself off %d times, which counts no attempt, so max_attempts does not end it%s: "+
			"%s, or see `quern help retries`", task.ID, times, why, failInstead)
	case times > 0 && told == 0:
		return fmt.Sprintf("task %s has put itself off and runs again later, without counting an attempt%s: "+
			"to count one, %s", task.ID, why, failInstead)
	}
	return ""
}

// magnitude grows when a number of reschedules reaches one that is told.
func magnitude(times int) (steps int) {
	if times >= manage.ManyReschedules {
		steps = 1
	}
	for limit := 10; times >= limit; limit *= 10 {
		steps++
	}
	return steps
}

// failInstead says how a handler fails in a way that counts an attempt. The language of the handler is not known here.
const failInstead = "let the handler fail instead of asking for a retry (Go: return the plain error or sdk.FailAfter; " +
	"Python, JavaScript: raise Failure; Rust: Error::new; AssemblyScript: fail; C: return QUERN_FAILED)"

// waits has the methods of admin.Tenant that a wait needs.
type waits interface {
	Clock(context.Context) (time.Time, error)
	Wait(ctx context.Context, id string) (*admin.Task, error)
}

// waitTask waits until the task is finished, for at most timeout; 0 is no limit. It fails when Redis is unavailable for
// longer than outage, and at once if Redis is unavailable at the start.
func waitTask(ctx context.Context, client waits, id string, timeout, outage time.Duration) (*admin.Task, error) {
	if timeout > 0 {
		over := cli.Refusedf("task %s is not finished after %s: continue with `quern task wait %s`", id, timeout,
			cli.ShellWord(id))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, over)
		defer cancel()
	}
	if _, err := client.Clock(ctx); err != nil {
		return nil, cli.Cause(ctx, err)
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		switch err := awaitOutage(ctx, client, outage); {
		case err != nil && !queue.IsUnavailable(err):
			giveUp(fmt.Errorf("cannot wait for task %s: %w", id, err))
		case err != nil:
			away := "Redis"
			if _, ok := errors.AsType[*admin.ServerError](err); ok {
				away = "the server"
			}
			giveUp(cli.Refusedf("cannot wait for task %s, %s has been away for %s: %w: continue with `quern task wait %s`", id,
				away, outage, err, cli.ShellWord(id)))
		}
	})
	defer watching.Wait()
	defer giveUp(nil)
	task, err := client.Wait(ctx, id)
	return task, cli.Cause(ctx, err)
}

// awaitOutage returns an error when Redis has been unavailable for longer than outage, or as soon as the server refuses
// the token. It returns nil when ctx ends.
func awaitOutage(ctx context.Context, client waits, outage time.Duration) error {
	for there := time.Now(); periodic.Sleep(ctx, min(outage, outageInterval)); {
		_, err := client.Clock(ctx)
		switch {
		case err == nil:
			there = time.Now()
		case ctx.Err() == nil && (time.Since(there) >= outage || errors.Is(err, admin.ErrUnauthorized) ||
			errors.Is(err, admin.ErrForbidden)):
			return err
		}
	}
	return nil
}

// followInterval is the poll interval of `task logs -f`.
const followInterval = 300 * time.Millisecond

func newTaskLogs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print what a task wrote to stderr; -f follows until it is finished",
		Long: "Prints what a task wrote to stderr, each line with its time and the run of the task. The time is that at which\n" +
			"Redis got the line, up to a second after it was written. With -o json each line is an object, with the text as\n" +
			"`line`. `quern task show` has the run times and delays of the runs.",
		Args: cli.Arguments(1, 1),
	}
	follow := cmd.Flags().BoolP("follow", "f", false, "print new lines until the task is finished")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		return printLogs(cmd.Context(), cmd.OutOrStdout(), client, args[0], *follow, json)
	})
}

// printLogs prints the stored lines of a task's log. If follow is true, it also prints new lines, until the task is
// finished or deleted.
func printLogs(ctx context.Context, w io.Writer, client admin.Tenant, id string, follow, json bool) error {
	task, err := findTask(ctx, client, id)
	if err != nil {
		return err
	}
	id = task.ID
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	over := !follow || task.Status.Finished()
	var waiting sync.WaitGroup
	if !over {
		waiting.Go(func() {
			_, err := client.Wait(ctx, id)
			ended <- err
		})
	}
	defer waiting.Wait()
	defer stop()
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	last := int64(0)
	for {
		if last, err = printLines(ctx, w, client, id, last, json); err != nil || over {
			break
		}
		select {
		case err = <-ended:
			over = true
		case <-ticker.C:
		}
		if err != nil {
			break
		}
	}
	if follow && errors.Is(err, queue.ErrNoTask) {
		return nil // the task was deleted with its log
	}
	return err
}

// printLines prints the lines whose number is greater than last. It returns the number of the last line that it
// printed.
func printLines(ctx context.Context, w io.Writer, client admin.Tenant, id string, last int64,
	json bool,
) (int64, error) {
	lines, err := client.Log(ctx, id, last)
	if err != nil || len(lines) == 0 {
		return last, err
	}
	task, err := client.Summary(ctx, id) // after the lines, so that it has their runs
	if err != nil {
		return last, err
	}
	for _, line := range lines {
		run := show.Given(task.RunAt(line.Time))
		switch {
		case json:
			err = show.JSON(w, show.Object("number", line.Number, "time", moment(line.Time), "line", line.Text, "run", run))
		case run == nil:
			_, err = fmt.Fprintf(w, "%s  run -  %s\n", moment(line.Time), show.Escape(line.Text))
		default:
			_, err = fmt.Fprintf(w, "%s  run %d  %s\n", moment(line.Time), run, show.Escape(line.Text))
		}
		if err != nil {
			return last, err
		}
		last = line.Number
	}
	return last, nil
}
