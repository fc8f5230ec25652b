package cli

import (
	"cmp"
	"fmt"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// VersionCommand makes the command `quern version`.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, revision := BuildVersion()
			if revision != "" {
				revision = " (" + revision + ")"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "quern %s%s %s %s/%s\n", version, revision, goruntime.Version(),
				goruntime.GOOS, goruntime.GOARCH)
			return err
		},
	}
}

// BuildVersion returns the module's version and, if the binary was built in a checkout, the revision.
func BuildVersion() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	version = cmp.Or(info.Main.Version, "(devel)")
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			revision = setting.Value[:min(12, len(setting.Value))] + revision
		case setting.Key == "vcs.modified" && setting.Value == "true":
			revision += "+changes"
		}
	}
	return version, revision
}
