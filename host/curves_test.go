package host

import (
	"fmt"
	"maps"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// The benchmarks of this file show what speed and cost depend on. They bring their own repeats: run them with
// `make bench PKG=./host BENCH='Backlog|QueuesWithWork|Payload|Hosts|Mixed'`. With QUERN_CURVES=full the backlog has a point of
// 5 million tasks as well, which takes minutes and 3 GB.

// point is one point of a curve; measure returns what is to be reported, by its unit.
type point struct {
	name    string
	measure func() map[string]float64
}

// curve measures all points in turns, so that other load on the machine meets all of them, and reports the median of each unit
// and how far the rates lie apart.
func curve(b *testing.B, rounds int, points []point) {
	b.Helper()
	measured := make([]map[string][]float64, len(points))
	for range rounds {
		for i, p := range points {
			if measured[i] == nil {
				measured[i] = make(map[string][]float64)
			}
			for unit, value := range p.measure() {
				measured[i][unit] = append(measured[i][unit], value)
			}
		}
	}
	for i, p := range points {
		b.Run(p.name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op") // means nothing here
			for unit, values := range measured[i] {
				slices.Sort(values)
				median := values[len(values)/2]
				b.ReportMetric(median, unit)
				if unit == "tasks/s" {
					b.ReportMetric(100*(values[len(values)-1]-values[0])/median, "spread-%")
				}
			}
		})
	}
}

// benchFleet is hosts for the same queues, with a Redis of their own, which is set as `quern help redis` recommends.
type benchFleet struct {
	*node  // the first host
	b      *testing.B
	hosts  []*node
	queues []string
}

func newBenchFleet(b *testing.B, hosts, queues int, module []byte) *benchFleet {
	b.Helper()
	f := &benchFleet{b: b}
	server := queuetest.Start(b, "--hash-max-listpack-value", "1024")
	s := settings{server: server, tenants: []string{queuetest.Tenant()}, answers: patience, hclog: hclog.Warn}
	cores := goruntime.GOMAXPROCS(0)
	goruntime.GOMAXPROCS(cores + 2) // as quern serve does, so that Go serves the network while guests compute
	b.Cleanup(func() { goruntime.GOMAXPROCS(cores) })
	s.Guests, s.engine.Guests = cores, cores
	s.Concurrency = max(4, 2*cores)
	f.queues, s.guests, s.yaml = manyQueues(queues, module)
	for range hosts {
		n := start(b, s)
		n.eventually("ready", func() bool { return n.Ready() == nil })
		n.ctx = b.Context() // what follows may take longer than a test
		f.hosts = append(f.hosts, n)
	}
	f.node = f.hosts[0]
	return f
}

// manyQueues are the names of queues, and plugins of one module that serve them.
func manyQueues(count int, module []byte) (names []string, guests map[string][]byte, yaml map[string]string) {
	guests, yaml = make(map[string][]byte), make(map[string]string)
	for i := range count {
		names = append(names, fmt.Sprint("queue", i))
	}
	for block := range slices.Chunk(names, 100) { // the most of one manifest
		guests[block[0]] = module
		yaml[block[0]] = "queues: [" + strings.Join(block, ", ") + "]"
	}
	return names, guests, yaml
}

// pause has the hosts take nothing more, and waits until they have settled all that they took.
func (f *benchFleet) pause() {
	f.b.Helper()
	if err := f.rdb.SAdd(f.ctx, f.tenant+"_paused", f.queues).Err(); err != nil {
		f.b.Fatal(err)
	}
	for _, host := range f.hosts {
		host.eventually("idle", host.idle)
	}
	for _, name := range f.queues {
		f.eventually("settled", func() bool { return f.stats(name).Depth[queue.Started] == 0 })
	}
}

// resume has the hosts take tasks again, of all queues at once.
func (f *benchFleet) resume() {
	f.b.Helper()
	_, err := f.rdb.Pipelined(f.ctx, func(p redis.Pipeliner) error {
		p.SRem(f.ctx, f.tenant+"_paused", f.queues)
		for _, name := range f.queues {
			p.Publish(f.ctx, f.tenant+"_channel_"+name, "")
		}
		return nil
	})
	if err != nil {
		f.b.Fatal(err)
	}
}

// fill enqueues tasks, in blocks that the client has memory for.
func (f *benchFleet) fill(name string, count int, parameters string) {
	f.b.Helper()
	for left := count; left > 0; left -= 10_000 {
		f.enqueueMany(name, min(left, 10_000), parameters)
	}
}

