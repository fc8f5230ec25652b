package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/plugins/manifest"
)

// shortDigest is the length of a digest for people: sha256: and twelve digits.
const shortDigest = len(digestPrefix) + 12

const digestPrefix = "sha256:"

func newPluginLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the plugins of live hosts, and the refused ones", Args: arguments(0, 0)}
	clientFlags(cmd)
	serverFlags(cmd)
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		views, err := client.Plugins(cmd.Context())
		if err != nil {
			return err
		}
		rows := make([]view, len(views))
		for i, v := range views {
			digest := v.Digest[:min(len(v.Digest), shortDigest)]
			rows[i] = row(v.Tenant, v.Plugin, v.Version, digest, v.Queues, v.State, v.ResetMode, len(v.Nodes), pasteable(cmd, v.Error))
		}
		return list(cmd, client, json, views, "TENANT PLUGIN VERSION DIGEST QUEUES STATE RESET NODES ERROR", rows)
	})
}

func newPluginRelease(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "release NAME|DIGEST", Short: "End the quarantine of a plugin whose tasks ended several hosts",
		Long: "Ends the quarantine of every version of the plugin NAME, or of the version DIGEST (eight digits of\n" +
			"`quern plugin ls` are enough), and prints what it released. Hosts run it again within seconds. A version\n" +
			"whose tasks end three hosts within an hour is quarantined for a day.",
		Args: arguments(1, 1),
	}
	clientFlags(cmd)
	serverFlags(cmd)
	cmd.RunE = withClient(env, nil, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		quarantines, err := client.Quarantines(cmd.Context())
		if err != nil {
			return err
		}
		digest := strings.TrimPrefix(args[0], digestPrefix)
		released := 0
		for _, q := range quarantines {
			if q.Plugin != args[0] && !(len(digest) >= leastPrefix && strings.HasPrefix(strings.TrimPrefix(q.Digest, digestPrefix), digest)) {
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
			return refusedf("tenant %s has no quarantined plugin or digest %q: see `quern plugin ls`, and mind --tenant", client.Tenant(), args[0])
		}
		return nil
	})
	return cmd
}

func newPluginSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of manifests, for editors",
		Long: "Prints the JSON Schema (draft 7) of manifests. Editors with the YAML language server use it to complete and\n" +
			"check a manifest that begins with the line\n\n" +
			"  # yaml-language-server: $schema=quern.schema.json\n\n" +
			"which names a file beside it, as in the folder that `quern plugin new` makes. `quern plugin check` also\n" +
			"checks keys against each other, and that files exist.",
		Example: "  quern plugin schema > quern.schema.json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(manifest.Schema())
			return err
		},
	}
}
