package chaos

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

//go:embed testdata/hostile.c
var hostileSource string

const (
	hostileTenant   = "hostile"
	hostileManifest = `limits: {memory: 4MiB, timeout: 2s, output: 1MiB, log: 64KiB}
retry: {max_attempts: 1}
capabilities: {kv: [{bucket: bucket, access: rw, quota: 4MiB}], enqueue: {queues: [hostile]}}
`
	// What the operator gives to the tenant. Beside its quotas hosts bound what one task may leave behind.
	waitingTasks, waitingBytes = 5000, 64 << 20
	startsPerSecond            = 100
	hostileQueues              = 500
	finishedBytes, logBytes    = 32 << 20, 16 << 20
	// A waiting task has taskBytes beside its parameters, and a finished one at most twice what counts. One that alone has more
	// than finishedBytes may stay.
	taskBytes, hugeBytes = 3 << 10, 15 << 20
	// otherBytes is for kv, releases, schedules, and the statistics of queues.
	otherBytes = 32 << 20
	// honestEvery is the pace of the honest tenant's tasks.
	honestEvery = 20 * time.Millisecond
)

// hostile is a tenant that does its worst.
type hostile struct {
	*fleet
	client *queue.Client
	module []byte
	honest int // tasks of the honest tenant so far
}

// TestHostileTenants has one tenant attack in one way after the other, within its quotas, while another one has short tasks at a
// steady pace. None of those is lost, they take at most three times as long as alone, and Redis has no more of the hostile tenant
// than its quotas allow.
func TestHostileTenants(t *testing.T) { //nolint:tparallel // one way after the other, or nobody knows which one hurts
	beside(t)
	f := newFleet(t, settings{
		hosts: 2, concurrency: 8, lease: 10 * time.Second, grace: time.Second, patience: 15 * time.Minute,
		tenants: []string{tenant, hostileTenant},
		arguments: []string{
			"--max-queues", strconv.Itoa(hostileQueues), "--ceiling", "limits.output=4KiB", "--ceiling", "limits.log=4KiB",
			"--keep-tasks", "1000",
		},
	})
	if err := f.rdb.ConfigSet(f.ctx, "appendonly", "no").Err(); err != nil { // what a disk takes is nobody's attack
		t.Fatal(err)
	}
	client, err := queue.NewFromRedis(f.rdb, queue.Config{Tenant: hostileTenant})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{fleet: f, client: client, module: runtimetest.BuildCHandler(t, hostileSource)}
	h.put(filepath.Join(hostileTenant, "hostile"), hostileManifest, h.module)
	h.set("--tasks-waiting", strconv.Itoa(waitingTasks), "--bytes-waiting", fmt.Sprintf("%dMiB", waitingBytes>>20), "--enqueue-rate", "1000/s burst 2000",
		"--running", "6", "--schedules", "20", "--subscriptions", "20",
		"--releases", "2", "--bytes-finished", fmt.Sprintf("%dMiB", finishedBytes>>20), "--log-bytes", fmt.Sprintf("%dMiB", logBytes>>20))
	id, err := client.Queue("hostile").Enqueue(f.ctx, []byte("nothing"), queue.Options{})
	if err == nil {
		_, err = client.Wait(f.ctx, id)
	}
	if err != nil {
		t.Fatal(err)
	}

	length := 2 * time.Second
	if full {
		length = 20 * time.Second
	}
	alone := h.steady("alone", length, func() {})
	t.Logf("alone: median %8s, p99 %8s", percentile(alone, 50), percentile(alone, 99))
	for _, way := range []struct {
		name string
		do   func(ctx context.Context)
	}{
		{"names", h.names},
		{"floods", h.floods},
		{"huge tasks", h.huge},
		{"kv", func(ctx context.Context) { h.guests(ctx, "k") }},
		{"children", func(ctx context.Context) { h.guests(ctx, "c") }},
		{"logs", func(ctx context.Context) { h.guests(ctx, "l") }},
		{"results", func(ctx context.Context) { h.guests(ctx, "o") }},
		{"deadlines", h.deadlines},
		{"cancels", h.cancels},
		{"keys", h.keys},
		{"limits", h.limits},
		{"releases", h.releases},
		{"publications", h.publications},
	} {
		t.Run(way.name, func(t *testing.T) {
			starts, delay := startsPerSecond, maxDelay
			if way.name == "huge tasks" { // each moves 15 MiB four times, on the two processors that the honest tenant has, too
				starts, delay = 1, 3*maxDelay
			}
			h.clear()
			h.set("--rate", fmt.Sprintf("%d/s burst %d", starts, starts)) // also makes the key of finished tasks anew
			before := h.memory()
			ctx, stop := context.WithCancel(f.ctx)
			var attackers sync.WaitGroup
			var rounds atomic.Int64
			for range 2 {
				attackers.Go(func() {
					for ; ctx.Err() == nil; rounds.Add(1) {
						way.do(ctx)
					}
				})
			}
			beside := h.steady(way.name, length, func() { stop(); attackers.Wait() })
			used, waiting := h.memory()-before, h.waiting()
			most := int64(2*(waitingBytes+waitingTasks*taskBytes) + // children may take twice as much
				2*finishedBytes + hugeBytes + logBytes + otherBytes)
			t.Logf("median %8s, p99 %8s; %d rounds; %d tasks wait; %d of %d MiB", percentile(beside, 50), percentile(beside, 99),
				rounds.Load(), waiting, used>>20, most>>20)
			if bound := max(delay, maxSlower*percentile(alone, 99)); full && percentile(beside, 99) > bound {
				t.Errorf("the honest tenant's p99 is %s, want at most %s", percentile(beside, 99), bound)
			}
			if used > most || waiting > 2*waitingTasks {
				t.Errorf("the tenant takes %d MiB of Redis, want at most %d; %d tasks wait, want at most %d", used>>20, most>>20, waiting, 2*waitingTasks)
			}
		})
	}
	f.leave()
}

