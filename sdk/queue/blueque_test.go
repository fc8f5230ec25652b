package queue_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// setupBlueque is the tenant that Blueque's package knows, on a redis-server of the test's own, and
// a Python process with the package.
func setupBlueque(t *testing.T) (*world, *queuetest.Blueque) {
	t.Helper()
	t.Parallel()
	server := queuetest.Start(t)
	w := newWorld(t, server.URL())
	w.Store().Keys, w.Config().Tenant = store.Keys{Tenant: queue.DefaultTenant}, queue.DefaultTenant
	w.Store().Poll = store.PollInterval // Python announces nothing
	return w, queuetest.Python(t, server.URL())
}

// text shows what Python has, nil as None.
func text(value *string) string {
	if value == nil {
		return "None"
	}
	return *value
}

func TestBluequeEnqueuesAndQuernRuns(t *testing.T) {
	w, python := setupBlueque(t)
	first, second := python.Enqueue("q", "grüße"), python.Enqueue("q", "fail")
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: 2})
	if task := w.task(t, first); task.Status != queue.Pending || string(task.Parameters) != "grüße" || task.Queue != "q" || task.Created.IsZero() {
		t.Errorf("read by Quern: %+v", task)
	}
	if _, ok := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; !ok {
		t.Error("its queue is not listed")
	}
	node := ""
	w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
		node = task.Node
		if read := python.Task(task.ID); read.Status != "started" || text(read.Node) != node || read.PID == nil || *read.PID != os.Getpid() {
			t.Errorf("while it runs Python reads %+v", read)
		}
		if string(task.Parameters) == "fail" {
			return nil, fmt.Errorf("no such file")
		}
		return []byte("done: " + string(task.Parameters)), nil
	})
	w.finished(t, first)
	w.finished(t, second)

	read := python.Task(first)
	if read.Status != "complete" || text(read.Result) != "done: grüße" || text(read.Error) != "None" || read.Queue != "q" ||
		text(read.Parameters) != "grüße" || text(read.Node) != node || read.PID == nil || *read.PID != os.Getpid() {
		t.Errorf("Python reads of the first %+v", read)
	}
	now := float64(time.Now().Unix())
	if read.Created == nil || *read.Created < now-60 || read.Updated == nil || *read.Updated < *read.Created || *read.Updated > now+60 {
		t.Errorf("created %v, updated %v", read.Created, read.Updated)
	}
	read = python.Task(second)
	if read.Status != "failed" || text(read.Error) != `{"reason":"error","message":"no such file"}` || text(read.Result) != "None" {
		t.Errorf("Python reads of the second %+v, error %s", read, text(read.Error))
	}
	// It reserved what keeps no index; now the index has it.
	if all := must[[]*queue.Task](t)(manage.New(w.Client).Queue("q").List(w.ctx, manage.ListOptions{})); len(all) != 2 {
		t.Errorf("listed are %v", idsOf(all))
	}
	python.DeleteTask("q", first)
	w.depth(t, "q", map[queue.Status]int64{queue.Complete: 0, queue.Failed: 1})
	if err := w.Queue("q").Delete(w.ctx, second); err != nil {
		t.Error(err)
	}
	if read := python.Task(second); read.Status != "" {
		t.Errorf("Python reads of a deleted task %+v", read)
	}
}

func TestQuernEnqueuesAndBluequeRuns(t *testing.T) {
	w, python := setupBlueque(t)
	q := w.Queue("q")
	completed := must[string](t)(q.Enqueue(w.ctx, []byte("grüße"), queue.Options{Key: "k", Labels: map[string]string{"a": "b"}}))
	failed := must[string](t)(q.Enqueue(w.ctx, []byte("later"), queue.Options{ID: "an-id-of-my-own", At: time.Now().Add(time.Second)}))
	if read := python.Task(failed); read.Status != "scheduled" || text(read.Parameters) != "later" || read.Created == nil {
		t.Errorf("Python reads of the scheduled task %+v", read)
	}
	waits := []<-chan waited{w.waiting(t, completed), w.waiting(t, failed)}

	listener := python.Register("q")
	got := python.Listen("q")
	if got.ID != completed || text(got.Parameters) != "grüße" || got.Status != "reserved" || text(got.Node) != listener {
		t.Errorf("Python listens to %+v", got)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Reserved: 1, queue.Scheduled: 1})
	python.Start(completed, 4711)
	if task := w.task(t, completed); task.Status != queue.Started || task.Node != listener || task.PID != 4711 {
		t.Errorf("Quern reads of what Python runs %+v", task)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Started: 1, queue.Scheduled: 1})
	python.Complete(completed, "erledigt ✓")

	eventually(t, "a due task", func() bool {
		python.EnqueueDueTasks("q")
		return must[int64](t)(manage.QueueOf(q).Count(w.ctx, queue.Pending)) == 1
	})
	if got := python.Listen("q"); got.ID != failed || text(got.Parameters) != "later" {
		t.Errorf("Python listens to %+v", got)
	}
	python.Start(failed, 4712)
	python.Fail(failed, "Kein Platz")

	for i, check := range []func(*queue.Task) bool{
		func(task *queue.Task) bool {
			return task.Status == queue.Complete && string(task.Result) == "erledigt ✓" && task.Key == "k" && task.Labels["a"] == "b"
		},
		func(task *queue.Task) bool {
			return task.Status == queue.Failed && task.Error == "Kein Platz" && task.Failure().Reason == queue.ReasonError && task.Failure().Message == "Kein Platz"
		},
	} {
		got := receive(t, "the end of Wait", waits[i])
		if got.err != nil || !check(got.task) {
			t.Errorf("waited for %+v, %v", got.task, got.err)
		}
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1, queue.Failed: 1})
	stats := must[manage.Stats](t)(manage.QueueOf(q).Stats(w.ctx))
	if stats.Listeners != 1 {
		t.Errorf("%d listeners", stats.Listeners)
	}
	if !must[bool](t)(q.HasListener(w.ctx)) {
		t.Error("Python's listener does not count as one")
	}
}

