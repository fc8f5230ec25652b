package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/worker"
)

func ptr[T any](value T) *T { return &value }

func TestRetryDelays(t *testing.T) {
	t.Parallel()
	seconds := func(list ...float64) (delays []time.Duration) {
		for _, s := range list {
			delays = append(delays, time.Duration(s*float64(time.Second)))
		}
		return delays
	}
	for name, c := range map[string]struct {
		policy queue.Retry
		want   []time.Duration // after the first, second, ... attempt
	}{
		"default":      {queue.Retry{}, seconds(1, 2, 4, 8, 16, 32)},
		"linear":       {queue.Retry{Backoff: queue.Linear}, seconds(1, 2, 3, 4, 5, 6)},
		"base":         {queue.Retry{Base: 3 * time.Second}, seconds(3, 6, 12, 24)},
		"linear, base": {queue.Retry{Backoff: queue.Linear, Base: 5 * time.Second}, seconds(5, 10, 15)},
		"max":          {queue.Retry{Max: 5 * time.Second}, seconds(1, 2, 4, 5, 5)},
		"min":          {queue.Retry{Min: 3 * time.Second}, seconds(3, 3, 4, 8)},
		"short base":   {queue.Retry{Base: 100 * time.Millisecond, Min: 10 * time.Millisecond}, seconds(0.1, 0.2, 0.4)},
		"short max":    {queue.Retry{Max: 500 * time.Millisecond}, seconds(0.5, 0.5)},
		"long min":     {queue.Retry{Min: 24 * time.Hour}, seconds(86400, 86400)},
	} {
		for i, want := range c.want {
			if got := c.policy.Delay(i + 1); got != want {
				t.Errorf("%s: after attempt %d %s, want %s", name, i+1, got, want)
			}
		}
		if got, most := c.policy.Delay(1<<40), c.policy.Most(); got != most {
			t.Errorf("%s: at last %s, want %s", name, got, most)
		}
		for n := range 20 {
			least, most := max(c.policy.Delay(n)/2, c.policy.Least()), c.policy.Delay(n)
			for range 50 {
				if got := c.policy.JitteredDelay(n); got < least || got > most {
					t.Fatalf("%s: with jitter %s after attempt %d, want %s to %s", name, got, n, least, most)
				}
			}
			fixed := c.policy
			fixed.Jitter = ptr(false)
			if got := fixed.JitteredDelay(n); got != most {
				t.Errorf("%s: without jitter %s, want %s", name, got, most)
			}
		}
	}
}

func TestRetryOver(t *testing.T) {
	t.Parallel()
	manifest := queue.Retry{
		MaxAttempts: 5, Backoff: queue.Linear, Base: 2 * time.Second, Min: time.Second, Max: time.Minute, Jitter: ptr(false),
		MaxAge: time.Hour, MaxReschedules: 7,
	}
	for name, c := range map[string]struct {
		task     queue.Retry
		attempts int
		check    func(queue.Retry) bool
	}{
		"nothing set":    {queue.Retry{}, 5, func(r queue.Retry) bool { return r == manifest }},
		"everything set": {queue.Retry{2, queue.Exponential, 3, 4, 5, ptr(true), 6, 8}, 2, func(r queue.Retry) bool { return r.Base == 3 && *r.Jitter && r.MaxAge == 6 }},
		"attempts":       {queue.Retry{MaxAttempts: 2}, 2, func(r queue.Retry) bool { return r.Backoff == queue.Linear && r.MaxAge == time.Hour }},
		"unlimited":      {queue.Retry{MaxAttempts: queue.Unlimited}, queue.Unlimited, func(r queue.Retry) bool { return r.Base == 2*time.Second }},
		"an age":         {queue.Retry{MaxAge: time.Minute}, queue.Unlimited, func(r queue.Retry) bool { return r.MaxAge == time.Minute }},
	} {
		got := c.task.WithDefaults(manifest)
		if got.Attempts() != c.attempts || !c.check(got) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if r := (queue.Retry{}); r.Attempts() != 1 || r.AttemptsLeft(1) || r.Reschedules() != 1000 {
		t.Errorf("of nothing: %+v", r)
	}
	if r := (queue.Retry{MaxAttempts: 3}); !r.AttemptsLeft(2) || r.AttemptsLeft(3) || r.AttemptsLeft(4) {
		t.Error("three attempts are not three")
	}
}

func TestRetryIsValidated(t *testing.T) {
	w := setup(t)
	for _, policy := range []queue.Retry{
		{MaxAttempts: -2},
		{Backoff: "random"},
		{Base: -1},
		{Min: -1},
		{Max: -1},
		{MaxAge: -1},
		{MaxReschedules: -2},
		{Min: 2 * time.Second, Max: time.Second},
		{MaxAge: 200 * 365 * 24 * time.Hour},
	} {
		if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{Retry: policy}); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%+v: %v", policy, err)
		}
	}
	w.depth(t, "q", nil)
}

