package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/release"
)

// shareFlags are the flags of a push that make the release a canary.
type shareFlags struct{ canary, steps string }

func (f *shareFlags) add(cmd *cobra.Command) {
	option.Text(cmd.Flags(), &f.canary, "SHARE", "canary",
		"give the release only a `SHARE` of the tasks: 10%, or label:NAME=VALUE for tasks with this label")
	option.Text(cmd.Flags(), &f.steps, "STEPS", "steps",
		"make it a canary whose share grows in `STEPS`, such as 1%/10m,10%/500,50%/1h: 1% for 10 minutes, then 10% until 500 tasks have ended on it, then 50% for an hour; then it serves")
}

// share returns the share of the canary; nil if no flag is set.
func (f *shareFlags) share() (*release.Share, error) {
	var share release.Share
	var err error
	name := "--canary"
	label, labelled := strings.CutPrefix(f.canary, "label:")
	switch {
	case f.canary != "" && f.steps != "":
		return nil, cli.Usagef("use either --canary or --steps: --steps makes a canary, too")
	case labelled:
		var found bool
		if share.Label, share.Value, found = strings.Cut(label, "="); !found || share.Label == "" {
			return nil, cli.Usagef("--canary %q: write label:NAME=VALUE, such as label:customer=acme", f.canary)
		}
	case f.canary != "":
		share.Steps, err = parseSteps(f.canary)
		if err == nil && strings.ContainsAny(f.canary, ",/") {
			err = errors.New("write one percentage, such as 10%, or use --steps")
		}
	case f.steps != "":
		name = "--steps"
		share.Steps, err = parseSteps(f.steps)
	default:
		return nil, nil
	}
	if err == nil {
		if err = share.Validate(); err != nil {
			err = cli.TrimInvalid(err)
		}
	}
	if err != nil {
		return nil, cli.Usagef("%s %q: %w", name, f.canary+f.steps, err)
	}
	return &share, nil
}

// parseSteps reads the steps of a share: PERCENT%, PERCENT%/DURATION or PERCENT%/TASKS, separated by commas.
func parseSteps(text string) (steps []release.Step, err error) {
	for part := range strings.SplitSeq(text, ",") {
		number, bound, bounded := strings.Cut(strings.TrimSpace(part), "/")
		percent, ok := strings.CutSuffix(number, "%")
		var step release.Step
		if step.Percent, err = strconv.ParseFloat(percent, 64); err != nil || !ok {
			return nil, fmt.Errorf("%q is no percentage: write one such as 10%% or 0.5%%", number)
		}
		if bounded {
			if step.Tasks, err = strconv.Atoi(bound); err != nil {
				var lasts time.Duration
				if lasts, err = units.ParseDuration(bound); err != nil || lasts <= 0 {
					return nil, fmt.Errorf("%q is no end of a step: write a duration such as 10m, or a number of tasks such as 500", bound)
				}
				step.Seconds = lasts.Seconds()
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// shareOf says which tasks a canary gets, or got before it was halted; "" if the release is none.
func shareOf(r *release.Release) string {
	switch s := r.Stage; {
	case s == nil:
		return ""
	case s.Share.Label != "" || s.Step >= len(s.Share.Steps):
		return s.Share.String()
	case len(s.Share.Steps) == 1:
		return s.Share.Steps[0].String()
	default:
		return fmt.Sprintf("%s, step %d of %d", s.Share.Steps[s.Step], s.Step+1, len(s.Share.Steps))
	}
}

// reasonOf says why a canary was halted, or why hosts went back from a release; "" if neither happened.
func reasonOf(r *release.Release) string {
	if r.Stage == nil {
		return r.Reason
	}
	return r.Stage.Reason
}

// hostedRelease is a release with the live hosts that have it ready.
type hostedRelease struct {
	release.Release
	Hosts []string `json:"hosts"`
}

// hosted adds to releases the hosts that have them ready.
func hosted(ctx context.Context, client admin.Tenant, plugin string, all []release.Release) ([]hostedRelease, error) {
	list := make([]hostedRelease, len(all))
	published, err := client.Plugins(ctx)
	for i := range all {
		list[i] = hostedRelease{all[i], []string{}}
		for _, p := range published {
			if p.Plugin == plugin && p.Release == all[i].Number && p.State != plugins.StateRefused {
				list[i].Hosts = append(list[i].Hosts, p.Nodes...)
			}
		}
	}
	return list, err
}

func newPluginPromote(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "promote NAME [RELEASE]", Short: "Make the canary of a plugin serve all tasks",
		Long: "Makes all hosts serve the canary for all tasks, and prints its number. With RELEASE it does nothing if the\n" +
			"canary is another release.",
		Args: cli.Arguments(1, 2), PreRunE: checkRelease,
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		r, err := client.Releases(args[0]).Promote(cmd.Context(), numberOf(args))
		switch {
		case errors.Is(err, release.ErrNoCanary):
			return noCanary(args)
		case errors.Is(err, release.ErrFrozen):
			return frozen(args[0], "promoted")
		case err != nil:
			return err
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
		if errors.Is(err, release.ErrNoCanary) {
			return noCanary(args)
		}
		if err == nil && *again {
			err = retryFailed(cmd, client, &r)
		}
		if err != nil {
			return err
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
		if t.Digest != "sha256:"+r.ModuleDigest() || r.Version != "" && t.Version != r.Version ||
			t.Failure().Reason == queue.ReasonCancelled {
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

func noCanary(args []string) error {
	what := "plugin " + args[0] + " has no canary"
	if len(args) > 1 {
		what = fmt.Sprintf("release %s is not the canary of plugin %s", args[1], args[0])
	}
	return cli.Refusedf("%s: see `quern plugin releases %s`, and mind --tenant", what, cli.ShellWord(args[0]))
}

func frozen(plugin, what string) error {
	return cli.Refusedf("plugin %s is frozen, so nothing was %s: end that with `quern plugin freeze %s --off`", plugin, what,
		cli.ShellWord(plugin))
}