// steady enqueues short tasks at an even pace, whatever becomes of them, until all have ended. Then it calls rest, and returns how
// long each task took from when it was to be enqueued to its end.
func (h *hostile) steady(name string, length time.Duration, rest func()) (took []time.Duration) {
	h.t.Helper()
	var calls sync.WaitGroup
	ids, sent := make([]string, length/honestEvery), make([]time.Time, length/honestEvery)
	began := time.Now()
	for i := range ids {
		o := order{id: fmt.Sprintf("%s-%05d", strings.ReplaceAll(name, " ", "-"), i), queue: queues[i%len(queues)], manner: "ok"}
		ids[i], sent[i] = o.id, began.Add(time.Duration(i)*honestEvery)
		sleep(h.ctx, time.Until(sent[i]))
		calls.Go(func() {
			if _, err := h.fleet.client.Queue(o.queue).EnqueueMany(h.ctx, []queue.Spec{o.spec()}); err != nil {
				h.t.Errorf("%s: %v", o.id, err)
			}
		})
	}
	calls.Wait()
	h.honest += len(ids)
	if !until(h.ctx, h.ended) {
		h.t.Error("not all tasks have ended")
	}
	rest()
	for i, id := range ids {
		task, err := h.fleet.client.Task(h.ctx, id)
		if err != nil || task.Status != queue.Complete {
			h.t.Fatalf("%s is lost: %+v, %v", id, task, err)
		}
		took = append(took, task.FinishedAt.Sub(sent[i]).Round(10*time.Microsecond))
	}
	slices.Sort(took)
	return took
}

// ended reports whether all honest tasks have ended. It reads counters, because hosts keep only the last finished tasks.
func (h *hostile) ended() bool {
	stats, err := manage.New(h.fleet.client).Stats(h.ctx, queues...)
	ended := int64(0)
	for _, s := range stats {
		ended += s.Totals["complete"] + s.Totals["failed"]
	}
	return err == nil && ended >= int64(h.honest)
}

