package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// A tenant that has as many queues as it may have gets no other one, whichever way; it goes on with those that it has.
func TestMaxQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := listen.NewFleet(w.Client).SetMaxQueues(w.ctx, 3); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			w.enqueue(t, name, "", queue.Options{})
		}
		w.subscribe(t, queue.Subscription{ID: "hook", Topic: "orders", Webhook: &queue.Webhook{URL: "https://example.com"}})
		node := w.node(t, "a")
		hold := w.reserve(t, node, "a", true)
		for name, err := range map[string]error{
			"Enqueue":      second(w.Queue("new").Enqueue(w.ctx, []byte("x"), queue.Options{})),
			"EnqueueMany":  second(w.Queue("new").EnqueueMany(w.ctx, []queue.Spec{{}, {}})),
			"Options":      second(w.Queue("new").Enqueue(w.ctx, nil, queue.Options{Delay: time.Hour, Key: "k"})),
			"Once":         second(w.Queue("new").EnqueueMany(w.ctx, []queue.Spec{{Options: queue.Options{ID: "once", Once: time.Hour}}})),
			"Subscription": second(w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "t", Queue: "new"})),
			"Webhook":      second(w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "t", Webhook: &queue.Webhook{URL: "https://example.com"}})),
			"Change":       second(w.ChangeSubscription(w.ctx, "hook", func(s *queue.Subscription) error { s.Webhook, s.Queue = nil, "new"; return nil })),
			"Schedule":     second(w.PutSchedule(w.ctx, queue.Schedule{ID: "s", Queue: "new", Cron: "@daily"}, false)),
		} {
			if !errors.Is(err, queue.ErrManyQueues) || !strings.Contains(err.Error(), "may have 3 queues: use an existing queue, or raise --max-queues") {
				t.Errorf("%s: %v", name, err)
			}
		}
		// A dead letter without a queue stays in its task.
		w.settle(t, node, "a", listen.Settlement{Claim: hold.Claim(), Failure: &queue.Failure{Reason: queue.ReasonError}})
		failing := w.enqueue(t, "b", "", queue.Options{Dead: "letters", ID: "failing"})
		w.reserveMany(t, w.node(t, "b"), "b", 1, true)
		other := w.node(t, "b")
		last := w.reserve(t, other, "b", true)
		errs := must[[]error](t)(other.Settle(w.ctx, "b", []listen.Settlement{{Claim: last.Claim(), Failure: &queue.Failure{Reason: queue.ReasonError}}}))
		if !errors.Is(errs[0], queue.ErrNoLetter) || !strings.Contains(w.task(t, failing).DeadError, "may have 3 queues") {
			t.Errorf("%v; %+v", errs, w.task(t, failing))
		}
		if names := slices.Sorted(maps.Keys(must[map[string]int64](t)(w.Queues(w.ctx)))); !slices.Equal(names, []string{"a", "b", "webhook.hook"}) {
			t.Errorf("%v", names)
		}
		for _, key := range []string{w.Store().Keys.Index("new"), w.Store().Keys.Pending("new"), w.Store().Keys.Scheduled("new"), w.Store().Keys.Task("once"), w.Store().Keys.Schedule("s")} {
			if w.rdb.Exists(w.ctx, key).Val() != 0 {
				t.Errorf("%s exists", key)
			}
		}

		w.enqueue(t, "a", "", queue.Options{Delay: time.Hour})
		// Queues that only subscriptions name are forgotten, because nothing is in them; they count nevertheless.
		w.rdb.ZRem(w.ctx, w.Store().Keys.Queues(), "b", "webhook.hook")
		for i, fits := range []bool{true, true, false} {
			name := fmt.Sprint("quiet", i)
			_, err := w.Subscribe(w.ctx, queue.Subscription{ID: name, Topic: "t", Queue: name})
			if w.rdb.ZRem(w.ctx, w.Store().Keys.Queues(), name); (err == nil) != fits || err != nil && !errors.Is(err, queue.ErrManyQueues) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := w.ChangeSubscription(w.ctx, "hook", func(s *queue.Subscription) error { s.Active = false; return nil }); err != nil {
			t.Error(err)
		}
		w.node(t, "served") // a host's or worker's own
		if limits := must[map[string]int64](t)(manage.New(w.Client).Limits(w.ctx)); len(limits) != 0 {
			t.Errorf("%v", limits)
		}
		if err := listen.NewFleet(w.Client).SetMaxQueues(w.ctx, 0); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "new", "", queue.Options{})
	})
}

// Pages of queues are those of all, and end.
func TestQueuePages(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range 5 {
			w.enqueue(t, fmt.Sprint(i), "", queue.Options{})
		}
		for most, pages := range map[int64]int{2: 3, 5: 2, 6: 1} {
			seen, from := make(map[string]int64), int64(0)
			for range pages {
				page, next, err := listen.NewFleet(w.Client).QueuePage(w.ctx, from, most)
				if err != nil {
					t.Fatal(err)
				}
				maps.Copy(seen, page)
				from = next
			}
			if len(seen) != 5 || from != 0 {
				t.Errorf("pages of %d: %v, then from %d", most, seen, from)
			}
		}
	})
}
