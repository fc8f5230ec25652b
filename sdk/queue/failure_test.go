package queue_test

import (
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
)

// A failure prints as its reason and message, not as its fields with addresses.
func TestFailureText(t *testing.T) {
	t.Parallel()
	code := 65
	f := queue.Failure{Reason: queue.ReasonError, Message: "no items", ExitCode: &code}
	const want = "(fatal) no items"
	if got := fmt.Sprintf("%v, %v, %s", f, &f, f); got != want+", "+want+", "+want {
		t.Error(got)
	}
}