// What a task sets of its policy comes back from Redis, to whoever reads or reserves it.
func TestRetryIsKept(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		for i, policy := range []queue.Retry{
			{},
			{MaxAttempts: 3},
			{MaxAttempts: queue.Unlimited, Jitter: ptr(false)},
			{MaxAge: 90 * time.Second},
			{4, queue.Linear, 1500 * time.Millisecond, time.Second, time.Minute, ptr(true), time.Hour, 9},
		} {
			name := fmt.Sprint("q", i)
			id := w.enqueue(t, name, "", queue.Options{Retry: policy, Timeout: 5 * time.Second, Deadline: time.Unix(1800000000, 0)})
			task := w.task(t, id)
			reserved := w.reserve(t, w.node(t, name), name, true)
			text := func(r queue.Retry) string {
				return fmt.Sprintf("%+v %v", r.WithDefaults(queue.Retry{Jitter: nil}).Encode(), []any{r.MaxAttempts, r.MaxAge})
			}
			if text(task.Retry) != text(policy) || text(reserved.Retry) != text(policy) {
				t.Errorf("%+v\nread as %+v\nreserved as %+v", policy, task.Retry, reserved.Retry)
			}
			if reserved.Timeout != 5*time.Second || reserved.Deadline.Unix() != 1800000000 || task.Timeout != 5*time.Second || !task.Deadline.Equal(reserved.Deadline) {
				t.Errorf("%+v, %+v", task, reserved)
			}
			if want := policy.MaxAge > 0; reserved.Expires.Equal(reserved.Created.Add(policy.MaxAge)) != want {
				t.Errorf("expires at %s", reserved.Expires)
			}
		}
	})
}

// A task fails until its attempts are used up.
func TestRetryUntilExhausted(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		policy := queue.Retry{MaxAttempts: 3, Jitter: ptr(false)}
		id := w.enqueue(t, "q", "", queue.Options{Retry: policy})
		second := 0.0
		for attempt := 1; attempt <= 3; attempt++ {
			task := must[*queue.Task](t)(w.listener(t, "q").TryListen(w.ctx))
			if task == nil || task.Attempts != attempt-1 {
				t.Fatalf("attempt %d: %+v", attempt, task)
			}
			processor := worker.NewProcessor(w.Client, task)
			must[[]byte](t)(processor.Start(w.ctx, 0))
			for range 2 { // the repeat finds its mark
				if err := processor.Retry(w.ctx, queue.Failure{Reason: queue.ReasonTrap, Message: fmt.Sprint("no ", attempt)}, queue.Retry{MaxAttempts: 99}); err != nil {
					t.Fatal(err)
				}
			}
			read := w.task(t, id)
			if attempt == 3 {
				if read.Status != queue.Failed || read.Reason != queue.ReasonExhausted || read.Attempts != 3 || read.Failure().Message != "attempt 3 of 3: trap: no 3" {
					t.Errorf("at the end: %+v", read)
				}
				break
			}
			if read.Status != queue.Scheduled || read.Attempts != attempt || read.Node != "" || read.Error != "" || read.Reason != "" ||
				queue.ParseFailure(read.LastError).Message != fmt.Sprint("no ", attempt) {
				t.Errorf("after attempt %d: %+v", attempt, read)
			}
			if wait := read.ETA.Sub(read.Updated); wait != policy.Delay(attempt) {
				t.Errorf("after attempt %d it waits %s", attempt, wait)
			}
			w.depth(t, "q", map[queue.Status]int64{queue.Scheduled: 1})
			second += policy.Delay(attempt).Seconds()
			w.at(second)
			must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Failed: 1})
		history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id)))
		if len(history) != 3 {
			t.Fatalf("%+v", history)
		}
		for i, attempt := range history {
			outcome, reason := "retry", queue.ReasonTrap
			if i == 2 {
				outcome, reason = string(queue.Failed), queue.ReasonExhausted
			}
			if attempt.Run != int64(i+1) || attempt.Outcome != outcome || attempt.Failure == nil || attempt.Failure.Reason != reason ||
				attempt.Started.IsZero() || attempt.Ended.IsZero() || !store.IsQuernListener(attempt.Node) {
				t.Errorf("attempt %d: %+v", i+1, attempt)
			}
		}
	})
}