// Python decodes every field as UTF-8; what is not must not stand in the hash.
func TestBluequeReadsTasksWithBytes(t *testing.T) {
	w, python := setupBlueque(t)
	jpeg := []byte("\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01")
	id := must[string](t)(w.Queue("q").Enqueue(w.ctx, jpeg, queue.Options{Key: "k"}))
	read := python.Task(id)
	if read.Status != "pending" || !strings.HasPrefix(text(read.Parameters), "quern:bytes:12:") {
		t.Errorf("Python reads of a pending photograph %+v", read)
	}
	node, hold := w.held(t, "q")
	w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: slices.Concat(jpeg, jpeg)})
	read = python.Task(id)
	if read.Status != "complete" || !strings.HasPrefix(text(read.Result), "quern:bytes:24:") {
		t.Errorf("Python reads of a complete photograph %+v", read)
	}
	if task := w.task(t, id); string(task.Parameters) != string(jpeg) || string(task.Result) != string(jpeg)+string(jpeg) {
		t.Errorf("Quern reads %q, %q", task.Parameters, task.Result)
	}
	id = w.enqueue(t, "q", "", queue.Options{})
	node, hold = w.held(t, "q")
	w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{Message: "bad \xff byte", Stderr: "\xff\xfe"}})
	if read := python.Task(id); read.Status != "failed" || !strings.Contains(text(read.Error), "bad \ufffd byte") {
		t.Errorf("Python reads of a failure with bytes %+v, %s", read, text(read.Error))
	}
	// Python wrote what looks like Quern's marker: it means itself.
	id = python.Enqueue("q", "quern:bytes:3:abc")
	got := w.reserve(t, w.node(t, "q"), "q", true)
	if string(got.Parameters) != "quern:bytes:3:abc" || string(w.task(t, id).Parameters) != "quern:bytes:3:abc" {
		t.Errorf("reserved with %q", got.Parameters)
	}
}

// claim_orphan takes over from listeners of its own host whose process is gone. A Quern listener is
// none of these, even with that hostname, and a process ID that only its own container knows.
func TestClaimOrphanLeavesQuernListenersAlone(t *testing.T) {
	w, python := setupBlueque(t)
	own := python.Register("q")
	host := own[:strings.LastIndex(own, "_")]
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	id := listen.New(w.Client).ID() // of this process
	node := listen.NodeAs(w.Client, fmt.Sprintf("%s_%d", id[:strings.LastIndex(id, "_")], gone.Process.Pid), gone.Process.Pid)
	for _, err := range []error{node.Join(w.ctx), node.Register(w.ctx, "q")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	id = w.enqueue(t, "q", "", queue.Options{})
	got := w.reserve(t, node, "q", true)
	if task := python.ClaimOrphan("q"); task != nil {
		t.Errorf("it claimed %+v", task)
	}
	if _, err := node.Renew(w.ctx, nil); err != nil {
		t.Error(err)
	}
	w.settle(t, node, "q", listen.Settlement{Claim: listen.Claim{ID: id, Run: got.Run}})
	w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
	if stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx)); stats.Listeners != 2 {
		t.Errorf("%d listeners", stats.Listeners)
	}

	// One of its own that is gone it does claim: so it did look.
	orphan := fmt.Sprintf("%s_%d", host, gone.Process.Pid)
	id = w.enqueue(t, "q", "", queue.Options{})
	w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("q"), orphan)
	w.rdb.LMove(w.ctx, w.Store().Keys.Pending("q"), w.Store().Keys.Reserved("q", orphan), "right", "left")
	w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "reserved", "node", orphan)
	if task := python.ClaimOrphan("q"); task == nil || task.ID != id {
		t.Errorf("of an orphan it claimed %+v", task)
	}
}

