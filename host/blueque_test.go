package host

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// blueque starts a host beside the real Blueque package, on a server of their own: the package knows
// one tenant only.
func blueque(t testing.TB, s settings) (*node, *queuetest.Blueque) {
	t.Helper()
	s.server = queuetest.Start(t)
	s.tenants = []string{queue.DefaultTenant}
	return start(t, s), queuetest.Python(t, s.server.URL())
}

// Blueque's client enqueues and schedules, a host runs, the client reads what became of it.
func TestBluequeClient(t *testing.T) {
	t.Parallel()
	n, python := blueque(t, settings{
		Config: Config{Poll: 200 * time.Millisecond},
		guests: map[string][]byte{"echo": runtimetest.Echo(t), "exit": runtimetest.Exit(t)},
	})
	begun := float64(time.Now().UnixMicro()) / 1e6
	echo := python.Enqueue("echo", "grüße")
	exit := python.Enqueue("exit", "3 so be it")
	later := python.Schedule("echo", "later", time.Now().Add(500*time.Millisecond))
	for _, id := range []string{echo, exit, later} {
		n.wait(id)
	}
	node := n.listener()
	for id, want := range map[string]queuetest.BluequeTask{
		echo:  {Status: "complete", Queue: "echo", Parameters: text("grüße"), Result: text("grüße")},
		later: {Status: "complete", Queue: "echo", Parameters: text("later"), Result: text("later")},
		exit:  {Status: "failed", Queue: "exit", Parameters: text("3 so be it"), Error: text(n.task(exit).Error)},
	} {
		got := python.Task(id)
		if got.Status != want.Status || got.Queue != want.Queue || !same(got.Parameters, want.Parameters) || !same(got.Result, want.Result) || !same(got.Error, want.Error) {
			t.Errorf("Blueque reads %+v", got)
		}
		if got.Node == nil || *got.Node != node || got.PID == nil || *got.PID != os.Getpid() {
			t.Errorf("Blueque reads node %v, pid %v; want %s, %d", got.Node, got.PID, node, os.Getpid())
		}
		if got.Created == nil || got.Updated == nil || *got.Created < begun-1 || *got.Updated < *got.Created {
			t.Errorf("Blueque reads created %v, updated %v", got.Created, got.Updated)
		}
	}
	if task := n.task(later); task.StartedAt.Before(task.ETA) {
		t.Error("a scheduled task started before it was due")
	}
	python.DeleteTask("echo", echo)
	if _, err := n.client.Task(n.ctx, echo); err == nil {
		t.Error("Blueque cannot delete a task that a host has run")
	}
}

func text(s string) *string { return &s }

func same(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// A picture is no UTF-8 text, which Blueque's client would fail on: it reads the task all the same.
func TestBluequeReadsATaskWithBytes(t *testing.T) {
	t.Parallel()
	n, python := blueque(t, settings{guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 64, 64)), nil); err != nil {
		t.Fatal(err)
	}
	task := n.wait(n.enqueue("echo", photo.String()))
	if !bytes.Equal(task.Result, photo.Bytes()) {
		t.Fatal("the picture came back as another")
	}
	got := python.Task(task.ID)
	want := fmt.Sprintf("quern:bytes:%d:%s", photo.Len(), strings.TrimPrefix(digest(photo.Bytes()), "sha256:"))
	if got.Status != "complete" || !same(got.Result, &want) || !same(got.Parameters, &want) {
		t.Errorf("Blueque reads %s, result %v, want %s", got.Status, got.Result, want)
	}
}

// Tasks of Blueque's client are found without a poll once one was.
func TestBluequeIsFoundWithoutPolls(t *testing.T) {
	t.Parallel()
	n, python := blueque(t, settings{
		Config: Config{Poll: never},
		guests: map[string][]byte{"echo": runtimetest.Echo(t), "timer": runtimetest.Empty(t)},
	})
	n.settled("echo", "timer")
	id := python.Enqueue("echo", "first")
	n.pollOnce()
	n.wait(id)
	for range 3 {
		task := n.wait(python.Enqueue("echo", "next"))
		t.Logf("started after %s", task.StartedAt.Sub(task.Created))
	}
}

