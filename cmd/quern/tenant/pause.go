package tenant

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// pausedWord says in a table whether a queue is paused: true, false, or accepting if only new tasks are refused.
func pausedWord(q *admin.Queue) any {
	accepting := slices.ContainsFunc(q.Pauses, func(p manage.Pause) bool { return p.Accepting })
	switch {
	case q.Paused && accepting:
		return "true,accepting"
	case accepting:
		return "accepting"
	}
	return q.Paused
}

// pauseSentence describes a pause for people.
func pauseSentence(p manage.Pause) string {
	if p.Accepting {
		return p.What() + " accepts no new tasks" + p.Why()
	}
	return p.What() + " is paused" + p.Why()
}

// pausable is a kind of thing that commands pause and resume.
type pausable struct {
	argument            string
	short, long, resume string // what the commands do
	accepting, key      bool   // it has the flag
	// of sets what is paused, by the name that was given. note says what else there is to know once it is done.
	of   func(p *manage.Pause, name string) error
	note func(cmd *cobra.Command, client admin.Tenant, p manage.Pause, resumed bool) error
}

var (
	pausableQueue = pausable{
		argument: "QUEUE", short: "Stop hosts from taking tasks of a queue; running ones go on",
		long: "Stops hosts from taking tasks of a queue; running ones go on. With --key it is only the tasks with that key,\n" +
			"such as those of one customer. With --accepting it refuses new tasks instead, of producers and publishers;\n" +
			"schedules wait. Two pauses of both kinds may last at the same time.",
		resume: "End a pause", accepting: true, key: true,
		of: func(p *manage.Pause, name string) error {
			p.Queue = name
			return queue.ValidQueue(name)
		},
		note: noteQueuePause,
	}
	pausablePlugin = pausable{
		argument: "NAME", short: "Stop hosts from taking tasks that a plugin would run; running ones go on",
		resume: "End the pause of a plugin",
		of: func(p *manage.Pause, name string) error {
			if p.Plugin = name; name == "" {
				return cli.Usagef("the plugin's name is empty: use the name in its manifest")
			}
			return nil
		},
		note: notePluginPause,
	}
	pausableTenant = pausable{
		argument: "TENANT", short: "Stop hosts from taking any tasks of a tenant; running ones go on",
		long: "Stops hosts from taking any tasks of a tenant; running ones go on. With --accepting the tenant refuses new\n" +
			"tasks instead. Python clients do not know pauses.",
		resume: "End a pause of a tenant", accepting: true,
		of:   func(*manage.Pause, string) error { return nil },
		note: noteTenantPause,
	}
)

// newPause returns the command that pauses things of a kind, or the one that resumes them.
func newPause(env cli.Environment, kind pausable, resume bool) *cobra.Command {
	var p manage.Pause
	cmd := &cobra.Command{Use: "pause " + kind.argument, Short: kind.short, Long: kind.long, Args: cli.Arguments(1, 1)}
	accepting, key := "refuse new tasks; hosts still take those that wait", "only the tasks with this `KEY`, at most 1024 bytes"
	if resume {
		cmd.Use, cmd.Short, cmd.Long = "resume "+kind.argument, kind.resume, ""
		accepting, key = "accept new tasks again", "only the pause of this `KEY`, or its hold by a handler"
	} else {
		option.Text(cmd.Flags(), &p.Reason, "TEXT", "reason", "`TEXT` about why, for others, at most 1024 bytes")
	}
	if kind.accepting {
		cmd.Flags().BoolVar(&p.Accepting, "accepting", false, accepting)
	}
	if kind.key {
		option.Text(cmd.Flags(), &p.Key, "KEY", "key", key)
		cli.NotSettings(cmd.Flags(), "key")
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		if flag := cmd.Flag("key"); kind.key && flag.Changed && p.Key == "" {
			return cli.Usagef("--key is empty: give it a value, or leave it out")
		}
		if err := kind.of(&p, args[0]); err != nil { // an empty name would stand for the tenant
			return err
		}
		change := client.Pauses().Resume
		if !resume {
			p.Who, change = whoami(), client.Pauses().Pause
		}
		if err := change(cmd.Context(), p); err != nil {
			return err
		}
		return kind.note(cmd, client, p, resume)
	})
}

func noteQueuePause(cmd *cobra.Command, client admin.Tenant, p manage.Pause, resumed bool) error {
	done := "paused, but "
	if resumed {
		done = ""
	}
	if err := warnUnknown(cmd, client, p.Queue, done); err != nil {
		return err
	}
	if resumed {
		q, err := admin.CountQueue(cmd.Context(), client, p.Queue)
		for _, left := range q.Pauses {
			cli.Note(cmd, "%s", pauseSentence(left))
		}
		return err
	}
	nodes, err := client.Nodes(cmd.Context())
	for _, node := range nodes {
		if node.Kind == listen.KindPython && slices.Contains(node.Queues, p.Queue) && !p.Accepting {
			cli.Note(cmd, "the Python listener %s does not know pauses and goes on", node.Listener)
		}
	}
	return err
}

func notePluginPause(cmd *cobra.Command, client admin.Tenant, p manage.Pause, resumed bool) error {
	if resumed {
		return nil
	}
	all, err := client.Plugins(cmd.Context())
	if err == nil && !slices.ContainsFunc(all, func(one admin.Plugin) bool { return one.Plugin == p.Plugin }) {
		cli.Note(cmd, "paused, but no live host of tenant %s has a plugin %q: see `quern plugin ls`", client.Tenant(), p.Plugin)
	}
	return err
}

func noteTenantPause(cmd *cobra.Command, client admin.Tenant, _ manage.Pause, resumed bool) error {
	if resumed {
		return nil
	}
	known, err := client.Queues(cmd.Context())
	if err == nil && len(known) == 0 {
		cli.Note(cmd, "paused, but tenant %s has no queues yet: check the name", client.Tenant())
	}
	return err
}

func newTenantPauses(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pauses TENANT", Short: "List what is paused: the tenant, queues, keys and plugins; by whom, why and since when",
		Args: cli.Arguments(1, 1),
	}
	output := option.Output(cmd)
	return ofTenant(connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, _ bool) error {
		pauses, err := client.Pauses().List(cmd.Context())
		if err != nil {
			return err
		}
		return list(cmd, client, output.JSON(), pauses, "PAUSED OF SINCE BY REASON",
			show.Rows(pauses, func(p *manage.Pause) show.View {
				of := "taking"
				if p.Accepting {
					of = "accepting"
				}
				return show.Row(p.What(), of, moment(p.Since), p.Who, p.Reason)
			}))
	}))
}