// A task with one attempt, Blueque's way, fails with its own reason.
func TestOneAttempt(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		processor, task := w.taken(t, "q", "")
		if err := processor.Retry(w.ctx, queue.Failure{Reason: queue.ReasonTimeout, Message: "late"}, queue.Retry{}); err != nil {
			t.Fatal(err)
		}
		if read := w.task(t, task.ID); read.Status != queue.Failed || read.Reason != queue.ReasonTimeout || read.Failure().Message != "late" {
			t.Errorf("%+v", read)
		}
	})
}

func TestReschedule(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", queue.Options{Retry: queue.Retry{MaxReschedules: 2}})
		for n := 1; n <= 3; n++ {
			task := must[*queue.Task](t)(w.listener(t, "q").TryListen(w.ctx))
			if err := worker.NewProcessor(w.Client, task).Reschedule(w.ctx, time.Minute, "not yet"); err != nil {
				t.Fatal(err)
			}
			read := w.task(t, id)
			if n == 3 {
				if read.Status != queue.Failed || read.Reason != queue.ReasonExhausted || read.Failure().Message != "put off 2 times (max_reschedules): not yet" {
					t.Errorf("%+v", read)
				}
				break
			}
			if read.Status != queue.Scheduled || read.Reschedules != n || read.Attempts != 0 || read.ETA.Sub(read.Updated) != time.Minute {
				t.Errorf("rescheduled %d times: %+v", n, read)
			}
			w.at(float64(60 * n))
			must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		}
	})
}

// A task whose producer puts it off itself fails instead, with the delay.
func TestNoReschedules(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, reject := range []bool{false, true} {
			id := w.enqueue(t, "q", "", queue.Options{Retry: queue.Retry{MaxReschedules: -1}})
			task := must[*queue.Task](t)(w.listener(t, "q").TryListen(w.ctx))
			processor := worker.NewProcessor(w.Client, task)
			var err error
			if reject {
				err = processor.Reject(w.ctx, "not here")
			} else {
				err = processor.Reschedule(w.ctx, time.Minute, "not yet")
			}
			if err != nil {
				t.Fatal(err)
			}
			read := w.task(t, id)
			failure := read.Failure()
			switch {
			case read.Status != queue.Failed:
				t.Errorf("%+v", read)
			case reject && failure.Reason != queue.ReasonRejected:
				t.Errorf("rejected: %+v", failure)
			case !reject && (failure.ExitCode == nil || *failure.ExitCode != listen.ExitLater || failure.RetryAfter != 60):
				t.Errorf("rescheduled: %+v", failure)
			}
		}
	})
}

// A delay that is over, and one that is to come, by Redis's clock.
func TestRescheduleDelay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		now := must[time.Time](t)(w.Client.Clock(w.ctx))
		processor, task := w.taken(t, "past", "")
		if err := processor.Reschedule(w.ctx, -time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		if read := w.task(t, task.ID); read.Status != queue.Pending {
			t.Errorf("%+v", read)
		}
		processor, task = w.taken(t, "future", "")
		if err := processor.Reschedule(w.ctx, time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		if read := w.task(t, task.ID); read.Status != queue.Scheduled || read.ETA.Sub(now).Round(time.Minute) != time.Hour {
			t.Errorf("%+v", read)
		}
	})
}

