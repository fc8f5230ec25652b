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
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/release"
)

func newPluginPush(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "push FILE|DIR|ARTIFACT", Short: "Make all hosts of the tenant serve a plugin, as a new release",
		Long: "Checks a plugin as `quern plugin check` does, stores its module, its manifest and the files that the manifest\n" +
			"names in Redis, and makes all hosts of the tenant serve them. A folder stands for the .wasm file in it. Hosts\n" +
			"fetch, compile and swap within seconds; tasks in flight end on the version they began on. On a host whose\n" +
			"plugin directory has a plugin of the same name, that plugin serves. A push of what serves already changes\n" +
			"nothing. With --canary or --steps, the release gets only a share of the tasks, until it is promoted or halted.\n" +
			"A push of other content ends the canary that was under way.\n\n" +
			"With --registry the files go to an OCI registry, in place of Redis. An ARTIFACT, such as\n" +
			"oci://HOST/REPOSITORY:TAG, is in a registry already. Hosts fetch it by its digest, wherever the tag goes.\n\n" +
			"Exit status: 0 pushed, 2 there is no such file, 3 a host would refuse it, or Redis or the registry is not\n" +
			"reachable.",
		Args: cli.Arguments(1, 1),
	}
	note := ""
	registry := registryFlags(cmd.Flags())
	option.Text(cmd.Flags(), &note, "TEXT", "note", "`TEXT` about what is new, at most 1024 bytes")
	var flags shareFlags
	flags.add(cmd)
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		share, err := flags.share()
		if err != nil {
			return err
		}
		from, err := registry.open(cmd, args[0])
		if err != nil {
			return err
		}
		defer from.close()
		r, files, err := readRelease(cmd.Context(), env, from.path)
		if err != nil && from.artifact != "" {
			err = fmt.Errorf("%s: %w", from.artifact, err)
		}
		if err != nil {
			return err
		}
		r.Note, r.By = note, whoami()
		before, err := client.Releases(r.Plugin).List(cmd.Context())
		if err != nil {
			return err
		}
		if r, err = from.place(cmd.Context(), r, files); err != nil {
			return err
		}
		pushed, err := release.Push(cmd.Context(), client.Releases(r.Plugin), r, files, share)
		if errors.Is(err, release.ErrNoRelease) {
			return cli.Refusedf("plugin %s has no release that serves, so none can get a share of its tasks: push without --canary and --steps",
				r.Plugin)
		}
		if err != nil {
			return refusedRelease(cmd.Context(), client, []string{r.Plugin}, "pushed", err)
		}
		notePush(cmd, before, &pushed)
		nodes, err := client.Nodes(cmd.Context())
		alive := func(n admin.Node) bool { return n.Kind == listen.KindQuern && n.Alive }
		if err == nil && !slices.ContainsFunc(nodes, alive) {
			cli.Note(cmd, "tenant %s has no live host, so nothing serves the release yet: see `quern node ls`, and mind --tenant",
				client.Tenant())
		}
		return show.Line(cmd, json, pushed, fmt.Sprintf("%s %d", pushed.Plugin, pushed.Number))
	})
}

// notePush says what a push did beside making the release serve. before are the releases before it.
func notePush(cmd *cobra.Command, before []release.Release, pushed *release.Release) {
	word := cli.ShellWord(pushed.Plugin)
	for i := range before {
		switch old := &before[i]; {
		case old.Number == pushed.Number && pushed.Serving:
			cli.Note(cmd, "release %d of %s has this content and serves: nothing was pushed", pushed.Number, pushed.Plugin)
		case old.Number == pushed.Number:
			cli.Note(cmd, "release %d of %s has this content and is the canary: nothing was pushed", pushed.Number, pushed.Plugin)
		case old.State() == release.StateCanary:
			cli.Note(cmd, "release %d of %s was the canary, and gets no more tasks", old.Number, old.Plugin)
		}
	}
	if pushed.State() == release.StateCanary {
		cli.Note(cmd, "release %d of %s is a canary for %s: end with `quern plugin promote %s` or `quern plugin halt %s`", pushed.Number,
			pushed.Plugin, pushed.Stage.Share, word, word)
	}
}

