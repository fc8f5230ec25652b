package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	benchProducers = 8
	benchIdle      = 200    // maximum number of tasks that are enqueued one after the other, on idle hosts
	benchSingle    = 10_000 // maximum number of tasks that are each enqueued by a separate call
	benchBulk      = 960    // maximum number of tasks in a call of EnqueueMany
	benchSample    = 5_000  // maximum number of finished tasks that are read for the report
	benchForget    = time.Minute
	benchStart     = time.Minute // time limit for hosts to load the plugin and to join
	benchDeleters  = 64
	benchLook      = 20 * time.Millisecond
)

// bench holds the state of one measurement.
type bench struct {
	cmd      *cobra.Command
	progress *show.Progress
	rdb      redis.UniversalClient
	client   *queue.Client
	queue    *queue.Queue
	name     string
	// named is true if the IDs are NAME-0, NAME-1 and so on, so that users can find them among other tasks. Each chosen
	// ID costs Redis one more command.
	named      bool
	tasks      int // number of tasks to measure with
	parameters []byte
	ids        []string // IDs of the tasks that bench enqueued or tried to enqueue
}

// add appends the given number of IDs to b.ids and returns the new part. If b.named is true, it sets these IDs;
// otherwise they are empty, and the caller fills them in.
func (b *bench) add(tasks int) (ids []string) {
	first := len(b.ids)
	b.ids = append(b.ids, make([]string, tasks)...)
	for n := first; b.named && n < len(b.ids); n++ {
		b.ids[n] = b.name + "-" + strconv.Itoa(n)
	}
	return b.ids[first:]
}

// measureHosts measures the hosts of this process: first while they are idle, then with a backlog.
func (b *bench) measureHosts(ctx context.Context, hosts int) (report show.View, err error) {
	begun := time.Now()
	for listeners := 0; listeners < hosts; {
		if time.Since(begun) > benchStart {
			return nil, cli.Refusedf("%d of %d hosts serve after %s: see what they log with `quern serve`", listeners, hosts,
				benchStart)
		}
		stats, err := manage.QueueOf(b.queue).Stats(ctx)
		if err != nil {
			return nil, err
		}
		if listeners = int(stats.Listeners); listeners < hosts && !periodic.Sleep(ctx, benchLook) {
			return nil, ctx.Err()
		}
	}
	idle := make([]*queue.Task, min(benchIdle, b.tasks))
	for i, ids := 0, b.add(len(idle)); i < len(idle); i++ {
		if ids[i], err = b.queue.Enqueue(ctx, b.parameters, queue.Options{ID: ids[i]}); err != nil {
			return nil, err
		}
		if idle[i], err = b.client.Wait(ctx, ids[i]); err != nil {
			return nil, err
		}
		b.progress.Show("measuring idle hosts: %d of %d tasks", i+1, len(idle))
	}
	if err := b.queue.Pause(ctx); err != nil {
		return nil, err
	}
	empty, first := b.used(ctx), len(b.ids)
	single, bulk, err := b.enqueue(ctx)
	if err != nil {
		return nil, err
	}
	before := b.used(ctx)
	resumed, err := b.client.Clock(ctx)
	if err == nil {
		err = b.queue.Resume(ctx)
	}
	if err == nil {
		err = b.awaitAll(ctx)
	}
	after := b.used(ctx)
	if err != nil {
		return nil, err
	}
	tasks, err := b.sample(ctx, first)
	if err != nil {
		return nil, err
	}
	each := after.since(before).each(b.tasks)
	return slices.Concat(
		show.View{{"hosts", "hosts", hosts}},
		b.enqueuing(single, bulk),
		show.View{
			{"drained_per_second", "drain", perSecond(show.Rate(b.tasks, finished(tasks).Sub(resumed)))},
			{"host_cpu_seconds_per_task", "processor of hosts", show.Span(each.host)},
			{"redis_cpu_seconds_per_task", "processor of Redis", show.Given(show.Span(each.redis))},
			{"redis_bytes_per_pending_task", "memory of Redis", show.Given(show.Size(before.since(empty).each(b.tasks).memory))},
		},
		percentiles("idle_wait", "wait in Redis, idle", idle, waited),
		percentiles("start_to_result", "start to result", tasks, ran),
	), failed(tasks)
}

// enqueuing returns the fields that both reports have: the number and size of the tasks, and how fast they were
// enqueued.
func (b *bench) enqueuing(single, bulk float64) show.View {
	return show.View{
		{"tasks", "tasks", b.tasks},
		{"payload_bytes", "payload", show.Size(len(b.parameters))},
		{"enqueued_per_second", fmt.Sprintf("enqueue, %d producers", benchProducers), perSecond(single)},
		{"bulk_enqueued_per_second", "enqueue, in bulk", perSecond(bulk)},
	}
}

func waited(t *queue.Task) time.Duration { return t.StartedAt.Sub(t.Created) }

func ran(t *queue.Task) time.Duration { return t.FinishedAt.Sub(t.StartedAt) }