// What a listener would not have goes to another one, and back to it only if there is none.
func TestReject(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		second := 0.0
		id := w.enqueue(t, "q", "", queue.Options{})
		a, b := w.node(t, "q"), w.node(t, "q")
		w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("q"), "python_1") // may be long dead
		pass := func() {
			second += 70
			w.at(second)
			for _, node := range []*listen.Node{a, b} {
				if _, err := node.Renew(w.ctx, nil); err != nil && node == a {
					t.Fatal(err)
				}
			}
			must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		}
		reject := func(node *listen.Node) {
			t.Helper()
			got := w.reserve(t, node, "q", false)
			w.settle(t, node, "q", listen.Settlement{
				Claim: listen.Claim{ID: got.ID, Run: got.Run}, Failure: &queue.Failure{Reason: queue.ReasonRejected}, Requeue: listen.RequeueReject, Delay: time.Second,
			})
		}
		refused := func(node *listen.Node) {
			t.Helper()
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
			if len(batch.Tasks) != 0 || batch.Passed != 1 || batch.Err != nil || w.task(t, id).Status != queue.Scheduled {
				t.Errorf("reserved again: %+v", batch)
			}
		}
		reject(a)
		if task := w.task(t, id); task.Status != queue.Scheduled || task.Rejects != 1 || task.Attempts != 0 || task.ETA.Sub(task.Updated) != time.Second {
			t.Errorf("%+v", task)
		}
		pass()
		refused(a)
		pass()
		reject(b)
		pass()
		reject(a) // nobody is left who did not
		pass()
		// b is dead: a takes it though b comes in the listener set.
		c := w.node(t, "q")
		refused(a)
		pass()
		w.die(t, c)
		got := w.reserve(t, a, "q", true)
		if got.Rejects != 3 {
			t.Errorf("%+v", got)
		}
		history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id)))
		if len(history) != 3 || history[0].Outcome != "reject" || history[0].Node != a.ID() || history[1].Node != b.ID() {
			t.Errorf("%+v", history)
		}
	})
}

func TestRejectsHaveAnEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for rejects, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 6: time.Minute, 99: time.Minute, 100: 0} {
			w.at(0)
			name := fmt.Sprint("q", rejects)
			id := w.enqueue(t, name, "", queue.Options{})
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "rejects", rejects)
			task := must[*queue.Task](t)(w.listener(t, name).TryListen(w.ctx))
			if err := worker.NewProcessor(w.Client, task).Reject(w.ctx, "no room"); err != nil {
				t.Fatal(err)
			}
			read := w.task(t, id)
			if want == 0 {
				if read.Status != queue.Failed || read.Reason != queue.ReasonRejected {
					t.Errorf("after %d: %+v", rejects, read)
				}
			} else if read.Status != queue.Scheduled || read.ETA.Sub(read.Updated) != want {
				t.Errorf("after %d it waits %s, want %s", rejects, read.ETA.Sub(read.Updated), want)
			}
		}
	})
}

// Of those who rejected a task the last 16 are kept.
func TestRejectedByIsBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", queue.Options{})
		var last string
		for range 20 {
			node := w.node(t, "q")
			got := w.reserve(t, node, "q", false)
			w.settle(t, node, "q", listen.Settlement{Claim: listen.Claim{ID: id, Run: got.Run}, Failure: &queue.Failure{}, Requeue: listen.RequeueReject})
			last = node.ID()
		}
		by := strings.Fields(w.rdb.HGet(w.ctx, w.Store().Keys.Task(id), "rejected_by").Val())
		if len(by) != 16 || by[15] != last {
			t.Errorf("%d: %v", len(by), by)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		for i := 1; i <= 25; i++ {
			got := w.reserve(t, node, "q", true)
			s := listen.Settlement{Claim: listen.Claim{ID: id, Run: got.Run}}
			if i < 25 {
				s.Failure, s.Requeue = &queue.Failure{Message: fmt.Sprint("line\n", i)}, listen.RequeueRetry
			}
			w.settle(t, node, "q", s)
		}
		history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id)))
		var runs []int64
		for _, attempt := range history {
			runs = append(runs, attempt.Run)
		}
		if len(runs) != 21 || runs[0] != 5 || runs[20] != 25 || !slices.IsSorted(runs) {
			t.Fatalf("runs %v", runs)
		}
		if a := history[0]; a.Failure.Message != "line\n5" || a.Plugin != "p" || a.Digest != "sha256:0" || a.Node != node.ID() {
			t.Errorf("%+v", a)
		}
		if a := history[20]; a.Outcome != string(queue.Complete) || a.Failure != nil {
			t.Errorf("%+v", a)
		}
		w.rdb.RPush(w.ctx, w.Store().Keys.Attempts(id), "", "damaged", "a b c d e f g ")
		if history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id))); len(history) != 22 {
			t.Errorf("beside what is damaged: %d", len(history))
		}
	})
}

