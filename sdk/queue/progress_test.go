package queue_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/worker"
)

func TestProgress(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		processor, task := w.taken(t, "q", "")
		must[[]byte](t)(processor.Start(w.ctx, 0))
		for _, c := range []struct {
			fraction, want float64
			message        string
		}{{0.25, 0.25, "a quarter"}, {2, 1, "bad \xff"}, {-1, 0, strings.Repeat("é", store.MaxMessage)}, {math.Inf(1), 1, ""}} {
			if err := processor.Progress(w.ctx, c.fraction, c.message); err != nil {
				t.Fatal(err)
			}
			read := w.task(t, task.ID)
			if read.Progress != c.want || len(read.Message) > store.MaxMessage || !strings.HasPrefix(store.ValidText(c.message), read.Message) {
				t.Errorf("%v: %v %.20q", c.fraction, read.Progress, read.Message)
			}
		}
		if err := processor.Release(w.ctx); err != nil {
			t.Fatal(err)
		}
		if read := w.task(t, task.ID); read.Progress != 0 || read.Message != "" {
			t.Errorf("given back: %+v", read)
		}
		if err := processor.Progress(w.ctx, 1, ""); !errors.Is(err, queue.ErrLost) {
			t.Errorf("of what is not held: %v", err)
		}
		node := w.node(t, "q")
		if errs := node.Progress(w.ctx, []listen.ProgressReport{{Claim: listen.Claim{ID: "none", Run: 1}, Queue: "q"}}); !errors.Is(errs[0], queue.ErrNoTask) {
			t.Errorf("of no task: %v", errs)
		}
	})
}

// A checkpoint is there in the next run, after a crash and after a retry, and gone when it is complete.
func TestCheckpointsSurvive(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "\xff", queue.Options{})
		next := func() (*worker.Processor, *listen.Node) {
			node := w.node(t, "q")
			got := w.reserve(t, node, "q", true)
			return worker.NewProcessor(w.Client, &queue.Task{ID: id, Queue: "q", Node: node.ID(), Run: got.Run, Retry: queue.Retry{MaxAttempts: 9, Min: time.Millisecond, Max: time.Millisecond}}), node
		}
		kept := func(want string) {
			t.Helper()
			if got := must[[]byte](t)(listen.New(w.Client).ReadCheckpoint(w.ctx, id)); string(got) != want {
				t.Errorf("kept is %q, want %q", got, want)
			}
		}
		p, node := next()
		kept("")
		for _, text := range []string{"one", "", "\xfe two"} {
			if err := p.Checkpoint(w.ctx, []byte(text)); err != nil {
				t.Fatal(err)
			}
			kept(text)
		}
		w.reclaimFrom(t, node)
		if err := p.Checkpoint(w.ctx, []byte("stale")); !errors.Is(err, queue.ErrLost) {
			t.Errorf("of what is not held: %v", err)
		}
		p, _ = next()
		if got := must[[]byte](t)(listen.New(w.Client).ReadCheckpoint(w.ctx, id)); string(got) != "\xfe two" {
			t.Errorf("after the crash %q", got)
		}
		if err := p.Retry(w.ctx, queue.Failure{}, queue.Retry{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the retry", func() bool { return must[int](t)(enqueueDue(w.ctx, w.Queue("q"))) == 1 })
		p, _ = next()
		kept("\xfe two")
		if err := p.Checkpoint(w.ctx, bytes.Repeat([]byte{1}, listen.MaxCheckpoint+1)); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("too many bytes: %v", err)
		}
		if err := p.Fail(w.ctx, queue.Failure{}); err != nil {
			t.Fatal(err)
		}
		kept("\xfe two") // for a retry by hand
		if err := w.Queue("q").Retry(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		p, _ = next()
		if err := p.Complete(w.ctx, nil); err != nil {
			t.Fatal(err)
		}
		kept("")
		if task := w.task(t, id); string(task.Parameters) != "\xff" {
			t.Errorf("%+v", task)
		}
	})
}
