package cli

import (
	"github.com/spf13/cobra"
)

// redisFlags are the names of the flags that choose the Redis.
var redisFlags = []string{"redis", "redis-file"}

// UsesRedis is the annotation of a command that connects, as do its subcommands, to the Redis of the user.
const UsesRedis = "redis"

// connects reports whether a command connects to the Redis of the user.
func connects(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd.Annotations[UsesRedis] != "" {
			return true
		}
	}
	return false
}

// RefuseUnusedFlags refuses --redis and --redis-file for a command that does not use them. `quern dev` reports its own
// error.
func RefuseUnusedFlags(cmd *cobra.Command) error {
	for _, name := range redisFlags {
		if flag := cmd.Flag(name); flag != nil && flag.Changed && !connects(cmd) && cmd.Name() != "dev" {
			return Usagef("%s needs no Redis: leave --%s out", cmd.CommandPath(), name)
		}
	}
	return nil
}

// HideUnusedFlags hides --redis and --redis-file in the help of commands that do not use them.
func HideUnusedFlags(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, name := range redisFlags {
			cmd.Flag(name).Hidden = !connects(cmd) && cmd != root
		}
		help(cmd, args)
	})
}
