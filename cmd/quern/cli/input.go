package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/show"
)

// MaxParameters is the maximum size of parameters in bytes: the longest value that Redis accepts.
const MaxParameters = 512 << 20

// ReadParameters returns the argument, or the content of stdin if the argument is "-". Without an argument it returns
// nil, and says so if input waits on stdin. It reads at most limit+1 bytes of stdin, so that the caller can detect a
// longer input.
func ReadParameters(args []string, cmd *cobra.Command, limit int64) ([]byte, error) {
	switch {
	case len(args) == 0:
		if show.HasInput(cmd.InOrStdin()) {
			Note(cmd, "stdin is not read, so the parameters are empty: write - to take them from stdin")
		}
		return nil, nil
	case args[0] != "-":
		file := strings.TrimPrefix(args[0], "@")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && strings.ContainsAny(args[0], "@/.") {
			Note(cmd, "the parameters are the text %q, not what the file has: for that write - < %s", args[0], ShellWord(file))
		}
		return []byte(args[0]), nil
	}
	if show.IsTerminal(cmd.InOrStdin()) {
		Note(cmd, "reading parameters from the terminal; Ctrl-D ends them")
	}
	parameters, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), limit+1))
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	return parameters, nil
}

// WriteResult writes a result to stdout. It does not write control characters to a terminal: then it returns an error
// with the remedy, which says how to get the bytes. On a terminal the result ends with a new line; anything else gets
// exactly the bytes.
func WriteResult(cmd *cobra.Command, result []byte, remedy string) error {
	terminal := show.IsTerminal(cmd.OutOrStdout())
	if terminal && !show.IsText(result) {
		return Refusedf("the result has %d bytes that are not plain text, which a terminal should not get: %s", len(result),
			remedy)
	}
	if terminal && len(result) > 0 && result[len(result)-1] != '\n' {
		result = append(slices.Clip(result), '\n')
	}
	if _, err := cmd.OutOrStdout().Write(result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
