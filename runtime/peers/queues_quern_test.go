package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// hosts is quern serve. The folder of plugins has one for each queue with its only plugin, named by language and workload.
type hosts struct{ program, plugins, cache string }

// quernSystems are a host with handlers in each language.
func quernSystems(b *testing.B) (systems []system) {
	h := installHosts(b)
	for _, l := range languages() {
		s := system{name: "Quern, " + l.name}
		s.measure[drainEmpty] = h.drain(l, nothing, 60_000)
		s.measure[drainOrders] = h.drain(l, ordering, 30_000)
		if l.name == "C" {
			s.measure[enqueueOne] = h.enqueue(1, 1, 10_000)
			s.measure[enqueueEight] = h.enqueue(producers, 1, 40_000)
			s.measure[enqueueBulk] = h.enqueue(1, bulk, 20*bulk)
			s.measure[idle] = h.idle
		}
		systems = append(systems, s)
	}
	return systems
}

// clockHandler returns the time of its start, as a little-endian int64 of nanoseconds.
const clockHandler = `
#include "quern.h"

QUERN_HANDLER int32_t handle(void) {
	int64_t now;
	quern_clock(QUERN_CLOCK_REAL, &now);
	return quern_output_write(&now, sizeof now);
}
`

const clockQueue = "clock"

// installHosts builds quern, and makes a folder of handlers: those that read orders are warmed. It runs each once, so that a host
// finds all compiled.
func installHosts(b *testing.B) hosts {
	h := hosts{buildQuern(b), b.TempDir(), filepath.Join(b.TempDir(), "compiled")}
	h.install(b, clockQueue, runtimetest.BuildCHandler(b, clockHandler), nil)
	for _, l := range languages() {
		h.install(b, l.queue(nothing), l.empty(b), nil)
		h.install(b, l.queue(ordering), l.json(b), []byte(smallOrder))
	}
	for _, l := range languages() {
		h.drain(l, nothing, 10)(b)
		h.drain(l, ordering, 10)(b)
	}
	return h
}

func buildQuern(b *testing.B) (program string) {
	b.Helper()
	program = filepath.Join(b.TempDir(), "quern")
	build := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/quern")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if said, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build quern: %v\n%s", err, said)
	}
	return program
}

// install makes the plugin of a queue, which is warmed if there is an input for that.
func (h hosts) install(b *testing.B, name string, module, warm []byte) {
	b.Helper()
	files := map[string][]byte{name + ".wasm": module}
	if warm != nil {
		files["warm.json"], files[name+".yaml"] = warm, []byte("warm: {input: warm.json}\n")
	}
	err := os.Mkdir(filepath.Join(h.plugins, name), 0o700)
	for file, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(h.plugins, name, file), content, 0o600))
	}
	if err != nil {
		b.Fatal(err)
	}
}

func (l language) queue(w workload) string { return strings.ToLower(l.name) + "-" + w.name }

// serve starts a server, and with begin a host for a queue of it; end ends both.
func (h hosts) serve(b *testing.B, name string, more ...string) (client *queue.Client, begin func() *worker, end func()) {
	b.Helper()
	server := queuetest.Start(b)
	client, err := queue.New(server.URL(), queue.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var serving *worker
	begin = func() *worker {
		serving = startWorker(b, exec.Command(h.program, append([]string{
			"serve", "--redis", server.URL(), "--plugins", filepath.Join(h.plugins, name), "--queues", name,
			"--cache", h.cache, "--concurrency", strconv.Itoa(slots), "--http", "127.0.0.1:0",
		}, more...)...))
		return serving
	}
	return client, begin, func() {
		if serving != nil {
			serving.stop()
		}
		_ = client.Close() // its server is gone, too
		server.Kill()
	}
}

func (h hosts) drain(l language, w workload, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		client, begin, end := h.serve(b, l.queue(w))
		defer end()
		q := client.Queue(l.queue(w))
		var ids []string
		for chunk := range slices.Chunk(make([]queue.Spec, tasks), bulk) {
			for i := range chunk {
				chunk[i].Parameters = []byte(w.parameters)
			}
			receipts, err := q.EnqueueMany(b.Context(), chunk)
			if err != nil {
				b.Fatal(err)
			}
			for _, receipt := range receipts {
				ids = append(ids, receipt.ID)
			}
		}
		if err := completes(b, begin(), q, int64(tasks)); err != nil {
			b.Fatal(err)
		}
		finished := make([]float64, tasks)
		var readers errgroup.Group
		readers.SetLimit(producers)
		for i, id := range ids {
			readers.Go(func() error {
				task, err := client.Task(b.Context(), id)
				if err != nil {
					return err
				}
				finished[i] = float64(task.FinishedAt.UnixMicro()) / 1e6
				return w.check(1, 1, string(task.Result))
			})
		}
		if err := readers.Wait(); err != nil {
			b.Fatal(err)
		}
		return rate(finished)
	}
}

// completes waits until a host has completed all tasks of a queue.
func completes(b *testing.B, host *worker, q *queue.Queue, tasks int64) error {
	ticker, deadline := time.NewTicker(lookInterval), time.After(patience)
	defer ticker.Stop()
	for {
		complete, err := manage.QueueOf(q).Count(b.Context(), queue.Complete)
		if err != nil || complete == tasks {
			return err
		}
		if failed, err := manage.QueueOf(q).Count(b.Context(), queue.Failed); err != nil || failed > 0 {
			return errors.Join(fmt.Errorf("%d tasks of %s failed", failed, q.Name()), err)
		}
		select {
		case <-ticker.C:
		case <-host.ended:
			return errors.New("the host has ended")
		case <-deadline:
			return fmt.Errorf("%d of %d tasks of %s are complete", complete, tasks, q.Name())
		}
	}
}

// enqueue has no host take what it enqueues.
func (h hosts) enqueue(producers, together, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		client, _, end := h.serve(b, "enqueue")
		defer end()
		q := client.Queue("enqueue")
		parameters := []byte(nothing.parameters)
		return produce(b, producers, together, tasks, func(tasks int) error {
			if tasks == 1 {
				_, err := q.Enqueue(b.Context(), parameters, queue.Options{})
				return err
			}
			_, err := q.EnqueueMany(b.Context(), slices.Repeat([]queue.Spec{{Parameters: parameters}}, tasks))
			return err
		})
	}
}

// idle has the handler tell when it started.
func (h hosts) idle(b *testing.B) (waits []float64) {
	client, begin, end := h.serve(b, clockQueue)
	defer end()
	begin()
	for i := range 1 + 300 { // the first one waits for the host
		begun := time.Now()
		id, err := client.Queue(clockQueue).Enqueue(b.Context(), []byte(nothing.parameters), queue.Options{})
		if err != nil {
			b.Fatal(err)
		}
		task, err := client.Wait(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		if task.Status != queue.Complete || len(task.Result) != 8 {
			b.Fatalf("%s: %+v", clockQueue, task)
		}
		if i > 0 {
			waits = append(waits, milli(time.Unix(0, int64(binary.LittleEndian.Uint64(task.Result))).Sub(begun)))
		}
	}
	return waits
}
