package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func newTaskShow(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show everything about a task",
		Long: "Shows everything about a task. -o json leaves missing values out; max_attempts is -1 for a task without\n" +
			"a bound, and missing where its manifest decides; handled is the ID of the dead letter that handled a\n" +
			"failed task; dependencies are up to 1000 of the tasks that it waits for, or waited for. Without -o json\n" +
			"ten are shown, first those that have not ended.\n\n" +
			"--tree shows it as a tree: below each task those that it enqueued, and those that wait for it, marked\n" +
			"with an arrow; at most 100 below each, 8 levels and 1000 in all. It counts what it leaves out. Above it are the\n" +
			"tasks that it waits for, or waited for.",
		Args: cli.Arguments(1, 1),
	}
	tree := cmd.Flags().Bool("tree", false, "show it with the tasks that it enqueued and those that wait for it, and so on")
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		task, err := findTask(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		if *tree {
			tree, err := client.Tree(cmd.Context(), task.ID, manage.TreeOptions{})
			if err != nil {
				return err
			}
			text := strings.TrimSuffix(treeText(tree, "", ""), "\n")
			if task.After != nil && !json {
				above, err := client.Dependencies(cmd.Context(), task.ID, 0, maxDependencies)
				if err != nil {
					return err
				}
				verb := "waited for "
				if task.Status == queue.Scheduled && task.After.Blocked {
					verb = "waits for "
				}
				text = show.Escape(verb+dependenciesText(task.After.Of, above)) + "\n" + text
			}
			return show.Line(cmd, json, tree, text)
		}
		shown := struct {
			*admin.Task
			Dependencies []listen.Dependency `json:"dependencies,omitempty"`
		}{Task: task}
		v := taskView(task)
		if task.After != nil {
			if shown.Dependencies, err = client.Dependencies(cmd.Context(), task.ID, 0, maxDependencies); err != nil {
				return err
			}
			v = append(v, dependenciesView(task.After.Of, slices.Clone(shown.Dependencies))...)
			if task.Error != nil {
				v = append(v, show.Field{"", "caused by", show.Given(causeOf(cmd.Context(), client, task.Error))})
			}
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
	option.Choice(f, &status, "status", "only scheduled, pending, reserved, started, complete or failed tasks",
		queue.Statuses()...)
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
		rows := make([]show.View, len(tasks))
		for i := range tasks {
			t := &tasks[i]
			rows[i] = show.Row(t.ID, statusText(t), t.Reason, age(t.Created), age(t.Updated), t.Attempts, t.Key)
			if selected.Status == string(queue.Failed) {
				failure := t.Failure()
				rows[i] = append(rows[i], show.Row(failure.Headline())...)
			}
			if across {
				rows[i] = slices.Insert(rows[i], 1, show.Row(t.Queue)...)
			}
		}
		if err := list(cmd, client, json, append([]admin.Task{}, tasks...), heading, rows); err != nil || damaged != nil {
			return cmp.Or(err, damaged)
		}
		if across || json || len(tasks) > 0 {
			return nil
		}
		return warnUnknown(cmd, client, args[0], "")
	})
}

func newTaskWait(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait ID", Short: "Wait for a task and print its result, and nothing else, to stdout",
		Args: cli.Arguments(1, 1),
	}
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

// minPrefix is the minimum length of the beginning of an ID that can stand for the whole ID.
const minPrefix = 8

// generated matches an ID that Quern made, and beginning matches the first part of one. IDs of users must be given in
// full: order-100 can be a full ID although there is also an order-1000.
var (
	generated = regexp.MustCompile(`^([0-9a-f]{8}[0-9a-f-]{28}|(dead|once|pub)-[0-9a-f]{40})$`)
	beginning = regexp.MustCompile(`^([0-9a-f]{8}[0-9a-f-]{0,27}|(dead|once|pub)-[0-9a-f]{3,39})$`)
)

// findTask reads the task with the ID id. If there is none, id can also be the beginning of an ID that Quern made, if
// only one ID begins like that.
func findTask(ctx context.Context, client admin.Tenant, id string) (*admin.Task, error) {
	task, err := client.Task(ctx, id)
	if !errors.Is(err, queue.ErrNoTask) || !beginning.MatchString(id) {
		return task, err
	}
	ids, failed := client.FindTasks(ctx, id, 4)
	ids = slices.DeleteFunc(ids, func(id string) bool { return !generated.MatchString(id) })
	switch {
	case errors.Is(failed, queue.ErrInvalid):
		return nil, fmt.Errorf("%w; there are too many tasks to look for one that begins so", err)
	case failed != nil:
		return nil, failed
	case len(ids) == 0:
		return nil, err
	case len(ids) > 1:
		return nil, cli.Refusedf("several tasks begin with %s: %s: give more of the ID", id, strings.Join(ids, ", "))
	}
	return client.Task(ctx, ids[0])
}