// drain enqueues so many tasks, the same number in each queue, has the hosts complete as many, and forgets those. What waited
// before waits after. The host's time is that of the whole process: also of the client that looks whether they are done, and of
// the hosts of the curve's other points, which are idle meanwhile. p50 and p99 are from a task's reserve to its settle.
func (f *benchFleet) drain(count int, parameters string) map[string]float64 {
	f.b.Helper()
	f.pause()
	each := count / len(f.queues)
	for _, name := range f.queues {
		f.fill(name, each, parameters)
	}
	host, redis, counts := processorTime(f.b), f.redisTime(), make([]int64, len(f.queues))
	f.resume()
	for i, name := range f.queues {
		f.eventually("drained", func() bool {
			var err error
			counts[i], err = manage.New(f.client).Queue(name).Count(f.ctx, queue.Complete)
			return err == nil && counts[i] >= int64(each)
		})
	}
	var done int64
	for _, n := range counts {
		done += n
	}
	report := map[string]float64{
		"host-µs/task":  float64((processorTime(f.b) - host).Microseconds()) / float64(done),
		"redis-µs/task": float64((f.redisTime() - redis).Microseconds()) / float64(done),
	}
	f.pause()
	var begun, ended time.Time
	var took []time.Duration
	for _, name := range f.queues {
		for _, task := range f.completed(name) {
			if begun.IsZero() || task.StartedAt.Before(begun) {
				begun = task.StartedAt
			}
			if task.FinishedAt.After(ended) {
				ended = task.FinishedAt
			}
			took = append(took, task.FinishedAt.Sub(task.StartedAt))
		}
	}
	report["tasks/s"] = float64(len(took)) / ended.Sub(begun).Seconds()
	report["p50-µs"], report["p99-µs"] = percentile(took, 50), percentile(took, 99)
	return report
}

// completed takes the complete tasks out of a queue.
func (f *benchFleet) completed(name string) (tasks []*queue.Task) {
	f.b.Helper()
	q := f.client.Queue(name)
	for {
		page, err := manage.QueueOf(q).List(f.ctx, manage.ListOptions{Status: queue.Complete, Offset: len(tasks), Limit: 1000})
		if err != nil {
			f.b.Fatal(err)
		}
		tasks = append(tasks, page...)
		if len(page) < 1000 {
			break
		}
	}
	if _, err := manage.QueueOf(q).Purge(f.ctx, listen.PurgeOptions{Everything: true}); err != nil {
		f.b.Fatal(err)
	}
	return tasks
}

// percentile is one of durations, in microseconds.
func percentile(durations []time.Duration, p int) float64 {
	slices.Sort(durations)
	return float64(durations[(len(durations)-1)*p/100].Microseconds())
}

const (
	curveTasks  = 20_000
	curveRounds = 5
)

var hundredBytes = strings.Repeat("x", 100)

// BenchmarkBacklog drains tasks while so many others wait behind them.
func BenchmarkBacklog(b *testing.B) {
	backlogs := []int{1000, 100_000}
	if os.Getenv("QUERN_CURVES") == "full" {
		backlogs = append(backlogs, 5_000_000)
	}
	var points []point
	for _, backlog := range backlogs {
		f := newBenchFleet(b, 1, 1, runtimetest.C.Empty(b))
		f.drain(curveTasks, hundredBytes) // makes the snapshot
		f.fill(f.queues[0], backlog, hundredBytes)
		points = append(points, point{fmt.Sprint(backlog), func() map[string]float64 { return f.drain(curveTasks, hundredBytes) }})
	}
	curve(b, 3*curveRounds, points) // fewer do not show differences of some percent
}

// BenchmarkQueuesWithWork drains tasks from so many queues of one host, the same number from each.
func BenchmarkQueuesWithWork(b *testing.B) {
	var points []point
	for _, queues := range []int{1, 10, 100, 1000} {
		f := newBenchFleet(b, 1, queues, runtimetest.C.Empty(b))
		f.drain(curveTasks, hundredBytes)
		points = append(points, point{fmt.Sprint(queues), func() map[string]float64 { return f.drain(curveTasks, hundredBytes) }})
	}
	curve(b, curveRounds, points)
}

