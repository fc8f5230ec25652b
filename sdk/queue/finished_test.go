package queue_test

import (
	"bytes"
	"errors"
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

// counted lists what counts for the quota bytes_finished, the oldest first, and checks that the sum is that of the members.
func (w *world) counted(t testing.TB) (ids []string, sum int64) {
	t.Helper()
	all := must[[]redis.Z](t)(w.rdb.ZRangeWithScores(w.ctx, w.Store().Keys.Finished(), 0, -1).Result())
	if len(all) == 0 || all[0].Member != "." {
		t.Fatalf("nothing is counted: %v", all)
	}
	for _, z := range all[1:] {
		words := strings.Fields(z.Member.(string))
		size, _, _ := strings.Cut(words[1], ".")
		ids, sum = append(ids, words[0]), sum+store.AsInt(size)
	}
	if int64(-all[0].Score) != sum {
		t.Errorf("the sum is %.0f, the members have %d", -all[0].Score, sum)
	}
	return ids, sum
}

// runOne runs a task of the queue to its end, with a result or a failure.
func (w *world) runOne(t testing.TB, node *listen.Node, name string, s listen.Settlement) {
	t.Helper()
	task := w.reserve(t, node, name, true)
	s.Claim = task.Claim()
	w.settle(t, node, name, s)
}

// However many tasks of whatever size end, in whichever queues, those that are kept have no more bytes than the quota, and
// are the last ones.
func TestQuotaOfFinishedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const quota = 200_000
		w.quotas(t, manage.Quotas{"bytes_finished": fmt.Sprint(quota)})
		queues := []string{"a", "b", "c"}
		node := w.node(t, queues...)
		var ended []string
		for i := range 150 {
			name, size := queues[i*i%7%3], i*i*977%20_000
			if i > 100 { // small ones after large ones
				size %= 100
			}
			text := strings.Repeat("x", size)
			if i%4 == 0 {
				text = strings.Repeat("\xff", size)
			}
			w.at(float64(-i)) // whatever Redis's clock says
			id := w.enqueue(t, name, text, queue.Options{ID: fmt.Sprint("t", i), Key: "k"})
			s := listen.Settlement{Result: []byte(text)}
			if i%5 == 0 {
				s.Failure = &queue.Failure{Message: "no"}
			}
			w.runOne(t, node, name, s)
			ended = append(ended, id)
			if _, sum := w.counted(t); sum > quota {
				t.Fatalf("%d bytes after %d tasks", sum, i+1)
			}
		}
		ids, sum := w.counted(t)
		if want := ended[len(ended)-len(ids):]; !slices.Equal(ids, want) || sum < quota-60_000 || len(ids) < 50 {
			t.Errorf("%d bytes of %v, want those of %v", sum, ids, want)
		}
		if use := w.uses(t)["bytes_finished"]; use.Used != sum || use.Limit != quota || use.Refused != 0 || manage.FullestQuota([]manage.QuotaUse{use}) != 0 {
			t.Errorf("%+v", use)
		}
		kept := 0
		for _, name := range queues {
			kept += int(w.rdb.ZCard(w.ctx, w.Store().Keys.Index(name)).Val())
			for list, more := range map[string]int64{w.Store().Keys.Complete(name): 0, w.Store().Keys.Failed(name): 0} {
				for _, id := range must[[]string](t)(w.rdb.LRange(w.ctx, list, more, -1).Result()) {
					if !slices.Contains(ids, id) {
						t.Errorf("%s is still in %s", id, list)
					}
				}
			}
		}
		if keys := must[[]string](t)(w.rdb.Keys(w.ctx, w.Store().Keys.Task("*")).Result()); len(keys) != len(ids) || kept != len(ids) {
			t.Errorf("%d tasks and %d entries in the indexes, want %d", len(keys), kept, len(ids))
		}
		if !embedded(t) { // of all that Redis has of the tenant at least half counts
			var sum int64
			for _, key := range w.names(t) {
				sum += w.rdb.MemoryUsage(w.ctx, key, 0).Val()
			}
			if t.Logf("%d bytes of Redis's memory", sum); sum > 2*quota {
				t.Errorf("the tenant takes %d bytes", sum)
			}
		}
		for i, id := range ended {
			if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(id), w.Store().Keys.Bytes(id)).Val(); n > 0 != (i >= len(ended)-len(ids)) {
				t.Errorf("task %s has %d keys", id, n)
			}
		}
	})
}

