package tenant

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
)

func newPluginLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the plugins of live hosts, and the refused ones", Args: cli.Arguments(0, 0)}
	connect.Flags(cmd)
	serverFlags(cmd)
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		views, err := client.Plugins(cmd.Context())
		if err != nil {
			return err
		}
		rows := make([]show.View, len(views))
		for i, v := range views {
			rows[i] = show.Row(v.Tenant, v.Plugin, v.Version, show.Digest(v.Digest), v.Queues, v.State, v.ResetMode, len(v.Nodes), cli.Pasteable(cmd, v.Error))
		}
		return list(cmd, client, json, views, "TENANT PLUGIN VERSION DIGEST QUEUES STATE RESET NODES ERROR", rows)
	})
}

func newPluginRelease(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "release NAME|DIGEST", Short: "End the quarantine of a plugin whose tasks ended several hosts",
		Long: "Ends the quarantine of every version of the plugin NAME, or of the version DIGEST (eight digits of\n" +
			"`quern plugin ls` are enough), and prints what it released. Hosts run it again within seconds. A version\n" +
			"whose tasks end three hosts within an hour is quarantined for a day.",
		Args: cli.Arguments(1, 1),
	}
	connect.Flags(cmd)
	serverFlags(cmd)
	cmd.RunE = withClient(env, nil, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		quarantines, err := client.Quarantines(cmd.Context())
		if err != nil {
			return err
		}
		digest := strings.TrimPrefix(args[0], show.DigestPrefix)
		released := 0
		for _, q := range quarantines {
			if q.Plugin != args[0] && !(len(digest) >= leastPrefix && strings.HasPrefix(strings.TrimPrefix(q.Digest, show.DigestPrefix), digest)) {
				continue
			}
			if err := client.EndQuarantine(cmd.Context(), q.Plugin, q.Digest); err != nil {
				return err
			}
			released++
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), q.Plugin, q.Digest); err != nil {
				return err
			}
		}
		if released == 0 {
			return cli.Refusedf("tenant %s has no quarantined plugin or digest %q: see `quern plugin ls`, and mind --tenant", client.Tenant(), args[0])
		}
		return nil
	})
	return cmd
}
