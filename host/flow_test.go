package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// A chain of tasks goes on from end to end by messages alone, and each gets the result of the one before it.
func TestAChainGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: time.Hour}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.wait(n.enqueue("echo", "warm"))
	const steps = 50
	specs := []queue.Spec{{Parameters: []byte("first"), Options: queue.Options{ID: "0"}}}
	for i := 1; i < steps; i++ {
		specs = append(specs, queue.Spec{Options: queue.Options{ID: fmt.Sprint(i), After: []string{fmt.Sprint(i - 1)}}})
	}
	begun := time.Now()
	if _, err := n.client.Queue("echo").EnqueueMany(n.ctx, specs); err != nil {
		t.Fatal(err)
	}
	if last := n.wait(fmt.Sprint(steps - 1)); string(last.Result) != "first" {
		t.Errorf("the last one's result is %q", last.Result)
	}
	t.Logf("%s a step", time.Since(begun)/steps)
}

// What nobody told a host, it finds: an end whose message was lost, and one by a Python listener.
func TestEndsWithoutAWord(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: 200 * time.Millisecond}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	lost, python := n.enqueue("other", ""), n.enqueue("other", "")
	one := n.enqueueAs("echo", "", queue.Options{After: []string{lost}})
	two := n.enqueueAs("echo", "", queue.Options{After: []string{python}})
	n.rdb.HSet(n.ctx, n.tenant+"_task_"+lost, "status", "complete", "result", "lost")
	n.rdb.ZAdd(n.ctx, n.tenant+"_ended", redis.Z{Score: -2, Member: lost})
	if got := n.wait(one); string(got.Result) != "lost" {
		t.Errorf("%+v", got)
	}
	n.rdb.HSet(n.ctx, n.tenant+"_task_"+python, "status", "complete", "result", "python")
	if got := n.wait(two); string(got.Result) != "python" {
		t.Errorf("%+v", got)
	}
}

// A child may wait for the task that enqueues it, and for others; what it waits for and is not there has failed.
func TestChildrenWaitForTasks(t *testing.T) {
	t.Parallel()
	n := breed(t, "")
	for i, c := range []struct {
		after  string
		status queue.Status
		reason queue.Reason
	}{
		{`"after":["p0"]`, queue.Pending, ""},
		{`"after":["none"]`, queue.Failed, queue.ReasonDependency},
		{`"after":["none"],"when":"ended"`, queue.Pending, ""},
	} {
		id := fmt.Sprint("p", i)
		n.wait(n.enqueueAs("breeding", fmt.Sprintf(`c1born {"id":"c%d",%s}`, i, c.after), queue.Options{ID: id}))
		if child := n.task(fmt.Sprint("c", i)); child.Status != c.status || child.Reason != c.reason || child.Parent != id {
			t.Errorf("%s: %+v", c.after, child)
		}
	}
}
