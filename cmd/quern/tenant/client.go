package tenant

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/plugins/spelling"
)

// list prints a list for people or as JSON. To people it also says where it found nothing, and, unless they named a
// tenant, which others there are.
func list(cmd *cobra.Command, client admin.Tenant, json bool, all any, heading string, rows []show.View) error {
	if err := show.Table(cmd, json, all, heading, rows); err != nil || json {
		return err
	}
	if len(rows) == 0 {
		var filters []string
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Changed {
				filters = append(filters, " --"+flag.Name+" "+cli.ShellWord(flag.Value.String()))
			}
		})
		cli.Note(cmd, "nothing found in tenant %s at %s by `%s%s`", client.Tenant(), client.Address(),
			strings.TrimSpace(cmd.CommandPath()+" "+strings.Join(cmd.Flags().Args(), " ")), strings.Join(filters, ""))
	}
	// To look for tenants is to scan Redis's keys: only for a person who may miss something.
	if cli.IsGiven(cmd.Flag("tenant")) || cmd.ErrOrStderr() == io.Discard || len(rows) > 0 && !show.IsTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	tenants, err := client.Tenants(cmd.Context())
	tenants = slices.DeleteFunc(tenants, func(name string) bool { return name == client.Tenant() })
	if err == nil && len(tenants) > 0 { // not every user of Redis may look for them
		cli.Note(cmd, "this is tenant %s; there are also %s: name one with --tenant", client.Tenant(), firstOf(tenants))
	}
	return nil
}

// firstOf lists the first of many names.
func firstOf(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// warnUnserved warns of a queue that no host serves or ever served: its name may be misspelled. A producer that may not
// read what it needs is not warned.
func warnUnserved(cmd *cobra.Command, client admin.Tenant, name string) {
	q, err := admin.CountQueue(cmd.Context(), client, name)
	if err != nil || q.Listeners > 0 || q.Totals["complete"]+q.Totals["failed"] > 0 || q.Complete+q.Failed > 0 {
		return
	}
	cli.Note(cmd, "no host serves the queue %q of tenant %s, and none is known to have done so: %s", name, client.Tenant(), servedLike(cmd, client, name))
}

// servedLike is the remedy for an unserved queue: the served queue with the nearest name.
func servedLike(cmd *cobra.Command, client admin.Tenant, name string) string {
	queues, _ := client.Queues(cmd.Context())
	maps.DeleteFunc(queues, func(other string, listeners int64) bool { return listeners == 0 || other == name })
	if near := spelling.Nearest(name, slices.Sorted(maps.Keys(queues))); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	return doctor.Serving(name)
}

// shownBytes bounds a value on a terminal.
const shownBytes = 2000

// bytesView is a value: text if it is UTF-8, else base64. People see the beginning of a long text, and the size of
// bytes.
func bytesView(key string, value []byte) show.View {
	text := string(value)
	switch {
	case value == nil:
		return nil
	case !utf8.Valid(value):
		return show.View{{key + "_base64", "", value}, {"", key, fmt.Sprintf("(%d bytes)", len(value))}}
	}
	return show.View{{key, "", text}, {"", key, show.Head(text, shownBytes)}}
}

// clientRun is what a command does with a client. json says that -o asks for JSON.
type clientRun = func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error

// connecting completes a command that needs a client, after it has checked its arguments (PreRunE).
func connecting(env cli.Environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := dial(cmd, env)
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args, false)
	}
	return cmd
}

// printing is connecting for a command that prints something, as -o says.
func printing(env cli.Environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	output := option.Output(cmd)
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		return run(cmd, client, args, output.JSON())
	})
}

// errSeen ends --watch: nothing will change any more.
var errSeen = errors.New("nothing more will change")

// watchable is printing with --watch, which repeats the command until errSeen or another error,
// and prints what has changed.
func watchable(env cli.Environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	var every time.Duration
	option.DurationWithin(cmd.Flags(), &every, "watch", 0, 100*time.Millisecond, math.MaxInt64, "use at least 100ms", "look again, every 2s or as --watch=5s says, and print what has changed")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if flag := cmd.Flag("watch"); every != 0 && flag.Value.String() == flag.NoOptDefVal {
			for _, arg := range args {
				if _, err := time.ParseDuration(arg); err == nil {
					return cli.Usagef("--watch %s: use --watch=%s", arg, arg)
				}
			}
		}
		var err error
		if every == 0 {
			err = run(cmd, client, args, json)
		} else {
			err = show.Watch(cmd, every, func() error { return run(cmd, client, args, json) })
		}
		if errors.Is(err, errSeen) {
			return nil
		}
		return err
	})
}