// An attempt keeps the name of the version that ran it, also if the next one has the same module.
func TestHistoryNamesVersions(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		id := w.enqueue(t, "q", "", queue.Options{})
		for _, version := range []string{"1.0.0", "", "2.0.0"} {
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, Plugin: "p", Digest: "sha256:0", Version: version}})[0]
			if len(batch.Tasks) != 1 {
				t.Fatalf("%+v", batch)
			}
			settlement := listen.Settlement{Claim: batch.Tasks[0].Claim(), Failure: &queue.Failure{Reason: queue.ReasonError}}
			if version != "2.0.0" {
				settlement.Requeue = listen.RequeueRetry
			}
			w.settle(t, node, "q", settlement)
		}
		var names []string
		for _, attempt := range must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id))) {
			names = append(names, attempt.Digest+" "+attempt.Version)
		}
		if got := strings.Join(names, ", "); got != "sha256:0 1.0.0, sha256:0 , sha256:0 2.0.0" {
			t.Errorf("versions: %s", got)
		}
	})
}

// By hand: only what has failed, and everything about it begins anew.
func TestRetryByHand(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q := w.Queue("q")
		id := w.enqueue(t, "q", "x", queue.Options{Retry: queue.Retry{MaxAttempts: 2, MaxAge: time.Minute}})
		node := w.node(t, "q")
		got := w.reserve(t, node, "q", true)
		hold := listen.Claim{ID: id, Run: got.Run}
		if err := q.Retry(w.ctx, id); !errors.Is(err, queue.ErrStatus) {
			t.Errorf("of what runs: %v", err)
		}
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{Reason: queue.ReasonTrap, Message: "no"}})
		w.at(100)
		if err := q.Retry(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		task := w.task(t, id)
		if task.Status != queue.Pending || task.Attempts != 0 || task.Crashes != 0 || task.Error != "" || task.Reason != "" || task.Node != "" ||
			!task.FinishedAt.IsZero() || task.RetriedAt.Unix() != 1700000100 || task.Expires.Unix() != 1700000160 ||
			queue.ParseFailure(task.LastError).Message != "no" {
			t.Errorf("%+v", task)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
		if errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: hold}}); err != nil || !errors.Is(errs[0], queue.ErrLost) {
			t.Errorf("the old run: %v, %v", errs, err)
		}
		again := w.reserve(t, node, "q", true)
		if again.Since().Unix() != 1700000100 {
			t.Errorf("it waits since %v, before it was retried", again.Since())
		}
		w.settle(t, node, "q", listen.Settlement{Claim: listen.Claim{ID: id, Run: again.Run}})
		history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id)))
		if len(history) != 2 || history[0].Outcome != string(queue.Failed) || history[0].Ended.Unix() != 1700000000 ||
			history[0].Failure.Reason != queue.ReasonTrap || history[1].Outcome != string(queue.Complete) {
			t.Errorf("%+v", history)
		}
		if err := q.Retry(w.ctx, id); !errors.Is(err, queue.ErrStatus) {
			t.Errorf("of what is complete: %v", err)
		}
		for name, target := range map[string]string{"none": "q", id: "another"} {
			if err := w.Queue(target).Retry(w.ctx, name); !errors.Is(err, queue.ErrNoTask) {
				t.Errorf("%s in %s: %v", name, target, err)
			}
		}
	})
}

