package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/mover"
)

// overRedis completes a command that moves all keys of a tenant, which the API cannot do.
func overRedis(env cli.Environment, cmd *cobra.Command,
	run func(cmd *cobra.Command, client direct, args []string) error,
) *cobra.Command {
	return ofTenant(connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		d, ok := client.(direct)
		if !ok {
			return cli.Usagef("%s with --server: it works over Redis alone: use --redis URL in its place", cmd.CommandPath())
		}
		var err error
		ran := func() error { err = run(cmd, d, args); return err }
		err = cli.Interruptibly(cmd, ran, func() error { return err })
		if errors.Is(err, mover.ErrInUse) {
			return cli.Refusedf("%w", err)
		}
		return err
	}))
}

// moving shows how many keys have been moved.
func moving(cmd *cobra.Command, what string) (report func(mover.Moved), end func()) {
	progress := show.NewProgress(cmd.ErrOrStderr())
	return func(moved mover.Moved) { progress.Show("%s %d keys", what, moved.Keys) }, progress.Clear
}

// resume ends the pauses of a mover, also after Ctrl-C.
func resume(cmd *cobra.Command, client direct, m mover.Mover) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 10*time.Second)
	defer cancel()
	if err := m.Resume(ctx); err != nil {
		cli.Note(cmd, "the tenant may be paused: %v: end it with `quern tenant resume %[2]s` and `quern tenant resume %[2]s --accepting`",
			err, client.Tenant())
	}
}

func newTenantExport(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export TENANT FILE", Short: "Write all keys of a tenant to a file, also beside running hosts",
		Long: "Writes all keys of a tenant to a new file, in a form that any version of Redis can take, and prints how\n" +
			"many. It is no snapshot: each key is as it was at some moment of the export. With --pause the tenant takes\n" +
			"and accepts no tasks meanwhile; running tasks go on. An export that is interrupted leaves FILE.part, and\n" +
			"goes on there when it is repeated. The file has the tenant's payloads: keep it as you keep them.",
		Example: "  quern tenant export acme acme.quern --pause\n" +
			"  quern tenant import acme acme.quern --redis redis://other:6379",
		Args: cli.Arguments(2, 2),
	}
	pause := cmd.Flags().Bool("pause", false, "pause the tenant meanwhile, taking and accepting")
	output := option.Output(cmd)
	return overRedis(env, cmd, func(cmd *cobra.Command, client direct, args []string) (err error) {
		m := mover.New(client.Client)
		if has, err := m.HasKeys(cmd.Context(), false); err != nil || !has {
			return cmp.Or(err, cli.Refusedf("tenant %s has no keys: check its name and --redis", client.Tenant()))
		}
		if *pause {
			defer resume(cmd, client, m)
			if err := m.Pause(cmd.Context(), whoami(), mover.ReasonExport); err != nil {
				return err
			}
		}
		report, end := moving(cmd, "exported")
		done, err := m.Export(cmd.Context(), args[1], report)
		end()
		if err != nil {
			return err
		}
		return show.Line(cmd, output.JSON(), done, fmt.Sprint(done.Keys))
	})
}

func newTenantImport(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "import TENANT FILE", Short: "Write the keys of an export into a tenant, of the same or another name",
		Long: "Writes the keys of an export into TENANT, which may have another name than the exported one, and prints\n" +
			"how many. A damaged file changes nothing. TENANT must be empty, unless --into is given: then keys of the file\n" +
			"replace those of TENANT. Start its hosts afterwards: tasks that ran at the time of the export run again then,\n" +
			"as after the death of their host. An import that is interrupted is repeated with --into.",
		Args: cli.Arguments(2, 2),
	}
	into := cmd.Flags().Bool("into", false, "write into a tenant that has keys")
	output := option.Output(cmd)
	return overRedis(env, cmd, func(cmd *cobra.Command, client direct, args []string) error {
		report, end := moving(cmd, "imported")
		done, err := mover.New(client.Client).Import(cmd.Context(), args[1], whoami(), *into, report)
		end()
		if err != nil && done.Keys > 0 {
			return fmt.Errorf("%w: %d keys are imported, and the tenant is paused: repeat the command with --into", err, done.Keys)
		}
		if err != nil {
			return err
		}
		return show.Line(cmd, output.JSON(), done, fmt.Sprint(done.Keys))
	})
}

func newTenantDelete(env cli.Environment) *cobra.Command {
	confirm := ""
	cmd := &cobra.Command{
		Use: "delete TENANT", Short: "Delete all keys of a tenant, also beside hosts of other tenants",
		Long: "Deletes all keys of a tenant, and prints how many. It pauses the tenant, drains its hosts and workers, and\n" +
			"waits until they have left: running tasks may finish. Python listeners, relays and producers must be ended\n" +
			"by hand: if somebody goes on writing, the command says so, and which keys. It may be repeated.",
		Example: "  quern tenant delete acme --confirm acme",
		Args:    cli.Arguments(1, 1),
	}
	option.Text(cmd.Flags(), &confirm, "TENANT", "confirm", "`TENANT` once more, because nothing brings it back")
	cli.NotSettings(cmd.Flags(), "confirm")
	var wait time.Duration
	option.Duration(cmd.Flags(), &wait, "leave-timeout", 5*time.Minute, "how long to wait for hosts and workers to leave")
	output := option.Output(cmd)
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if confirm != args[0] {
			return cli.Usagef("this deletes all tasks, schedules and settings of the tenant %s: confirm it with --confirm %s", args[0], args[0])
		}
		return nil
	}
	return overRedis(env, cmd, func(cmd *cobra.Command, client direct, _ []string) (err error) {
		m := mover.New(client.Client)
		var done mover.Moved
		if has, err := m.HasKeys(cmd.Context(), true); err != nil {
			return err
		} else if !has {
			return show.Line(cmd, output.JSON(), done, "0")
		}
		defer func() {
			if err != nil && done.Keys == 0 {
				resume(cmd, client, m)
			}
		}()
		if err := m.Pause(cmd.Context(), whoami(), mover.ReasonDeletion); err != nil {
			return err
		}
		if err := drainAll(cmd, client, wait); err != nil {
			return err
		}
		report, end := moving(cmd, "deleted")
		done, err = m.Erase(cmd.Context(), report)
		end()
		if err != nil && done.Keys > 0 {
			return fmt.Errorf("%w: %d keys are deleted, and the tenant stays paused: repeat the command", err, done.Keys)
		}
		if err != nil {
			return err
		}
		return show.Line(cmd, output.JSON(), done, fmt.Sprint(done.Keys))
	})
}

// drainAll drains the hosts and workers of a tenant, and waits until they have left.
func drainAll(cmd *cobra.Command, client direct, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), wait)
	defer cancel()
	drained := map[string]bool{}
	for {
		nodes, err := client.Nodes(cmd.Context())
		if err != nil {
			return err
		}
		var left []string
		for _, node := range nodes {
			switch {
			case !node.Alive:
				continue
			case node.Kind == listen.KindPython:
				return cli.Refusedf("the Python listener %s serves the tenant: end its process, then `quern node reclaim %s`, and repeat the command",
					node.Listener, cli.ShellWord(node.Listener))
			case !drained[node.Listener]:
				if err := client.Drain(cmd.Context(), node.Listener); err != nil && !errors.Is(err, listen.ErrNoNode) {
					return err
				}
				drained[node.Listener] = true
			}
			left = append(left, node.Listener)
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return cli.Refusedf("nothing is deleted: %s did not leave within %s: end their tasks, and repeat the command, or start hosts again: those drain, and end",
				strings.Join(left, ", "), wait)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
