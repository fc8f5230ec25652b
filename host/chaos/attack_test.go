package chaos

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

//go:embed testdata/attack.c
var attackSource string

// attacks are what attack.c does. Each goes on until it is stopped, but recursion and memory, which trap.
var attacks = []string{"loop", "recursion", "branches", "fill", "copy", "calls", "memory", "misses"}

const attackManifest = `name: attack
limits: {memory: 64MiB, timeout: 500ms}
concurrency: 8
`

const (
	// neighbours is how many short tasks of another plugin are run beside eight attackers, one at a time.
	neighbours = 200
	// maxSlower is how much longer their slowest hundredth may take beside an attack than alone, and
	// maxScrape how long /metrics may take meanwhile. On a machine with other work both say little, so
	// only the full version holds them.
	maxSlower = 3
	maxScrape = 100 * time.Millisecond
)

// Eight guests that do their worst, one for each way, are stopped at their limits, and short tasks of
// somebody else go on beside them.
func TestAttack(t *testing.T) {
	beside(t)
	f := newFleet(t, settings{hosts: 1, concurrency: 16, lease: 10 * time.Second, grace: time.Second, patience: 5 * time.Minute})
	f.put("attack", attackManifest, runtimetest.BuildC(t, attackSource))
	f.serve("attack")
	alone := f.neighbours("before")

	ctx, stop := context.WithCancel(f.ctx)
	ended := make(chan []string, 1)
	go func() { ended <- f.attack(ctx) }()
	f.eventually("eight attackers run", func() bool { return f.count("attack", queue.Started) >= 8 })
	scrapes := make(chan []time.Duration, 1)
	go func() { scrapes <- f.scrape(ctx) }()
	beside := f.neighbours("beside")
	stop()
	slowest := slices.Max(<-scrapes)
	ids := <-ended

	f.eventually("all attacks have ended", func() bool { return f.count("attack", queue.Failed) == int64(len(ids)) })
	for _, id := range ids {
		task, err := f.client.Task(f.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if task.Reason != queue.ReasonTimeout && task.Reason != queue.ReasonTrap && task.Reason != queue.ReasonMemory {
			t.Errorf("attack %s: %s: %s", task.Parameters, task.Reason, task.Error)
		}
	}
	t.Logf("alone: median %s, p99 %s; beside %d attacks: median %s, p99 %s; slowest of /metrics %s",
		percentile(alone, 50), percentile(alone, 99), len(ids), percentile(beside, 50), percentile(beside, 99), slowest)
	if full && (percentile(beside, 99) > maxSlower*percentile(alone, 99) || slowest > maxScrape) {
		t.Errorf("want at most %d times, and %s", maxSlower, maxScrape)
	}
	f.leave()
}

// attack keeps eight attackers running and some waiting until ctx ends, and returns the IDs of all.
func (f *fleet) attack(ctx context.Context) (ids []string) {
	for i := 0; ; {
		for f.count("attack", queue.Pending) < 8 {
			id, err := f.client.Queue("attack").Enqueue(f.ctx, []byte(attacks[i%len(attacks)]), queue.Options{})
			if err != nil {
				f.t.Error(err)
				return ids
			}
			ids = append(ids, id)
			i++
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ids
		}
	}
}

// neighbours runs short tasks one after the other, and returns how long each took from its enqueueing to
// its end, by Redis's clock, in order.
func (f *fleet) neighbours(name string) (took []time.Duration) {
	f.t.Helper()
	random := newRandom(1, 1)
	for i := range neighbours {
		o := order{id: fmt.Sprintf("%s-%03d", name, i), queue: queues[random.IntN(len(queues))], manner: "ok"}
		if _, err := f.client.Queue(o.queue).EnqueueMany(f.ctx, []queue.Spec{o.spec()}); err != nil {
			f.t.Fatal(err)
		}
		task, err := f.client.Wait(f.ctx, o.id)
		if err != nil {
			f.t.Fatal(err)
		}
		took = append(took, task.FinishedAt.Sub(task.Created))
	}
	slices.Sort(took)
	return took
}

// count is how many tasks of a queue have a status.
func (f *fleet) count(name string, status queue.Status) int64 {
	n, err := manage.New(f.client).Queue(name).Count(f.ctx, status)
	if err != nil && f.ctx.Err() == nil {
		f.t.Error(err)
	}
	return n
}

func percentile(sorted []time.Duration, p int) time.Duration { return sorted[(len(sorted)-1)*p/100] }

// scrape reads /metrics ten times a second until ctx ends, and returns how long each took.
func (f *fleet) scrape(ctx context.Context) (took []time.Duration) {
	p := f.hosts[0].process()
	p.mu.Lock()
	url := "http://" + p.http + "/metrics"
	p.mu.Unlock()
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for {
		began := time.Now()
		response, err := client.Get(url)
		if err != nil {
			f.t.Error(err)
			return append(took, time.Since(began))
		}
		_, err = io.Copy(io.Discard, response.Body)
		if took = append(took, time.Since(began)); err != nil || response.Body.Close() != nil {
			f.t.Errorf("read /metrics: %v", err)
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return took
		}
	}
}
