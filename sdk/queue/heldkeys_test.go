package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// ids returns the IDs of the tasks that a reserve gets.
func (w *world) ids(t *testing.T, node *listen.Node) (ids []string) {
	t.Helper()
	for _, task := range w.upTo(t, node, "q", 128).Tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

// putOff ends the run of a task: it and all tasks with its key wait.
func (w *world) putOff(t *testing.T, node *listen.Node, task listen.Reservation, wait time.Duration) {
	t.Helper()
	s := listen.Settlement{Claim: task.Claim(), Failure: &queue.Failure{Message: "429"}, HoldKey: true}
	errs, err := node.Settle(w.ctx, "q", []listen.Settlement{s.PutOff(queue.Retry{}, 0, wait)})
	if err = errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

// A task that puts off its key keeps all tasks with it waiting, in their order and without an attempt; those of other keys
// and without a key run. A later end counts, an earlier one changes nothing, and what ended is forgotten.
func TestHeldKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		for i := range 4 {
			w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint("a", i), Key: "a"})
		}
		w.enqueue(t, "q", "", queue.Options{ID: "b", Key: "b"})
		w.enqueue(t, "q", "", queue.Options{ID: "none"})
		node := w.node(t, "q")
		first := w.upTo(t, node, "q", 2).Tasks
		w.putOff(t, node, first[0], 10*time.Second)
		w.putOff(t, node, first[1], 3*time.Second)
		if got := w.ids(t, node); fmt.Sprint(got) != "[b none]" {
			t.Errorf("%v", got)
		}
		for i, held := range []bool{false, false, true, true} {
			task := w.task(t, fmt.Sprint("a", i))
			wait := task.ETA.Sub(task.Created).Round(10 * time.Microsecond)
			if task.Status != queue.Scheduled || task.Held != held || task.Attempts != 0 || i != 1 && wait != 10*time.Second {
				t.Errorf("a%d is %s, held %t, due after %s, %d attempts", i, task.Status, task.Held, wait, task.Attempts)
			}
		}
		w.at(3.5)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		if got := w.ids(t, node); len(got) != 0 { // its own delay is over, that of the key is not
			t.Errorf("%v", got)
		}
		w.at(10.1)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		if got := w.ids(t, node); fmt.Sprint(got) != "[a0 a2 a3 a1]" {
			t.Errorf("%v", got)
		}
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Held("q")).Val(); n != 0 {
			t.Error("a hold that has ended is kept")
		}
	})
}

// A task that holds its key need not have one, and with a rate of keys no token is lost.
func TestHeldKeysBesideRates(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"key_rate:q": "1/s burst 2"})
		node := w.node(t, "q")
		w.enqueue(t, "q", "", queue.Options{ID: "none"})
		w.putOff(t, node, w.upTo(t, node, "q", 1).Tasks[0], time.Minute)
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Held("q")).Val(); n != 0 {
			t.Error("a task without a key holds one")
		}
		for i := range 3 {
			w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint("a", i), Key: "a"})
		}
		w.putOff(t, node, w.upTo(t, node, "q", 1).Tasks[0], 10*time.Second)
		if got := w.ids(t, node); len(got) != 0 {
			t.Errorf("%v", got)
		}
		w.at(10.1)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		if got := w.ids(t, node); fmt.Sprint(got) != "[a0 a1]" {
			t.Errorf("%v: the bucket is full again", got)
		}
	})
}

