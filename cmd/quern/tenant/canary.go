package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/release"
)

func newPluginPromote(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "promote NAME [RELEASE]", Short: "Make the canary of a plugin serve all tasks",
		Long: "Makes all hosts serve the canary for all tasks, and prints its number. With RELEASE it does nothing if the\n" +
			"canary is another release.",
		Args: cli.Arguments(1, 2), PreRunE: checkRelease,
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		r, err := client.Releases(args[0]).Promote(cmd.Context(), numberOf(args))
		if err != nil {
			return refusedRelease(cmd.Context(), client, args, "promoted", err)
		}
		return show.Line(cmd, json, r, fmt.Sprintf("%s %d", r.Plugin, r.Number))
	})
}

func newPluginHalt(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "halt NAME [RELEASE]", Short: "End the canary of a plugin: it gets no more tasks",
		Long: "Ends the canary, and prints its number. It gets no more tasks: the release that serves runs them, also the next\n" +
			"attempts of tasks that began on the canary. With RELEASE it does nothing if the canary is another release.\n\n" +
			"With --retry-failed it also retries the tasks that failed on that release. If there is no canary, the release\n" +
			"is the last one that was halted or rolled back, by an operator or because it was bad.",
		Args: cli.Arguments(1, 2), PreRunE: checkRelease,
	}
	reason := ""
	option.Text(cmd.Flags(), &reason, "TEXT", "reason", "`TEXT` about why, at most 1024 bytes; default: who halted it")
	again := cmd.Flags().Bool("retry-failed", false, "retry the tasks that failed on the release")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if reason == "" {
			reason = "halted by " + whoami()
		}
		r, err := client.Releases(args[0]).Halt(cmd.Context(), numberOf(args), reason)
		if errors.Is(err, release.ErrNoCanary) && *again {
			r, err = lastBad(cmd.Context(), client, args)
		}
		if err == nil && *again {
			if err = awaitHalted(cmd, client, &r); err == nil {
				err = retryFailed(cmd, client, &r)
			}
		}
		if err != nil {
			return refusedRelease(cmd.Context(), client, args, "halted", err)
		}
		return show.Line(cmd, json, r, fmt.Sprintf("%s %d", r.Plugin, r.Number))
	})
}

// lastBad returns the newest release of a plugin that was halted or rolled back, or that with the number in args. The
// error is release.ErrNoCanary if there is none.
func lastBad(ctx context.Context, client admin.Tenant, args []string) (release.Release, error) {
	all, err := client.Releases(args[0]).List(ctx)
	for _, r := range all {
		bad := r.State() == release.StateHalted || r.State() == release.StateRolledBack
		if bad && (len(args) == 1 || r.Number == numberOf(args)) {
			return r, nil
		}
	}
	if err == nil {
		err = release.ErrNoCanary
	}
	return release.Release{}, err
}

// awaitHalted waits until no host has a release ready as a canary, so that what is retried does not run on it again.
func awaitHalted(cmd *cobra.Command, client admin.Tenant, r *release.Release) error {
	for deadline := time.Now().Add(haltedPatience); time.Now().Before(deadline); {
		list, err := hosted(cmd.Context(), client, r.Plugin, []release.Release{*r})
		if err != nil || len(list[0].Hosts) == 0 {
			return err
		}
		if !periodic.Sleep(cmd.Context(), haltedPause) {
			return cmd.Context().Err()
		}
	}
	cli.Note(cmd, "some hosts have not heard that release %d of %s is halted: tasks may run on it once more", r.Number, r.Plugin)
	return nil
}

// awaitHalted looks each haltedPause, for at most haltedPatience.
const (
	haltedPause    = 100 * time.Millisecond
	haltedPatience = 10 * time.Second
)

// retryFailed retries the tasks that failed on a release. It skips cancelled ones, and those that are no longer failed.
func retryFailed(cmd *cobra.Command, client admin.Tenant, r *release.Release) error {
	filter := admin.Filter{Status: string(queue.Failed), Plugin: r.Plugin, EndedSince: r.Created}
	tasks, err := client.List(cmd.Context(), &filter, 0, 0)
	if err != nil {
		return err
	}
	slices.Reverse(tasks) // the oldest first
	retried := 0
	for _, t := range tasks {
		if t.Release != r.Number || t.Failure().Reason == queue.ReasonCancelled {
			continue
		}
		_, err := client.Retry(cmd.Context(), t.ID)
		switch {
		case err == nil, errors.Is(err, queue.ErrLetterStays):
			retried++
		case errors.Is(err, queue.ErrUnique), errors.Is(err, queue.ErrStatus), errors.Is(err, queue.ErrNoTask):
		default:
			return err
		}
	}
	cli.Note(cmd, "%d failed tasks of release %d of %s are retried", retried, r.Number, r.Plugin)
	return nil
}