// Python's mover of due tasks and Quern's, two of each, over the same tasks.
func TestDueTasksOfBoth(t *testing.T) {
	w, first := setupBlueque(t)
	second := queuetest.Python(t, "redis://"+w.rdb.Options().Addr+"/0")
	q := w.Queue("q")
	const tasks = 500
	begin := time.Now().Add(time.Second)
	var ids []string
	for i := range tasks {
		eta := begin.Add(time.Duration(i) * 2 * time.Millisecond)
		if i%2 == 0 {
			ids = append(ids, first.Schedule("q", "x", eta))
		} else {
			ids = append(ids, must[string](t)(q.Enqueue(w.ctx, []byte("x"), queue.Options{At: eta})))
		}
	}
	var movers sync.WaitGroup
	for _, move := range []func(){
		func() { first.EnqueueDueTasks("q") },
		func() { second.EnqueueDueTasks("q") },
		func() { _, _ = enqueueDue(w.ctx, q) },
		func() { _, _ = enqueueDue(w.ctx, q) },
	} {
		movers.Go(func() {
			for w.ctx.Err() == nil && w.rdb.ZCard(w.ctx, w.Store().Keys.Scheduled("q")).Val() > 0 {
				move()
			}
		})
	}
	movers.Wait()
	pending := must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Pending("q"), 0, -1).Result())
	slices.Sort(pending)
	slices.Sort(ids)
	if !slices.Equal(pending, ids) {
		t.Errorf("%d entries pending, %d tasks", len(pending), len(ids))
	}
	for _, task := range must[[]*queue.Task](t)(manage.QueueOf(q).List(w.ctx, manage.ListOptions{Status: queue.Pending, Limit: store.MaxPage})) {
		if slices.Contains(ids, task.ID) && task.Status != queue.Pending {
			t.Errorf("%+v", task)
		}
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: tasks})
}

// Two Python listeners and two of Quern on one queue.
func TestListenersOfBothShareAQueue(t *testing.T) {
	w, first := setupBlueque(t)
	pythons := []*queuetest.Blueque{first, queuetest.Python(t, "redis://"+w.rdb.Options().Addr+"/0")}
	for _, python := range pythons {
		python.Work("q")
	}
	var mu sync.Mutex
	var ours []string
	shared := make(chan struct{}) // closed when a Python listener has worked
	for range 2 {
		w.working(t, "q", func(ctx context.Context, task *queue.Task) ([]byte, error) {
			mu.Lock()
			ours = append(ours, task.ID)
			late := len(ours) > 50
			mu.Unlock()
			if late { // leave the others some
				select {
				case <-shared:
				case <-ctx.Done():
				}
			}
			return append([]byte("go "), task.Parameters...), nil
		})
	}
	const tasks = 200
	var ids []string
	for i := range tasks {
		if i%2 == 0 {
			ids = append(ids, first.Enqueue("q", fmt.Sprint(i)))
		} else {
			ids = append(ids, w.enqueue(t, "q", fmt.Sprint(i), queue.Options{}))
		}
	}
	eventually(t, "a Python listener to work", func() bool {
		return len(pythons[0].Worked())+len(pythons[1].Worked()) > 0
	})
	close(shared)
	q := w.Queue("q")
	eventually(t, "the last task", func() bool { return must[int64](t)(manage.QueueOf(q).Count(w.ctx, queue.Complete)) >= tasks })
	w.depth(t, "q", map[queue.Status]int64{queue.Complete: tasks})

	var done []string
	eventually(t, "Python to say what it has run", func() bool { // which it says after the task is complete
		mu.Lock()
		defer mu.Unlock()
		done = slices.Concat(ours, pythons[0].Worked(), pythons[1].Worked())
		return len(done) >= tasks
	})
	slices.Sort(done)
	slices.Sort(ids)
	if !slices.Equal(done, ids) {
		t.Errorf("%d runs (%d of Quern's), %d tasks", len(done), len(ours), len(ids))
	}
	complete := must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Complete("q"), 0, -1).Result())
	slices.Sort(complete)
	if !slices.Equal(complete, ids) {
		t.Errorf("%d entries complete, %d tasks", len(complete), len(ids))
	}
	for _, id := range ids {
		want := "python "
		if slices.Contains(ours, id) {
			want = "go "
		}
		if task := w.task(t, id); !strings.HasPrefix(string(task.Result), want) {
			t.Errorf("task %s has the result %q, want %q", id, task.Result, want)
		}
	}
}