// A task that alone has more bytes than the quota stays until another one ends.
func TestTheLastFinishedTaskStays(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "5000"})
		node := w.node(t, "q")
		for i, size := range []int{10, 9000, 8000, 10, 10} {
			id := w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint(i)})
			w.runOne(t, node, "q", listen.Settlement{Result: bytes.Repeat([]byte("x"), size)})
			ids, _ := w.counted(t)
			if want := map[int][]string{3: {"3"}, 4: {"3", "4"}}[i]; want != nil && !slices.Equal(ids, want) || !slices.Contains(ids, id) || i == 2 && len(ids) != 1 {
				t.Errorf("after task %d: %v", i, ids)
			}
		}
	})
}

// A batch of ends, and a large task after many small ones, may need several calls: then hosts are told to go on.
func TestRoomForFinishedTasksTakesSeveralCalls(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "200000"})
		node := w.node(t, "q")
		for range 150 {
			w.enqueue(t, "q", "", queue.Options{})
		}
		for _, claims := range [][]listen.Claim{w.reserveMany(t, node, "q", 100, true), w.reserveMany(t, node, "q", 50, true)} {
			var all []listen.Settlement
			for _, c := range claims {
				all = append(all, listen.Settlement{Claim: c})
			}
			must[[]error](t)(node.Settle(w.ctx, "q", all))
		}
		if ids, _ := w.counted(t); len(ids) != 150 {
			t.Fatalf("%d tasks are kept", len(ids))
		}
		told := w.rdb.Subscribe(w.ctx, w.Store().Keys.Ended())
		t.Cleanup(func() { _ = told.Close() })
		must[any](t)(told.Receive(w.ctx))
		w.enqueue(t, "q", "", queue.Options{ID: "large"})
		w.runOne(t, node, "q", listen.Settlement{Result: bytes.Repeat([]byte("x"), 150_000)})
		must[*redis.Message](t)(told.ReceiveMessage(w.ctx))
		if _, sum := w.counted(t); sum < 200_000 {
			t.Fatalf("one call left %d bytes", sum)
		}
		calls := 0
		for more := true; more; calls++ {
			block := must[listen.Block](t)(listen.NewFleet(w.Client).Advance(w.ctx))
			more = block.More
		}
		if ids, sum := w.counted(t); sum > 200_000 || sum < 190_000 || ids[len(ids)-1] != "large" || calls < 2 {
			t.Errorf("%d bytes of %d tasks after %d calls", sum, len(ids), calls)
		}
	})
}

// Whatever ends a task, it counts.
func TestAllEndsOfTasksCount(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"bytes_finished": "1000000"})
		node := w.node(t, "q", "crashes")
		w.enqueue(t, "q", "", queue.Options{ID: "complete"})
		w.runOne(t, node, "q", listen.Settlement{Result: []byte("\xff")})
		w.enqueue(t, "q", "", queue.Options{ID: "failed"})
		w.runOne(t, node, "q", listen.Settlement{Failure: &queue.Failure{}})
		w.enqueue(t, "q", "", queue.Options{ID: "dependent", After: []string{"failed"}})
		w.enqueue(t, "q", "", queue.Options{ID: "skipped", After: []string{"complete"}, When: queue.WhenFailed})
		w.enqueue(t, "cancels", "", queue.Options{ID: "cancelled"})
		must[any](t)(w.Queue("cancels").Cancel(w.ctx, "cancelled"))
		w.enqueue(t, "expires", "", queue.Options{ID: "expired", Retry: queue.Retry{MaxAge: time.Second}})
		w.at(2)
		must[int](t)(expire(w.ctx, w.Queue("expires"), 0, ""))
		w.enqueue(t, "q", "", queue.Options{ID: "late", Retry: queue.Retry{MaxAge: time.Second}})
		w.at(4)
		w.upTo(t, node, "q", 1)
		if err := w.Queue("drops").SetRollingLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "drops", "", queue.Options{ID: "dropped"})
		w.enqueue(t, "drops", "", queue.Options{ID: "newer"})
		w.enqueue(t, "crashes", "", queue.Options{ID: "crashed"})
		w.reserve(t, node, "crashes", true)
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 0, Member: node.ID()})
		must[listen.Reclaimed](t)(w.reclaimQueue(w.ctx, node.ID(), "crashes", 1, false))
		ids, _ := w.counted(t)
		want := []string{"complete", "failed", "dependent", "skipped", "cancelled", "expired", "late", "dropped", "crashed"}
		if !slices.Equal(ids, want) {
			t.Errorf("%v, want %v", ids, want)
		}
		for _, id := range want {
			if task := w.task(t, id); !task.Status.Finished() {
				t.Errorf("%s is %s", id, task.Status)
			}
		}
	})
}

