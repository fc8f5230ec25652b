package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// A script carries what it uses of the prelude, directly or not, in its order, and nothing else.
func TestScriptsCarryWhatTheyUse(t *testing.T) {
	t.Parallel()
	var library []store.Declaration
	for _, part := range []string{
		"-- two()\nlocal function one() end\n", "local unused = 1\n", "local two = one\nlocal also = 2\n", "local function three() -- four\nend\n",
		"local four = three\n",
	} {
		library = append(library, store.NewDeclaration(part))
	}
	if got := store.WithUsed(library, "return also -- four"); got != library[0].Text+library[2].Text+"return also -- four" {
		t.Errorf("got %q", got)
	}
	// What a rare function uses is inside of it, unless the script uses that too.
	head, body := "local function five() -- rare\n", "  return two, unused\nend\n"
	if got := store.WithUsed(library, head+body+"one()\n"); got != library[0].Text+head+library[1].Text+library[2].Text+body+"one()\n" {
		t.Errorf("got %q", got)
	}
	if short, long := store.AllScripts["yield"].Source, store.AllScripts["settle"].Source; len(short) > 500 || !strings.Contains(long, "local function bury(") ||
		strings.Contains(long, "local TAKEN") {
		t.Errorf("yield has %d bytes, settle %d", len(short), len(long))
	}
}

// With short parameters and results the hash of a task stays in Redis's compact form for all of its life.
func TestAShortTaskTakesLittleMemory(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if embedded(t) {
			t.Skip("it has one form")
		}
		text := strings.Repeat("x", 64)
		id := w.enqueue(t, "q", text, queue.Options{})
		node := w.node(t, "q")
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, Plugin: "p", Digest: "sha256:" + text}})[0]
		if batch.Err != nil || len(batch.Tasks) != 1 {
			t.Fatal(batch)
		}
		w.settle(t, node, "q", listen.Settlement{Claim: batch.Tasks[0].Claim(), Result: []byte(text)})
		if task := w.task(t, id); task.Digest != "sha256:"+text || string(task.Result) != text {
			t.Errorf("%+v", task)
		}
		short := func(id string) {
			t.Helper()
			if form := must[string](t)(w.rdb.ObjectEncoding(w.ctx, w.Store().Keys.Task(id)).Result()); form != "listpack" && form != "ziplist" {
				t.Errorf("the hash is a %s: %v", form, must[map[string]string](t)(w.rdb.HGetAll(w.ctx, w.Store().Keys.Task(id)).Result()))
			}
		}
		short(id)
		again := w.enqueue(t, "q", text, queue.Options{})
		w.Config().Name = "quern-7d9f8c6b5d-x2x4z"
		node = w.node(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: w.reserveMany(t, node, "q", 1, true)[0], Failure: &queue.Failure{}, Requeue: listen.RequeueRetry, Delay: time.Hour})
		short(again)
	})
}

// A settle takes tasks off the list in any order: those that it does not name stay, in order.
func TestSettleInAnyOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		for i := range 8 {
			w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint(i)})
		}
		node := w.node(t, "q")
		held := w.reserveMany(t, node, "q", 8, true)
		stale := held[2]
		stale.Run++
		errs, err := node.Settle(w.ctx, "q", []listen.Settlement{
			{Claim: held[1]},
			{Claim: held[0], Failure: &queue.Failure{}},
			{Claim: stale},
			{Claim: listen.Claim{ID: "none", Run: 1}},
			{Claim: held[6]},
			{Claim: held[3], Failure: &queue.Failure{}, Requeue: listen.RequeueRetry, Delay: time.Minute},
			{Claim: held[4]},
			{Claim: held[1]},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range errs {
			if want := map[int]error{2: queue.ErrLost, 3: queue.ErrNoTask}[i]; !errors.Is(err, want) {
				t.Errorf("settlement %d: %v, want %v", i, err, want)
			}
		}
		if left := must[[]string](t)(node.Held(w.ctx, "q")); !slices.Equal(left, []string{"7", "5", "2"}) {
			t.Errorf("held are %v", left)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Started: 3, queue.Complete: 3, queue.Failed: 1, queue.Scheduled: 1})
		if complete := must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Complete("q"), 0, -1).Result()); !slices.Equal(complete, []string{"4", "6", "1"}) {
			t.Errorf("complete are %v", complete)
		}
		errs, err = node.Settle(w.ctx, "q", []listen.Settlement{{Claim: held[2]}, {Claim: held[5]}, {Claim: held[7]}})
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Error(err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 6, queue.Failed: 1, queue.Scheduled: 1})
	})
}