// A task that waits for its next attempt runs at once, and keeps its counters. One that waits for its first is refused.
func TestRetryByHandOfWhatWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q := w.Queue("q")
		id := w.enqueue(t, "q", "x", queue.Options{Retry: queue.Retry{MaxAttempts: 3}})
		node := w.node(t, "q")
		run := w.reserve(t, node, "q", true).Run
		w.settle(t, node, "q", listen.Settlement{
			Claim: listen.Claim{ID: id, Run: run}, Failure: &queue.Failure{Message: "no"}, Requeue: listen.RequeueRetry, Delay: time.Hour,
		})
		w.at(10)
		if err := q.Retry(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		task := w.task(t, id)
		if task.Status != queue.Pending || task.Attempts != 1 || task.ETA.Unix() != 1700000010 || !task.RetriedAt.IsZero() {
			t.Errorf("%+v", task)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
		if again := w.reserve(t, node, "q", true); again.ID != id || again.Attempts != 1 {
			t.Errorf("%+v", again)
		}
		later := w.enqueue(t, "q", "x", queue.Options{Delay: time.Hour})
		if err := q.Retry(w.ctx, later); !errors.Is(err, queue.ErrStatus) || !strings.Contains(err.Error(), "is scheduled: only failed tasks, and those that wait for their next attempt") {
			t.Errorf("of a delayed task: %v", err)
		}
	})
}

// A cancelled task that never ran has no attempt in its history.
func TestRetryByHandOfWhatNeverRan(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{Delay: time.Hour})
		if _, err := w.Queue("q").Cancel(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := w.Queue("q").Retry(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if task := w.task(t, id); task.Status != queue.Pending || task.CancelAsked || !task.ETA.IsZero() {
			t.Errorf("%+v", task)
		}
		if history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id))); len(history) != 0 {
			t.Errorf("%+v", history)
		}
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "cancel", "1")
		batch := w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
		if failure := w.task(t, id).Failure(); batch.Passed != 1 || failure.Message != "cancelled before it ran" {
			t.Errorf("%+v: %+v", batch, failure)
		}
	})
}

// The age of a task that waits again counts from then, also if it had no fields of its own when it failed, or was Python's.
func TestRetryByHandOfAPlainTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, of := range []string{"quern", "python"} {
			w.at(0)
			id := w.enqueue(t, of, "", queue.Options{})
			if of == "python" {
				w.rdb.HDel(w.ctx, w.Store().Keys.Task(id), "run")
			}
			if _, err := w.Queue(of).Cancel(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			w.at(500)
			if err := w.Queue(of).Retry(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			w.at(550)
			batch := w.node(t, of).Reserve(w.ctx, []listen.ReserveRequest{{Queue: of, Count: 1, MaxAge: time.Minute}})[0]
			if batch.Err != nil || len(batch.Tasks) != 1 || batch.Tasks[0].Run != 1 {
				t.Errorf("%s: %+v", of, batch)
			}
		}
	})
}

// A deadline that is still to come holds for the retry too; one that is past does not.
func TestRetryByHandAndDeadlines(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for at, c := range map[float64]struct{ deadline, expires int64 }{50: {1700000200, 1700000200}, 300: {}} {
			w.at(0)
			id := w.enqueue(t, "q", "", queue.Options{Deadline: time.Unix(1700000200, 0)})
			if _, err := w.Queue("q").Cancel(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			w.at(at)
			if err := w.Queue("q").Retry(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			task := w.task(t, id)
			if max(0, task.Deadline.Unix()) != c.deadline || max(0, task.Expires.Unix()) != c.expires {
				t.Errorf("at %v: %+v", at, task)
			}
			if n := w.rdb.ZCard(w.ctx, w.Store().Keys.Expiry("q")).Val(); n != min(c.expires, 1) {
				t.Errorf("at %v: %d entries expire", at, n)
			}
			w.rdb.Del(w.ctx, w.Store().Keys.Expiry("q"), w.Store().Keys.Pending("q"))
		}
	})
}

