package host

import (
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

func TestRunsATask(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	id := n.enqueue("echo", "hello", queue.Options{})
	task := n.wait(id)
	if task.Status != queue.Complete || string(task.Result) != "hello" || task.Plugin != "echo" || len(task.Digest) != len("sha256:")+64 {
		t.Errorf("%+v", task)
	}
}
