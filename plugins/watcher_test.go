package plugins

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

// gathering runs a watcher on events that the test sends, in a bubble with a clock of its own.
func gathering(t *testing.T, test func(w *watcher, events chan<- fsnotify.Event)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{logger: hclog.NewNullLogger(), wake: make(chan struct{}, 1)}
		entry := "/srv/handlers"
		w.entry.Store(&entry)
		events := make(chan fsnotify.Event)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { w.gather(ctx, events, nil) })
		test(w, events)
		cancel()
		done.Wait()
	})
}

func TestGatherWaitsForQuiet(t *testing.T) {
	t.Parallel()
	gathering(t, func(w *watcher, events chan<- fsnotify.Event) {
		began := time.Now()
		for range 3 {
			events <- fsnotify.Event{Name: "/srv/handlers/a.wasm"}
			<-time.After(40 * time.Millisecond)
		}
		<-w.wake
		if took := time.Since(began); took != 180*time.Millisecond {
			t.Errorf("woken after %s, want 100ms after the last event", took)
		}
		synctest.Wait()
		select {
		case <-w.wake:
			t.Error("woken twice")
		case <-time.After(time.Minute):
		}
	})
}

func TestGatherIsNotStarved(t *testing.T) {
	t.Parallel()
	gathering(t, func(w *watcher, events chan<- fsnotify.Event) {
		began, wakes := time.Now(), 0
		for time.Since(began) < 5*time.Second {
			events <- fsnotify.Event{Name: "/srv/handlers/a.wasm"}
			select {
			case <-w.wake:
				wakes++
			case <-time.After(50 * time.Millisecond):
			}
		}
		if wakes < 8 || wakes > 10 {
			t.Errorf("%d wakes in 5s, want one each 500ms", wakes)
		}
	})
}

func TestGatherLeavesOutNeighbors(t *testing.T) {
	t.Parallel()
	gathering(t, func(w *watcher, events chan<- fsnotify.Event) {
		events <- fsnotify.Event{Name: "/srv/other"}
		select {
		case <-w.wake:
			t.Error("woken for a neighbor of the directory")
		case <-time.After(time.Minute):
		}
		events <- fsnotify.Event{Name: "/srv/handlers"}
		<-w.wake
	})
}

// Where nothing tells of changes, the ticker finds them.
func TestTickerAlone(t *testing.T) {
	t.Parallel()
	f := prepared(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 1)) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	watch := newWatcher(f.dir, f.cfg.Logger)
	check(t, watch.notify.Close())
	watch.notify = nil
	var reconciler sync.WaitGroup
	reconciler.Go(func() { newReconciler(f.cfg, f.loader, &f.public, watch).run(ctx) })
	<-f.Ready()
	f.write("a.wasm", guest(t, 2))
	within(t, "a change that nothing tells of", func() error {
		if f.runs("acme", "a") != output(2) {
			return errors.New("the change is not served")
		}
		return nil
	})
	cancel()
	reconciler.Wait()
}
