package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/plugins/spelling"
)

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: onlyCommands, RunE: needsCommand}
	cmd.AddCommand(commands...)
	return cmd
}

// clientGroup is a group of client commands.
func clientGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := group(use, short, commands...)
	clientFlags(cmd)
	serverFlags(cmd)
	return cmd
}

// onlyCommands refuses the arguments of a group: each is an unknown command.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("unknown command %q: %s", cmd.CommandPath()+" "+args[0], didYouMean(args[0], subcommands(cmd)))
}

// needsCommand refuses a group without a command.
func needsCommand(cmd *cobra.Command, _ []string) error {
	return usagef("%s needs a command: use one of %s", cmd.CommandPath(), strings.Join(subcommands(cmd), ", "))
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// arguments bounds the number of a command's arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return usagef("%s got %d arguments: use `%s`", cmd.CommandPath(), n, cmd.UseLine())
		}
		return nil
	}
}

// withoutSettings replaces applySettings for a command that needs none.
func withoutSettings(*cobra.Command, []string) error { return nil }

// flagError adds the remedy to an error of cobra about a flag.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		return wrongValue(value.GetFlag(), value.GetValue(), value.Unwrap())
	case errors.As(err, &missing):
		return usagef("--%s needs a value: see `%s --help`", missing.GetFlag().Name, cmd.CommandPath())
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usagef("unknown flag -%s: see `%s --help`, and write -- before arguments that begin with -",
			unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown) && unknown.GetSpecifiedName() == "server" && connects(cmd):
		return usagef("%s does not work over --server: it uses Redis itself, name it with --redis", cmd.CommandPath())
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
		slices.Sort(names)
		return usagef("unknown flag --%s of %s: %s", unknown.GetSpecifiedName(), cmd.CommandPath(),
			didYouMean("--"+unknown.GetSpecifiedName(), names))
	}
	return wrongUsage(fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath()))
}

// didYouMean is the remedy for an unknown word: the nearest of the right ones, or all if none is near.
func didYouMean(word string, right []string) string {
	near := spelling.Nearest(word, right)
	if len(near) == 0 {
		return "use one of " + strings.Join(right, ", ")
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}
