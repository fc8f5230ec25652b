package examples_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What the README says to do shows what it says: hosts stop the bad version by themselves, its orders run again, and the
// mended version serves after its steps.
func TestRollout(t *testing.T) {
	t.Parallel()
	const folder = "rollout"
	quern := exampletest.New(t)
	quern.Build(t, folder)
	redis := queuetest.Start(t).URL()
	for range 2 {
		quern.Start(t, redis, "none")
	}
	for _, listing := range []struct{ prefix, want string }{
		{"quern plugin push 1.0.0", `^price 1\n.*serving.* 2 +release 1\b.*\ntotal 750\n$`},
		{"quern plugin push 1.1.0", `(?s)^price 2\n.*canary.* 2 +release 2\b.*\n1000 lines: 1000 enqueued.*1.1.0 +halted .* tasks failed \(trap: \d+\); of the release before, 0 of `},
		{"task=", `^total 0\nprice 2\n$`},
		{"quern plugin push 1.1.1", `^price 3\n3 +price +1.1.1 +serving .*\ntotal 0\n$`},
	} {
		said := quern.Listing(t, folder, listing.prefix, redis)
		if !regexp.MustCompile(listing.want).MatchString(said) {
			t.Errorf("%s: %q is not\n%s", listing.prefix, listing.want, said)
		}
	}
	exampletest.Eventually(t, "all orders are complete", func() bool {
		said := string(quern.Output(t, "queue", "ls", "-o", "json", "--redis", redis))
		return strings.Contains(said, `"pending":0,"reserved":0,"started":0`) && strings.Contains(said, `"failed":0`)
	})
}
