package nodehost

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup are flags that the help lists together.
type flagGroup struct {
	title string
	names []string
}

// hostGroups are the flags of `quern serve` and `quern dev`, by what they are for.
var hostGroups = []flagGroup{
	{"What it serves", []string{"plugins", "tenants", "queues", "name", "source", "engines"}},
	{"How much it runs at a time", []string{"concurrency", "webhooks", "memory", "idle-unload"}},
	{"What tasks may use, whatever a manifest says", []string{"max-timeout", "max-cpu", "ceiling", "max-queues", "grants"}},
	{"What handlers may reach", []string{"allow-networks", "proxy", "secrets"}},
	{"When a task fails, or its host", []string{"max-attempts", "max-crashes", "lease", "grace"}},
	{"Finished tasks", []string{"keep", "keep-tasks", "purge-foreign"}},
	{"Redis", []string{"redis-port", "poll", "tenant-redis", "tenant-redis-file"}},
	{"Isolation and compilation", []string{"confine", "reset", "cache", "compile-memory", "compile-time"}},
	{"Log, metrics and traces", []string{"log-level", "log-format", "http", "native-histograms", "otlp"}},
	{"API", []string{"admin", "tokens", "admin-cert", "admin-key", "admin-ca", "base-path"}},
}

// GroupFlags makes a command's help list its flags in groups. Flags without a group come last.
func GroupFlags(cmd *cobra.Command) {
	groups := hostGroups
	cmd.InitDefaultHelpFlag()
	grouped := make([]*pflag.FlagSet, len(groups)+1)
	for i := range grouped {
		grouped[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		i := slices.IndexFunc(groups, func(g flagGroup) bool { return slices.Contains(g.names, flag.Name) })
		if i < 0 {
			i = len(groups)
		}
		grouped[i].AddFlag(flag)
	})
	var text strings.Builder
	for i, group := range append(groups[:len(groups):len(groups)], flagGroup{title: "Other flags"}) {
		if grouped[i].HasFlags() {
			text.WriteString(group.title + ":\n" + grouped[i].FlagUsages() + "\n")
		}
	}
	const all = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), all, strings.TrimRight(text.String(), "\n"), 1))
}