// measureQueue measures the hosts that serve b.queue. They run tasks while others are still being enqueued.
func (b *bench) measureQueue(ctx context.Context) (report show.View, err error) {
	served, err := b.queue.HasListener(ctx)
	if err != nil {
		return nil, err
	}
	if !served {
		return nil, cli.Refusedf("no host serves the queue %q of tenant %s: start one with a plugin for it, or leave --queue out", b.queue.Name(), b.client.Tenant())
	}
	stats, err := manage.QueueOf(b.queue).Stats(ctx)
	if err != nil {
		return nil, err
	}
	if stats.Paused {
		return nil, cli.Refusedf("the queue %q is paused: end that with `quern queue resume %s`, or leave --queue out",
			b.queue.Name(), cli.ShellWord(b.queue.Name()))
	}
	defer func() { err = b.leave(err, b.forgetTasks()) }()
	single, bulk, err := b.enqueue(ctx)
	if err != nil {
		return nil, err
	}
	tasks, err := b.sample(ctx, 0)
	if err != nil {
		return nil, err
	}
	return slices.Concat(
		show.View{{"tenant", "tenant", b.client.Tenant()}, {"queue", "queue", b.queue.Name()}},
		b.enqueuing(single, bulk),
		show.View{{
			"completed_per_second", "enqueue to result",
			perSecond(show.Rate(b.tasks, finished(tasks).Sub(tasks[0].Created))),
		}},
		percentiles("wait", "wait", tasks, waited),
		percentiles("start_to_result", "start to result", tasks, ran),
	), failed(tasks)
}

// enqueue enqueues all tasks and returns two rates in tasks a second: single for calls with one task each, bulk for
// calls with benchBulk tasks each.
func (b *bench) enqueue(ctx context.Context) (single, bulk float64, err error) {
	first := min(benchSingle, (b.tasks+1)/2)
	if single, err = b.produce(ctx, first, 1, 0); err == nil {
		bulk, err = b.produce(ctx, b.tasks-first, benchBulk, first)
	}
	return single, bulk, err
}

// produce enqueues the given number of tasks with benchProducers parallel producers. Each call enqueues perCall tasks.
// enqueued is the number of tasks that were enqueued before, for the progress line.
func (b *bench) produce(ctx context.Context, tasks, perCall, enqueued int) (perSecond float64, err error) {
	ids, begun := b.add(tasks), time.Now()
	var next atomic.Int64
	producers, ctx := errgroup.WithContext(ctx)
	for range benchProducers {
		producers.Go(func() error {
			for {
				to := int(next.Add(int64(perCall)))
				from := to - perCall
				to = min(to, tasks)
				if from >= to {
					return nil
				}
				specs := make([]queue.Spec, 0, to-from)
				for _, id := range ids[from:to] {
					specs = append(specs, queue.Spec{Parameters: b.parameters, Options: queue.Options{ID: id}})
				}
				receipts, err := b.queue.EnqueueMany(ctx, specs)
				for i, receipt := range receipts {
					ids[from+i] = receipt.ID
				}
				if err != nil {
					return err
				}
				b.progress.Show("enqueued %d of %d tasks", enqueued+to, b.tasks)
			}
		})
	}
	err = producers.Wait()
	return show.Rate(tasks, time.Since(begun)), err
}

// awaitAll waits until no task of the queue waits or runs. Nobody else must use the queue meanwhile, because all of its
// tasks count.
func (b *bench) awaitAll(ctx context.Context) error {
	for {
		stats, err := manage.QueueOf(b.queue).Stats(ctx)
		if err != nil {
			return err
		}
		left := stats.Depth[queue.Scheduled] + stats.Depth[queue.Pending] + stats.Depth[queue.Reserved] +
			stats.Depth[queue.Started]
		b.progress.Show("done %d of %d tasks", b.tasks-int(left), b.tasks)
		if left == 0 {
			return nil
		}
		if !periodic.Sleep(ctx, benchLook) {
			return ctx.Err()
		}
	}
}

// sample reads at most benchSample finished tasks at even distances, from the task b.ids[first] to the last one.
func (b *bench) sample(ctx context.Context, first int) ([]*queue.Task, error) {
	tasks := make([]*queue.Task, min(benchSample, b.tasks))
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(benchProducers)
	for i := range tasks {
		n := first + i*(b.tasks-1)/max(1, len(tasks)-1)
		readers.Go(func() (err error) {
			tasks[i], err = b.client.Wait(ctx, b.ids[n])
			return err
		})
	}
	return tasks, readers.Wait()
}

// use holds the CPU time of this process and of Redis, and the memory of Redis in bytes. Values that Redis does not
// report are 0.
type use struct {
	host, redis time.Duration
	memory      int64
}

func (u use) since(before use) use {
	if u.memory == 0 || before.memory == 0 { // Redis did not report its use
		u.redis, u.memory, before.redis, before.memory = 0, 0, 0, 0
	}
	return use{u.host - before.host, u.redis - before.redis, u.memory - before.memory}
}

func (u use) each(tasks int) use {
	return use{u.host / time.Duration(tasks), u.redis / time.Duration(tasks), u.memory / int64(tasks)}
}

