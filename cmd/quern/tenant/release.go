package tenant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue/release"
)

// whoami names the person who runs this command.
func whoami() string {
	name, host := "somebody", "localhost"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return strings.ToValidUTF8(name+"@"+host, "")
}

// releaseView returns a release as people see it.
func releaseView(r *release.Release) show.View {
	return show.Lines(
		"release", r.Number, "plugin", r.Plugin, "version", show.Given(r.Version), "state", r.State(), "share", show.Given(shareOf(r)),
		"module", show.Digest(show.DigestPrefix+r.ModuleDigest()), "size", units.FormatSize(r.Size()),
		"created", moment(r.Created), "by", show.Given(r.By), "note", show.Given(r.Note),
		"reason", show.Given(reasonOf(r)),
	)
}

const releaseHeading = "RELEASE PLUGIN VERSION STATE SHARE MODULE SIZE CREATED BY NOTE REASON HOSTS"

func newPluginReleases(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "releases NAME", Short: "List the releases of a plugin that are kept, newest first",
		Long: "Lists the newest 20 releases of a plugin. The one that serves is `serving`, or `frozen` if pushes are\n" +
			"refused; a `canary` gets a share of the tasks, and a `halted` one gets none any more; the others are\n" +
			"`replaced`, or `rolled back`. HOSTS counts the live hosts that have the release ready. `quern plugin ls`\n" +
			"shows what each host serves, and why it refuses a release.",
		Args: cli.Arguments(1, 1),
	}
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		all, err := client.Releases(args[0]).List(cmd.Context())
		if err != nil {
			return err
		}
		with, err := hosted(cmd.Context(), client, args[0], all)
		if err != nil {
			return err
		}
		return list(cmd, client, json, with, releaseHeading, show.Rows(with, func(r *hostedRelease) show.View {
			return append(releaseView(&r.Release), show.Lines("hosts", len(r.Hosts))...)
		}))
	})
}

func newPluginShow(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME [RELEASE]", Short: "Show a release of a plugin with its files; by default the one that serves",
		Args: cli.Arguments(1, 2), PreRunE: checkRelease,
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		all, err := client.Releases(args[0]).List(cmd.Context())
		if err != nil {
			return err
		}
		number := numberOf(args)
		for i := range all {
			r := &all[i]
			if r.Number != number && (number != 0 || !r.Serving) {
				continue
			}
			v := append(releaseView(r), show.Lines("digest", show.DigestPrefix+r.Digest(), "artifact", show.Given(r.Artifact))...)
			return printWith(cmd, json, r, v, "FILE SIZE DIGEST", show.Rows(r.Files, func(f *release.File) show.View {
				return show.Row(f.Name, f.Size, show.DigestPrefix+f.Digest)
			}))
		}
		return refusedRelease(cmd.Context(), client, args, "", release.ErrNoRelease)
	})
}

// checkRelease checks the number of a release in the second argument, if there is one.
func checkRelease(_ *cobra.Command, args []string) error {
	if len(args) > 1 && numberOf(args) < 1 {
		return cli.Usagef("release %q: use a number of `quern plugin releases %s`", args[1], cli.ShellWord(args[0]))
	}
	return nil
}

// numberOf returns the number in the second argument, or 0.
func numberOf(args []string) int {
	if len(args) < 2 {
		return 0
	}
	number, _ := strconv.Atoi(args[1]) // checkRelease has refused other texts
	return number
}

func newPluginRollback(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollback NAME [RELEASE]", Short: "Make all hosts serve an earlier release of a plugin",
		Long: "Makes all hosts serve an earlier release again, and prints its number. Without RELEASE it is the newest one\n" +
			"before the one that serves, without those from which somebody rolled back. RELEASE can also be a later one. The\n" +
			"releases between the two are rolled back, too, unless it is a later one. A rollback ends a canary.",
		Args: cli.Arguments(1, 2), PreRunE: checkRelease,
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		r, err := client.Releases(args[0]).Serve(cmd.Context(), numberOf(args))
		if err != nil {
			return refusedRelease(cmd.Context(), client, args, "rolled back", err)
		}
		return show.Line(cmd, json, r, fmt.Sprintf("%s %d", r.Plugin, r.Number))
	})
}

