package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// finishAs puts finished tasks into a queue, one a second; a name that begins with f fails, with p it is a
// Python client's, with g there is nothing but its entry.
func (w *world) finishAs(t testing.TB, target string, names ...string) {
	t.Helper()
	node := w.node(t, target)
	for i, name := range names {
		w.at(float64(i))
		if name[0] == 'p' {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(name), "queue", target, "status", "pending", "created", w.Store().Clock)
			w.rdb.LPush(w.ctx, w.Store().Keys.Pending(target), name)
		} else {
			w.enqueue(t, target, "\xff", queue.Options{ID: name, Key: "k", Unique: &queue.Unique{Key: name}})
		}
		got := w.reserve(t, node, target, true)
		s := listen.Settlement{Claim: listen.Claim{ID: got.ID, Run: got.Run}, Result: []byte("\xff")}
		if name[0] == 'f' {
			s.Failure = &queue.Failure{}
		}
		w.settle(t, node, target, s)
		if name[0] == 'g' {
			w.rdb.Del(w.ctx, w.Store().Keys.Task(name), w.Store().Keys.Bytes(name))
			w.rdb.ZRem(w.ctx, w.Store().Keys.Index(target), name)
			w.rdb.Del(w.ctx, w.Store().Keys.Keyed(target))
		}
	}
	w.at(float64(len(names)))
}

func TestPurge(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		mixed := []string{"c0", "f1", "c2", "p3", "f4", "g5", "c6", "p7", "c8"}
		for i, c := range []struct {
			options listen.PurgeOptions
			left    string // newest first: complete, then failed
			n       int
		}{
			{listen.PurgeOptions{Everything: true}, "p7 p3", 6},
			{listen.PurgeOptions{Everything: true, Foreign: true}, "", 8},
			{listen.PurgeOptions{Everything: true, Status: queue.Failed}, "c8 p7 c6 g5 p3 c2 c0", 2},
			{listen.PurgeOptions{OlderThan: 4 * time.Second}, "c8 p7 c6 p3", 4}, // at second 9: finished before 5
			{listen.PurgeOptions{OlderThan: time.Hour}, "c8 p7 c6 g5 p3 c2 c0 f4 f1", 0},
			{listen.PurgeOptions{OlderThan: 8500 * time.Millisecond}, "c8 p7 c6 g5 p3 c2 f4 f1", 1},
			{listen.PurgeOptions{Keep: 5}, "c8 p7 c6 g5 p3 f4 f1", 2},
			{listen.PurgeOptions{Keep: 2, Status: queue.Complete}, "c8 p7 p3 f4 f1", 3},
			{listen.PurgeOptions{Keep: 1, Foreign: true}, "c8 f4", 6},
			{listen.PurgeOptions{Keep: 100}, "c8 p7 c6 g5 p3 c2 c0 f4 f1", 0},
			{listen.PurgeOptions{Keep: 6, OlderThan: 4 * time.Second}, "c8 p7 c6 p3", 4},
		} {
			if i%4 != 0 && embedded(t) {
				continue
			}
			queue := fmt.Sprint("q", i)
			w.finishAs(t, queue, mixed...)
			if c.options.Status == "" {
				news := must[[]listen.Recounted](t)(listen.NewFleet(w.Client).Recount(w.ctx, []string{queue}, c.options))
				if old := len(news) == 1 && news[0].Old; old != (c.n > 0) {
					t.Errorf("%+v: a recount finds something to purge: %v", c.options, old)
				}
			}
			n, err := manage.New(w.Client).Queue(queue).Purge(w.ctx, c.options)
			if err != nil {
				t.Fatal(err)
			}
			left := slices.Concat(w.rdb.LRange(w.ctx, w.Store().Keys.Complete(queue), 0, -1).Val(), w.rdb.LRange(w.ctx, w.Store().Keys.Failed(queue), 0, -1).Val())
			if n != c.n || strings.Join(left, " ") != c.left {
				t.Errorf("%+v: %d gone, %v left", c.options, n, left)
			}
			for _, name := range mixed {
				if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(name), w.Store().Keys.Bytes(name)).Val(); n > 0 != (slices.Contains(left, name) && name[0] != 'g') {
					t.Errorf("%+v: %d keys of %s", c.options, n, name)
				}
			}
			if index := w.rdb.ZCard(w.ctx, w.Store().Keys.Index(queue)).Val(); int(index) != len(slices.DeleteFunc(left, func(id string) bool { return id[0] == 'g' })) {
				t.Errorf("%+v: %d entries in the index", c.options, index)
			}
			for _, name := range mixed {
				w.rdb.Del(w.ctx, w.Store().Keys.Task(name), w.Store().Keys.Bytes(name))
			}
		}
		for _, options := range []listen.PurgeOptions{{}, {Status: queue.Pending, Everything: true}, {Keep: -1}, {OlderThan: -1}} {
			if _, err := manage.New(w.Client).Queue("q0").Purge(w.ctx, options); !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("%+v: %v", options, err)
			}
		}
	})
}

