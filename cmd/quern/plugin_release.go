package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
)

func newPluginRelease(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "release NAME|DIGEST", Short: "End the quarantine of a plugin whose tasks ended several hosts",
		Long: "Ends the quarantine of every version of the plugin NAME, or of the version DIGEST (of which the twelve\n" +
			"digits that `quern plugin ls` shows are enough), and prints what it released. Hosts run it again within\n" +
			"seconds. The third host that a version's tasks end within an hour quarantines it for a day.",
		Args: arguments(1, 1),
	}
	clientFlags(cmd)
	cmd.RunE = withClient(env, nil, func(cmd *cobra.Command, client *queue.Client, args []string, _ bool) error {
		quarantines, err := client.Fleet().Quarantines(cmd.Context())
		if err != nil {
			return err
		}
		released := 0
		for _, q := range quarantines {
			if q.Plugin != args[0] && !(len(args[0]) >= shortDigest && strings.HasPrefix(q.Digest, args[0])) {
				continue
			}
			if err := client.Fleet().EndQuarantine(cmd.Context(), q.Plugin, q.Digest); err != nil {
				return err
			}
			released++
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), q.Plugin, q.Digest); err != nil {
				return err
			}
		}
		if released == 0 {
			return refusedf("tenant %s has no plugin or digest %q that is quarantined: see `quern plugin ls`, and mind --tenant", client.Tenant(), args[0])
		}
		return nil
	})
	return cmd
}

// stateQuarantined is the state of a plugin that serves, but of which hosts run nothing.
const stateQuarantined = "quarantined"

// markQuarantined says of those versions that are quarantined that they are, and why.
func markQuarantined(ctx context.Context, client *queue.Client, views []pluginView) error {
	quarantines, err := client.Fleet().Quarantines(ctx)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		at := slices.IndexFunc(quarantines, func(q queue.Quarantine) bool { return q.Plugin == v.Plugin && q.Digest == v.Digest })
		if at < 0 || v.State != plugins.StateServing {
			continue
		}
		v.State = stateQuarantined
		v.Error = fmt.Sprintf("its tasks ended %s; replace it, or use `quern plugin release %s`", strings.Join(quarantines[at].Listeners, ", "), v.Plugin)
	}
	return nil
}