// How long a task of Blueque's client waits for an idle host. The first one is found by a poll, and does not count.
func BenchmarkBluequeLatency(b *testing.B) {
	n, python := blueque(b, settings{guests: map[string][]byte{"echo": runtimetest.Echo(b)}, hclog: hclog.Info})
	n.settled("echo")
	n.wait(python.Enqueue("echo", "first"))
	var waits []time.Duration
	for b.Loop() {
		periodic.Sleep(n.ctx, rand.N(2*lookInterval))
		task := n.wait(python.Enqueue("echo", ""))
		waits = append(waits, task.StartedAt.Sub(task.Created))
	}
	slices.Sort(waits)
	b.ReportMetric(waits[len(waits)/2].Seconds(), "median-s")
	b.ReportMetric(waits[len(waits)-1].Seconds(), "worst-s")
}

// Blueque's listener and a host share a queue: no task is lost, none runs twice, both take part.
func TestBluequeSharesAQueue(t *testing.T) {
	t.Parallel()
	n, python := blueque(t, settings{
		Config: Config{Concurrency: 2, Poll: 200 * time.Millisecond},
		guests: map[string][]byte{"shared": runtimetest.Sleep(t)},
	})
	n.settled("shared")
	python.Work("shared")
	n.eventually("both listen", func() bool { return n.stats("shared").Listeners == 2 })
	ids := n.enqueueMany("shared", 100, "25") // long enough for a listener that sleeps a second at a time
	for range 100 {
		ids = append(ids, python.Enqueue("shared", "25"))
	}
	n.complete("shared", ids)
	byPython := make(map[string]bool)
	for _, id := range python.Worked() {
		byPython[id] = true
	}
	for _, id := range ids {
		task, want := n.task(id), "awake\n"
		if byPython[id] {
			want = "python 25"
		}
		if string(task.Result) != want || task.Run > 1 || (task.Run == 1) == byPython[id] {
			t.Errorf("task was run by %s, %d times by a host, result %q, want %q", task.Node, task.Run, task.Result, want)
		}
	}
	if len(byPython) == 0 || len(byPython) == len(ids) {
		t.Errorf("Blueque ran %d of %d tasks", len(byPython), len(ids))
	}
}

// Blueque's enqueue_due_tasks and a host move what is due side by side: every task once.
func TestBluequeMovesWhatIsDue(t *testing.T) {
	t.Parallel()
	n, python := blueque(t, settings{
		Config: Config{Poll: 50 * time.Millisecond},
		guests: map[string][]byte{"due": runtimetest.Empty(t)},
	})
	n.settled("due")
	var ids []string
	for i := range 100 {
		if i%2 == 0 {
			ids = append(ids, python.Schedule("due", "", time.Now().Add(time.Duration(200+5*i)*time.Millisecond)))
		} else {
			ids = append(ids, n.enqueueAs("due", "", queue.Options{Delay: time.Duration(200+5*i) * time.Millisecond}))
		}
	}
	n.eventually("all have been due", func() bool {
		python.EnqueueDueTasks("due")
		return n.stats("due").Depth[queue.Scheduled] == 0
	})
	n.complete("due", ids)
	n.ranOnce(ids)
}

// Blueque takes no live host for the orphan of a process that is gone.
func TestBluequeClaimsNoLiveHost(t *testing.T) {
	t.Parallel()
	n, python := blueque(t, settings{
		Config: Config{Grace: time.Nanosecond},
		guests: map[string][]byte{"loop": runtimetest.Loop(t)},
	})
	id := n.enqueue("loop", "")
	n.count("loop", queue.Started, 1)
	python.Register("loop")
	// The same host as seen from another container: no process here has its ID.
	own := n.listener()
	stranger := strings.TrimSuffix(own, fmt.Sprint(os.Getpid())) + "999999999"
	n.rdb.SAdd(n.ctx, "blueque_listeners_loop", stranger)
	for range 3 {
		if task := python.ClaimOrphan("loop"); task != nil {
			t.Fatalf("Blueque claims %+v", *task)
		}
	}
	if got := n.stats("loop").Listeners; got != 3 {
		t.Errorf("%d listeners, want all three", got)
	}
	if task := n.task(id); task.Status != queue.Started || task.Node != own {
		t.Errorf("task is %s, held by %s", task.Status, task.Node)
	}
}