// The uniqueness of a task is as long as the task is not finished, also when that is tried again by hand.
func TestRetryByHandOfWhatIsUnique(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q, unique := w.Queue("q"), queue.Unique{Key: "k"}
		key := w.Store().Keys.Unique("q", unique.Hash("q", nil))
		holder := func() string { return w.rdb.Get(w.ctx, key).Val() }
		first := w.enqueue(t, "q", "", queue.Options{Unique: &unique})
		node, hold := w.held(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{}})
		if is := holder(); is != "" {
			t.Errorf("%s still holds it", is)
		}
		second := w.enqueue(t, "q", "", queue.Options{Unique: &unique})
		if err := q.Retry(w.ctx, first); second == first || !errors.Is(err, queue.ErrStatus) || !strings.Contains(err.Error(), second) {
			t.Errorf("beside %s: %v", second, err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1, queue.Failed: 1})
		node, hold = w.held(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold})
		if is := holder(); is != "" {
			t.Errorf("%s still holds it", is)
		}
		if err := q.Retry(w.ctx, first); err != nil || holder() != first {
			t.Errorf("%v, and %q holds it", err, holder())
		}
		if third := w.enqueue(t, "q", "", queue.Options{Unique: &unique}); third != first {
			t.Errorf("%s beside %s", third, first)
		}
		// One that holds for a time is not given up.
		long := queue.Unique{For: time.Hour}
		for _, failure := range []*queue.Failure{nil, {}} {
			id := w.enqueue(t, "long", fmt.Sprint(failure), queue.Options{Unique: &long})
			node, hold := w.held(t, "long")
			w.settle(t, node, "long", listen.Settlement{Claim: hold, Failure: failure})
			if is := w.rdb.Get(w.ctx, w.Store().Keys.Unique("long", long.Hash("long", fmt.Append(nil, failure)))).Val(); is != id {
				t.Errorf("%q holds it, want %s", is, id)
			}
		}
	})
}

// Whoever would have a task tried again that was cancelled meanwhile hears so, and how its only run ended
// is told once.
func TestRetryOfWhatIsCancelled(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, again := range []listen.Requeue{listen.RequeueRetry, listen.RequeueReschedule, listen.RequeueReject} {
			name := string(again)
			id := w.enqueue(t, name, "", queue.Options{})
			node, hold := w.held(t, name)
			if _, err := w.Queue(name).Cancel(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			for i, want := range []error{queue.ErrCancelled, nil} {
				errs, err := node.Settle(w.ctx, name, []listen.Settlement{{Claim: hold, Failure: &queue.Failure{Reason: queue.ReasonTrap}, Requeue: again, Delay: time.Minute}})
				if err != nil || !errors.Is(errs[0], want) {
					t.Errorf("%s, settle %d: %v, %v", again, i+1, errs, err)
				}
			}
			history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, w.task(t, id)))
			if len(history) != 1 || history[0].Run != 1 || history[0].Outcome != string(queue.Failed) || history[0].Failure.Reason != queue.ReasonCancelled {
				t.Errorf("%s: %+v", again, history)
			}
		}
	})
}

// What handlers invent as a reason is an error like others, and no counter of its own.
func TestInventedReasons(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{ID: "id"})
		for i := range 5 {
			node, hold := w.held(t, "q")
			w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{Reason: queue.Reason(fmt.Sprint("mine ", i))}})
			if task := w.task(t, "id"); task.Reason != queue.ReasonError || task.Failure().Reason != queue.ReasonError {
				t.Errorf("%+v", task)
			}
			if err := w.Queue("q").Retry(w.ctx, "id"); err != nil {
				t.Fatal(err)
			}
		}
		stats := w.rdb.HGetAll(w.ctx, w.Store().Keys.Stats("q")).Val()
		if len(stats) != 3 || stats["failed:error"] != "5" {
			t.Errorf("%v", stats)
		}
	})
}

// A task whose ID was another's, of which a Python client deleted the hash alone, begins anew.
func TestAnIDThatAnotherClientDeleted(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "\xff", queue.Options{ID: "id"})
		node, hold := w.held(t, "q")
		must[any](t)(nil, errors.Join(append(node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: hold, Lines: []string{"x"}}}),
			node.Checkpoint(w.ctx, "q", hold, []byte("x")))...))
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{}, Requeue: listen.RequeueRetry})
		node, hold = w.held(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Failure: &queue.Failure{}})
		w.rdb.Del(w.ctx, w.Store().Keys.Task("id"))
		w.enqueue(t, "q", "new", queue.Options{ID: "id"})
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Bytes("id"), w.Store().Keys.Log("id"), w.Store().Keys.Attempts("id")).Val(); n != 0 {
			t.Errorf("%d keys are left of the old one", n)
		}
		if task := w.task(t, "id"); string(task.Parameters) != "new" || task.Run != 0 {
			t.Errorf("%+v", task)
		}
	})
}