// BenchmarkPayload drains tasks that return their parameters, which have so many bytes.
func BenchmarkPayload(b *testing.B) {
	f := newBenchFleet(b, 1, 1, runtimetest.BuildCHandler(b, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	static char piece[64 << 10];
	for (int32_t at = 0, n; (n = quern_input_read((uint32_t)at, piece, sizeof piece)) > 0; at += n)
		if (quern_output_write(piece, (uint32_t)n) < 0) return 1;
	return 0;
}`))
	var points []point
	for size := 100; size <= 10_000_000; size *= 10 {
		parameters, tasks := strings.Repeat("x", size), min(curveTasks, 200_000_000/size)
		points = append(points, point{fmt.Sprint(size), func() map[string]float64 {
			report := f.drain(tasks, parameters)
			report["MB/s"] = report["tasks/s"] * float64(size) / 1e6
			return report
		}})
	}
	points[0].measure()
	curve(b, curveRounds, points)
}

// BenchmarkHosts drains tasks by so many hosts. All are in this process, so they share its processors with each other and with
// Redis.
func BenchmarkHosts(b *testing.B) {
	var points []point
	for hosts := 1; hosts <= 16; hosts *= 2 {
		f := newBenchFleet(b, hosts, 1, runtimetest.C.Empty(b))
		f.drain(curveTasks, hundredBytes)
		points = append(points, point{fmt.Sprint(hosts), func() map[string]float64 { return f.drain(curveTasks, hundredBytes) }})
	}
	curve(b, curveRounds, points)
}

// BenchmarkMixed reports how long short tasks take from their enqueueing to their result, alone and beside tasks of 10 ms to 10 s
// that wait in queues of their own. Their plugin leaves one slot to others: else long tasks that come first would have all slots
// until one ends. All compute for as many microseconds as their parameters say.
func BenchmarkMixed(b *testing.B) {
	const window, every = 12 * time.Second, 50 * time.Millisecond
	short := map[string]int{"queue0": 10, "queue1": 100, "queue2": 1000}
	long := map[string]int{"long1": 10_000, "long2": 100_000, "long3": 1_000_000, "long4": 10_000_000}
	module := runtimetest.BuildCHandler(b, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	char text[16];
	int32_t size = quern_input(text, sizeof text);
	int64_t took = 0, begun, now;
	for (int32_t i = 0; i < size; i++) took = 10 * took + 1000 * (text[i] - '0');
	quern_clock(QUERN_CLOCK_MONOTONIC, &begun);
	do {
		for (volatile int i = 0; i < 1000; i++);
		quern_clock(QUERN_CLOCK_MONOTONIC, &now);
	} while (now - begun < took);
	return 0;
}`)
	slots := Defaults().Concurrency
	f := newBenchFleet(b, 1, len(short), module)
	f.write("long.yaml", fmt.Appendf(nil, "{queues: [%s], concurrency: %d}",
		strings.Join(slices.Sorted(maps.Keys(long)), ", "), slots-1))
	f.install("long", module)
	measure := func(beside map[string]int) map[string]float64 {
		report, waiting := make(map[string]float64), make(map[string][]string)
		for name, micros := range beside { // as many as can run
			waiting[name] = f.enqueueMany(name, 1+4*int(window.Microseconds())/micros, strconv.Itoa(micros))
		}
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for range window / every {
			<-ticker.C
			for name, micros := range short {
				f.enqueue(name, strconv.Itoa(micros))
			}
		}
		for name, ids := range waiting {
			length := time.Duration(beside[name]) * time.Microsecond
			report[fmt.Sprint("done/", length)] = float64(f.stats(name).Depth[queue.Complete])
			for _, id := range ids {
				_, _ = f.client.Queue(name).Cancel(f.ctx, id) // most of them; those that are complete cannot be
			}
		}
		f.eventually("idle", f.idle)
		for _, name := range slices.Sorted(maps.Keys(short)) {
			f.count(name, queue.Complete, int64(window/every))
			var took []time.Duration
			for _, task := range f.completed(name) {
				took = append(took, task.FinishedAt.Sub(task.Created))
			}
			length := time.Duration(short[name]) * time.Microsecond
			report[fmt.Sprint("p50-µs/", length)], report[fmt.Sprint("p99-µs/", length)] = percentile(took, 50), percentile(took, 99)
		}
		for name := range beside {
			f.completed(name)
		}
		return report
	}
	for _, name := range []string{"queue0", "long1"} { // makes the snapshots
		f.wait(f.enqueue(name, "10"))
		f.completed(name)
	}
	curve(b, 3, []point{
		{"alone", func() map[string]float64 { return measure(nil) }},
		{"beside-long", func() map[string]float64 { return measure(long) }},
	})
}