// A task that is settled but still in the reserved list, as an error in the middle of a settle would leave it, is put right by the repeat.
func TestSettleAfterHalfASettle(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, id := range []string{"half", "whole", "alone"} {
			w.enqueue(t, "q", "", queue.Options{ID: id})
		}
		node := w.node(t, "q")
		held := w.reserveMany(t, node, "q", 3, true)
		for _, id := range []string{"half", "alone"} {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "complete")
		}
		for range 2 {
			w.settle(t, node, "q", listen.Settlement{Claim: held[2]})
			errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: held[0]}, {Claim: held[1]}})
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Fatal(err)
			}
			w.depth(t, "q", map[queue.Status]int64{queue.Complete: 3})
		}
	})
}

// A Python client that lost a task and completes it even so keeps the run that holds it from nothing: the last one wins.
func TestSettleOfWhatPythonCompleted(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for range 2 {
			w.enqueue(t, "q", "", queue.Options{})
		}
		node := w.node(t, "q")
		held := w.reserveMany(t, node, "q", 2, true)
		var settlements []listen.Settlement
		for i, claim := range held {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(claim.ID), "status", "complete", "result", "Python's", "updated", 1700000000)
			child := listen.Child{Queue: "child", Spec: queue.Spec{Options: queue.Options{ID: fmt.Sprint(i)}}}
			settlements = append(settlements, listen.Settlement{Claim: claim, Result: []byte("ours"), Children: []listen.Child{child}})
		}
		for range 2 {
			w.settle(t, node, "q", settlements[0])
			errs, err := node.Settle(w.ctx, "q", settlements)
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Fatal(err)
			}
			w.depth(t, "q", map[queue.Status]int64{queue.Complete: 2})
			w.depth(t, "child", map[queue.Status]int64{queue.Pending: 2})
		}
		for _, claim := range held {
			if task := w.task(t, claim.ID); string(task.Result) != "ours" {
				t.Errorf("%+v", task)
			}
		}
	})
}

// Of a long list a settle takes the newest tasks as well as the oldest.
func TestSettleOfALongList(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const tasks = 60
		for i := range tasks {
			w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint(i)})
		}
		node := w.node(t, "q")
		held := w.reserveMany(t, node, "q", tasks, true)
		var settlements []listen.Settlement
		want := must[[]string](t)(node.Held(w.ctx, "q"))
		for _, i := range []int{tasks - 1, 0, tasks - 2, 2} {
			settlements = append(settlements, listen.Settlement{Claim: held[i]})
			want = slices.DeleteFunc(want, func(id string) bool { return id == held[i].ID })
		}
		errs, err := node.Settle(w.ctx, "q", settlements)
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
		if left := must[[]string](t)(node.Held(w.ctx, "q")); !slices.Equal(left, want) {
			t.Errorf("held are %v, want %v", left, want)
		}
	})
}

