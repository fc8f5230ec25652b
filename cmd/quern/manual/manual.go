// Package manual has the pages of `quern help TOPIC`, and implements the command help.
package manual

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/plugins/spelling"
)

// manual has a page for each topic. A page's first line is "# NAME: what the reader wants to do".
//
//go:embed *.md
var manual embed.FS

// Topics returns the pages of the manual as cobra's help topics: commands that only print their help.
func Topics(env cli.Environment) (pages []*cobra.Command) {
	files, _ := manual.ReadDir(".") // embedded: there is no error
	for _, file := range files {
		text, _ := manual.ReadFile(file.Name())
		heading, _, _ := strings.Cut(string(text), "\n")
		_, short, _ := strings.Cut(heading, ": ")
		name := strings.TrimSuffix(file.Name(), ".md")
		topic := &cobra.Command{Use: name, Aliases: otherNames[name], Short: short, Long: followable(string(text))}
		topic.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _ = showPage(cmd, cmd.Long, env) })
		pages = append(pages, topic)
	}
	return pages
}

// AddTopics adds the pages to a root that has all commands, except a page with the name of a command: the help of that
// command shows the page.
func AddTopics(root *cobra.Command, env cli.Environment) {
	for _, topic := range Topics(env) {
		if other, _, err := root.Find([]string{topic.Name()}); err != nil || other == root {
			root.AddCommand(topic)
		}
	}
}

// otherNames has the words under which people also look for pages, by page. `quern help asynq` also finds from-asynq.
var otherNames = map[string][]string{
	"python": {"py"}, "javascript": {"js", "typescript", "ts"}, "go": {"golang"},
	"capabilities": {"secrets", "http", "fetch"},
	"scheduling":   {"cron", "schedules", "delay", "priority"}, "topics": {"webhooks", "webhook", "events"},
	"replay": {"record", "records"}, "encryption": {"encrypt", "keys"},
	"retries": {"failures", "retry", "backoff", "attempts"},
	"tasks":   {"clients", "client", "producers", "producer", "results"},
	"handlers": {
		"handler", "plugins", "sdk", "sdks", "tests", "testing", "languages", "rust", "c", "assemblyscript",
	},
	"limits": {"memory", "cpu", "timeout", "timeouts"}, "operations": {"workers", "hosts", "production"},
	"errors": {"error", "debugging"}, "metrics": {"monitoring", "prometheus", "tracing"}, "page": {"ui", "dashboard"},
	"sql": {"postgres", "postgresql"}, "flows": {"flow", "dag", "chains"},
	"rollout": {"releases", "deploy"},
}

// fromPrefix begins the names of the pages for users of other queues.
const fromPrefix = "from-"

// link matches a link of a page: its text and its target.
var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)

// followable replaces the links of a page by text for a terminal: `quern help TOPIC`, or a web address.
func followable(page string) string {
	const fence = "```"
	parts := strings.Split(page, fence)
	for i := 0; i < len(parts); i += 2 { // odd parts are between fences: code
		parts[i] = link.ReplaceAllStringFunc(parts[i], func(all string) string {
			match := link.FindStringSubmatch(all)
			text, target := match[1], match[2]
			file, _, _ := strings.Cut(target, "#")
			topic, isTopic := strings.CutSuffix(file, ".md")
			switch {
			case isTopic && !strings.Contains(topic, "/"):
				return text + " (`quern help " + topic + "`)"
			case strings.Contains(target, "://"):
				return text + " (" + target + ")"
			}
			return text + " (https://github.com/quern-project/quern/blob/main/" + path.Join("cmd/quern/manual", target) + ")"
		})
	}
	return strings.Join(parts, fence)
}

// showPage prints a page. On a terminal it uses $PAGER, or else less, if that program can run.
func showPage(cmd *cobra.Command, page string, env cli.Environment) error {
	pager, set := env("PAGER")
	if !set {
		pager = "less -FRX" // a short page stays on the screen
	}
	if pager != "" && show.IsTerminal(cmd.OutOrStdout()) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt) // the pager handles Ctrl-C
		defer signal.Reset(os.Interrupt)
		shell := exec.CommandContext(cmd.Root().Context(), "sh", "-c", pager)
		shell.Stdin, shell.Stdout, shell.Stderr = strings.NewReader(page), cmd.OutOrStdout(), cmd.ErrOrStderr()
		// 126 and 127 mean that the pager did not start.
		if _ = shell.Run(); shell.ProcessState != nil && !slices.Contains([]int{126, 127}, shell.ProcessState.ExitCode()) {
			return nil
		}
	}
	if _, err := fmt.Fprint(cmd.OutOrStdout(), page); err != nil {
		return cli.Refusedf("%w", err)
	}
	return nil
}

// Help makes the help command. It differs from cobra's in that an unknown word is wrong usage.
func Help(env cli.Environment) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND | TOPIC]", Short: "Help about any command, and the pages of the manual",
		PersistentPreRunE: cli.WithoutSettings,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 { // first, because a page can have the name of a command
				for _, topic := range Topics(env) {
					word := strings.ToLower(args[0])
					if topic.Name() == word || topic.HasAlias(word) || topic.Name() == fromPrefix+word {
						return showPage(cmd, topic.Long, env)
					}
				}
			}
			target, rest, err := cmd.Root().Find(args)
			if err != nil {
				return cli.WrongUsage(err)
			}
			if target.HasSubCommands() && len(rest) > 0 {
				return cli.Usagef("no command or topic %q: %s", strings.Join(args, " "), spelling.DidYouMean(rest[0], helped(target)))
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			target, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return helped(target), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// helped returns the commands and topics below cmd that help knows.
func helped(cmd *cobra.Command) []string {
	names := cli.Subcommands(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAdditionalHelpTopicCommand() {
			names = append(names, sub.Name())
		}
	}
	slices.Sort(names)
	return names
}
