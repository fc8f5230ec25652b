package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/show"
)

// Note prints a remark to stderr. It changes neither the result nor the exit status.
func Note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintln(cmd.ErrOrStderr(), "quern: "+Pasteable(cmd, show.OneLine(fmt.Sprintf(format, args...))))
}

// hinted is an error with its command, whose flags complete the commands that the error suggests.
type hinted struct {
	cmd *cobra.Command
	error
}

func (h hinted) Unwrap() error { return h.error }

// WithHints makes Report complete the commands that an error suggests with the flags of this command.
func WithHints(cmd *cobra.Command, err error) error { return hinted{cmd, err} }

var hint = regexp.MustCompile("`quern [^`]+`")

// Pasteable adds this command's flags for tenant and Redis to the commands in a text, so that they can be pasted. A
// password stays hidden: the shell asks for it.
func Pasteable(cmd *cobra.Command, text string) string {
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
			word := ShellWord(flag.Value.String())
			if name == "token" {
				word = `"${QUERN_TOKEN:?set it to your token}"`
			} else if Shown(flag, flag.Value.String()) != flag.Value.String() {
				word = `"${QUERN_REDIS_URL:?set it to the URL of Redis with its password}"`
			}
			given += " --" + to + " " + word
		}
		return "`" + hinted.CommandPath() + given + rest
	})
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./~-]+$`)

// ShellWord quotes a word for a shell, if it needs that.
func ShellWord(word string) string {
	if plainWord.MatchString(word) && word[0] != '~' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