// An ID that stands twice in a list, as a client may leave it, is one task.
func TestReserveOfAnIDTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(t, "q", id, queue.Options{ID: id})
			w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "b")
		}
		node := w.node(t, "q")
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 10, Start: true}})[0]
		var ids []string
		for _, task := range batch.Tasks {
			ids = append(ids, task.ID)
		}
		held := must[[]string](t)(node.Held(w.ctx, "q"))
		slices.Sort(held)
		if batch.Err != nil || !slices.Equal(ids, []string{"a", "b", "c"}) || batch.Dropped != 3 || !slices.Equal(held, ids) {
			t.Errorf("reserved %v, holds %v: %+v", ids, held, batch)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Started: 3})
	})
}

// Hosts of before wrote a digest with its algorithm, and a longer mark of a settlement.
func TestWhatOlderHostsWrote(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		digest := "sha256:" + strings.Repeat("0", 64)
		id := w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		w.settle(t, node, "q", listen.Settlement{Claim: got.Claim()})
		hash := w.Store().Keys.Task(id)
		if mark, err := w.rdb.HMGet(w.ctx, hash, "settled", "attempts", "finished_at").Result(); err != nil || !slices.Equal(mark, []any{nil, nil, nil}) {
			t.Errorf("settled %q, attempts and end %v: %v", mark[0], mark[1:], err)
		}
		w.rdb.HSet(w.ctx, hash, "digest", digest, "settled", settler(node.ID(), got.Claim()), "status", "failed", "attempts", 1)
		w.settle(t, node, "q", listen.Settlement{Claim: got.Claim(), Result: []byte("repeat")})
		if task := w.task(t, id); task.Digest != digest || task.Status != queue.Failed || string(task.Result) != "" || task.Attempts != 1 {
			t.Errorf("%+v", task)
		}
		// A version is the same one, whoever started its tasks.
		for _, written := range []string{digest, strings.TrimPrefix(digest, "sha256:")} {
			w.enqueue(t, "crash", "", queue.Options{ID: written})
			dying := w.node(t, "crash")
			w.reserve(t, dying, "crash", true)
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(written), "digest", written)
			w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 0, Member: dying.ID()})
			must[listen.Reclaimed](t)(w.reclaimQueue(w.ctx, dying.ID(), "crash", 1, false))
		}
		crashes := must[map[string]string](t)(w.rdb.HGetAll(w.ctx, w.Store().Keys.Crashes()).Result())
		if len(crashes) != 1 || crashes["p "+digest] == "" {
			t.Errorf("crashes %v", crashes)
		}
	})
}

// A reserve asks Redis for the size of parameters only in a queue where large ones were met.
func TestSizesAreAskedForAfterLargeParameters(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	node := w.node(t, "q")
	asked := func() int {
		_, after, _ := strings.Cut(must[string](t)(w.rdb.Info(w.ctx, "commandstats").Result()), "cmdstat_hstrlen:calls=")
		var n int
		_, _ = fmt.Sscanf(after, "%d,", &n) // nothing is listed before the first call
		return n
	}
	large := strings.Repeat("x", listen.MaxInline+1)
	for i, step := range []struct {
		parameters []string
		asked      int
	}{{[]string{"a", "b", "c"}, 0}, {[]string{"a", large, large, "b"}, 2}, {[]string{"a", large}, 4}} {
		for _, parameters := range step.parameters {
			w.enqueue(t, "q", parameters, queue.Options{})
		}
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 8, Start: true}})[0]
		if batch.Err != nil || len(batch.Tasks) != len(step.parameters) {
			t.Fatalf("step %d: %+v", i, batch)
		}
		for j, task := range batch.Tasks {
			if parameters := step.parameters[j]; task.Large != (parameters == large) || !task.Large && string(task.Parameters) != parameters {
				t.Errorf("step %d, task %d: %d bytes, large is %v", i, j, len(task.Parameters), task.Large)
			}
		}
		if n := asked(); n != step.asked {
			t.Errorf("step %d: asked for %d sizes, want %d", i, n, step.asked)
		}
	}
	if totals := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "q"))[0].Totals; totals["enqueued"] != 9 || len(totals) != 1 {
		t.Errorf("totals %v", totals)
	}
}