// What a task takes counts, whichever field has it.
func TestSizesOfFinishedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "100000000"})
		node := w.node(t, "q")
		large := strings.Repeat("x", 5000)
		message := &queue.Failure{Message: strings.Repeat("m", 4000)}
		for i, c := range []struct {
			parameters string
			options    queue.Options
			ends       []listen.Settlement
			least      int64
		}{
			{"", queue.Options{}, []listen.Settlement{{}}, 0},
			{large, queue.Options{}, []listen.Settlement{{Result: []byte(large)}}, 10_000},
			{strings.Repeat("\xff", 5000), queue.Options{}, []listen.Settlement{{Result: bytes.Repeat([]byte{0xff}, 5000)}}, 10_000},
			{"", queue.Options{Labels: map[string]string{"a": large}, Headers: map[string]string{"b": large}}, []listen.Settlement{{}}, 10_000},
			{large, queue.Options{}, []listen.Settlement{{Failure: message}}, 9000},
			{"", queue.Options{}, []listen.Settlement{{Failure: message, Requeue: listen.RequeueRetry}, {Failure: message, Requeue: listen.RequeueRetry}, {}}, 12_000},
			{"", queue.Options{}, []listen.Settlement{{Failure: message, Requeue: listen.RequeueRetry}, {Failure: message}}, 12_000},
		} {
			before := int64(0)
			if i > 0 {
				_, before = w.counted(t)
			}
			w.enqueue(t, "q", c.parameters, c.options)
			for _, s := range c.ends {
				w.runOne(t, node, "q", s)
			}
			_, sum := w.counted(t)
			if got := sum - before; got < c.least+1024 || got > c.least+1024+700 {
				t.Errorf("case %d takes %d bytes, want %d and some", i, got, c.least+1024)
			}
		}
	})
}

// A task that leaves the finished ones in another way is taken off.
func TestFinishedTasksThatLeave(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "1000000"})
		node := w.node(t, "q")
		for _, id := range []string{"retried", "deleted", "purged", "first"} {
			w.enqueue(t, "q", "parameters", queue.Options{ID: id})
			if id == "first" {
				w.enqueue(t, "q", "", queue.Options{ID: "second", After: []string{id}})
			}
			w.runOne(t, node, "q", listen.Settlement{Failure: &queue.Failure{}})
		}
		must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
		if ids, _ := w.counted(t); len(ids) != 5 {
			t.Fatalf("%v", ids)
		}
		if err := errors.Join(w.Queue("q").Retry(w.ctx, "retried"), w.Queue("q").Delete(w.ctx, "deleted")); err != nil {
			t.Fatal(err)
		}
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"purged", "first", "second"}) {
			t.Errorf("after a retry and a delete: %v", ids)
		}
		if err := w.Queue("q").Retry(w.ctx, "first"); err != nil { // second waits again
			t.Fatal(err)
		}
		must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"purged"}) {
			t.Errorf("after the retry of what a task waits for: %v", ids)
		}
		must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true}))
		if ids, _ := w.counted(t); len(ids) != 0 {
			t.Errorf("after a purge: %v", ids)
		}
		for range 2 {
			w.runOne(t, node, "q", listen.Settlement{})
		}
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"retried", "first"}) {
			t.Errorf("after the second ends: %v", ids)
		}
		// What somebody deletes by hand counts until its turn comes.
		w.rdb.Del(w.ctx, w.Store().Keys.Task("retried"))
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Finished(), redis.Z{Score: 1, Member: "nonsense"})
		w.quotas(t, manage.Quotas{"bytes_finished": "1"})
		must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"first"}) {
			t.Errorf("after a delete by hand: %v", ids)
		}
	})
}

