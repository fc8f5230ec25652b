package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/show"
)

// MaxParameters is the longest value that Redis takes.
const MaxParameters = 512 << 20

// ReadParameters returns the argument, or stdin for "-", or nil without an argument. It reads at most one byte more
// than most.
func ReadParameters(args []string, cmd *cobra.Command, most int64) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] != "-":
		return []byte(args[0]), nil
	}
	if show.IsTerminal(cmd.InOrStdin()) {
		Note(cmd, "reading parameters from the terminal; Ctrl-D ends them")
	}
	parameters, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), most+1))
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	return parameters, nil
}

// WriteResult writes a result to stdout. It refuses to write control characters to a terminal; again tells how to get
// the bytes.
func WriteResult(cmd *cobra.Command, result []byte, again string) error {
	terminal := show.IsTerminal(cmd.OutOrStdout())
	if terminal && !show.IsText(result) {
		return Refusedf("the result has %d bytes that are not plain text, which a terminal should not get: %s", len(result),
			again)
	}
	if _, err := cmd.OutOrStdout().Write(result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	if terminal && len(result) > 0 && result[len(result)-1] != '\n' {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	return nil
}