// A pause of a key lasts until it is resumed: then its tasks run in their order, more than one block of them, but none
// that waits for something else. A resume also ends a hold.
func TestPauseOfAKey(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		pauses := manage.New(w.Client).Pauses()
		pause := manage.Pause{Queue: "q", Key: "a key: ü", Who: "ada", Reason: "owes money"}
		if err := pauses.Pause(w.ctx, pause); err != nil {
			t.Fatal(err)
		}
		node := w.node(t, "q")
		var want []string
		for i := range 400 {
			id := fmt.Sprintf("%x", (i*7919)%65536) // of another order
			w.enqueue(t, "q", "", queue.Options{ID: id, Key: pause.Key})
			want = append(want, id)
		}
		w.enqueue(t, "q", "", queue.Options{ID: "later", Key: pause.Key, Delay: 9 * time.Hour})
		w.enqueue(t, "q", "", queue.Options{ID: "other", Key: "b"})
		var got []string
		for range 30 { // each reserve looks at some of them
			got = append(got, w.ids(t, node)...)
		}
		if fmt.Sprint(got) != "[other]" {
			t.Fatalf("%v", got)
		}
		list := must[[]manage.Pause](t)(pauses.List(w.ctx))
		pause.Since = list[0].Since
		if len(list) != 1 || list[0] != pause || pause.Since == 0 {
			t.Errorf("%+v", list)
		}
		if of := must[[][]manage.Pause](t)(pauses.Of(w.ctx, "q"))[0]; len(of) != 0 {
			t.Errorf("the whole queue is paused: %+v", of)
		}
		if task := w.task(t, want[0]); !task.Held || task.Run != 0 {
			t.Errorf("%+v", task)
		}
		w.at(3600)
		for range 2 { // the second changes nothing
			if err := pauses.Resume(w.ctx, pause); err != nil {
				t.Fatal(err)
			}
		}
		w.at(3601)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		got = nil
		for range 4 {
			got = append(got, w.ids(t, node)...)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d tasks: %v", len(got), got)
		}
		if list := must[[]manage.Pause](t)(pauses.List(w.ctx)); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		w.enqueue(t, "q", "", queue.Options{ID: "x", Key: "b"})
		w.enqueue(t, "q", "", queue.Options{ID: "y", Key: "b"})
		w.putOff(t, node, w.upTo(t, node, "q", 1).Tasks[0], time.Hour)
		w.ids(t, node)
		if err := pauses.Resume(w.ctx, manage.Pause{Queue: "q", Key: "b"}); err != nil {
			t.Fatal(err)
		}
		w.at(3602)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		if got := w.ids(t, node); fmt.Sprint(got) != "[y]" {
			t.Errorf("%v", got)
		}
	})
}

// A key is paused although handlers hold as many keys as they may. If it cannot be held, it is not paused either.
func TestPauseOfAKeyBesideHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		holds := make([]redis.Z, 100_000)
		for i := range holds {
			holds[i] = redis.Z{Score: 1800000000, Member: fmt.Sprintf("%040x", i)}
		}
		held := w.Store().Keys.Held("q")
		must[int64](t)(w.rdb.ZAdd(w.ctx, held, holds...).Result())
		pauses, pause := manage.New(w.Client).Pauses(), manage.Pause{Queue: "q", Key: "paused"}
		if err := pauses.Pause(w.ctx, pause); err != nil {
			t.Fatal(err)
		}
		node := w.node(t, "q")
		w.enqueue(t, "q", "", queue.Options{ID: "x", Key: "b"})
		w.putOff(t, node, w.upTo(t, node, "q", 1).Tasks[0], time.Hour)
		w.enqueue(t, "q", "", queue.Options{ID: "y", Key: "b"})
		w.enqueue(t, "q", "", queue.Options{ID: "z", Key: "paused"})
		if got := w.ids(t, node); fmt.Sprint(got) != "[y]" {
			t.Errorf("%v, want the task whose key found no room", got)
		}
		w.rdb.Del(w.ctx, held)
		w.rdb.Set(w.ctx, held, "x", 0)
		pause.Key = "another"
		if err := pauses.Pause(w.ctx, pause); err == nil || !strings.Contains(err.Error(), "WRONGTYPE key "+held) {
			t.Errorf("%v", err)
		}
		if list := must[[]manage.Pause](t)(pauses.List(w.ctx)); len(list) != 1 || list[0].Key != "paused" {
			t.Errorf("%+v", list)
		}
	})
}

// Buckets of keys that come but once are forgotten as fast as they come.
func TestKeysThatComeOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"key_rate:q": "1/s"})
		node, specs := w.node(t, "q"), make([]queue.Spec, 6*listen.MaxReserve)
		for i := range specs {
			specs[i].Key = fmt.Sprint(i)
		}
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		for i := range 6 {
			w.at(float64(2 * i))
			got, n := w.ids(t, node), w.rdb.ZCard(w.ctx, w.Store().Keys.KeyRates("q")).Val()
			if len(got) != listen.MaxReserve || n != listen.MaxReserve {
				t.Fatalf("%d tasks, and %d buckets", len(got), n)
			}
		}
	})
}

func TestPauseOfAKeyIsChecked(t *testing.T) {
	for want, p := range map[string]manage.Pause{
		"name its queue":   {Key: "a"},
		"pause taking":     {Queue: "q", Key: "a", Accepting: true},
		"name one of them": {Queue: "q", Plugin: "p", Key: "a"},
		"key of the pause": {Queue: "q", Key: strings.Repeat("x", 1025)},
		"use 1 to 128":     {Queue: "no queue", Key: "a"},
	} {
		if err := p.Validate(); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}
