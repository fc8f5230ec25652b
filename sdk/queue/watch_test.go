package queue_test

import (
	"context"
	"errors"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// watch runs a watch; what it wakes comes on the channel.
func (w *world) watch(t testing.TB) (*listen.Watch, <-chan string) {
	t.Helper()
	watch := listen.NewWatch(w.Client)
	wakes := make(chan string, 1000)
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch.Run(ctx, func(queue string) { wakes <- queue })
	}()
	t.Cleanup(func() { cancel(); <-ended; _ = watch.Close() })
	return watch, wakes
}

// woken takes the next wakes, one of each queue, in any order.
func woken(t testing.TB, what string, wakes <-chan string, queues ...string) {
	t.Helper()
	missing := make(map[string]bool)
	for _, queue := range queues {
		missing[queue] = true
	}
	for len(missing) > 0 {
		queue := receive(t, what, wakes)
		if !missing[queue] {
			t.Fatalf("%s: woken for %q, still missing %v", what, queue, missing)
		}
		delete(missing, queue)
	}
}

func TestWatch(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		watch, wakes := w.watch(t)
		if err := errors.Join(watch.Add(w.ctx, "a"), watch.Add(w.ctx, "b")); err != nil {
			t.Fatal(err)
		}
		woken(t, "the confirmations", wakes, "a", "b")
		w.enqueue(t, "a", "", queue.Options{})
		woken(t, "a message", wakes, "a")
		if err := watch.Add(w.ctx, "c"); err != nil {
			t.Fatal(err)
		}
		woken(t, "a confirmation of one more", wakes, "c")

		if err := watch.Remove(w.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "a", "", queue.Options{})
		w.enqueue(t, "c", "", queue.Options{})
		woken(t, "a message of another", wakes, "c")

		w.enqueue(t, "b", "", queue.Options{})
		woken(t, "a message of a third", wakes, "b")
	})
}

// Each kind of transition that makes work announces it.
func TestWhatWakes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Clock = "1700000000.000000"
		watch, wakes := w.watch(t)
		if err := errors.Join(watch.Add(w.ctx, "q"), watch.Add(w.ctx, "end")); err != nil {
			t.Fatal(err)
		}
		woken(t, "the confirmations", wakes, "q", "end")
		q := w.Queue("q")

		must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{{}, {}, {}}))
		woken(t, "three tasks together", wakes, "q")
		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		if errs, err := node.Release(w.ctx, "q", []listen.Claim{{ID: got.ID, Run: got.Run}}); err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		woken(t, "a release", wakes, "q")
		w.enqueue(t, "q", "", queue.Options{Delay: 20e9})
		woken(t, "the first scheduled task", wakes, "q")
		w.enqueue(t, "q", "", queue.Options{Delay: 30e9}) // later than the first: nothing changes
		w.enqueue(t, "q", "", queue.Options{Delay: 10e9})
		woken(t, "an earlier scheduled task", wakes, "q")
		w.Store().Clock = "1700000015.000000"
		must[int](t)(enqueueDue(w.ctx, q))
		woken(t, "a due task", wakes, "q")
		must[int](t)(enqueueDue(w.ctx, q)) // none is due

		w.enqueue(t, "end", "", queue.Options{})
		woken(t, "nothing further of q", wakes, "end")
	})
}

func TestWatchOverARestart(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, durable...)
	w := newWorld(t, server.URL())
	watch, wakes := w.watch(t)
	if err := errors.Join(watch.Add(w.ctx, "a"), watch.Add(w.ctx, "b")); err != nil {
		t.Fatal(err)
	}
	woken(t, "the confirmations", wakes, "a", "b")
	server.Kill()
	_ = watch.Add(w.ctx, "c") // whether it notices or not that Redis is away
	server.Restart(t)
	woken(t, "the confirmations after the restart", wakes, "a", "b", "c")
	w.enqueue(t, "c", "", queue.Options{})
	woken(t, "a message after the restart", wakes, "c")
}

func TestWatchEndsWhenItIsClosed(t *testing.T) {
	w := setup(t)
	watch := listen.NewWatch(w.Client)
	if err := watch.Add(w.ctx, "q"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch.Run(w.ctx, func(string) {})
	}()
	if err := watch.Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of Run", ended)
}