// findListener completes the beginning of a listener's ID if only one ID begins like that. Without a ~, id must be the
// whole name before the ~: worker-1 does not stand for worker-10~1f4e. Any other id is returned as it is.
func findListener(ctx context.Context, client admin.Tenant, id string) (string, error) {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, node := range nodes {
		switch {
		case node.Listener == id:
			return id, nil
		case len(id) >= minPrefix && strings.HasPrefix(node.Listener, id) &&
			(strings.Contains(id, "~") || strings.HasPrefix(node.Listener, id+"~")):
			found = append(found, node.Listener)
		}
	}
	switch len(found) {
	case 0:
		return id, nil
	case 1:
		return found[0], nil
	}
	return "", cli.Refusedf("several listeners begin with %s: %s: give more of the ID", id, firstOf(found))
}

// taskFilter holds the flags that select tasks by their properties.
type taskFilter struct {
	selects   admin.Filter
	labels    map[string]string
	olderThan time.Duration
	newerThan time.Duration
}

// flags adds the filter's flags, and returns their names. since says in the help what a task's age counts from, such as
// "were enqueued".
func (t *taskFilter) flags(f *pflag.FlagSet, since string) []string {
	option.Choice(f, &t.selects.Reason, "reason", "only those that failed for this reason, such as error, timeout or crashed", queue.Reasons()...)
	f.StringVar(&t.selects.Key, "key", "", "only those with this key")
	option.Pairs(f, &t.labels, "label", "only those with this label, `NAME=VALUE`; may be given several times")
	f.StringVar(&t.selects.Plugin, "plugin", "", "only those that the plugin `NAME` ran")
	f.StringVar(&t.selects.Node, "node", "", "only those that this `LISTENER` ran, or one whose ID begins so")
	f.StringVar(&t.selects.Error, "error", "", "only those whose error has this `TEXT`, in upper or lower case")
	option.Lasting(f, &t.olderThan, "older-than", "only those that "+since+" longer ago than this")
	option.Lasting(f, &t.newerThan, "newer-than", "only those that "+since+" less long ago than this")
	return []string{"older-than", "newer-than", "label", "key", "reason", "plugin", "node", "error"}
}

// filter returns the filter of the flags for one queue. since and until are the times that bound a task's age, in
// seconds by Redis's clock; 0 is no bound.
func (t *taskFilter) filter(ctx context.Context, client admin.Tenant,
	queue string,
) (f admin.Filter, since, until float64, err error) {
	f = t.selects
	f.Queue = queue
	for name, value := range t.labels {
		f.Label = append(f.Label, name+"="+value)
	}
	if t.olderThan == 0 && t.newerThan == 0 {
		return f, 0, 0, nil
	}
	now, err := client.Clock(ctx)
	bound := func(age time.Duration) float64 {
		if age == 0 {
			return 0
		}
		return max(float64(now.Add(-age).UnixMicro())/1e6, 1e-6)
	}
	return f, bound(t.newerThan), bound(t.olderThan), err
}

// newest returns a page of the tasks in the queues, newest first. If tasks of a queue are damaged, it returns the error
// together with the tasks that can be read.
func newest(ctx context.Context, client admin.Tenant, queues []string, f admin.Filter,
	offset, limit int,
) ([]admin.Task, error) {
	if len(queues) == 1 {
		f.Queue = queues[0]
		return client.List(ctx, &f, offset, limit)
	}
	most := offset + limit
	if most > 1000 {
		return nil, cli.Usagef("--offset and --limit together are %d: use up to 1000, or name a queue", most)
	}
	var all []admin.Task
	var damaged error
	for _, f.Queue = range queues {
		tasks, err := client.List(ctx, &f, 0, most)
		switch {
		case queue.IsUnavailable(err) || errors.Is(err, queue.ErrInvalid):
			return nil, err
		case err != nil && damaged == nil:
			damaged = err
		}
		if all = append(all, tasks...); len(all) > 8*most {
			all = newestFirst(all)[:most] // keep few, since there can be thousands of queues
		}
	}
	all = newestFirst(all)
	from := min(offset, len(all))
	return all[from:min(from+limit, len(all))], damaged
}

func newestFirst(tasks []admin.Task) []admin.Task {
	slices.SortStableFunc(tasks, func(a, b admin.Task) int { return cmp.Compare(b.Created, a.Created) })
	return tasks
}