// Whether in one block or in many: what is foreign stays where it is, and counts for the number to keep.
func TestPurgeInBlocks(t *testing.T) {
	w := setup(t)
	var ids []any
	pipe := w.rdb.Pipeline()
	for i := range 4500 {
		id := fmt.Sprintf("id%04d", i)
		ids = append(ids, id)
		pipe.HSet(w.ctx, w.Store().Keys.Task(id), "status", "complete", "queue", "q", "run", 1, "updated", 1600000000+i)
		if i < 1500 || i%3 == 0 {
			pipe.HDel(w.ctx, w.Store().Keys.Task(id), "run")
		}
	}
	pipe.LPush(w.ctx, w.Store().Keys.Complete("q"), ids...)
	must[any](t)(pipe.Exec(w.ctx))
	if n := must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Keep: 600})); n != 1600 {
		t.Errorf("%d gone", n) // two of three from 1500 to 3899
	}
	left := w.rdb.LRange(w.ctx, w.Store().Keys.Complete("q"), 0, -1).Val()
	if len(left) != 2900 || !slices.IsSortedFunc(left, func(a, b string) int { return strings.Compare(b, a) }) || left[599] != "id3900" {
		t.Errorf("%d left, the 600th is %s", len(left), left[599])
	}
	if n := must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true, Foreign: true})); n != 2900 {
		t.Errorf("%d gone", n)
	}
	if names := w.names(t); len(names) != 0 {
		t.Errorf("left are %d keys, %s", len(names), names[0])
	}
}

// In a long list nobody searches: entries stay, and purge finds out which.
func TestLongListsOfWhatIsFinished(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	w.finishAs(t, "q", "f1", "f2", "f3", "c4")
	w.ballast(w.Store().Keys.Failed("q"))
	q := w.Queue("q")
	for _, id := range []string{"f1", "f2"} {
		if err := q.Retry(w.ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Delete(w.ctx, "f3"); err != nil {
		t.Fatal(err)
	}
	node := w.node(t, "q")
	holds := w.reserveMany(t, node, "q", 2, true)
	w.settle(t, node, "q", listen.Settlement{Claim: holds[0], Failure: &queue.Failure{}}) // f1 has two entries now
	w.settle(t, node, "q", listen.Settlement{Claim: holds[1]})                            // f2 is complete, and has one among the failed
	if n := w.rdb.LLen(w.ctx, w.Store().Keys.Failed("q")).Val(); n != store.Searched+4 {
		t.Errorf("%d entries", n)
	}
	if n := must[int](t)(manage.QueueOf(q).Purge(w.ctx, listen.PurgeOptions{Status: queue.Failed, Keep: 1})); n != 0 {
		t.Errorf("%d gone", n)
	}
	left := w.rdb.LRange(w.ctx, w.Store().Keys.Failed("q"), 0, -1).Val()
	if !slices.Equal(left, []string{"f1"}) {
		t.Errorf("left are %v", left)
	}
	if n := must[int](t)(manage.QueueOf(q).Purge(w.ctx, listen.PurgeOptions{Everything: true})); n != 3 {
		t.Errorf("%d gone", n)
	}
	w.depth(t, "q", nil)
	for _, id := range []string{"f1", "f2", "f3", "c4"} {
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(id)).Val(); n != 0 {
			t.Errorf("%s is left", id)
		}
	}
}

// Entries of deleted tasks that nobody searched for count neither as tasks nor for the number to keep; if most are such ones they go.
func TestPurgeOfStaleEntries(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		purge := func(keep int64, old bool, gone, complete int64, left string) {
			t.Helper()
			options := listen.PurgeOptions{Keep: keep, OlderThan: time.Hour}
			if news := must[[]listen.Recounted](t)(listen.NewFleet(w.Client).Recount(w.ctx, []string{"q"}, options)); (len(news) == 1 && news[0].Old) != old {
				t.Errorf("of %d to keep a recount finds %v", keep, news)
			}
			n := must[int](t)(manage.QueueOf(q).Purge(w.ctx, options))
			stats := must[manage.Stats](t)(manage.QueueOf(q).Stats(w.ctx))
			ids := strings.Join(w.rdb.LRange(w.ctx, w.Store().Keys.Complete("q"), 0, 8).Val(), " ")
			if int64(n) != gone || stats.Depth[queue.Complete] != complete || stats.Totals["stale:complete"] != 0 || ids != left {
				t.Errorf("of %d to keep %d are gone, %d left: %s", keep, n, stats.Depth[queue.Complete], ids)
			}
		}
		w.finishAs(t, "q", "p0", "c1", "c2", "c3", "c4", "c5")
		for _, id := range []string{"c2", "c4", "c5"} {
			must[any](t)(w.Store().Eval(w.ctx, unsearched("delete", w.Store().Keys.Task(id), "", "q", id, "")))
		}
		purge(3, false, 0, 3, "c5 c4 c3 c2 c1 p0")
		purge(2, true, 0, 3, "c5 c4 c3 c2 c1 p0") // the oldest one is another client's
		purge(1, true, 1, 2, "c5 c4 c3 p0")
		many := make([]any, 2000)
		for i := range many {
			many[i] = fmt.Sprint("gone", i)
		}
		w.rdb.LPush(w.ctx, w.Store().Keys.Complete("q"), many...)
		w.rdb.HIncrBy(w.ctx, w.Store().Keys.Stats("q"), "stale:complete", int64(len(many)))
		w.finishAs(t, "q", "c6")
		w.at(6)
		purge(2000, true, 0, 3, "c6 c3 p0")
	})
}