// A task whose end others do not know yet is not forgotten, nor is what another client enqueued.
func TestFinishedTasksThatStay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "1"})
		node := w.node(t, "q")
		w.enqueue(t, "q", "", queue.Options{ID: "first"})
		w.enqueue(t, "q", "", queue.Options{ID: "second", After: []string{"first"}})
		w.runOne(t, node, "q", listen.Settlement{Result: []byte("result")})
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("python"), "queue", "q", "status", "pending", "created", "1700000000")
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "python")
		w.runOne(t, node, "q", listen.Settlement{})
		for _, id := range []string{"third", "fourth"} {
			w.enqueue(t, "q", "", queue.Options{ID: id})
			w.runOne(t, node, "q", listen.Settlement{})
		}
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"first", "fourth"}) {
			t.Errorf("%v", ids)
		}
		must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"fourth"}) {
			t.Errorf("when they know it: %v", ids)
		}
		if task := w.task(t, "second"); string(task.Parameters) != "result" || task.Status != queue.Pending {
			t.Errorf("%+v", task)
		}
		if task := w.task(t, "python"); task.Status != queue.Complete {
			t.Errorf("%+v", task)
		}
		// The entry of first was not the last one of its list, behind Python's task.
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 2, queue.Pending: 1})
	})
}

// A dead letter that gets the parameters of a task that is forgotten takes more from then on.
func TestADeadLetterInheritsWhatCounts(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "1000000"})
		node := w.node(t, "q", "dead")
		w.enqueue(t, "q", strings.Repeat("\xff", 50_000), queue.Options{ID: "live", Dead: "dead"})
		w.runOne(t, node, "q", listen.Settlement{Failure: &queue.Failure{}})
		w.runOne(t, node, "dead", listen.Settlement{})
		before, sum := w.counted(t)
		if len(before) != 2 || sum > 53_000 {
			t.Fatalf("%d bytes of %v", sum, before)
		}
		if err := w.Queue("q").Delete(w.ctx, "live"); err != nil {
			t.Fatal(err)
		}
		if ids, sum := w.counted(t); !slices.Equal(ids, before[1:]) || sum < 51_000 || sum > 53_000 {
			t.Errorf("%d bytes of %v", sum, ids)
		}
		if letter := w.task(t, before[1]); len(letter.Parameters) != 50_000 {
			t.Errorf("the letter has %d bytes", len(letter.Parameters))
		}
		must[int](t)(manage.New(w.Client).Queue("dead").Purge(w.ctx, listen.PurgeOptions{Everything: true}))
		if ids, sum := w.counted(t); len(ids) != 0 || sum != 0 {
			t.Errorf("%d bytes of %v", sum, ids)
		}
	})
}

// Tasks that ended before the quota was set are counted by the housekeeping, also after an import, or if somebody deleted
// the key. When the quota is removed, nothing is left but the tasks.
func TestQuotaOfFinishedTasksThatComesLate(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q", "r")
		var ended []string
		for i := range 200 {
			w.at(float64(i))
			name := []string{"q", "r"}[i%2]
			ended = append(ended, w.enqueue(t, name, "", queue.Options{ID: fmt.Sprint("t", i)}))
			s := listen.Settlement{}
			if i%10 == 0 {
				s.Failure = &queue.Failure{}
			}
			w.runOne(t, node, name, s)
		}
		count := func() []string {
			t.Helper()
			if news := must[[]listen.Recounted](t)(listen.NewFleet(w.Client).Recount(w.ctx, []string{"q", "r"}, listen.PurgeOptions{})); len(news) != 0 {
				t.Errorf("%+v", news)
			}
			must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
			ids, _ := w.counted(t)
			return ids
		}
		w.quotas(t, manage.Quotas{"bytes_finished": "1000000"})
		if ids, _ := w.counted(t); len(ids) != 0 {
			t.Errorf("%v", ids)
		}
		for range 2 {
			if ids := count(); !slices.Equal(ids, ended) {
				t.Errorf("%v are counted", ids)
			}
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Finished())
		if ids := count(); !slices.Equal(ids, ended) {
			t.Errorf("after a delete of the key %v are counted", ids)
		}
		for _, total := range must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "q")) {
			if total.Totals["complete"] != 80 || len(total.Totals) != 4 {
				t.Errorf("%+v", total.Totals)
			}
		}
		if !embedded(t) && !strings.HasPrefix(w.Tenant(), "{") { // another tenant may be on another shard
			path, other := filepath.Join(t.TempDir(), "file"), w.Tenant()+"x"
			must[mover.Moved](t)(mover.New(w.Client).Export(w.ctx, path, nil))
			must[mover.Moved](t)(w.other(t, other).Import(w.ctx, path, "ada", false, nil))
			into := &world{Client: must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: other})), rdb: w.rdb, ctx: w.ctx}
			if ids, _ := into.counted(t); len(ids) != 0 {
				t.Errorf("an import brings counts: %v", ids)
			}
			must[[]listen.Recounted](t)(listen.NewFleet(into.Client).Recount(w.ctx, []string{"q", "r"}, listen.PurgeOptions{}))
			if ids, _ := into.counted(t); !slices.Equal(ids, ended) {
				t.Errorf("after an import %v are counted", ids)
			}
			must[mover.Moved](t)(w.other(t, other).Erase(w.ctx, nil))
			if keys := into.names(t); len(keys) != 0 {
				t.Errorf("left are %v", keys)
			}
		}
		w.quotas(t, manage.Quotas{"bytes_finished": "60000"})
		must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
		ids, sum := w.counted(t)
		if !slices.Equal(ids, ended[len(ended)-len(ids):]) || sum > 60_000 || sum < 58_000 {
			t.Errorf("%d bytes of %v", sum, ids)
		}
		w.quotas(t, manage.Quotas{"bytes_finished": ""})
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Finished(), w.Store().Keys.Used(), w.Store().Keys.Quotas()).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		for _, id := range ids {
			if err := w.Queue(w.task(t, id).Queue).Delete(w.ctx, id); err != nil {
				t.Error(err)
			}
		}
	})
}

