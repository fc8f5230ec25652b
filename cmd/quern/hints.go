package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/plugins/spelling"
)

// note tells a person something on stderr that changes neither result nor exit status.
func note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintln(cmd.ErrOrStderr(), "quern: "+pasteable(cmd, oneLine(fmt.Sprintf(format, args...))))
}

// hinted is the error of a command, whose flags its hints need, too.
type hinted struct {
	cmd *cobra.Command
	error
}

func (h hinted) Unwrap() error { return h.error }

var hint = regexp.MustCompile("`quern [^`]+`")

// pasteable adds to the commands in a text the flags that say which tenant and which Redis, as they were given to this command. A
// password stays hidden: the shell asks for it.
func pasteable(cmd *cobra.Command, text string) string {
	return hint.ReplaceAllStringFunc(text, func(line string) string {
		hinted, _, err := cmd.Root().Find(strings.Fields(strings.Trim(line, "`"))[1:])
		if err != nil || !connects(hinted) {
			return line
		}
		rest, ok := strings.CutPrefix(line, "`"+hinted.CommandPath())
		if !ok {
			return line
		}
		var given string
		for _, name := range []string{"config", "redis", "redis-file", "server", "token", "token-file", "tenant"} {
			flag, to := cmd.Flag(name), name
			if name == "tenant" && hinted.Flag("tenant") == nil {
				to = "tenants" // of a host
			}
			if flag == nil || !flag.Changed || hinted.Flag(to) == nil {
				continue
			}
			word := shellWord(flag.Value.String())
			if name == "token" {
				word = `"${QUERN_TOKEN:?set it to your token}"`
			} else if shown(flag, flag.Value.String()) != flag.Value.String() {
				word = `"${QUERN_REDIS_URL:?set it to the URL of Redis with its password}"`
			}
			given += " --" + to + " " + word
		}
		return "`" + hinted.CommandPath() + given + rest
	})
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./~-]+$`)

// shellWord quotes a word for a shell, if it needs that.
func shellWord(word string) string {
	if plainWord.MatchString(word) && word[0] != '~' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// list prints a list for people or as JSON. To people it also says where an empty one was looked for, and, unless they named a tenant,
// which others there are.
func list(cmd *cobra.Command, client admin.Tenant, json bool, all any, heading string, rows []view) error {
	if err := showTable(cmd, json, all, heading, rows); err != nil || json {
		return err
	}
	if len(rows) == 0 {
		var filters []string
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Changed {
				filters = append(filters, " --"+flag.Name+" "+shellWord(flag.Value.String()))
			}
		})
		note(cmd, "nothing found in tenant %s at %s by `%s%s`", client.Tenant(), client.Address(),
			strings.TrimSpace(cmd.CommandPath()+" "+strings.Join(cmd.Flags().Args(), " ")), strings.Join(filters, ""))
	}
	// To look for tenants is to scan Redis's keys: only for a person who may miss something.
	if isGiven(cmd.Flag("tenant")) || cmd.ErrOrStderr() == io.Discard || len(rows) > 0 && !isTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	tenants, err := client.Tenants(cmd.Context())
	tenants = slices.DeleteFunc(tenants, func(name string) bool { return name == client.Tenant() })
	if err == nil && len(tenants) > 0 { // not every user of Redis may look for them
		note(cmd, "this is tenant %s; there are also %s: name one with --tenant", client.Tenant(), firstOf(tenants))
	}
	return nil
}

// firstOf lists the first of many names.
func firstOf(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// warnUnserved warns of a queue that no host serves or ever served: its name may be misspelled. A producer that may not read what it
// needs is not warned.
func warnUnserved(cmd *cobra.Command, client admin.Tenant, name string) {
	q, err := admin.CountQueue(cmd.Context(), client, name)
	if err != nil || q.Listeners > 0 || q.Totals["complete"]+q.Totals["failed"] > 0 || q.Complete+q.Failed > 0 {
		return
	}
	note(cmd, "no host serves the queue %q of tenant %s, and none is known to have done so: %s", name, client.Tenant(), servedLike(cmd, client, name))
}

// servedLike is the remedy for a queue that nobody serves: the nearest one that is served.
func servedLike(cmd *cobra.Command, client admin.Tenant, name string) string {
	queues, _ := client.Queues(cmd.Context())
	maps.DeleteFunc(queues, func(other string, listeners int64) bool { return listeners == 0 || other == name })
	if near := spelling.Nearest(name, slices.Sorted(maps.Keys(queues))); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	return doctor.Serving(name)
}
