package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/show"
)

// Note prints a remark to stderr. It changes neither the result nor the exit status.
func Note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintln(cmd.ErrOrStderr(), "quern: "+Pasteable(cmd, show.OneLine(fmt.Sprintf(format, args...))))
}

// hinted is an error with the command that caused it. Report adds that command's flags to the commands that the error
// suggests.
type hinted struct {
	cmd *cobra.Command
	error
}

func (h hinted) Unwrap() error { return h.error }

// WithHints makes Report add the flags of cmd to the commands that err suggests.
func WithHints(cmd *cobra.Command, err error) error { return hinted{cmd, err} }

var hint = regexp.MustCompile("`quern [^`]+`")

// Pasteable adds the flags of cmd that choose the configuration, the tenant, Redis or the server to the `quern`
// commands in a text, so that users can paste them into a shell. It writes an environment variable in place of a token
// or of a URL with a password.
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
				to = "tenants" // a host has --tenants instead
			}
			if flag == nil || !flag.Changed || hinted.Flag(to) == nil {
				continue
			}
			word := ShellWord(flag.Value.String())
			if name == "tenant" && strings.Contains(hinted.Use, "TENANT") &&
				slices.Contains(strings.Fields(strings.Trim(rest, "`")), word) {
				continue // it is the command's argument
			}
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

// ShellWord quotes a word for a shell if it needs quotes.
func ShellWord(word string) string {
	if plainWord.MatchString(word) && word[0] != '~' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