func newPluginFreeze(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "freeze NAME", Short: "Refuse pushes of a plugin, until --off; a rollback is possible",
		Args: cli.Arguments(1, 1),
	}
	off := cmd.Flags().Bool("off", false, "allow pushes again")
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		return refusedRelease(cmd.Context(), client, args, "", client.Releases(args[0]).Freeze(cmd.Context(), !*off))
	})
}

func newPluginDelete(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NAME [RELEASE]", Short: "Delete a release that does not serve, or all releases of a plugin with --all",
		Long: "Deletes a release that does not serve. With --all and without RELEASE it deletes all releases of the plugin:\n" +
			"hosts then serve it no longer, unless their plugin directory has it. Redis gets the memory back an hour later.",
		Args: cli.Arguments(1, 2),
	}
	all := cmd.Flags().Bool("all", false, "all releases of the plugin")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch name := cli.ShellWord(args[0]); {
		case *all && len(args) == 2:
			return cli.Usagef("both release %s and --all: delete one release with `quern plugin delete %s %s`, or all with `quern plugin delete %s --all`",
				args[1], name, cli.ShellWord(args[1]), name)
		case !*all && len(args) == 1:
			return cli.Usagef("name a RELEASE of `quern plugin releases %s`, or use --all", name)
		}
		return checkRelease(cmd, args)
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		err := client.Releases(args[0]).Delete(cmd.Context(), numberOf(args))
		return refusedRelease(cmd.Context(), client, args, "deleted", err)
	})
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
			if p.Plugin == plugin && p.Release == all[i].Number && p.Ready() {
				list[i].Hosts = append(list[i].Hosts, p.Nodes...)
			}
		}
	}
	return list, err
}

// refusedRelease adds a remedy to an error about a release. args are the plugin and perhaps a number, and done says
// what was not done.
func refusedRelease(ctx context.Context, client admin.Tenant, args []string, done string, err error) error {
	plugin, name := args[0], cli.ShellWord(args[0])
	switch {
	case errors.Is(err, release.ErrFrozen):
		return cli.Refusedf("plugin %s is frozen, so nothing was %s: end that with `quern plugin freeze %s --off`", plugin, done, name)
	case errors.Is(err, release.ErrServes):
		return cli.Refusedf("release %s of plugin %s serves: roll back with `quern plugin rollback %s` first, or delete all with `quern plugin delete %s --all`",
			args[1], plugin, name, name)
	case errors.Is(err, release.ErrCanary):
		return cli.Refusedf("release %s is the canary of plugin %s: end that with `quern plugin halt %s` first", args[1], plugin, name)
	case !errors.Is(err, release.ErrNoRelease) && !errors.Is(err, release.ErrNoCanary):
		return err
	}
	all, failed := client.Releases(plugin).List(ctx)
	if failed != nil {
		return err // the list only serves its remedy
	}
	if len(all) == 0 {
		return cli.Refusedf("plugin %s has no releases: see `quern plugin ls`, and mind --tenant", plugin)
	}
	number, numbers, known := numberOf(args), make([]string, len(all)), false
	for i, r := range all {
		numbers[len(all)-1-i] = strconv.Itoa(r.Number)
		known = known || r.Number == number
		if r.Number == number && r.Serving && errors.Is(err, release.ErrNoCanary) {
			return cli.Refusedf("release %d of plugin %s is no canary, it serves: roll back with `quern plugin rollback %s`", number, plugin, name)
		}
	}
	switch {
	case errors.Is(err, release.ErrNoCanary) && number == 0:
		return cli.Refusedf("plugin %s has no canary: see `quern plugin releases %s`, and mind --tenant", plugin, name)
	case errors.Is(err, release.ErrNoCanary) && known:
		return cli.Refusedf("release %d is not the canary of plugin %s: see `quern plugin releases %s`, and mind --tenant", number, plugin, name)
	case number == 0:
		return cli.Refusedf("plugin %s has no earlier release to go back to: see `quern plugin releases %s`, and mind --tenant", plugin, name)
	}
	return cli.Refusedf("plugin %s has no release %d: use one of %s, see `quern plugin releases %s`", plugin, number,
		strings.Join(numbers, ", "), name)
}
