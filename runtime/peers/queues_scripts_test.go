package peers

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// scriptSystems are the queues of others that are no Go: each has a process for each core, or as many tasks side by side as a host
// of Quern.
func scriptSystems(b *testing.B) []system {
	cores := strconv.Itoa(runtime.NumCPU())
	sources, err := filepath.Abs("testdata/queues")
	if err != nil {
		b.Fatal(err)
	}
	build, err := filepath.Abs("../../build")
	if err != nil {
		b.Fatal(err)
	}
	peers := filepath.Join(build, "peers")
	python, blueque := filepath.Join(peers, "venv", "bin", "python"), filepath.Join(build, "venv", "bin", "python")
	for _, needed := range []string{filepath.Join(peers, "installed"), blueque} {
		if _, err := os.Stat(needed); err != nil {
			b.Fatalf("%v: run make deps and .ci/peers", err)
		}
	}
	script := func(workers int, program, file string, work ...string) peer {
		return peer{sources, peers, []string{program, file}, workers, work}
	}
	inProcess := script(1, "node", "bullmq_peer.mjs", "node", "bullmq_peer.mjs", "work", strconv.Itoa(slots))
	bullMQ := inProcess.system(fmt.Sprintf("BullMQ in process, %d at a time", slots), 60_000, 40_000)
	bullMQ.measure[enqueueOne] = inProcess.enqueue(1, 1, 10_000)
	bullMQ.measure[enqueueEight] = inProcess.enqueue(producers, 1, 40_000)
	bullMQ.measure[enqueueBulk] = inProcess.enqueue(1, bulk, 10*bulk)
	bullMQ.measure[idle] = inProcess.idle
	return []system{
		bullMQ,
		script(1, "node", "bullmq_peer.mjs", "node", "bullmq_peer.mjs", "sandboxed", cores).system("BullMQ sandboxed, "+cores+" processes", 10_000, 8000),
		script(1, python, "celery_peer.py", python, "-m", "celery", "-A", "celery_peer", "worker", "--pool=prefork",
			"--concurrency="+cores, "--loglevel=ERROR").system("Celery, prefork, "+cores+" processes", 2500, 2500),
		script(runtime.NumCPU(), python, "rq_peer.py", python, "-m", "rq.cli", "worker", "--quiet", "orders").system("RQ, "+cores+" workers", 250, 250),
		script(runtime.NumCPU(), blueque, "blueque_peer.py", blueque, "blueque_peer.py", "work").system("Blueque, "+cores+" listeners", 500, 500),
	}
}

// peer is a queue of others: a script that fills it and waits for it, and a command that works it off.
type peer struct {
	sources, modules string
	script           []string
	workers          int
	work             []string
}

func (p peer) system(name string, empty, orders int) system {
	s := system{name: name}
	s.measure[drainEmpty] = p.drain(nothing, empty)
	s.measure[drainOrders] = p.drain(ordering, orders)
	return s
}

func (p peer) drain(w workload, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		server := queuetest.Start(b)
		defer server.Kill()
		count := strconv.Itoa(tasks)
		p.output(b, server, nil, "fill", w.name, count, w.parameters)
		for range p.workers {
			defer startWorker(b, p.command(server, p.work)).stop()
		}
		var f struct {
			Finished []float64
			Output   string
		}
		p.output(b, server, &f, "wait", count)
		if err := w.check(len(f.Finished), tasks, f.Output); err != nil {
			b.Fatalf("%s: %v", p.script, err)
		}
		return rate(f.Finished)
	}
}

func (p peer) enqueue(producers, together, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		server := queuetest.Start(b)
		defer server.Kill()
		var seconds float64
		p.output(b, server, &seconds, "enqueue", nothing.name, strconv.Itoa(tasks), nothing.parameters, strconv.Itoa(producers), strconv.Itoa(together))
		return []float64{float64(tasks) / seconds}
	}
}

func (p peer) idle(b *testing.B) (waits []float64) {
	server := queuetest.Start(b)
	defer server.Kill()
	p.output(b, server, &waits, "idle", "300")
	return waits
}

func (p peer) command(server *queuetest.Server, arguments []string) *exec.Cmd {
	cmd := exec.Command(arguments[0], arguments[1:]...)
	cmd.Dir = p.sources
	cmd.Env = append(os.Environ(), "PEER_REDIS="+server.URL(), "RQ_REDIS_URL="+server.URL(), "PEER_MODULES="+p.modules, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// output runs the script to its end, and reads what it prints into to, unless that is nil.
func (p peer) output(b *testing.B, server *queuetest.Server, to any, arguments ...string) {
	b.Helper()
	cmd := p.command(server, append(slices.Clone(p.script), arguments...))
	var said bytes.Buffer
	cmd.Stderr = &said
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	output, err := cmd.Output()
	if err == nil && to != nil {
		err = stdjson.Unmarshal(output, to)
	}
	if err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, &said)
	}
}

// worker is a process in a group of its own.
type worker struct {
	b     *testing.B
	cmd   *exec.Cmd
	said  bytes.Buffer
	ended chan struct{} // closed when it has ended
	stop  func()        // ends it and its children; if the benchmark has failed, it tells what they said
}

// startWorker starts a worker, which ends with the benchmark at the latest.
func startWorker(b *testing.B, cmd *exec.Cmd) *worker {
	b.Helper()
	w := &worker{b: b, cmd: cmd, ended: make(chan struct{})}
	w.stop = sync.OnceFunc(w.kill)
	cmd.Stdout, cmd.Stderr = &w.said, &w.said
	cmd.SysProcAttr = cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
	cmd.SysProcAttr.Setpgid = true
	cmd.WaitDelay = time.Second // a child of it may hold its output
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		_ = cmd.Wait() // it is killed
	}()
	b.Cleanup(w.stop)
	return w
}

func (w *worker) kill() {
	select {
	case <-w.ended:
	default:
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
		<-w.ended
	}
	if w.b.Failed() {
		w.b.Logf("%s said:\n%s", w.cmd, &w.said)
	}
}
