package tenant

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// completionTimeout bounds the calls of Redis for a completion, because a person waits at a prompt.
	completionTimeout = time.Second
	// completedTasks is the maximum number of tasks of each queue that are offered: the newest ones.
	completedTasks = 20
)

// completed maps flags whose values are names in Redis to the words that usage lines have for these names.
var completed = map[string]string{
	"tenant": "TENANT", "tenants": "TENANT", "queue": "QUEUE", "queues": "QUEUE", "node": "LISTENER", "plugin": "NAME",
	"topic": "TOPIC",
}

var usageWord = regexp.MustCompile(`[A-Z]+(\|[A-Z]+)?`)

// Complete lets the shell complete the arguments and flags of a command and its subcommands, according to the words in
// their usage lines.
func Complete(cmd *cobra.Command, env cli.Environment) {
	for _, sub := range cmd.Commands() {
		Complete(sub, env)
	}
	use, _, _ := strings.Cut(cmd.Use, " | ")
	if words := usageWord.FindAllString(use, -1); len(words) > 0 &&
		cmd.Flag("lang") == nil { // `plugin new` takes new names
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return candidates(cmd, env, words[min(len(args), len(words)-1)])
		}
	}
	register := func(flag *pflag.Flag) {
		word, _ := pflag.UnquoteUsage(flag)
		if name, ok := completed[flag.Name]; ok {
			word = name
		}
		fixed, isChoice := flag.Value.(interface{ Words() []string })
		_ = cmd.RegisterFlagCompletionFunc(flag.Name, func(cmd *cobra.Command, _ []string,
			_ string,
		) ([]string, cobra.ShellCompDirective) {
			switch {
			case isChoice:
				return fixed.Words(), cobra.ShellCompDirectiveNoFileComp
			case word == "FILE":
				return nil, cobra.ShellCompDirectiveDefault
			}
			return candidates(cmd, env, word)
		}) // fails only if the flag has a completion already
	}
	cmd.LocalNonPersistentFlags().VisitAll(register)
	cmd.PersistentFlags().VisitAll(register)
}

// candidates returns the values that a word of a usage line can stand for.
func candidates(cmd *cobra.Command, env cli.Environment, word string) ([]string, cobra.ShellCompDirective) {
	switch word {
	case "FILE", "DIR|FILE": // the file of a plugin
		return []string{manifest.ModuleSuffix[1:]}, cobra.ShellCompDirectiveFilterFileExt
	case "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	look, ok := lookups[word]
	if !ok || cli.ApplySettings(cmd, env) != nil || cmd.Flag("tenant") == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := dial(cmd, env)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	return look(ctx, client), cobra.ShellCompDirectiveNoFileComp
}

// lookups maps words of usage lines to functions that return the names in Redis for which the words stand. After an
// error a function returns the names that it has.
var lookups = map[string]func(context.Context, admin.Tenant) []string{
	"TENANT":       offer(admin.Tenant.Tenants, func(tenant string) string { return tenant }),
	"QUEUE":        queueNames,
	"ID":           taskIDs,
	"DEPENDENCY":   taskIDs,
	"LISTENER":     offer(admin.Tenant.Nodes, func(n admin.Node) string { return n.Listener }),
	"TOPIC":        offer(admin.Tenant.Topics, func(t admin.Topic) string { return t.Topic }),
	"SUBSCRIPTION": offer(admin.Tenant.Subscriptions, func(s queue.Subscription) string { return s.ID + "\t" + s.Topic }),
	"SCHEDULE": offer(admin.Tenant.Schedules, func(s admin.Schedule) string {
		return s.ID + "\t" + s.Queue + " " +
			s.Cron
	}),
	"BUCKET":      offer(admin.Tenant.Buckets, func(b admin.Bucket) string { return b.Bucket }),
	"NAME":        pluginNames,
	"NAME|DIGEST": pluginNames,
}

var pluginNames = offer(admin.Tenant.Plugins, func(p admin.Plugin) string { return p.Plugin })

func offer[T any](read func(admin.Tenant, context.Context) ([]T, error),
	name func(T) string,
) func(context.Context, admin.Tenant) []string {
	return func(ctx context.Context, client admin.Tenant) (found []string) {
		all, _ := read(client, ctx)
		for _, one := range all {
			found = append(found, name(one))
		}
		return found
	}
}

func queueNames(ctx context.Context, client admin.Tenant) []string {
	queues, _ := client.Queues(ctx)
	return slices.Sorted(maps.Keys(queues))
}

func taskIDs(ctx context.Context, client admin.Tenant) (found []string) {
	for _, name := range queueNames(ctx, client) {
		tasks, err := client.List(ctx, &admin.Filter{Queue: name}, 0, completedTasks)
		if err != nil {
			break
		}
		for _, task := range tasks {
			found = append(found, task.ID+"\t"+name+" "+string(task.Status))
		}
	}
	return found
}
