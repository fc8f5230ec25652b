package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// The load of a queue is what its hosts have to do, also before there is a host.
func TestLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		mail := manage.New(w.Client).Queue("mail")
		load := func(want manage.Load) {
			t.Helper()
			if got := must[manage.Load](t)(mail.Load(w.ctx)); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		load(manage.Load{})
		w.enqueue(t, "mail", "started", queue.Options{})
		node, _ := w.held(t, "mail")
		w.enqueue(t, "mail", "reserved", queue.Options{})
		w.reserve(t, node, "mail", false)
		w.enqueue(t, "mail", "pending", queue.Options{})
		low := 10
		w.enqueue(t, "mail", "low", queue.Options{Priority: &low})
		w.enqueue(t, "mail", "fair", queue.Options{FairKey: "a"})
		w.enqueue(t, "mail", "later", queue.Options{Delay: 10 * time.Second})
		w.enqueue(t, "other", "pending", queue.Options{})
		load(manage.Load{Waiting: 3, Running: 2})
		w.at(9.9)
		load(manage.Load{Waiting: 3, Running: 2})
		w.at(10)
		load(manage.Load{Waiting: 3, Due: 1, Running: 2})

		// A new schedule is due, because hosts plan its ticks. So is a tick that nobody has fired.
		for _, name := range []string{"mail", "other"} {
			w.put(t, queue.Schedule{ID: "each-" + name, Queue: name, Cron: "@hourly"})
		}
		load(manage.Load{Waiting: 3, Due: 2, Running: 2})
		if err := w.PauseSchedule(w.ctx, "each-mail"); err != nil {
			t.Fatal(err)
		}
		load(manage.Load{Waiting: 3, Due: 1, Running: 2})

		if err := w.Store().RDB.Set(w.ctx, w.Store().Keys.Scheduled("mail")+"x", "", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := manage.New(w.Client).Queue("mailx").Load(w.ctx); err == nil || !strings.Contains(err.Error(), `"mailx"`) {
			t.Errorf("a damaged queue: %v", err)
		}
	})
}
