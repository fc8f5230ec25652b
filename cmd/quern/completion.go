package main

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// completionTimeout bounds the look into Redis: a person waits at a prompt.
	completionTimeout = time.Second
	// completedTasks is how many tasks of a queue are offered, the newest ones.
	completedTasks = 20
)

// completed are the flags whose values are names in Redis, by what these are called in usage lines.
var completed = map[string]string{
	"tenant": "TENANT", "tenants": "TENANT", "queue": "QUEUE", "queues": "QUEUE", "node": "LISTENER", "plugin": "NAME",
}

var usageWord = regexp.MustCompile(`[A-Z]+(\|[A-Z]+)?`)

// complete lets the shell complete arguments and flags, of a command and those below it, by the words of their usage.
func complete(cmd *cobra.Command, env environment) {
	for _, sub := range cmd.Commands() {
		complete(sub, env)
	}
	use, _, _ := strings.Cut(cmd.Use, " | ")
	if words := usageWord.FindAllString(use, -1); len(words) > 0 && cmd.Flag("lang") == nil { // `plugin new` takes new names
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return candidates(cmd, env, words[min(len(args), len(words)-1)])
		}
	}
	offer := func(flag *pflag.Flag) {
		word, _ := pflag.UnquoteUsage(flag)
		if name, ok := completed[flag.Name]; ok {
			word = name
		}
		fixed, isChoice := flag.Value.(interface{ words() []string })
		_ = cmd.RegisterFlagCompletionFunc(flag.Name, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			switch {
			case isChoice:
				return fixed.words(), cobra.ShellCompDirectiveNoFileComp
			case word == "FILE":
				return nil, cobra.ShellCompDirectiveDefault
			}
			return candidates(cmd, env, word)
		}) // fails only if the flag has one already
	}
	cmd.LocalNonPersistentFlags().VisitAll(offer)
	cmd.PersistentFlags().VisitAll(offer)
}

// candidates are what a word of a usage line may stand for.
func candidates(cmd *cobra.Command, env environment, word string) (found []string, _ cobra.ShellCompDirective) {
	switch word {
	case "FILE", "DIR|FILE": // of a plugin
		return []string{moduleSuffix[1:]}, cobra.ShellCompDirectiveFilterFileExt
	case "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case "TENANT", "QUEUE", "ID", "LISTENER", "NAME", "NAME|DIGEST", "SCHEDULE":
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if applySettings(cmd, env) != nil || cmd.Flag("tenant") == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := connect(cmd, env, queue.Config{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	queues, _ := client.Queues(ctx)
	switch word {
	case "TENANT":
		found, _ = client.Tenants(ctx)
	case "QUEUE":
		found = slices.Sorted(maps.Keys(queues))
	case "ID":
		for _, name := range slices.Sorted(maps.Keys(queues)) {
			tasks, err := client.List(ctx, &api.Filter{Queue: name}, 0, completedTasks)
			if err != nil {
				break
			}
			for _, task := range tasks {
				found = append(found, task.ID+"\t"+name+" "+string(task.Status))
			}
		}
	case "LISTENER":
		nodes, _ := client.Nodes(ctx)
		for _, node := range nodes {
			found = append(found, node.Listener)
		}
	case "SCHEDULE":
		if d, ok := client.(*direct); ok {
			schedules, _ := d.Schedules(ctx)
			for _, s := range schedules {
				found = append(found, s.ID+"\t"+s.Queue+" "+s.Cron)
			}
		}
	case "NAME", "NAME|DIGEST":
		plugins, _ := client.Plugins(ctx)
		for _, plugin := range plugins {
			found = append(found, plugin.Plugin)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