// set is what an operator does.
func (h *hostile) set(arguments ...string) {
	h.t.Helper()
	command := exec.Command(program, append([]string{"tenant", "set", hostileTenant, "--redis", "redis://" + h.address.addr()}, arguments...)...)
	if out, err := command.CombinedOutput(); err != nil {
		h.t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// each calls a function with the tenant's keys, block by block.
func (h *hostile) each(visit func(keys []string) error) {
	h.t.Helper()
	for cursor := uint64(0); ; {
		keys, next, err := h.rdb.Scan(h.ctx, cursor, hostileTenant+"_*", 1000).Result()
		if err == nil && len(keys) > 0 {
			err = visit(keys)
		}
		if err != nil {
			h.t.Fatal(err)
		}
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// memory is what Redis has of the tenant, in bytes.
func (h *hostile) memory() (sum int64) {
	h.t.Helper()
	h.each(func(keys []string) error {
		pipe := h.rdb.Pipeline()
		for _, key := range keys {
			pipe.MemoryUsage(h.ctx, key, 0)
		}
		answers, err := pipe.Exec(h.ctx)
		for _, answer := range answers {
			sum += answer.(*redis.IntCmd).Val() // 0: the key is gone
		}
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return sum
}

// waiting is how many tasks wait in all queues.
func (h *hostile) waiting() (sum int64) {
	h.t.Helper()
	uses, err := manage.QuotaUses(h.ctx, h.client)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, use := range uses {
		if use.Name == "tasks_waiting" {
			sum = use.Used
		}
	}
	return sum
}

// clear deletes what an attack has left, so that the next one is not refused because of it.
func (h *hostile) clear() {
	h.t.Helper()
	h.each(func(keys []string) error {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			name := strings.TrimPrefix(key, hostileTenant+"_")
			kept := []string{"quotas", "limits", "queues", "node", "listeners_", "version", "duty_"}
			return slices.ContainsFunc(kept, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		})
		return h.rdb.Unlink(h.ctx, append(keys, "nothing")...).Err()
	})
	if err := h.rdb.ZRemRangeByScore(h.ctx, hostileTenant+"_queues", "0", "0").Err(); err != nil {
		h.t.Fatal(err)
	}
}

// names makes queues without end, of every name that there may be.
func (h *hostile) names(ctx context.Context) {
	for i := range 100 {
		name := []byte(fmt.Sprintf("%d-%d-", time.Now().UnixNano(), i))
		for len(name) < 128 {
			name = append(name, byte(0x21+rand.IntN(0x7e-0x21)))
		}
		_, _ = h.client.Queue(string(name)).Enqueue(ctx, nil, queue.Options{})
	}
}

// floods enqueues as much as it can.
func (h *hostile) floods(ctx context.Context) {
	specs := make([]queue.Spec, 1000)
	for i := range specs {
		specs[i].Parameters = []byte("nothing")
	}
	_, _ = h.client.Queue("hostile").EnqueueMany(ctx, specs)
}

func (h *hostile) huge(ctx context.Context) {
	_, _ = h.client.Queue("hostile").Enqueue(ctx, bytes.Repeat([]byte{0xff}, hugeBytes), queue.Options{})
}

// guests keeps tasks of that manner waiting.
func (h *hostile) guests(ctx context.Context, manner string) {
	for range 10 {
		_, _ = h.client.Queue("hostile").Enqueue(ctx, []byte(manner), queue.Options{})
	}
	sleep(ctx, 20*time.Millisecond)
}

// deadlines makes tasks that expire at once, and together.
func (h *hostile) deadlines(ctx context.Context) {
	specs := make([]queue.Spec, 500)
	for i := range specs {
		specs[i].Deadline = time.Now().Add(time.Duration(i%2) * time.Second)
	}
	_, _ = h.client.Queue("expires").EnqueueMany(ctx, specs)
}

// cancels makes tasks that would run for long, and cancels them, waiting or not.
func (h *hostile) cancels(ctx context.Context) {
	for range 20 {
		if id, err := h.client.Queue("hostile").Enqueue(ctx, []byte("s"), queue.Options{}); err == nil {
			_, _ = h.client.Queue("hostile").Cancel(ctx, id)
		}
	}
}

// keys makes tasks with keys of every kind, each of its own.
func (h *hostile) keys(ctx context.Context) {
	specs := make([]queue.Spec, 500)
	for i := range specs {
		text := strconv.FormatUint(rand.Uint64(), 36)
		o := &specs[i].Options
		o.Key, o.FairKey, o.FairWeight = text, text, 1+i
		o.Unique = &queue.Unique{Key: text, For: time.Hour}
		o.ConcurrencyKey, o.MaxConcurrent = text, 1+i
		if i%2 == 0 {
			o.ConcurrencyKey = "one"
		}
	}
	_, _ = h.client.Queue("hostile").EnqueueMany(ctx, specs)
}

// limits sets and resets what it may, with tasks that are bound by it.
func (h *hostile) limits(ctx context.Context) {
	for i := range 20 {
		shared := "1/s"
		for j := range 50 {
			shared += fmt.Sprintf(" queue-%d", j)
		}
		_ = manage.SetQuotas(ctx, h.client, manage.Quotas{"rate:hostile": fmt.Sprintf("%d/s", 1+i), "limit:l": shared, "key_rate:hostile": "1/s"})
		_ = h.client.Queue("hostile").SetRollingLimit(ctx, int64(1+i))
		_, _ = h.client.Queue("hostile").Enqueue(ctx, []byte("nothing"), queue.Options{Key: "k"})
		_ = h.client.Queue("hostile").SetLimit(ctx, 0)
		_ = manage.SetQuotas(ctx, h.client, manage.Quotas{"rate:hostile": "", "limit:l": "", "key_rate:hostile": ""})
	}
}

// publications publishes to topics that nobody has subscribed to, so that nothing waits.
func (h *hostile) publications(ctx context.Context) {
	_, _ = h.client.Publish(ctx, fmt.Sprintf("topic-%d", rand.IntN(100)), bytes.Repeat([]byte{0xff}, 64<<10), queue.PublishOptions{})
}

// releases pushes one release after the other, of plugins without end.
func (h *hostile) releases(ctx context.Context) {
	for i := range 3 {
		module, err := bundle.Append(h.module, map[string][]byte{"/number": []byte(strconv.FormatUint(rand.Uint64(), 36))})
		if err != nil {
			h.t.Error(err)
			return
		}
		name := fmt.Sprintf("pushed-%d", i)
		files := []release.Content{{Name: name + ".wasm", Data: module}, {Name: name + ".yaml", Data: []byte("limits: {memory: 1MiB}\n")}}
		if one, err := release.New(name, files); err == nil {
			_, _ = release.Push(ctx, release.NewStore(h.client), one, files, nil)
		}
	}
}