// What is kept is kept of each status, and what other clients left at the old end takes no place of it.
func TestPurgeKeepsTheFresh(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.finishAs(t, "q", "p0", "p1", "p2", "p3", "f4", "c5", "c6")
		for _, keep := range []int64{7, 2} {
			if n := must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Keep: keep, OlderThan: time.Hour})); n != 0 {
				t.Errorf("of %d to keep %d are gone", keep, n)
			}
		}
		if n := must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Keep: 1})); n != 1 {
			t.Errorf("%d are gone", n)
		}
		for id, want := range map[string]int64{"p0": 1, "p3": 1, "f4": 1, "c5": 0, "c6": 1} {
			if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(id)).Val(); n != want {
				t.Errorf("%d of %s", n, id)
			}
		}
	})
}

// It is at maxmemory that purge is needed most, whatever lies at the old end.
func TestPurgeAtMaxmemory(t *testing.T) {
	t.Parallel()
	w := setupOwn(t, "--maxmemory-policy", "noeviction")
	w.finishAs(t, "q", "p0", "c1", "p2", "c3", "c4", "f5", "f6")
	w.rdb.HSet(w.ctx, w.Store().Keys.Task("f5"), "stale", 1)
	w.rdb.RPush(w.ctx, w.Store().Keys.Failed("q"), "f5")
	if err := w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{}); !queue.IsUnavailable(err) {
		t.Errorf("Redis is not full: %v", err)
	}
	if n, err := manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true}); n != 5 || err != nil {
		t.Errorf("%d are gone, %v", n, err)
	}
	for id, want := range map[string]int64{"p0": 1, "c1": 0, "p2": 1, "c3": 0, "c4": 0, "f5": 0, "f6": 0} {
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(id)).Val(); n != want {
			t.Errorf("%d of %s", n, id)
		}
	}
}

// Tried again once while the list was long and once while it was short: then no entry is stale.
func TestPurgeOfWhatWasTriedAgainTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		fail := func() {
			node, hold := w.held(t, "q")
			w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{}})
		}
		for i, newCall := range []func(script, key string, args ...any) store.Call{unsearched, store.NewCall} {
			fail()
			must[any](t)(w.Store().Eval(w.ctx, newCall("retry", w.Store().Keys.Task(id), "", "q", id, "")))
			if n := w.rdb.LLen(w.ctx, w.Store().Keys.Failed("q")).Val(); int(n) != 1-i {
				t.Errorf("after retry %d the list has %d entries", i, n)
			}
		}
		fail()
		if n := must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true})); n != 1 {
			t.Errorf("%d are gone", n)
		}
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(id), w.Store().Keys.Failed("q")).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}
