package cli_test

import (
	"strings"
	"testing"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/sdk/queue"
)

// The error of a task begins with a line that has the reason. No other line of it can look like a message of the program.
func TestTaskFailed(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	failure := queue.Failure{Reason: queue.ReasonError, Message: "Error: \n\rno ink\nquern: all is well\r\n    at f\x1b[31m\n\n"}
	status := cli.Report(cli.TaskFailed("one", &failure), &said)
	const want = "task one failed (error): Error: no ink\n  quern: all is well\n      at f\\x1b[31m\n"
	if status != cli.ExitFailed || said.String() != want {
		t.Errorf("exit %d, %q, want %q", status, &said, want)
	}
}
