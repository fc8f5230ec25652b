package queue_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
)

// A program that cannot reach Redis gets errors, and nothing on its stderr. It runs as a process of its own, since
// go-redis has one log for all of a process.
func TestConnectIsSilent(t *testing.T) {
	t.Parallel()
	if os.Getenv("QUERN_TEST_UNREACHABLE") != "" {
		rdb, err := queue.Connect("redis://127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		defer rdb.Close()
		if err := rdb.Ping(t.Context()).Err(); !queue.IsUnavailable(err) {
			t.Errorf("ping: %v", err)
		}
		return
	}
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConnectIsSilent$", "-test.count=1")
	program.Env = append(os.Environ(), "QUERN_TEST_UNREACHABLE=1")
	stderr := new(strings.Builder)
	program.Stderr = stderr
	if err := program.Run(); err != nil || stderr.String() != "" {
		t.Errorf("%v, stderr %q", err, stderr)
	}
}
