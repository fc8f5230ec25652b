package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Nobody makes a task in a webhook's queue, or under the ID of a delivery or a dead letter, except by publishing: neither at once, nor
// as a dead letter, a child, an event, or the tick of a schedule.
func TestReserved(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{ID: "hook", Topic: "orders", Webhook: &queue.Webhook{URL: "https://example.com"}})
		const hooks = "webhook.hook"
		q, deliveries := w.Queue("q"), w.Queue(hooks)
		child := func(name string, o queue.Options) error {
			return (&listen.Child{Queue: name, Spec: queue.Spec{Options: o}}).Validate()
		}
		delivery := queue.PublishedID("p", "hook")
		letter := strings.Replace(delivery, "pub", "dead", 1)
		for name, err := range map[string]error{
			"Enqueue":          second(deliveries.Enqueue(w.ctx, nil, queue.Options{})),
			"EnqueueMany":      second(deliveries.EnqueueMany(w.ctx, []queue.Spec{{}})),
			"Delayed":          second(deliveries.Enqueue(w.ctx, nil, queue.Options{Delay: time.Hour})),
			"Dead":             second(q.Enqueue(w.ctx, nil, queue.Options{Dead: hooks})),
			"Child":            child(hooks, queue.Options{ID: "a"}),
			"ChildDead":        child("q", queue.Options{ID: "a", Dead: hooks}),
			"ChildID":          child("q", queue.Options{ID: delivery}),
			"ID":               second(q.Enqueue(w.ctx, nil, queue.Options{ID: delivery})),
			"ReplayID":         second(q.Enqueue(w.ctx, nil, queue.Options{ID: delivery + "-again"})),
			"LetterID":         second(q.EnqueueMany(w.ctx, []queue.Spec{{}, {Options: queue.Options{ID: letter}}})),
			"Schedule":         second(w.PutSchedule(w.ctx, queue.Schedule{ID: "s", Queue: hooks, Cron: "@daily"}, false)),
			"Subscription":     second(w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "t", Queue: hooks})),
			"SubscriptionDead": second(w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "t", Queue: "q", Dead: hooks})),
			"WebhookDead": second(w.ChangeSubscription(w.ctx, "hook", func(s *queue.Subscription) error {
				s.Dead = "webhook.other"
				return nil
			})),
		} {
			if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "webhook. ") && !strings.Contains(err.Error(), "choose another") {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"q", hooks} {
			if tasks := must[[]*queue.Task](t)(manage.New(w.Client).Queue(name).List(w.ctx, manage.ListOptions{})); len(tasks) > 0 {
				t.Errorf("%s has %d tasks", name, len(tasks))
			}
		}
		for _, id := range []string{"pub-1", "dead-letter", "webhook.hook"} {
			must[string](t)(q.Enqueue(w.ctx, nil, queue.Options{ID: id})) // which stand for nothing
		}

		hook, other := must[queue.Subscription](t)(w.Subscription(w.ctx, "hook")), queue.Subscription{ID: "other"}
		w.publish(t, "orders", "a", queue.PublishOptions{ID: "p"})
		again := must[manage.Replayed](t)(manage.New(w.Client).Replay(w.ctx, "hook", time.Unix(1, 0), false))
		for _, id := range append(again.Tasks, delivery) {
			task := must[*queue.Task](t)(w.Task(w.ctx, id))
			if is, ok := hook.DeliveryID(task.ID, task.Headers); !ok || is != delivery || task.Queue != hooks {
				t.Errorf("delivery %s is %s, %v", id, is, ok)
			}
			if _, ok := other.DeliveryID(task.ID, task.Headers); ok {
				t.Errorf("%s passes for a delivery of another subscription", id)
			}
			if _, ok := hook.DeliveryID("hand", task.Headers); ok {
				t.Errorf("a task with the headers of %s passes for a delivery", id)
			}
		}

		if err := w.Unsubscribe(w.ctx, "hook"); err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{hook.Webhook.URL, hook.Webhook.URL + "/else"} {
			w.subscribe(t, queue.Subscription{ID: "hook", Topic: "orders", Webhook: &queue.Webhook{URL: url}})
			anew := must[queue.Subscription](t)(w.Subscription(w.ctx, "hook"))
			later := w.publish(t, "orders", "b", queue.PublishOptions{}).ID
			same := url == hook.Webhook.URL
			for id, want := range map[string]bool{delivery: same, again.Tasks[0]: same, queue.PublishedID(later, "hook"): true} {
				if _, ok := anew.DeliveryID(id, must[*queue.Task](t)(w.Task(w.ctx, id)).Headers); ok != want {
					t.Errorf("that %s passes for a delivery of a later subscription to %s: %v, want %v", id, url, ok, want)
				}
			}
			moved := must[queue.Subscription](t)(w.ChangeSubscription(w.ctx, "hook", func(s *queue.Subscription) error { s.Webhook.URL += "/moved"; return nil }))
			if _, ok := moved.DeliveryID(queue.PublishedID(later, "hook"), must[*queue.Task](t)(w.Task(w.ctx, queue.PublishedID(later, "hook"))).Headers); !ok {
				t.Errorf("what waits for %s does not follow the change of its URL", url)
			}
			if err := w.Unsubscribe(w.ctx, "hook"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What an older version stored with a reserved queue can still be read and paused.
func TestReservedBefore(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := w.rdb.HSet(w.ctx, w.Store().Keys.Subscriptions(), "old", `{"id":"old","topic":"t","queue":"q","dead":"webhook.old","active":true}`).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.ChangeSubscription(w.ctx, "old", func(s *queue.Subscription) error { s.Active = false; return nil }); err != nil {
			t.Error(err)
		}
	})
}
