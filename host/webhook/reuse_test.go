package webhook_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What is published after a subscription was made again, or has got another URL, goes to the new URL at once, also while a host still
// knows the old one.
func TestPublishedToANewURL(t *testing.T) {
	for name, change := range map[string]func(w *world, url string){
		"made again": func(w *world, url string) {
			check(w.t, w.Unsubscribe(w.ctx, "s"))
			w.subscribe("s", queue.Webhook{URL: url}, fast)
		},
		"changed": func(w *world, url string) {
			_, err := w.ChangeSubscription(w.ctx, "s", func(s *queue.Subscription) error { s.Webhook.URL = url; return nil })
			check(w.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := setup(t, nil)
			w.subscribe("s", queue.Webhook{URL: w.server.URL + "/first"}, fast)
			w.publish("of the first")
			w.task("s") // the host knows it
			for i := range 3 {
				change(w, fmt.Sprint(w.server.URL, "/", i))
				p, err := w.Publish(w.ctx, "orders", []byte("of the next"), queue.PublishOptions{})
				check(t, err)
				if task, err := w.Wait(w.ctx, queue.PublishedID(p.ID, "s")); err != nil || task.Status != queue.Complete || task.Attempts > 1 {
					t.Errorf("%+v, %v", task, err)
				}
				if seen := w.seen(); len(seen) != i+2 || seen[i+1].URL.Path != fmt.Sprint("/", i) {
					t.Errorf("%d requests, the last to %s", len(seen), seen[len(seen)-1].URL.Path)
				}
			}
		})
	}
}

// A delivery has the secrets that its subscription has when it is sent, also while a host still knows the former ones: it was
// published after the change, or waited during it.
func TestChangedSecrets(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("s", queue.Webhook{}, fast)
	w.publish("unsigned")
	w.task("s") // the host knows it
	for i, waits := range []bool{false, false, true, true} {
		want := i%2 == 0
		publish := func() string {
			p, err := w.Publish(w.ctx, "orders", []byte("x"), queue.PublishOptions{})
			check(t, err)
			return queue.PublishedID(p.ID, "s")
		}
		var id string
		if waits {
			check(t, w.Queue("webhook.s").Pause(w.ctx))
			id = publish()
		}
		_, err := w.ChangeSubscription(w.ctx, "s", func(s *queue.Subscription) error {
			s.Webhook.Secrets, s.Webhook.SecretHeaders = nil, nil
			if want {
				s.Webhook.Secrets, s.Webhook.SecretHeaders = []string{"webhook.old"}, map[string]string{"Authorization": "webhook.key"}
			}
			return nil
		})
		check(t, err)
		if waits {
			check(t, w.Queue("webhook.s").Resume(w.ctx))
		} else {
			id = publish()
		}
		if task, err := w.Wait(w.ctx, id); err != nil || task.Status != queue.Complete || task.Attempts > 1 {
			t.Errorf("%+v, %v", task, err)
		}
		seen := w.seen()
		last := seen[len(seen)-1]
		if signed, has := last.Header.Get("Webhook-Signature") != "", last.Header.Get("Authorization") != ""; signed != want || has != want {
			t.Errorf("delivery %d: signed %t, with a secret header %t, want %t", i, signed, has, want)
		}
	}
}

// What waits for a subscription that was deleted is not delivered to another one of its ID, wherever that sends.
func TestReusedSubscription(t *testing.T) {
	w := idle(t)
	w.subscribe("s", queue.Webhook{URL: w.server.URL + "/first"}, fast)
	w.publish("of the first")
	check(t, w.Unsubscribe(w.ctx, "s"))
	w.subscribe("s", queue.Webhook{URL: w.server.URL + "/second"}, fast)
	w.publish("of the second")
	w.start(nil)
	tasks, err := manage.New(w.Client).Queue("webhook.s").List(w.ctx, manage.ListOptions{Limit: 10})
	check(t, err)
	ends := map[string]queue.Status{}
	for _, task := range tasks {
		task, err := w.Wait(w.ctx, task.ID)
		check(t, err)
		ends[string(task.Parameters)] = task.Status
	}
	if want := map[string]queue.Status{"of the first": queue.Failed, "of the second": queue.Complete}; !maps.Equal(ends, want) {
		t.Errorf("deliveries ended as %v, want %v", ends, want)
	}
	if seen := w.seen(); len(seen) != 1 || string(seen[0].body) != "of the second" {
		t.Errorf("sent: %+v", seen)
	}
}

// What somebody wrote into the queue of a webhook is not sent, and not signed, although it names a publication; what is published and
// delivered again is.
func TestNoForgedDelivery(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("s", queue.Webhook{Secrets: []string{"webhook.old"}}, fast)
	_, err := w.Publish(w.ctx, "orders", []byte("real"), queue.PublishOptions{ID: "p"})
	check(t, err)
	w.task("s")
	rdb := queuetest.Shared(t).Client(t)
	key, genuine := w.Tenant()+"_task_", queue.PublishedID("p", "s")
	headers, err := rdb.HGet(w.ctx, key+genuine, "headers").Result()
	check(t, err)
	check(t, rdb.HSet(w.ctx, key+"forged", "status", "pending", "queue", "webhook.s", "parameters", "forged", "headers", headers).Err())
	check(t, rdb.LPush(w.ctx, w.Tenant()+"_pending_tasks_webhook.s", "forged").Err())
	task, err := w.Wait(w.ctx, "forged")
	check(t, err)
	if text := task.Failure().Message; task.Status != queue.Failed || task.Attempts != 1 || !strings.Contains(text, "not a delivery of subscription s") {
		t.Errorf("%s after %d attempts: %s", task.Status, task.Attempts, text)
	}
	again, err := manage.New(w.Client).Replay(w.ctx, "s", time.Unix(1, 0), false)
	check(t, err)
	if _, err = w.Wait(w.ctx, again.Tasks[0]); err != nil {
		t.Fatal(err)
	}
	seen := w.seen()
	if len(seen) != 2 {
		t.Fatalf("%d requests", len(seen))
	}
	for _, r := range seen {
		if string(r.body) != "real" || r.Header.Get("Webhook-Id") != genuine {
			t.Errorf("%s %s", r.Header.Get("Webhook-Id"), r.body)
		}
	}
}
