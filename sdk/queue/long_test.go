package queue_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/mover"
)

// maxCommands is how many commands a script may run: on an idle machine Redis needs 1 to 3 µs for one, so that none takes
// 5 ms. On a slow or busy one, where an HMGET of seven fields takes 5 µs in a script, they take up to 10 ms.
const maxCommands = 600

// scripts are how many scripts a call runs, how many commands each runs on average, and how long the longest took of those
// that took a millisecond.
func (w *world) scripts(t testing.TB, call func()) (scripts, commands int64, took time.Duration) {
	t.Helper()
	count := func() (all, evals int64) {
		for line := range strings.Lines(must[string](t)(w.rdb.Info(w.ctx, "commandstats").Result())) {
			if name, rest, found := strings.Cut(line, ":calls="); found {
				n := store.AsInt(strings.SplitN(rest, ",", 2)[0])
				if all += n; strings.HasPrefix(name, "cmdstat_eval") {
					evals += n
				}
			}
		}
		return all, evals
	}
	w.rdb.SlowLogReset(w.ctx)
	all, evals := count()
	call()
	moreAll, moreEvals := count()
	for _, entry := range w.rdb.SlowLogGet(w.ctx, 128).Val() {
		if strings.HasPrefix(entry.Args[0], "eval") {
			took = max(took, entry.Duration)
		}
	}
	scripts = moreEvals - evals
	return scripts, (moreAll - all - scripts) / max(1, scripts), took
}