func (b *bench) used(ctx context.Context) (u use) {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	u.host = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	info, _ := manage.New(b.client).Info(ctx)
	number := func(name string) float64 {
		n, _ := strconv.ParseFloat(info[name], 64)
		return n
	}
	u.redis = time.Duration((number("used_cpu_sys") + number("used_cpu_user")) * float64(time.Second))
	u.memory = int64(number("used_memory"))
	return u
}

// leave combines err, the error of a measurement, with left, the error of deleting its tasks.
func (b *bench) leave(err, left error) error {
	switch {
	case left == nil:
		return err
	case err == nil:
		return left
	case b.cmd.Context().Err() != nil:
		err = errors.New("interrupted")
	}
	return cli.Refusedf("%w; and %w", err, left)
}

// forgetTenant deletes all keys of the tenant, also after an interruption. It goes on after an outage of Redis that is
// no longer than a restart.
func (b *bench) forgetTenant() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.cmd.Context()), benchForget)
	defer cancel()
	pattern := b.client.Tenant() + "_*"
	_, err := connect.ThroughOutage(ctx, connect.OutageTimeout, func() error {
		for cursor := uint64(0); ; {
			found, next, err := b.rdb.Scan(ctx, cursor, pattern, 1000).Result()
			if err == nil && len(found) > 0 {
				err = b.rdb.Unlink(ctx, found...).Err()
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
	if err != nil {
		return cli.Refusedf("the keys %s are not all deleted: %w: delete them with `redis-cli --scan --pattern '%s' | xargs -n 1000 redis-cli unlink`", pattern, err, pattern)
	}
	return nil
}

// forgetTasks deletes the measured tasks with their dead letters, also after an interruption.
func (b *bench) forgetTasks() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.cmd.Context()),
		benchForget+time.Duration(len(b.ids))*time.Millisecond)
	defer cancel()
	var gone atomic.Int64
	var group errgroup.Group
	group.SetLimit(benchDeleters)
	for _, id := range b.ids {
		group.Go(func() error {
			_, err := connect.ThroughOutage(ctx, connect.OutageTimeout, func() error { return b.forget(ctx, id) })
			if err == nil {
				gone.Add(1)
			} else if queue.IsUnavailable(err) {
				cancel() // the other deletions would also wait for Redis
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return cli.Refusedf("%d tasks stay in the queue %q: %w: delete them, when none of them runs, with `seq -f '%s-%%.0f' 0 %d | xargs -n 1000 quern task delete --tenant %s`",
			len(b.ids)-int(gone.Load()), b.queue.Name(), err, b.name, len(b.ids)-1, cli.ShellWord(b.client.Tenant()))
	}
	return nil
}

// forget cancels a task that has not ended, then deletes its dead letter and the task.
func (b *bench) forget(ctx context.Context, id string) error {
	task, err := b.client.Summary(ctx, id)
	if err == nil && !task.Status.Finished() {
		// A cancelled task ends soon. ErrStatus means that it has ended already.
		if _, err = b.client.Queue(task.Queue).Cancel(ctx, id); err == nil || errors.Is(err, queue.ErrStatus) {
			task, err = b.client.Wait(ctx, id)
		}
	}
	if err == nil && task.DeadID != "" {
		err = b.forget(ctx, task.DeadID)
	}
	if err == nil {
		err = b.client.Queue(task.Queue).Delete(ctx, id)
	}
	if errors.Is(err, queue.ErrNoTask) {
		return nil
	}
	return err
}

// perSecond is a rate per second. Its text is rounded to a whole number, its JSON is not.
type perSecond float64

func (r perSecond) String() string { return fmt.Sprintf("%.0f/s", float64(r)) }

// finished returns the time at which the last of the tasks finished.
func finished(tasks []*queue.Task) (last time.Time) {
	for _, t := range tasks {
		if t.FinishedAt.After(last) {
			last = t.FinishedAt
		}
	}
	return last
}

// failed returns the error of the first failed task, nil if no task failed.
func failed(tasks []*queue.Task) error {
	i := slices.IndexFunc(tasks, func(t *queue.Task) bool { return t.Status == queue.Failed })
	if i < 0 {
		return nil
	}
	failure := tasks[i].Failure()
	return cli.TaskFailed(tasks[i].ID, &failure)
}

// percentiles returns the fields that report the 50th, 90th and 99th percentile of a duration. The function duration
// returns the duration for one task.
func percentiles(key, name string, tasks []*queue.Task, duration func(*queue.Task) time.Duration) (fields show.View) {
	all := make([]time.Duration, len(tasks))
	for i, t := range tasks {
		all[i] = duration(t)
	}
	slices.Sort(all)
	at := func(p int) show.Span { return show.Span(all[(len(all)-1)*p/100].Round(time.Microsecond)) }
	for _, p := range []int{50, 90, 99} {
		fields = append(fields, show.Field{fmt.Sprintf("%s_p%d_seconds", key, p), "", at(p)})
	}
	return append(fields, show.Field{"", name, fmt.Sprintf("p50 %s, p90 %s, p99 %s", at(50), at(90), at(99))})
}
