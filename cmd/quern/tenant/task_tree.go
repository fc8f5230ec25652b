package tenant

import (
	"context"
	"fmt"
	"strings"

	"github.com/quern-project/quern/sdk/queue/manage"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
)

// showTree prints a task with the tasks that came from it.
func showTree(cmd *cobra.Command, client admin.Tenant, id string, json bool) error {
	tree, err := client.Tree(cmd.Context(), id, manage.TreeOptions{})
	if err != nil {
		return err
	}
	var text strings.Builder
	drawTree(&text, tree, "", "")
	return show.Line(cmd, json, tree, strings.TrimSuffix(text.String(), "\n"))
}

// drawTree writes a line for each task. stem begins the task's own line, trunk the lines below it.
func drawTree(text *strings.Builder, node *admin.TreeNode, stem, trunk string) {
	line := stem + node.ID
	if t := node.Task; t == nil {
		line += "  deleted"
	} else {
		line += fmt.Sprintf("  %s  %s", t.Queue, statusText(t))
		if t.Reason != "" {
			line += fmt.Sprintf(" (%s)", t.Reason)
		}
		if t.After != nil && t.After.Blocked {
			line += fmt.Sprintf(", %d of %d ended", t.After.Ended, t.After.Of)
		}
	}
	if node.Again {
		line += "  again"
	}
	text.WriteString(show.Escape(line) + "\n")
	for i, child := range node.Children {
		branch, rest := "├─ ", "│  "
		if i == len(node.Children)-1 && node.Left == 0 {
			branch, rest = "└─ ", "   "
		}
		if child.Dependent {
			branch = strings.Replace(branch, "─ ", "▶ ", 1)
		}
		drawTree(text, child, trunk+branch, trunk+rest)
	}
	if node.Left > 0 {
		fmt.Fprintf(text, "%s└─ %d more: `quern task show %s --tree`\n", trunk, node.Left, cli.ShellWord(node.ID))
	}
}

func newTaskAwait(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "await ID [DEPENDENCY...]", Short: "Add tasks to those that an open task waits for, and close it",
		Long: "Makes an open task, of `quern enqueue --open` or --then, wait for more tasks. --close ends that: it runs\n" +
			"when those that it waits for have ended as its --when says. Both may be repeated.",
		Example: "  quern enqueue report --open --id report-7\n" +
			"  quern task await report-7 import-1 import-2 --close",
		Args: cli.Arguments(1, 1+mostIDs),
	}
	closes := cmd.Flags().Bool("close", false, "it waits for no more than these")
	cmd.RunE = withClient(env, nil, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		if len(args) == 1 && !*closes {
			return cli.Usagef("neither tasks nor --close: name tasks that %s is to wait for, or close it", args[0])
		}
		task, err := findTask(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		return await(cmd.Context(), client.Queue(task.Queue), task.ID, args[1:], *closes)
	})
	return cmd
}

func await(ctx context.Context, q admin.QueueHandle, id string, after []string, closes bool) error {
	err := q.Await(ctx, id, after...)
	if err == nil && closes {
		err = q.Close(ctx, id)
	}
	return err
}
