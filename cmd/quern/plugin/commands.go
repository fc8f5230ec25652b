// Package plugin has the commands of those who write plugins: new, build, check, test, run and schema.
package plugin

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/plugins/manifest"
)

func newPluginSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of manifests, for editors",
		Long: "Prints the JSON Schema (draft 7) of manifests. Editors with the YAML language server use it to complete and\n" +
			"check a manifest that begins with the line\n\n" +
			"  # yaml-language-server: $schema=quern.schema.json\n\n" +
			"which names a file beside it, as in the folder that `quern plugin new` makes. `quern plugin check` also\n" +
			"checks keys against each other, and that files exist.",
		Example: "  quern plugin schema > quern.schema.json",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(manifest.Schema())
			return err
		},
	}
}

// Commands are the commands of `quern plugin` that work on this machine alone.
func Commands(env cli.Environment) []*cobra.Command {
	return []*cobra.Command{newPluginNew(), newPluginBuild(env), newPluginCheck(env), newPluginTest(env), newPluginRun(env), newPluginSchema()}
}