// However many tasks there are and whatever becomes of them, no script keeps Redis from the others for long.
func TestNoScriptIsLong(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it makes very many tasks")
	}
	// Not from 0 on: the commands of a script would be logged as well, which takes as long as they do.
	w := setupOwn(t, "--slowlog-log-slower-than", "1000")
	if err := listen.Prepare(w.ctx, w.Client); err != nil {
		t.Fatal(err)
	}
	node := w.node(t, "q")
	measure := func(what string, call func()) {
		t.Helper()
		scripts, commands, took := w.scripts(t, call)
		t.Logf("%-24s %4d scripts of %5d commands, %s at most", what, scripts, commands, took)
		if scripts == 0 || commands > maxCommands {
			t.Errorf("%s: %d scripts of %d commands, want %d at most", what, scripts, commands, maxCommands)
		}
	}
	fill := func(n int, options queue.Options) {
		t.Helper()
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, slices.Repeat([]queue.Spec{{Options: options}}, n)))
	}
	reserve := func() (holds []listen.Claim) {
		t.Helper()
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1000, Start: true, Plugin: "p", Digest: "d", FailurePolicy: listen.FailurePolicy{MaxCrashes: 1, Dead: "dead"}}})[0]
		if batch.Err != nil {
			t.Fatal(batch.Err)
		}
		for _, task := range batch.Tasks {
			holds = append(holds, task.Claim())
		}
		return holds
	}
	var guard *listen.Breaker
	settle := func(what string, s listen.Settlement) {
		t.Helper()
		var all []listen.Settlement
		weight := 0
		for _, hold := range reserve() {
			if s.Claim, weight = hold, weight+s.Weight(); weight+guard.Weight() <= listen.MaxWeight {
				all = append(all, s)
			}
		}
		request := []listen.SettleRequest{{Queue: "q", Settlements: all, Breaker: guard}}
		measure(what, func() { must[listen.SettleReply](t)(node.SettleAll(w.ctx, request)[0], nil) })
	}

	w.at(0)
	high := 80
	measure("enqueue", func() { fill(1000, queue.Options{Key: "k", Priority: &high, Retry: queue.Retry{MaxAge: time.Hour}}) })
	fill(1000, queue.Options{Key: "k"})
	var holds []listen.Claim
	measure("reserve", func() { holds = reserve() })
	measure("release", func() { must[[]error](t)(node.Release(w.ctx, "q", holds[:min(store.BlockTasks, len(holds))])) })
	w.quotas(t, manage.Quotas{"log_bytes": "10"})
	for i := range 1000 {
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Logs(), redis.Z{Score: 1e9 + 1e-6, Member: fmt.Sprint("gone", i)})
	}
	measure("log of many logs", func() {
		node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: holds[len(holds)-1], Lines: make([]string, 1000)}})
	})
	if n := w.rdb.ZCard(w.ctx, w.Store().Keys.Logs()).Val(); n != 1000-64 {
		t.Errorf("%d logs are left", n)
	}
	w.quotas(t, manage.Quotas{"log_bytes": ""})
	settle("settle as complete", listen.Settlement{})
	settle("settle as failed", listen.Settlement{Failure: &queue.Failure{}})
	guard = &listen.Breaker{Plugin: "p", Digest: "d", Failures: 1, Pause: time.Second, MaxPause: time.Second}
	for i := range 100 {
		guard.Queues = append(guard.Queues, fmt.Sprint("queue", i))
	}
	settle("settle with a breaker", listen.Settlement{Failure: &queue.Failure{}, Counts: queue.ReasonError})
	guard = nil
	settle("settle to try again", listen.Settlement{Failure: &queue.Failure{}, Requeue: listen.RequeueRetry, Delay: time.Second})
	settle("settle with children", listen.Settlement{Children: []listen.Child{{Queue: "q", Spec: queue.Spec{Options: queue.Options{ID: "child"}}}}})
	reserve()
	reserve()
	w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 0, Member: node.ID()})
	measure("reclaim", func() { must[listen.Reclaimed](t)(w.reclaimQueue(w.ctx, node.ID(), "q", 1, false)) })
	node = w.node(t, "q")
	fill(1256, queue.Options{Priority: new(100), Retry: queue.Retry{MaxAge: time.Second}})
	w.at(10)
	measure("reserve what has expired", func() { reserve() })
	measure("expire", func() { must[int](t)(expire(w.ctx, w.Queue("q"), 0, "dead")) })
	fill(48, queue.Options{Priority: new(100)})
	fill(128, queue.Options{Priority: new(100), Retry: queue.Retry{MaxAge: time.Second}})
	w.at(12)
	measure("reserve what may run, then what has expired", func() { reserve() })
	must[int](t)(expire(w.ctx, w.Queue("q"), 0, "dead"))
	fill(1000, queue.Options{Delay: time.Second})
	w.at(20)
	measure("due", func() { must[int](t)(enqueueDue(w.ctx, w.Queue("q"))) })
	// There is room for tasks when what does not run any more is taken out.
	crowded := listen.ReserveRequest{Queue: "q", Count: 1000, Start: true, Plugin: "p", Digest: "d", MaxRunning: 30_000 - 60}
	for i := range 100 {
		name := fmt.Sprint("fleet", i)
		crowded.Fleet = append(crowded.Fleet, name)
		entries := make([]any, 300)
		for j := range entries {
			entries[j] = fmt.Sprintf("gone~01234567_8 8 %d", j)
		}
		w.rdb.SAdd(w.ctx, w.Store().Keys.Started(name), entries...)
	}
	fill(1000, queue.Options{})
	measure("reserve of a full plugin", func() {
		if batch := node.Reserve(w.ctx, []listen.ReserveRequest{crowded})[0]; batch.Err != nil || len(batch.Tasks) == 0 {
			t.Errorf("%+v", batch)
		}
	})
	measure("recount", func() {
		if _, err := recount(w.ctx, w.Queue("fleet0")); err != nil {
			t.Fatal(err)
		}
	})
	idle := make([]string, 3*store.RecountQueues)
	for i := range idle {
		idle[i] = fmt.Sprint("idle", i)
		must[int64](t)(w.rdb.ZAdd(w.ctx, w.Store().Keys.Queues(), redis.Z{Member: idle[i]}).Result())
	}
	measure("recount of idle queues", func() {
		must[[]listen.Recounted](t)(listen.NewFleet(w.Client).Recount(w.ctx, idle, listen.PurgeOptions{Keep: 1, OlderThan: time.Second}))
	})
	// Of a tenant with many listeners and queues.
	many, queues := make([]redis.Z, 10_000), make([]string, 10_000)
	for i := range many {
		many[i] = redis.Z{Score: 2e9, Member: fmt.Sprintf("host%d~01234567_8", i)}
		queues[i] = fmt.Sprint("many", i)
	}
	must[int64](t)(w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), many...).Result())
	must[int64](t)(w.rdb.ZAdd(w.ctx, w.Store().Keys.Queues(), redis.Z{Member: "empty"}).Result())
	w.rdb.HSet(w.ctx, w.Store().Keys.Stats("empty"), "enqueued", 1)
	measure("recount of many nodes", func() {
		if forgotten := must[bool](t)(recount(w.ctx, w.Queue("empty"))); forgotten {
			t.Error("a queue is forgotten, and nobody looked at all listeners")
		}
	})
	measure("look of many nodes", func() { must[manage.Stats](t)(manage.New(w.Client).Queue("empty").Stats(w.ctx)) })
	leaves := w.node(t, queues...)
	named := func() {
		t.Helper()
		for _, entry := range w.rdb.SlowLogGet(w.ctx, 128).Val() {
			if strings.HasPrefix(entry.Args[0], "eval") && strings.HasSuffix(entry.Args[len(entry.Args)-1], "more arguments)") {
				t.Errorf("one script names many queues: %s", entry.Args[len(entry.Args)-1])
			}
		}
	}
	measure("leave of many queues", func() { must[any](t)(nil, leaves.Leave(w.ctx)) })
	named()
	leaves = w.node(t, queues[0])
	w.die(t, leaves)
	measure("reclaim of many queues", func() { must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, leaves.ID(), 0)) })
	named()
	lanes := slices.Repeat([]queue.Spec{{Options: queue.Options{ConcurrencyKey: "k", FairKey: "f"}}}, 100)
	must[[]queue.Receipt](t)(w.Queue("lane").EnqueueMany(w.ctx, lanes))
	m, file := mover.New(w.Client), filepath.Join(t.TempDir(), "file")
	for _, pattern := range []string{"node*", "fair*", "line*", "lanes*", "*_tasks_*"} { // all tasks are in no list
		for _, key := range must[[]string](t)(w.rdb.Keys(w.ctx, w.Store().Keys.Key(pattern)).Result()) {
			w.rdb.Unlink(w.ctx, key)
		}
	}
	must[mover.Moved](t)(m.Export(w.ctx, file, nil))
	measure("import of torn tasks", func() { must[mover.Moved](t)(m.Import(w.ctx, file, "ada", true, nil)) })
	w.quotas(t, manage.Quotas{"bytes_finished": "60000"}) // less than the tasks below take
	node = w.node(t, "q")
	fill(1000, queue.Options{Key: "k", Dead: "dead", Priority: new(100)})
	settle("settle as complete within a quota", listen.Settlement{})
	settle("settle as failed within a quota", listen.Settlement{Failure: &queue.Failure{}})
	reserve()
	w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 0, Member: node.ID()})
	measure("reclaim within a quota", func() { must[listen.Reclaimed](t)(w.reclaimQueue(w.ctx, node.ID(), "q", 1, false)) })
	node = w.node(t, "q")
	fill(100, queue.Options{Priority: new(100), Retry: queue.Retry{MaxAge: time.Second}})
	w.at(40)
	measure("expire within a quota", func() { must[int](t)(expire(w.ctx, w.Queue("q"), 0, "dead")) })
	w.rdb.Del(w.ctx, w.Store().Keys.Finished())
	measure("count of finished tasks", func() { must[bool](t)(recount(w.ctx, w.Queue("q"))) })
	measure("advance over a quota", func() { must[any](t)(nil, w.Store().AdvanceAll(w.ctx)) })
	measure("purge", func() {
		must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true}))
	})
}
