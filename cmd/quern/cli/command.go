// Package cli is the framework of the commands: arguments, settings, errors and their exit statuses, and hints.
//
// A flag that is a setting takes its value from the command line, the environment or the configuration file, in this
// order; [ApplySettings] reads the latter two. An error carries its exit status, and [Report] prints it in one line:
// WHAT: REMEDY.
package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/plugins/spelling"
)

// Group makes a command that only holds subcommands.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: OnlyCommands, RunE: NeedsCommand}
	cmd.AddCommand(commands...)
	return cmd
}

// OnlyCommands refuses the arguments of a group: an argument that is no subcommand is an unknown command.
func OnlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("unknown command %q: %s", cmd.CommandPath()+" "+args[0],
		cmp.Or(inGroups(cmd, args), ofOthers(cmd, args[0]), spelling.DidYouMean(args[0], Subcommands(cmd))))
}

// inGroups names the commands below the subcommands of cmd that have the name args[0], with the other arguments. It
// returns "" if there are none.
func inGroups(cmd *cobra.Command, args []string) string {
	var found []string
	for _, group := range cmd.Commands() {
		for _, sub := range group.Commands() {
			if sub.IsAvailableCommand() && (sub.Name() == args[0] || sub.HasAlias(args[0])) {
				words := []string{sub.CommandPath()}
				for _, arg := range args[1:] {
					words = append(words, ShellWord(arg))
				}
				found = append(found, "`"+strings.Join(words, " ")+"`")
			}
		}
	}
	if len(found) == 0 || len(found) > 3 { // such as ls, which nearly each group has
		return ""
	}
	return "use " + strings.Join(found, " or ")
}

// NeedsCommand refuses to run a group without a subcommand.
func NeedsCommand(cmd *cobra.Command, _ []string) error {
	return Usagef("%s needs a command: use one of %s", cmd.CommandPath(), strings.Join(Subcommands(cmd), ", "))
}

// Subcommands returns the names of a command's subcommands.
func Subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// Arguments refuses a call with fewer than minimum or more than maximum arguments.
func Arguments(minimum, maximum int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n < minimum || n > maximum {
			return Usagef("%s got %d arguments: use `%s`", cmd.CommandPath(), n, cmd.UseLine())
		}
		return nil
	}
}

// WithoutSettings takes the place of ApplySettings in a command that has no settings.
func WithoutSettings(*cobra.Command, []string) error { return nil }

// FlagError adds a remedy to cobra's error about a flag.
func FlagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		return WrongValue(value.GetFlag(), value.GetValue(), value.Unwrap())
	case errors.As(err, &missing):
		return Usagef("--%s needs a value: see `%s --help`", missing.GetFlag().Name, cmd.CommandPath())
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return Usagef("unknown flag -%s: see `%s --help`, and write -- before arguments that begin with -",
			unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown) && unknown.GetSpecifiedName() == "server" && connects(cmd):
		return Usagef("%s does not work over --server: it uses Redis itself, name it with --redis", cmd.CommandPath())
	case errors.As(err, &unknown) && unknown.GetSpecifiedName() == "every" && cmd.Flags().Lookup("cron") != nil:
		return Usagef("unknown flag --every of %s: use --cron '@every 1m'", cmd.CommandPath())
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
		slices.Sort(names)
		word := "--" + unknown.GetSpecifiedName()
		return Usagef("unknown flag %s of %s: %s", word, cmd.CommandPath(),
			cmp.Or(ofOthers(cmd, word), spelling.DidYouMean(word, names)))
	}
	return WrongUsage(fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath()))
}