// Publications that have all their tasks count as well, and the oldest are forgotten.
func TestQuotaOfPublications(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "50000"})
		payload := strings.Repeat("x", 10_000)
		for i := range 9 {
			w.publish(t, fmt.Sprint("topic", i%3), payload, queue.PublishOptions{ID: fmt.Sprint("p", i)})
		}
		if ids, sum := w.counted(t); !slices.Equal(ids, []string{"p5", "p6", "p7", "p8"}) || sum > 50_000 {
			t.Errorf("%d bytes of %v", sum, ids)
		}
		if _, err := w.Publication(w.ctx, "p4"); !errors.Is(err, queue.ErrNoPublication) {
			t.Error(err)
		}
		if n := w.rdb.ZCard(w.ctx, w.Store().Keys.Publications("topic0")).Val(); n != 1 {
			t.Errorf("%d publications of topic0", n)
		}
		for _, err := range listen.NewFleet(w.Client).PurgePublications(w.ctx, listen.PurgeOptions{Keep: 1}) {
			if err != nil {
				t.Error(err)
			}
		}
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"p6", "p7", "p8"}) {
			t.Errorf("after a purge: %v", ids)
		}
		w.publish(t, "topic9", strings.Repeat("x", 100_000), queue.PublishOptions{ID: "large"})
		if ids, _ := w.counted(t); !slices.Equal(ids, []string{"large"}) {
			t.Errorf("after a large one: %v", ids)
		}
		if topics := w.rdb.ZRange(w.ctx, w.Store().Keys.Topics(), 0, -1).Val(); !slices.Equal(topics, []string{"topic9"}) {
			t.Errorf("the topics are %v", topics)
		}
		// The task of a subscriber counts when it has ended, and takes the room of the publication.
		w.subscribe(t, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"})
		w.publish(t, "orders", payload, queue.PublishOptions{ID: "order"})
		w.runOne(t, w.node(t, "q"), "q", listen.Settlement{})
		ids, _ := w.counted(t)
		if !slices.Equal(ids, []string{"order", queue.PublishedID("order", "s")}) {
			t.Errorf("%v", ids)
		}
	})
}

// What a task publishes at its completion counts as waiting until it has its tasks, and is refused beyond twice the quota.
func TestQuotasOfPublicationsAtCompletion(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node := w.node(t, "q")
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, make([]queue.Spec, 5)))
		claims := w.reserveMany(t, node, "q", 5, true)
		number := 0
		publishing := func(n, size int) error {
			t.Helper()
			claim := claims[0]
			claims = claims[1:]
			s := listen.Settlement{Claim: claim}
			for range n {
				number++
				s.Publications = append(s.Publications, &queue.Publication{ID: fmt.Sprint(number), Topic: "t", Payload: bytes.Repeat([]byte("x"), size)})
			}
			errs := must[[]error](t)(node.Settle(w.ctx, "q", []listen.Settlement{s}))
			if errs[0] != nil {
				w.settle(t, node, "q", listen.Settlement{Claim: claim})
			}
			return errs[0]
		}
		w.quotas(t, manage.Quotas{"tasks_waiting": "30", "bytes_waiting": "10000"})
		if err := publishing(2, 9000); err != nil {
			t.Error(err)
		}
		w.at(10)
		refused(t, publishing(1, 5000), "bytes_waiting", "10000", 18_000)
		w.quotas(t, manage.Quotas{"tasks_waiting": "3", "bytes_waiting": ""})
		refused(t, publishing(5, 1), "tasks_waiting", "3", 2)
		if err := publishing(4, 1); err != nil {
			t.Error(err)
		}
		for _, id := range []string{"1", "2", "9", "10", "11", "12"} {
			if err := w.Republish(w.ctx, id); err != nil {
				t.Errorf("publication %s: %v", id, err)
			}
		}
		w.at(20)
		if err := publishing(6, 1); err != nil { // they wait no more
			t.Error(err)
		}
	})
}

