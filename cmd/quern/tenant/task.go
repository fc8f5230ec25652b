package tenant

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

func newTaskShow(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show everything about a task",
		Long: "Shows everything about a task. -o json leaves missing values out; max_attempts is -1 for a task without\n" +
			"a bound, and missing where its manifest decides; handled is the ID of the dead letter that handled a\n" +
			"failed task; dependencies are up to 1000 of the tasks that it waits for, or waited for. Without -o json\n" +
			"ten are shown, first those that have not ended.\n\n" +
			"--tree shows it as a tree: below each task those that it enqueued, and those that wait for it, marked\n" +
			"with an arrow; at most 100 below each, 8 levels and 1000 in all. It counts what it leaves out.",
		Args: cli.Arguments(1, 1),
	}
	tree := cmd.Flags().Bool("tree", false, "show it with the tasks that it enqueued and those that wait for it, and so on")
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		task, err := findTask(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		if *tree {
			return showTree(cmd, client, task.ID, json)
		}
		attempts, err := client.History(cmd.Context(), task)
		if err != nil {
			return err
		}
		shown := struct {
			admin.Task
			Dependencies []admin.Dependency `json:"dependencies,omitempty"`
		}{Task: admin.NewTask(client.Tenant(), task, attempts)}
		v := taskView(client.Tenant(), task, attempts)
		if task.After != nil {
			dependencies, err := client.Dependencies(cmd.Context(), task.ID, 0, mostDependencies)
			if err != nil {
				return err
			}
			for _, d := range dependencies {
				shown.Dependencies = append(shown.Dependencies, admin.Dependency(d))
			}
			v = append(v, dependenciesView(task.After.Of, dependencies)...)
		}
		err = show.Print(cmd, json, shown, v)
		if task.Status.Finished() {
			err = cmp.Or(err, errSeen)
		}
		return err
	})
}

func newTaskLs(env cli.Environment) *cobra.Command {
	var status queue.Status
	offset, limit := 0, 100
	var filter taskFilter
	cmd := &cobra.Command{
		Use: "ls [QUEUE]", Aliases: []string{"list"}, Short: "List the tasks of a queue, or of all, newest first",
		Long: "Lists the tasks of a queue, or of all queues of the tenant, newest first. Filters look through the newest\n" +
			"100000 tasks of each queue.",
		Example: "  quern task ls --status failed --reason timeout --newer-than 1h\n" +
			"  quern task ls mail --error 'connection refused'\n" +
			"  quern task ls --status started --watch",
		Args: cli.Arguments(0, 1),
	}
	f := cmd.Flags()
	var statuses []string
	for _, status := range queue.Statuses() {
		statuses = append(statuses, string(status))
	}
	option.Choice(f, &status, "status", "only scheduled, pending, reserved, started, complete or failed tasks", statuses...)
	filter.flags(f, "were enqueued")
	option.Number(f, &limit, "limit", "most tasks to list, up to 1000", 1, 1000, "use 1 to 1000")
	option.Number(f, &offset, "offset", "skip this many tasks", 0, math.MaxInt32, "use 0 or more")
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		selected, since, until, err := filter.filter(cmd.Context(), client, "")
		if err != nil {
			return err
		}
		selected.Status, selected.Since, selected.Until = string(status), since, until
		if selected.Reason != "" && status == "" {
			selected.Status = string(queue.Failed)
		}
		queues, heading, across := args, "ID STATUS REASON CREATED UPDATED ATTEMPTS KEY", len(args) == 0
		if across {
			known, err := client.Queues(cmd.Context())
			if err != nil {
				return err
			}
			queues, heading = slices.Sorted(maps.Keys(known)), "ID QUEUE STATUS REASON CREATED UPDATED ATTEMPTS KEY"
		}
		if selected.Status == string(queue.Failed) {
			heading += " ERROR"
		}
		tasks, damaged := newest(cmd.Context(), client, queues, selected, offset, limit)
		if damaged != nil && len(tasks) == 0 {
			return damaged
		}
		all, rows := make([]admin.Task, len(tasks)), make([]show.View, len(tasks))
		for i, t := range tasks {
			all[i] = admin.NewTask(client.Tenant(), t, nil)
			rows[i] = show.Row(t.ID, statusText(t), t.Reason, age(t.Created), age(t.Updated), t.Attempts, t.Key)
			if selected.Status == string(queue.Failed) {
				failure := t.Failure()
				rows[i] = append(rows[i], show.Row(failure.Headline())...)
			}
			if across {
				rows[i] = slices.Insert(rows[i], 1, show.Row(t.Queue)...)
			}
		}
		return cmp.Or(list(cmd, client, json, all, heading, rows), damaged)
	})
}

func newTaskWait(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait for a task and print its result, and nothing else, to stdout", Args: cli.Arguments(1, 1)}
	var timeout time.Duration
	option.Duration(cmd.Flags(), &timeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		id := args[0]
		if beginning.MatchString(id) {
			task, err := findTask(cmd.Context(), client, id)
			if err != nil {
				return err
			}
			id = task.ID
		}
		return waitFor(cmd, client, id, timeout)
	})
}
