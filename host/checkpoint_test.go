package host

import (
	"bytes"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// handTo lets a worker in Go take the next task, keep a checkpoint (nil: none), and do with it what end
// does; it has left then.
func (n *node) handTo(queueName string, kept []byte, end func(*worker.Processor) error) {
	n.t.Helper()
	listener, err := worker.NewListener(n.ctx, n.client, queueName)
	if err != nil {
		n.t.Fatal(err)
	}
	task, err := listener.TryListen(n.ctx)
	if err != nil || task == nil {
		n.t.Fatalf("reserved %v, %v", task, err)
	}
	p := worker.NewProcessor(n.client, task)
	_, err = p.Start(n.ctx, 0)
	if err == nil && kept != nil {
		err = p.Checkpoint(n.ctx, kept)
	}
	if err == nil {
		err = end(p)
	}
	if err == nil {
		err = listener.Close(n.ctx)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// What a worker kept of a task is the file /checkpoint of the plugin that runs it next, however the
// worker's run ended.
func TestPluginGetsTheCheckpoint(t *testing.T) {
	t.Parallel()
	again := queue.Retry{MaxAttempts: 2, Min: time.Millisecond, Max: time.Millisecond}
	every := make([]byte, listen.MaxCheckpoint)
	for i := range every {
		every[i] = byte(i)
	}
	for name, test := range map[string]struct {
		kept []byte
		end  func(n *node) func(*worker.Processor) error
	}{
		"Rescheduled": {[]byte("step 3"), func(n *node) func(*worker.Processor) error {
			return func(p *worker.Processor) error { return p.Reschedule(n.ctx, 0, "later") }
		}},
		"Retried": {every, func(n *node) func(*worker.Processor) error {
			return func(p *worker.Processor) error { return p.Retry(n.ctx, queue.Failure{Message: "broken"}, again) }
		}},
		"Released": {[]byte("\xff\x00"), func(n *node) func(*worker.Processor) error {
			return func(p *worker.Processor) error { return p.Release(n.ctx) }
		}},
		"NothingKept": {nil, func(n *node) func(*worker.Processor) error {
			return func(p *worker.Processor) error { return p.Release(n.ctx) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, settings{idle: true, guests: map[string][]byte{"cat": runtimetest.Cat(t)}})
			id := n.enqueueAs("cat", "/checkpoint", queue.Options{Retry: again})
			n.handTo("cat", test.kept, test.end(n))
			n.run()
			n.reads(id, test.kept)
		})
	}
}

func (n *node) reads(id string, kept []byte) {
	n.t.Helper()
	task := n.wait(id)
	if kept == nil {
		if code := task.Failure().ExitCode; task.Status != queue.Failed || code == nil || *code != 66 {
			n.t.Errorf("task is %s, want it to find no checkpoint: %+v", task.Status, task.Failure())
		}
		return
	}
	if task.Status != queue.Complete || !bytes.Equal(task.Result, kept) {
		n.t.Errorf("task is %s, read %d bytes of %d: %s", task.Status, len(task.Result), len(kept), task.Error)
	}
}

// The checkpoint outlives the host that kept it.
func TestPluginGetsTheCheckpointOfADeadListener(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Second, idle: true, guests: map[string][]byte{"cat": runtimetest.Cat(t)}})
	id := n.enqueue("cat", "/checkpoint")
	n.deadNode("cat", 1, 0)
	task := n.task(id)
	dead := worker.NewProcessor(n.clientWith(time.Second), task)
	if err := dead.Checkpoint(n.ctx, []byte("half-way")); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.reads(id, []byte("half-way"))
	if task := n.task(id); task.Crashes != 1 || task.Run != 2 {
		t.Errorf("%d crashes, run %d", task.Crashes, task.Run)
	}
}

// A checkpoint whose answer does not come is asked for again; a task that has none asks for nothing.
func TestCheckpointIsFetchedThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	n := start(t, settings{idle: true, server: server, proxy: proxy, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	id := n.enqueue("echo", "x")
	n.handTo("echo", []byte("kept"), func(p *worker.Processor) error { return p.Release(n.ctx) })
	proxy.CutReplies(2, "checkpoint")
	n.run()
	if task := n.wait(id); task.Status != queue.Complete || task.Run != 2 || task.Attempts != 1 {
		t.Errorf("task is %s after run %d and attempt %d: %s", task.Status, task.Run, task.Attempts, task.Error)
	}
	if got := proxy.Cuts(); got != 2 {
		t.Errorf("the checkpoint was asked for in vain %d times, want 2", got)
	}
	proxy.CutReplies(-1, "checkpoint")
	if task := n.wait(n.enqueue("echo", "y")); task.Status != queue.Complete || proxy.Cuts() != 2 {
		t.Errorf("the first run of a task asked for a checkpoint: %s, %d cuts", task.Status, proxy.Cuts())
	}
	proxy.CutReplies(0, "")
}

// fetch hands over what is kept, and a task that is gone has kept nothing.
func TestFetch(t *testing.T) {
	t.Parallel()
	n := start(t, settings{idle: true})
	id := n.enqueue("q", "x")
	tenant := &tenantAccess{client: n.client, listener: listen.NewListener(n.client, nil, nil)}
	n.handTo("q", []byte("kept"), func(p *worker.Processor) error { return p.Release(n.ctx) })
	for _, test := range []struct {
		id                  string
		checkpointed, large bool
		want                string
	}{{id, false, false, ""}, {id, true, false, "kept"}, {id, true, true, "kept"}, {"gone", true, false, ""}} {
		task := &task{tenant: tenant, Task: listen.Task{Reservation: listen.Reservation{
			ID: test.id, Parameters: []byte("x"), Size: 1, Checkpointed: test.checkpointed, Large: test.large,
		}}}
		input, kept, err := fetch(n.ctx, task)
		if err != nil || string(input) != "x" || string(kept) != test.want {
			t.Errorf("%+v: %q, %q, %v", test, input, kept, err)
		}
	}
}