// Damaged keys keep no task from ending; the housekeeping names them.
func TestFinishedTasksWithDamagedKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_finished": "1"})
		node := w.node(t, "q", "r")
		ends := func(names ...string) {
			t.Helper()
			for _, name := range names {
				w.enqueue(t, name, "", queue.Options{})
				w.runOne(t, node, name, listen.Settlement{})
				w.enqueue(t, name, "", queue.Options{})
				w.runOne(t, node, name, listen.Settlement{Failure: &queue.Failure{}})
			}
		}
		ends("q")
		w.rdb.Rename(w.ctx, w.Store().Keys.Keyed("q"), "nothing")
		w.rdb.Set(w.ctx, w.Store().Keys.Keyed("q"), "damaged", 0) // of the queue with the oldest tasks
		ends("r")
		ids, _ := w.counted(t)
		if len(ids) != 2 {
			t.Errorf("%v are kept", ids)
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Keyed("q"))
		w.rdb.Set(w.ctx, w.Store().Keys.Finished(), "damaged", 0)
		ends("q")
		must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
		_, err := listen.NewFleet(w.Client).Recount(w.ctx, []string{"q"}, listen.PurgeOptions{})
		if err == nil || !strings.Contains(err.Error(), w.Store().Keys.Finished()) {
			t.Error(err)
		}
		if err := manage.SetQuotas(w.ctx, w.Client, manage.Quotas{"bytes_finished": "2"}); err == nil || !strings.Contains(err.Error(), w.Store().Keys.Finished()) {
			t.Error(err)
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Finished())
		must[[]listen.Recounted](t)(listen.NewFleet(w.Client).Recount(w.ctx, []string{"q", "r"}, listen.PurgeOptions{}))
		must[any](t)(nil, w.Store().AdvanceAll(w.ctx))
		if ids, _ := w.counted(t); len(ids) != 1 {
			t.Errorf("%v are kept", ids)
		}
	})
}

// A tenant without the quota pays nothing for completions, and a read for each task that fails.
func TestWhatTheQuotaOfFinishedTasksCosts(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	if err := listen.Prepare(w.ctx, w.Client); err != nil {
		t.Fatal(err)
	}
	node := w.node(t, "q")
	settle := func(failure *queue.Failure) (commands int64) {
		for range 10 {
			w.enqueue(t, "q", "", queue.Options{})
		}
		var all []listen.Settlement
		for _, c := range w.reserveMany(t, node, "q", 10, true) {
			all = append(all, listen.Settlement{Claim: c, Failure: failure})
		}
		_, commands, _ = w.scripts(t, func() { must[[]error](t)(node.Settle(w.ctx, "q", all)) })
		return commands
	}
	settle(nil)
	// The types of keys, the time, what somebody waits for; for each HMGET, LREM and HSET; then SREM, LPUSH, HINCRBY and EXISTS;
	// and the INFO that counts them.
	const completions = 9 + 1 + 1 + 10*3 + 4 + 1
	if plain := settle(nil); plain != completions {
		t.Errorf("10 completions take %d commands", plain)
	}
	failed := settle(&queue.Failure{})
	w.quotas(t, manage.Quotas{"log_bytes": "1000"})
	if other := settle(nil); other != completions {
		t.Errorf("with another quota 10 completions take %d commands", other)
	}
	w.quotas(t, manage.Quotas{"bytes_finished": "100000"})
	with, bad := settle(nil), settle(&queue.Failure{})
	if with != completions+10+5 || bad != failed+10*5+3 {
		t.Errorf("with the quota 10 completions take %d commands, 10 failures %d, and %d without it", with, bad, failed)
	}
}
