package peers

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

const (
	slots = 32 // of a host, and of what runs tasks side by side in one process

	// patience bounds each wait for a queue.
	patience = 5 * time.Minute
	// lookInterval is how often a host is asked how many tasks are complete.
	lookInterval = 200 * time.Millisecond
)

// system is a queue with workers. It works off a queue that was filled before they start.
type system struct {
	name  string
	tasks int // enough for some seconds
	// run returns when each task was finished, in seconds, and the result of one.
	run func(b *testing.B, server *queuetest.Server, tasks int) finished
}

type finished struct {
	Finished []float64
	Output   string
}

// rate is how many tasks a second were finished, without the first tenth, in which workers start.
func (f finished) rate() float64 {
	slices.Sort(f.Finished)
	first, last := len(f.Finished)/10, len(f.Finished)-1
	return float64(last-first) / (f.Finished[last] - f.Finished[first])
}

// peerSystems are the queues of others, each with a process for each core, or as many tasks side by side as a host of Quern.
func peerSystems(b *testing.B) []system {
	cores := strconv.Itoa(runtime.NumCPU())
	sources, err := filepath.Abs("testdata/queues")
	if err != nil {
		b.Fatal(err)
	}
	build, err := filepath.Abs("../../build/peers")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(build, "installed")); err != nil {
		b.Fatalf("%v: run .ci/peers", err)
	}
	python := filepath.Join(build, "venv", "bin", "python")
	celery := peer{sources, build, []string{python, "celery_peer.py"}, 1, []string{
		python, "-m", "celery", "-A", "celery_peer", "worker", "--pool=prefork", "--concurrency=" + cores, "--loglevel=ERROR",
	}}
	rq := peer{sources, build, []string{python, "rq_peer.py"}, runtime.NumCPU(), []string{python, "-m", "rq.cli", "worker", "--quiet", "orders"}}
	bullmq := []string{"node", "bullmq_peer.mjs"}
	return []system{
		{"Celery, prefork, " + cores + " processes", 2500, celery.run},
		{"RQ, " + cores + " workers", 250, rq.run},
		{fmt.Sprintf("BullMQ in process, %d at a time", slots), 20_000, peer{sources, build, bullmq, 1, append(bullmq[:2:2], "work", strconv.Itoa(slots))}.run},
		{"BullMQ sandboxed, " + cores + " processes", 8000, peer{sources, build, bullmq, 1, append(bullmq[:2:2], "sandboxed", cores)}.run},
	}
}

// peer is a queue of others: a script that fills it and waits for it, and a command that works it off.
type peer struct {
	sources, build string
	script         []string
	workers        int
	work           []string
}

func (p peer) run(b *testing.B, server *queuetest.Server, tasks int) (f finished) {
	count := strconv.Itoa(tasks)
	p.output(b, server, "fill", count, smallOrder)
	for range p.workers {
		defer start(b, p.command(server, p.work)).stop()
	}
	if err := stdjson.Unmarshal(p.output(b, server, "wait", count), &f); err != nil {
		b.Fatal(err)
	}
	return f
}

func (p peer) command(server *queuetest.Server, arguments []string) *exec.Cmd {
	cmd := exec.Command(arguments[0], arguments[1:]...)
	cmd.Dir = p.sources
	cmd.Env = append(os.Environ(), "PEER_REDIS="+server.URL(), "RQ_REDIS_URL="+server.URL(), "PEER_MODULES="+p.build, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// output runs the script to its end.
func (p peer) output(b *testing.B, server *queuetest.Server, arguments ...string) []byte {
	b.Helper()
	cmd := p.command(server, append(slices.Clone(p.script), arguments...))
	var said bytes.Buffer
	cmd.Stderr = &said
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	output, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, &said)
	}
	return output
}

// worker is a process in a group of its own.
type worker struct {
	cmd   *exec.Cmd
	said  bytes.Buffer
	ended chan struct{} // closed when it has ended
}

// start starts a worker, which ends with the benchmark at the latest.
func start(b *testing.B, cmd *exec.Cmd) *worker {
	b.Helper()
	w := &worker{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &w.said, &w.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a child of it may hold its output
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		_ = cmd.Wait() // it is killed
	}()
	b.Cleanup(func() {
		w.stop()
		if b.Failed() {
			b.Logf("%s said:\n%s", cmd, &w.said)
		}
	})
	return w
}

// stop ends it, and its children.
func (w *worker) stop() {
	select {
	case <-w.ended:
	default:
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
		<-w.ended
	}
}

// hosts is quern serve with a folder of plugins, one for each language.
type hosts struct{ program, plugins, cache string }

func (h hosts) run(name string) func(b *testing.B, server *queuetest.Server, tasks int) finished {
	return func(b *testing.B, server *queuetest.Server, tasks int) (f finished) {
		client, err := queue.New(server.URL(), queue.Config{})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		q := client.Queue(name)
		var ids []string
		for chunk := range slices.Chunk(make([]queue.Spec, tasks), 1000) {
			for i := range chunk {
				chunk[i].Parameters = []byte(smallOrder)
			}
			receipts, err := q.EnqueueMany(b.Context(), chunk)
			if err != nil {
				b.Fatal(err)
			}
			for _, receipt := range receipts {
				ids = append(ids, receipt.ID)
			}
		}
		serving := start(b, exec.Command(h.program, "serve", "--redis", server.URL(), "--plugins", h.plugins, "--queues", name,
			"--cache", h.cache, "--concurrency", strconv.Itoa(slots), "--http", "127.0.0.1:0"))
		defer serving.stop()
		if err := serving.completes(b, q, int64(tasks)); err != nil {
			b.Fatal(err)
		}
		for _, id := range ids {
			task, err := client.Task(b.Context(), id)
			if err != nil {
				b.Fatal(err)
			}
			f.Finished = append(f.Finished, float64(task.FinishedAt.UnixMicro())/1e6)
			f.Output = string(task.Result)
		}
		return f
	}
}

// completes waits until a host has completed all tasks of a queue.
func (w *worker) completes(b *testing.B, q *queue.Queue, tasks int64) error {
	ticker, deadline := time.NewTicker(lookInterval), time.After(patience)
	defer ticker.Stop()
	for {
		complete, err := q.Count(b.Context(), queue.Complete)
		if err != nil || complete == tasks {
			return err
		}
		if failed, err := q.Count(b.Context(), queue.Failed); err != nil || failed > 0 {
			return errors.Join(fmt.Errorf("%d tasks of %s failed", failed, q.Name()), err)
		}
		select {
		case <-ticker.C:
		case <-w.ended:
			return errors.New("the host has ended")
		case <-deadline:
			return fmt.Errorf("%d of %d tasks of %s are complete", complete, tasks, q.Name())
		}
	}
}

// measureSystems has each system work off its queue once a round, all in turns, and returns the rates of each.
func measureSystems(b *testing.B, systems []system, rounds int) [][]float64 {
	rates := make([][]float64, len(systems))
	for range rounds {
		for i, s := range systems {
			server := queuetest.Start(b)
			f := s.run(b, server, s.tasks)
			server.Kill()
			if len(f.Finished) != s.tasks || f.Output != smallOrderOutput {
				b.Fatalf("%s: %d of %d tasks, result %s, want %s", s.name, len(f.Finished), s.tasks, f.Output, smallOrderOutput)
			}
			rates[i] = append(rates[i], f.rate())
		}
	}
	return rates
}
