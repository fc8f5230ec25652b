package main

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins/manifest"
)

func newPluginSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of manifests, by which editors complete and check them",
		Long: "Prints the JSON Schema (draft 7) of manifests. Editors with the YAML language server use it for a manifest\n" +
			"that begins with the line\n\n" +
			"  # yaml-language-server: $schema=quern.schema.json\n\n" +
			"which names a file beside it, as in the folder that `quern plugin new` makes. What one key says of another,\n" +
			"and whether files are there, `quern plugin check` tells.",
		Example: "  quern plugin schema > quern.schema.json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(manifest.Schema())
			return err
		},
	}
}