// readRelease reads and checks a plugin, and makes a release of it.
func readRelease(ctx context.Context, env cli.Environment, path string) (release.Release, []release.Content, error) {
	file, err := pluginfile.ModuleIn(path)
	if err != nil {
		return release.Release{}, nil, err
	}
	p, err := pluginfile.Read(file)
	if err != nil {
		return release.Release{}, nil, err
	}
	if _, err = p.Check(ctx, env, runtime.Config{}); err == nil {
		err = p.Refusal()
	}
	if err != nil {
		return release.Release{}, nil, err
	}
	return p.Release()
}

// shareFlags are the flags of a push that make the release a canary.
type shareFlags struct {
	canary, steps string
	given         func(name string) bool
}

func (f *shareFlags) add(cmd *cobra.Command) {
	f.given = cmd.Flags().Changed
	option.Text(cmd.Flags(), &f.canary, "SHARE", "canary",
		"give the release only a `SHARE` of the tasks: 10%, or label:NAME=VALUE for tasks with this label")
	option.Text(cmd.Flags(), &f.steps, "STEPS", "steps",
		"make it a canary whose share grows in at most 20 `STEPS`, such as 1%/10m,10%/500,50%/1h: 1% for 10 minutes, then 10% until 500 tasks have ended on it, then 50% for an hour; then it serves")
}

// share returns the share of the canary; nil if no flag is set.
func (f *shareFlags) share() (*release.Share, error) {
	var share release.Share
	var err error
	name := "--canary"
	label, labelled := strings.CutPrefix(f.canary, "label:")
	switch {
	case f.given("canary") && f.canary == "":
		return nil, cli.Usagef("--canary \"\": write a share, such as 10%%; without the flag the release serves all tasks")
	case f.given("steps") && f.steps == "":
		return nil, cli.Usagef("--steps \"\": write steps, such as 10%%/10m; without the flag the release serves all tasks")
	case f.canary != "" && f.steps != "":
		return nil, cli.Usagef("use either --canary or --steps: --steps makes a canary, too")
	case labelled:
		var found bool
		if share.Label, share.Value, found = strings.Cut(label, "="); !found || share.Label == "" {
			return nil, cli.Usagef("--canary %q: write label:NAME=VALUE, such as label:customer=acme", f.canary)
		}
	case strings.ContainsAny(f.canary, ",/"):
		err = errors.New("use one percentage, such as 10%, or --steps")
	case f.canary != "":
		share.Steps, err = parseSteps(f.canary)
	case f.steps != "":
		name = "--steps"
		share.Steps, err = parseSteps(f.steps)
	default:
		return nil, nil
	}
	if err == nil {
		if err = share.Validate(); err != nil {
			err = errors.New(strings.TrimPrefix(cli.TrimInvalid(err).Error(), "share of a canary: "))
		}
	}
	if err != nil {
		return nil, cli.Usagef("%s %q: %w", name, f.canary+f.steps, err)
	}
	return &share, nil
}

// parseSteps reads the steps of a share: PERCENT%, PERCENT%/DURATION or PERCENT%/TASKS, separated by commas.
func parseSteps(text string) (steps []release.Step, err error) {
	parts := strings.Split(text, ",")
	for i, part := range parts {
		number, bound, bounded := strings.Cut(strings.TrimSpace(part), "/")
		percent, ok := strings.CutSuffix(number, "%")
		name := ""
		if len(parts) > 1 {
			name = fmt.Sprintf("step %d, ", i+1)
		}
		var step release.Step
		if step.Percent, err = strconv.ParseFloat(percent, 64); err != nil || !ok {
			return nil, fmt.Errorf("%s%q: use a percentage, such as 10%%", name, number)
		}
		if bounded {
			if step.Tasks, err = strconv.Atoi(bound); err != nil {
				var lasts time.Duration
				lasts, err = units.ParseDuration(bound)
				step.Seconds = lasts.Seconds()
			}
			if err != nil || step.Tasks <= 0 && step.Seconds < 1 {
				return nil, fmt.Errorf("%s%q: use a duration of 1s or more, or a number of tasks after the slash, such as %s/10m or %s/500", name,
					strings.TrimSpace(part), number, number)
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}
