package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// A pause of taking reaches the queues of its scope, says who paused it and why, and ends with Resume.
func TestPausesOfTaking(t *testing.T) {
	w := setup(t)
	pauses := manage.New(w.Client).Pauses()
	node := w.node(t, "a", "b")
	begin := must[time.Time](t)(w.Clock(w.ctx))
	for _, scope := range []manage.Pause{{Queue: "a"}, {Plugin: "echo"}, {}} {
		scope.Who, scope.Reason = "ada@host", "a move of the \"database\"\nto another rack"
		for _, name := range []string{"a", "b"} {
			w.enqueue(t, name, "x", queue.Options{})
		}
		if err := pauses.Pause(w.ctx, scope); err != nil {
			t.Fatal(err)
		}
		list := must[[]manage.Pause](t)(pauses.List(w.ctx))
		if len(list) != 1 || list[0].Since < float64(begin.UnixMicro())/1e6-1 {
			t.Fatalf("%+v", list)
		}
		since := list[0].Since
		list[0].Since = 0
		if list[0] != scope {
			t.Errorf("%+v, want %+v", list[0], scope)
		}
		// Plugin echo runs queue a, plugin other runs b.
		taken := func() (names string) {
			for _, r := range [][2]string{{"a", "echo"}, {"b", "other"}} {
				batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: r[0], Count: 9, Start: true, Plugin: r[1], Digest: "sha256:0"}})[0]
				if batch.Err != nil {
					t.Fatal(batch.Err)
				}
				if len(batch.Tasks) > 0 {
					names += r[0]
				}
			}
			return names
		}
		want := "b"
		if scope.What() == "the tenant" {
			want = ""
		}
		if got := taken(); got != want {
			t.Errorf("during the pause of %s tasks of %q were taken, want %q", scope.What(), got, want)
		}
		of := must[[][]manage.Pause](t)(pauses.Of(w.ctx, "a", "b"))
		if got := fmt.Sprint(len(of[0]), len(of[1])); got != map[string]string{"the queue a": "1 0", "the plugin echo": "0 0", "the tenant": "1 1"}[scope.What()] {
			t.Errorf("%s: %s", scope.What(), got)
		}
		stats := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "a", "b"))
		if got := fmt.Sprint(stats[0].Paused, stats[1].Paused); got != fmt.Sprint(len(of[0]) > 0, len(of[1]) > 0) {
			t.Errorf("%s: %s", scope.What(), got)
		}
		if err := pauses.Pause(w.ctx, scope); err != nil { // once more
			t.Fatal(err)
		}
		if again := must[[]manage.Pause](t)(pauses.List(w.ctx)); len(again) != 1 || again[0].Since < since {
			t.Errorf("%+v", again)
		}
		for range 2 { // the second changes nothing
			if err := pauses.Resume(w.ctx, scope); err != nil {
				t.Fatal(err)
			}
		}
		if list := must[[]manage.Pause](t)(pauses.List(w.ctx)); len(list) > 0 {
			t.Errorf("%+v", list)
		}
		if got := taken(); !strings.Contains(got, "a") {
			t.Errorf("after the pause of %s only %q was taken", scope.What(), got)
		}
	}
	// The pause of an earlier version, and of somebody at redis-cli.
	w.rdb.SAdd(w.ctx, w.Store().Keys.Paused(), "a")
	if list := must[[]manage.Pause](t)(pauses.List(w.ctx)); len(list) != 1 || list[0] != (manage.Pause{Queue: "a"}) {
		t.Errorf("%+v", list)
	}
}

// A pause of accepting refuses new tasks by whatever way, and nothing else.
func TestPausesOfAccepting(t *testing.T) {
	w := setup(t)
	pauses := manage.New(w.Client).Pauses()
	w.enqueue(t, "a", "x", queue.Options{ID: "before"})
	must[queue.Subscription](t)(w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Queue: "a"}))
	for _, scope := range []manage.Pause{{Queue: "a", Accepting: true}, {Accepting: true}} {
		scope.Who, scope.Reason = "ada", "the disk is full"
		if err := pauses.Pause(w.ctx, scope); err != nil {
			t.Fatal(err)
		}
		if keys := w.rdb.HGetAll(w.ctx, w.Store().Keys.Limits()).Val(); keys[".."] != "p" {
			t.Errorf("limits %v", keys)
		}
		_, plain := w.Queue("a").Enqueue(w.ctx, []byte("x"), queue.Options{})
		_, late := w.Queue("a").Enqueue(w.ctx, []byte("x"), queue.Options{Delay: time.Hour})
		_, published := w.Publish(w.ctx, "orders", nil, queue.PublishOptions{})
		for way, err := range map[string]error{"enqueue": plain, "schedule": late, "publish": published} {
			if !errors.Is(err, manage.ErrPaused) || !errors.Is(err, queue.ErrQueueFull) ||
				!strings.Contains(err.Error(), ", paused by ada: the disk is full") {
				t.Errorf("%s during the pause of %s: %v", way, scope.What(), err)
			}
		}
		w.enqueue(t, "a", "x", queue.Options{ID: "before"}) // a repeat makes no task
		_, other := w.Queue("b").Enqueue(w.ctx, []byte("x"), queue.Options{})
		if got := errors.Is(other, manage.ErrPaused); got != (scope.Queue == "") {
			t.Errorf("another queue: %v", other)
		}
		if stats := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "a")); stats[0].Paused {
			t.Error("no tasks are taken")
		}
		if err := pauses.Resume(w.ctx, scope); err != nil {
			t.Fatal(err)
		}
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Limits(), w.Store().Keys.Pauses()).Val(); n != 0 {
			t.Errorf("%d keys stay", n)
		}
		w.enqueue(t, "a", "x", queue.Options{})
	}
	// The mark of others stays.
	w.rdb.HSet(w.ctx, w.Store().Keys.Limits(), "..", "er")
	one := manage.Pause{Queue: "a", Accepting: true}
	for _, err := range []error{pauses.Pause(w.ctx, one), pauses.Pause(w.ctx, one), pauses.Resume(w.ctx, one)} {
		if err != nil {
			t.Error(err)
		}
	}
	if mark := w.rdb.HGet(w.ctx, w.Store().Keys.Limits(), "..").Val(); mark != "er" {
		t.Errorf("mark %q", mark)
	}
}

func TestPausesRefuse(t *testing.T) {
	w := setup(t)
	pauses := manage.New(w.Client).Pauses()
	for _, one := range []manage.Pause{
		{Queue: "a b"},
		{Plugin: "a b"},
		{Queue: "a", Plugin: "a"},
		{Plugin: "a", Accepting: true},
		{Reason: strings.Repeat("x", 1025)},
		{Reason: "\xff"},
	} {
		if err := pauses.Pause(w.ctx, one); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%+v: %v", one, err)
		}
	}
}
