package cli

import (
	"github.com/spf13/cobra"
)

// redisFlags are those that say which Redis.
var redisFlags = []string{"redis", "redis-file"}

// UsesRedis annotates a command if it, and those below it, connect to the Redis of the user.
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

// RefuseUnusedFlags refuses a Redis for a command that has no use for one. `quern dev` says more about it.
func RefuseUnusedFlags(cmd *cobra.Command) error {
	for _, name := range redisFlags {
		if flag := cmd.Flag(name); flag != nil && flag.Changed && !connects(cmd) && cmd.Name() != "dev" {
			return Usagef("%s needs no Redis: leave --%s out", cmd.CommandPath(), name)
		}
	}
	return nil
}

// HideUnusedFlags makes the help of a command that needs no Redis say nothing of one.
func HideUnusedFlags(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, name := range redisFlags {
			cmd.Flag(name).Hidden = !connects(cmd) && cmd != root
		}
		help(cmd, args)
	})
}
