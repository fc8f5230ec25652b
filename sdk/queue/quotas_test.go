package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func (w *world) quotas(t testing.TB, changes manage.Quotas) {
	t.Helper()
	if err := manage.SetQuotas(w.ctx, w.Client, changes); err != nil {
		t.Fatal(err)
	}
}

func (w *world) uses(t testing.TB) map[string]manage.QuotaUse {
	t.Helper()
	uses := make(map[string]manage.QuotaUse)
	for _, use := range must[[]manage.QuotaUse](t)(manage.QuotaUses(w.ctx, w.Client)) {
		uses[use.Name] = use
	}
	return uses
}

// refused checks that an error says which quota refuses.
func refused(t testing.TB, err error, name, limit string, used int64) {
	t.Helper()
	quota, ok := errors.AsType[*manage.QuotaError](err)
	if !ok || !errors.Is(err, queue.ErrQueueFull) || !errors.Is(err, manage.ErrQuota) {
		t.Fatalf("%v, want the quota %s", err, name)
	}
	if quota.Name != name || quota.Limit != limit || quota.Used != used || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), limit) {
		t.Errorf("%+v: want %s %s, %d used", quota, name, limit, used)
	}
}

// upTo reserves as many tasks of a queue as it gets.
func (w *world) upTo(t testing.TB, node *listen.Node, name string, most int) listen.ReserveReply {
	t.Helper()
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: name, Count: most, Start: true, Plugin: "p", Digest: "sha256:0"}})[0]
	if reply.Err != nil {
		t.Fatal(reply.Err)
	}
	return reply
}

// The waiting tasks of all queues are never more than the quota, whichever way they are enqueued; and there is room again
// as soon as some have left.
func TestQuotaOfWaitingTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.enqueue(t, "before", "", queue.Options{})
		w.quotas(t, manage.Quotas{"tasks_waiting": "10"})
		for i := range 3 {
			w.enqueue(t, fmt.Sprint("q", i), "", queue.Options{})
			w.enqueue(t, "options", "", queue.Options{Delay: time.Hour, Key: "k"})
		}
		w.enqueue(t, "q0", "", queue.Options{ID: "twice", Priority: new(70)})
		w.enqueue(t, "q0", "", queue.Options{ID: "twice", Priority: new(70)}) // a repeat is no new task
		_, err := w.Queue("new").EnqueueMany(w.ctx, make([]queue.Spec, 3))
		refused(t, err, "tasks_waiting", "10", 8)
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Stats("new"), w.Store().Keys.Pending("new")).Val(); n != 0 {
			t.Errorf("the refused tasks left %d keys", n)
		}
		w.enqueue(t, "q0", "", queue.Options{ID: "nine"})
		w.enqueue(t, "q0", "", queue.Options{})
		_, err = w.Queue("q0").Enqueue(w.ctx, nil, queue.Options{Key: "k"})
		refused(t, err, "tasks_waiting", "10", 10)
		w.enqueue(t, "q0", "", queue.Options{ID: "twice", Priority: new(70)}) // nor is it refused
		if use := w.uses(t)["tasks_waiting"]; use.Used != 10 || use.Limit != 10 || use.Refused != 4 {
			t.Errorf("%+v", use)
		}

		node := w.node(t, "q0")
		if got := w.upTo(t, node, "q0", 9); len(got.Tasks) != 4 {
			t.Fatalf("reserved %d", len(got.Tasks))
		}
		w.at(1)
		if _, err = w.Queue("q0").EnqueueMany(w.ctx, make([]queue.Spec, 4)); err != nil {
			t.Fatal(err)
		}
		w.at(2)
		_, err = w.Queue("q0").Enqueue(w.ctx, nil, queue.Options{})
		refused(t, err, "tasks_waiting", "10", 10)
		// A subscriber's task counts as well, and a publication is refused as a whole.
		w.subscribe(t, queue.Subscription{ID: "s", Topic: "t", Queue: "subscribed"})
		_, err = w.Publish(w.ctx, "t", nil, queue.PublishOptions{})
		refused(t, err, "tasks_waiting", "10", 10)
		w.quotas(t, manage.Quotas{"tasks_waiting": ""})
		w.enqueue(t, "q0", "", queue.Options{})
		if limits := w.rdb.HGetAll(w.ctx, w.Store().Keys.Limits()).Val(); len(limits) != 0 {
			t.Errorf("%v", limits)
		}
	})
}

// Bytes that wait are those of all tasks, also of ones that are not text.
func TestQuotaOfWaitingBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"bytes_waiting": "1000"})
		w.enqueue(t, "a", strings.Repeat("x", 400), queue.Options{})
		w.enqueue(t, "b", strings.Repeat("\xff", 500), queue.Options{})
		_, err := w.Queue("a").Enqueue(w.ctx, []byte(strings.Repeat("x", 200)), queue.Options{})
		refused(t, err, "bytes_waiting", "1000", 900)
		if !strings.HasSuffix(err.Error(), "is 1000, and 900 are used: 200 more are too many") {
			t.Error(err)
		}
		w.upTo(t, w.node(t, "a"), "a", 1)
		w.at(1)
		w.enqueue(t, "a", strings.Repeat("x", 200), queue.Options{})
		if use := w.uses(t)["bytes_waiting"]; use.Used != 700 {
			t.Errorf("%+v", use)
		}
	})
}

// No more tasks run than the quota says, of all queues and listeners; a task that ends wakes a queue that waits.
func TestQuotaOfRunningTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"running": "3"})
		for _, name := range []string{"a", "b"} {
			must[[]queue.Receipt](t)(w.Queue(name).EnqueueMany(w.ctx, make([]queue.Spec, 5)))
		}
		one, other := w.node(t, "a", "b"), w.node(t, "a", "b")
		woken := w.rdb.Subscribe(w.ctx, w.Store().Keys.Channel("b"))
		t.Cleanup(func() { _ = woken.Close() })
		if _, err := woken.Receive(w.ctx); err != nil {
			t.Fatal(err)
		}
		first := w.upTo(t, one, "a", 2)
		second := w.upTo(t, other, "b", 5)
		if len(first.Tasks) != 2 || len(second.Tasks) != 1 {
			t.Fatalf("%d and %d tasks run", len(first.Tasks), len(second.Tasks))
		}
		if none := w.upTo(t, one, "b", 5); len(none.Tasks) != 0 {
			t.Fatalf("%d more", len(none.Tasks))
		}
		if use := w.uses(t)["running"]; use.Used != 3 || use.Limit != 3 {
			t.Errorf("%+v", use)
		}
		w.settle(t, one, "a", listen.Settlement{Claim: first.Tasks[0].Claim()})
		if _, err := woken.ReceiveMessage(w.ctx); err != nil {
			t.Fatal(err)
		}
		if got := w.upTo(t, other, "b", 5); len(got.Tasks) != 1 {
			t.Fatalf("after the end of one %d began", len(got.Tasks))
		}
		w.settle(t, one, "a", listen.Settlement{Claim: first.Tasks[1].Claim(), Failure: &queue.Failure{}, Requeue: listen.RequeueRetry, Delay: time.Hour})
		if _, err := woken.ReceiveMessage(w.ctx); err != nil {
			t.Fatal(err)
		}
		// Queue b was woken for the free place; if it has nothing, another queue that waits gets the message.
		w.upTo(t, one, "a", 0+1)
		w.rdb.Del(w.ctx, w.Store().Keys.Started("a"))
	})
}

// The memory that running tasks may use is bounded, of all queues and listeners. A task that alone needs more runs alone.
func TestQuotaOfMemory(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"memory": "100"})
		for _, name := range []string{"small", "large", "none"} {
			must[[]queue.Receipt](t)(w.Queue(name).EnqueueMany(w.ctx, make([]queue.Spec, 9)))
		}
		node := w.node(t, "small", "large", "none")
		reserve := func(name string, memory int64, want int) []listen.Reservation {
			t.Helper()
			reply := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: name, Count: 4, Start: true, Memory: memory}})[0]
			if reply.Err != nil || len(reply.Tasks) != want {
				t.Fatalf("%d tasks of %s began, want %d: %v", len(reply.Tasks), name, want, reply.Err)
			}
			return reply.Tasks
		}
		end := func(name string, tasks ...listen.Reservation) {
			t.Helper()
			for _, task := range tasks {
				w.settle(t, node, name, listen.Settlement{Claim: task.Claim()})
			}
		}
		first := reserve("small", 20, 4)
		reserve("none", 0, 4) // of a worker, which does not say how much it needs
		reserve("large", 50, 0)
		if use := w.uses(t)["memory"]; use.Used != 80 || use.Limit != 100 {
			t.Errorf("%+v", use)
		}
		woken := w.rdb.Subscribe(w.ctx, w.Store().Keys.Channel("large"))
		t.Cleanup(func() { _ = woken.Close() })
		if _, err := woken.Receive(w.ctx); err != nil {
			t.Fatal(err)
		}
		end("small", first...)
		if _, err := woken.ReceiveMessage(w.ctx); err != nil {
			t.Fatal(err)
		}
		large := reserve("large", 50, 2)
		reserve("small", 20, 0)
		end("large", large[0])
		end("small", reserve("small", 20, 2)...)
		end("large", large[1])
		w.rdb.Del(w.ctx, w.Store().Keys.Started("none"))
		end("large", reserve("large", 101, 1)...)
		w.quotas(t, manage.Quotas{"memory": ""})
		if used := w.rdb.HGetAll(w.ctx, w.Store().Keys.Used()).Val(); len(used) != 0 {
			t.Errorf("%v is left", used)
		}
	})
}

// Tasks begin while the bucket of fuel has some; what they burn puts it into debt, and then all queues wait until that is
// paid. A new day begins with all of its fuel.
func TestQuotasOfFuel(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, make([]queue.Spec, 90)))
		node := w.node(t, "q")
		burn := func(fuel int64) {
			t.Helper()
			if err := node.Tally(w.ctx, []listen.Tally{{Queue: "q", Usage: listen.Usage{Fuel: fuel}}}); err != nil {
				t.Fatal(err)
			}
		}
		waits := func(until time.Duration) {
			t.Helper()
			got := w.upTo(t, node, "q", 1)
			if wait := got.NextETA.Sub(got.Clock).Round(time.Millisecond); len(got.Tasks) != 0 || wait != until {
				t.Errorf("%d tasks began, the next may in %s, want %s", len(got.Tasks), wait, until)
			}
		}
		runs := func() {
			t.Helper()
			if got := w.upTo(t, node, "q", 1); len(got.Tasks) != 1 {
				t.Errorf("no task began, the next may in %s", got.NextETA.Sub(got.Clock))
			}
		}
		burn(1e12) // nothing waits for what was burnt before
		w.quotas(t, manage.Quotas{"fuel_rate": "2G/s burst 10G"})
		runs()
		burn(7e9)
		runs()
		burn(7e9)
		if use := w.uses(t)["fuel_rate"]; use.Used != 14e9 || use.Limit != 10e9 {
			t.Errorf("%+v", use)
		}
		waits(2050 * time.Millisecond) // and 50 ms, so that it is not asked for each unit
		w.at(2.05)
		runs()
		w.at(100)
		burn(1e18) // a debt of more than a day is forgiven
		waits(24*time.Hour + 50*time.Millisecond)
		w.at(-3600)
		waits(24*time.Hour + 50*time.Millisecond)
		w.at(24*3600 + 101)
		runs()

		w.at(0)
		now := time.Unix(1700000000, 0)
		midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
		w.quotas(t, manage.Quotas{"fuel_rate": ""})
		w.rdb.Del(w.ctx, w.Store().Keys.Usage(fmt.Sprint(now.Unix()/86400)))
		w.quotas(t, manage.Quotas{"fuel_day": "5G"})
		burn(5e9 - 1)
		runs()
		burn(1)
		waits(midnight)
		if use := w.uses(t)["fuel_day"]; use.Used != 5e9 || use.Limit != 5e9 || manage.FullestQuota([]manage.QuotaUse{use}) != 1 {
			t.Errorf("%+v", use)
		}
		woken := w.rdb.Subscribe(w.ctx, w.Store().Keys.Channel("q"))
		t.Cleanup(func() { _ = woken.Close() })
		if _, err := woken.Receive(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.quotas(t, manage.Quotas{"fuel_day": "6G"})
		if _, err := woken.ReceiveMessage(w.ctx); err != nil {
			t.Fatal(err)
		}
		runs()
		burn(2e9)
		waits(midnight)
		w.at(midnight.Seconds())
		runs()
	})
}

// The logs of a tenant are bounded; a log that is cut says why. Logs that went with their tasks make room.
func TestQuotaOfLogs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"log_bytes": "10000"})
		node := w.node(t, "q")
		var ids []string
		write := func(lines ...string) error {
			t.Helper()
			ids = append(ids, w.enqueue(t, "q", "", queue.Options{}))
			task := w.reserve(t, node, "q", true)
			err := node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: task.Claim(), Lines: lines}})[0]
			if len(lines) > 1 {
				again := node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: task.Claim(), Lines: lines[:1]}})[0]
				if (again == nil) != (err == nil) {
					t.Errorf("%v, then %v", err, again)
				}
			}
			w.settle(t, node, "q", listen.Settlement{Claim: task.Claim()})
			return err
		}
		size := func() (bytes int64) {
			for _, id := range ids {
				for _, entry := range must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Log(id), 0, -1).Result()) {
					bytes += int64(len(entry))
				}
			}
			return bytes
		}
		for range 4 {
			if err := write(strings.Repeat("x", 2200)); err != nil {
				t.Fatal(err)
			}
		}
		err := write(strings.Repeat("x", 1000), "")
		refused(t, err, "log_bytes", "10000", size()-int64(len(w.rdb.LIndex(w.ctx, w.Store().Keys.Log(ids[4]), 0).Val())))
		lines := w.log(t, ids[4], 0)
		if len(lines) != 1 || lines[0].Number != 3 || !strings.HasPrefix(lines[0].Text, "lines are left out: the logs of tenant "+w.Tenant()+" have reached the quota log_bytes of 10000: delete tasks") {
			t.Errorf("%+v", lines)
		}
		if use := w.uses(t)["log_bytes"]; use.Used != size() || use.Limit != 10000 || use.Refused != 3 {
			t.Errorf("%+v, %d bytes", use, size())
		}
		for range 20 { // there is no more room for all of these lines
			if err := write(strings.Repeat("x", 1000)); err == nil {
				t.Error("there is room")
			}
		}
		if n := size(); n > 10000 || n < 9800 {
			t.Errorf("%d bytes", n)
		}
		for _, id := range ids[:2] {
			if err := w.Queue("q").Delete(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		ids = ids[2:]
		if err := write(strings.Repeat("x", 2200)); err != nil {
			t.Error(err)
		}
		if use := w.uses(t)["log_bytes"]; use.Used != size() {
			t.Errorf("%+v, %d bytes", use, size())
		}
		// A log that drops its oldest lines for new ones takes no more room.
		w.quotas(t, manage.Quotas{"log_bytes": "100000"})
		id := w.enqueue(t, "q", "", queue.Options{})
		ids = append(ids, id)
		last := w.reserve(t, node, "q", true)
		claim := last.Claim()
		for range 10 {
			w.append(t, node, claim, slices.Repeat([]string{strings.Repeat("y", 9000)}, 3)...)
		}
		if use := w.uses(t)["log_bytes"]; use.Used != size() || use.Used < 60000 {
			t.Errorf("%+v, %d bytes", use, size())
		}
		w.quotas(t, manage.Quotas{"log_bytes": ""})
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Logs()).Val() + w.rdb.HLen(w.ctx, w.Store().Keys.Used()).Val(); n != 1 { // refused:log_bytes
			t.Errorf("%d keys and fields are left", n)
		}
	})
}

// What the file of the hosts says counts until an operator sets another value, and again when that is removed. The file
// of the host that starts last counts.
func TestGrantedQuotas(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		grant := func(quotas manage.Quotas) {
			t.Helper()
			if err := manage.GrantQuotas(w.ctx, w.Client, quotas); err != nil {
				t.Fatal(err)
			}
		}
		is := func(want string) {
			t.Helper()
			var got []string
			for _, use := range must[[]manage.QuotaUse](t)(manage.QuotaUses(w.ctx, w.Client)) {
				got = append(got, fmt.Sprintf("%s=%s(%s)", use.Name, use.Value, use.Granted))
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s, want %s", text, want)
			}
		}
		grant(manage.Quotas{})
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Quotas(), w.Store().Keys.Limits()).Val(); n != 0 {
			t.Errorf("a file without quotas makes %d keys", n)
		}
		w.quotas(t, manage.Quotas{"schedules": "7", "releases": "3"})
		grant(manage.Quotas{"tasks_waiting": "2", "schedules": "5", "limit:x": "1/s q"})
		is("limit:x=1/s burst 1 q(1/s burst 1 q) releases=3() schedules=7(5) tasks_waiting=2(2)")
		w.enqueue(t, "q", "", queue.Options{})
		w.enqueue(t, "q", "", queue.Options{})
		_, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{})
		refused(t, err, "tasks_waiting", "2", 2)
		used := w.rdb.HGetAll(w.ctx, w.Store().Keys.Used()).Val()
		grant(manage.Quotas{"tasks_waiting": "2", "schedules": "5", "limit:x": "1/s q"}) // another host starts
		if now := w.rdb.HGetAll(w.ctx, w.Store().Keys.Used()).Val(); !maps.Equal(now, used) {
			t.Errorf("a repeat changes %v to %v", used, now)
		}
		w.quotas(t, manage.Quotas{"tasks_waiting": "9", "schedules": ""})
		is("limit:x=1/s burst 1 q(1/s burst 1 q) releases=3() schedules=5(5) tasks_waiting=9(2)")
		grant(manage.Quotas{"tasks_waiting": "3", "schedules": "6"})
		is("releases=3() schedules=6(6) tasks_waiting=9(3)")
		grant(manage.Quotas{})
		is("releases=3() tasks_waiting=9()")
		w.quotas(t, manage.Quotas{"tasks_waiting": "", "releases": ""})
		is("")
		if err := manage.GrantQuotas(w.ctx, w.Client, manage.Quotas{"rate": "fast"}); !errors.Is(err, queue.ErrInvalid) {
			t.Error(err)
		}
		many := make(manage.Quotas)
		for i := range 1000 {
			many[fmt.Sprint("weight:", i)] = "1"
		}
		grant(many)
		if err := manage.SetQuotas(w.ctx, w.Client, manage.Quotas{"running": "1"}); !errors.Is(err, queue.ErrInvalid) {
			t.Error(err)
		}
	})
}

// A bucket lets its burst through at once, and then as many as its rate, whoever asks how often; the reply says when to ask
// again. A clock that goes back stops nothing.
func TestRates(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"rate:q": "10/s burst 5", "rate": "600/m burst 8", "limit:both": "1/s burst 3 r s", "rate:day": "1/d"})
		for _, name := range []string{"q", "r", "s", "day"} {
			must[[]queue.Receipt](t)(w.Queue(name).EnqueueMany(w.ctx, make([]queue.Spec, 40)))
		}
		node := w.node(t, "q", "r", "s", "day")
		begin := w.upTo(t, node, "q", 100)
		if len(begin.Tasks) != 5 || !begin.NextETA.Equal(begin.Clock.Add(100*time.Millisecond)) {
			t.Fatalf("%d tasks, again at %s of %s", len(begin.Tasks), begin.NextETA, begin.Clock)
		}
		if r := w.upTo(t, node, "r", 2); len(r.Tasks) != 2 || !r.NextETA.IsZero() { // it got what it asked for
			t.Errorf("%d tasks of r, again at %s", len(r.Tasks), r.NextETA)
		}
		if s := w.upTo(t, node, "s", 2); len(s.Tasks) != 1 || !s.NextETA.Equal(s.Clock.Add(time.Second)) {
			t.Errorf("%d tasks of s, again at %s", len(s.Tasks), s.NextETA)
		}
		if q := w.upTo(t, node, "q", 1); len(q.Tasks) != 0 || !q.NextETA.Equal(q.Clock.Add(100*time.Millisecond)) {
			t.Errorf("%d tasks at once after the burst, again at %s", len(q.Tasks), q.NextETA)
		}
		if uses := w.uses(t); uses["rate:q"].Used != 5 || uses["rate"].Used != 8 || uses["limit:both"].Used != 3 || uses["limit:both"].Value != "1/s burst 3 r s" {
			t.Errorf("%+v", uses)
		}
		taken := 0
		for i := range 100 { // a second in steps of 10 ms
			w.at(float64(i+1) / 100)
			taken += len(w.upTo(t, node, "q", 3).Tasks)
		}
		if taken != 10 {
			t.Errorf("in a second %d tasks began", taken)
		}
		w.at(-3600)
		if got := w.upTo(t, node, "q", 3); len(got.Tasks) != 0 || got.NextETA.Sub(got.Clock) > 110*time.Millisecond {
			t.Errorf("an hour back: %d tasks, again in %s", len(got.Tasks), got.NextETA.Sub(got.Clock))
		}
		w.at(-3590)
		if got := w.upTo(t, node, "q", 100); len(got.Tasks) != 5 {
			t.Errorf("10 s later: %d tasks", len(got.Tasks))
		}
		w.at(3600)
		if got := w.upTo(t, node, "day", 9); len(got.Tasks) != 1 || got.NextETA.Sub(got.Clock) != 24*time.Hour {
			t.Errorf("%d tasks of a daily rate, again in %s", len(got.Tasks), got.NextETA.Sub(got.Clock))
		}
		w.quotas(t, manage.Quotas{"rate:q": "", "rate": "", "limit:both": "", "rate:day": ""})
		if got := w.upTo(t, node, "q", 100); len(got.Tasks) != 20 {
			t.Errorf("without limits %d tasks began", len(got.Tasks))
		}
		if left := w.rdb.HGetAll(w.ctx, w.Store().Keys.Quotas()).Val(); len(left) != 0 {
			t.Errorf("%v", left)
		}
	})
}

// Tasks over the rate of their key are scheduled, each for a moment of its own, and then run without another token; tasks
// of other keys and without a key pass them.
func TestKeyRate(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"key_rate:q": "2/s burst 2"})
		for i := range 6 {
			w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint("a", i), Key: "a"})
		}
		w.enqueue(t, "q", "", queue.Options{ID: "b", Key: "b"})
		w.enqueue(t, "q", "", queue.Options{ID: "none"})
		node := w.node(t, "q")
		var got []string
		for _, task := range w.upTo(t, node, "q", 128).Tasks {
			got = append(got, task.ID)
		}
		if fmt.Sprint(got) != "[a0 a1 b none]" {
			t.Errorf("%v", got)
		}
		for i, wait := range []float64{0.5, 1, 1.5, 2} {
			id := fmt.Sprint("a", i+2)
			task := w.task(t, id)
			if task.Status != queue.Scheduled || task.Attempts != 0 || task.ETA.Sub(task.Created).Seconds() != wait {
				t.Errorf("%s is %s, due after %s", id, task.Status, task.ETA.Sub(task.Created))
			}
			w.at(wait)
			must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
			if next := w.upTo(t, node, "q", 128).Tasks; len(next) != 1 || next[0].ID != id {
				t.Errorf("%v", next)
			}
		}
		w.at(60)
		w.enqueue(t, "q", "", queue.Options{Key: "c"})
		w.upTo(t, node, "q", 1)
		if n := w.rdb.ZCard(w.ctx, w.Store().Keys.KeyRates("q")).Val(); n != 1 {
			t.Errorf("%d buckets are kept", n)
		}
	})
}

// When the rate of keys changes, tasks that wait for their token ask the new one, in their order.
func TestChangedKeyRate(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, rate := range map[string]string{"q": "100/s burst 2", "r": ""} {
			w.at(0)
			w.quotas(t, manage.Quotas{"key_rate:" + name: "1/d"}) // a slip for 1/s
			var ids []string
			for i := range store.UnholdTasks + 3 {
				ids = append(ids, w.enqueue(t, name, "", queue.Options{ID: fmt.Sprintf("%s%03d", name, i), Key: "a"}))
			}
			other := w.enqueue(t, name, "", queue.Options{Key: "a", Delay: time.Hour})
			node := w.node(t, name)
			for w.task(t, ids[len(ids)-1]).Status == queue.Pending {
				w.upTo(t, node, name, 128)
			}
			if eta := w.task(t, ids[len(ids)-1]).ETA; eta.Before(time.Unix(1700000000, 0).Add(100 * 24 * time.Hour)) {
				t.Fatalf("the last one is due at %s", eta)
			}
			w.at(1)
			w.quotas(t, manage.Quotas{"key_rate:" + name: rate})
			w.at(2)
			got := []string{ids[0]}
			for len(got) < len(ids) {
				must[int](t)(enqueueDue(w.ctx, w.Queue(name)))
				tasks := w.upTo(t, node, name, 128).Tasks
				if len(tasks) == 0 {
					w.at(2 + float64(len(got))) // for a bucket that is full again
				}
				for _, task := range tasks {
					got = append(got, task.ID)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, ids) || w.task(t, other).Status != queue.Scheduled {
				t.Errorf("rate %q: %v", rate, got)
			}
		}
	})
}

// A rate that is set anew owes nothing of the one before.
func TestChangedRate(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"enqueue_rate": "1/d", "rate:q": "1/d"})
		w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		w.upTo(t, node, "q", 1)
		if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{}); !errors.Is(err, manage.ErrQuota) {
			t.Fatalf("a second one: %v", err)
		}
		w.quotas(t, manage.Quotas{"enqueue_rate": "1/d", "rate:q": "1/d"}) // nothing changes
		if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{}); !errors.Is(err, manage.ErrQuota) {
			t.Fatalf("after the same quota: %v", err)
		}
		w.quotas(t, manage.Quotas{"enqueue_rate": "100/m", "rate:q": "10/s"})
		w.enqueue(t, "q", "", queue.Options{})
		if got := w.upTo(t, node, "q", 1).Tasks; len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// Large parameters that a quota or a limit refuses are not sent. A repeat is answered all the same.
func TestLargeParametersAreAskedFor(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_waiting": "1000000", "enqueue_rate": "1000/d burst 2"})
		large := []byte(strings.Repeat("x", 600_000))
		w.enqueue(t, "q", string(large), queue.Options{ID: "one"})
		if use := w.uses(t); use["enqueue_rate"].Used != 1 || use["bytes_waiting"].Used != 600_000 {
			t.Errorf("%+v", use)
		}
		w.enqueue(t, "q", strings.Repeat("\xff", 400_000), queue.Options{Labels: map[string]string{"a": "b"}}) // just fits
		w.quotas(t, manage.Quotas{"enqueue_rate": ""})
		if receipt, err := w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{{Parameters: large, Options: queue.Options{ID: "one"}}}); err != nil || !receipt[0].Existed {
			t.Errorf("a repeat: %+v, %v", receipt, err)
		}
		w.rdb.AddHook(spy(func(cmds ...redis.Cmder) {
			for _, cmd := range cmds {
				if len(cmd.Args()) > 1 && cmd.Args()[1] == store.AllScripts["enqueue"].Hash() {
					t.Error("the parameters are sent")
				}
			}
		}))
		_, err := w.Queue("q").Enqueue(w.ctx, large, queue.Options{})
		refused(t, err, "bytes_waiting", "1000000", 1_000_000)
	})
}

// Tasks that wait in line for their concurrency key count for the quota of bytes.
func TestQuotaOfBytesInLine(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"bytes_waiting": "1000000"})
		taken := 0
		for range 100 {
			_, err := w.Queue("q").Enqueue(w.ctx, []byte(strings.Repeat("x", 100_000)), queue.Options{ConcurrencyKey: "k"})
			switch {
			case err == nil:
				taken++
			case !errors.Is(err, manage.ErrQuota):
				t.Fatal(err)
			}
		}
		if taken != 10 {
			t.Errorf("%d tasks of a tenth each", taken)
		}
	})
}

// Producers enqueue no more than the rate, and are told when to come again; a call of more than the burst passes when the
// bucket is full, and is paid for.
func TestEnqueueRate(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"enqueue_rate": "10/s burst 5"})
		q := w.Queue("q")
		must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, make([]queue.Spec, 4)))
		_, err := q.EnqueueMany(w.ctx, make([]queue.Spec, 3))
		refused(t, err, "enqueue_rate", "10/s burst 5", 3)
		if quota, _ := errors.AsType[*manage.QuotaError](err); quota.RetryAfter != 200*time.Millisecond {
			t.Errorf("again in %s", quota.RetryAfter)
		}
		w.at(0.2)
		must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, make([]queue.Spec, 3)))
		w.at(2)
		must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, make([]queue.Spec, 20)))
		w.at(3.4)
		_, err = q.Enqueue(w.ctx, nil, queue.Options{})
		refused(t, err, "enqueue_rate", "10/s burst 5", 1)
		if quota, _ := errors.AsType[*manage.QuotaError](err); quota.RetryAfter.Round(time.Millisecond) != 200*time.Millisecond {
			t.Errorf("again in %s", quota.RetryAfter)
		}
		w.at(3.6)
		w.enqueue(t, "q", "", queue.Options{})
		w.at(-3600)
		_, err = q.Enqueue(w.ctx, nil, queue.Options{})
		refused(t, err, "enqueue_rate", "10/s burst 5", 1)
		w.at(-3400)
		w.enqueue(t, "q", "", queue.Options{})
	})
}

// A full queue that drops its oldest tasks takes new ones: of the lowest priority first, never scheduled ones.
func TestDropOldest(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		if err := q.SetRollingLimit(w.ctx, 4); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "q", "", queue.Options{ID: "high", Priority: new(90)})
		w.enqueue(t, "q", "", queue.Options{ID: "later", Delay: time.Hour})
		for i := range 4 {
			w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint(i), Dead: "letters"})
		}
		for id, status := range map[string]queue.Status{"high": queue.Pending, "later": queue.Scheduled, "0": queue.Failed, "1": queue.Failed, "2": queue.Pending, "3": queue.Pending} {
			if task := w.task(t, id); task.Status != status || status == queue.Failed && (task.Reason != manage.ReasonDropped || task.DeadID == "") {
				t.Errorf("%s is %s, %s, letter %q", id, task.Status, task.Reason, task.DeadID)
			}
		}
		stats := must[manage.Stats](t)(manage.QueueOf(q).Stats(w.ctx))
		if stats.Totals["failed:dropped"] != 2 || stats.Limit != 4 || !stats.DropOldest || stats.Depth[queue.Pending] != 3 {
			t.Errorf("%+v", stats)
		}
		// More than the limit at once is refused, and so is what finds no pending task to drop.
		if _, err := q.EnqueueMany(w.ctx, make([]queue.Spec, 5)); !errors.Is(err, queue.ErrQueueFull) {
			t.Error(err)
		}
		must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, make([]queue.Spec, 3)))
		if task := w.task(t, "high"); task.Status != queue.Failed {
			t.Errorf("high is %s", task.Status)
		}
		if _, err := q.EnqueueMany(w.ctx, make([]queue.Spec, 4)); !errors.Is(err, queue.ErrQueueFull) {
			t.Error(err)
		}
		stats = must[manage.Stats](t)(manage.QueueOf(q).Stats(w.ctx))
		if stats.Totals["refused"] != 9 || stats.Depth[queue.Pending] != 3 {
			t.Errorf("%+v", stats)
		}
		if limit := must[int64](t)(q.Limit(w.ctx)); limit != 4 {
			t.Errorf("limit %d", limit)
		}
	})
}

// What cannot be dropped, or comes in too large a block, is refused with the reason.
func TestDropOldestOfKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		if err := q.SetRollingLimit(w.ctx, 2); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w.enqueue(t, "q", "", queue.Options{FairKey: "a"})
		}
		_, err := q.Enqueue(w.ctx, nil, queue.Options{FairKey: "a"})
		if want := `queue "q" holds 2 waiting tasks and may hold 2, and drops no scheduled tasks, nor those with a fairness or`; !errors.Is(err, queue.ErrQueueFull) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "QUEUEFULL") {
			t.Error(err)
		}
		_, err = q.EnqueueMany(w.ctx, make([]queue.Spec, 3))
		if want := "may hold 2, and 3 come together"; !errors.Is(err, queue.ErrQueueFull) || !strings.HasSuffix(err.Error(), want) {
			t.Error(err)
		}
	})
}

// Other things than tasks have quotas as well.
func TestQuotasOfThings(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.quotas(t, manage.Quotas{"schedules": "1", "subscriptions": "1"})
		for i := range 2 {
			_, err := w.PutSchedule(w.ctx, queue.Schedule{ID: fmt.Sprint(i), Queue: "q", Cron: "@daily"}, false)
			_, other := w.Subscribe(w.ctx, queue.Subscription{ID: fmt.Sprint(i), Topic: "t", Queue: "q"})
			if i == 0 && (err != nil || other != nil) {
				t.Fatal(err, other)
			}
			if i == 1 {
				refused(t, err, "schedules", "1", 1)
				refused(t, other, "subscriptions", "1", 1)
			}
		}
		// Changes of existing ones are not refused.
		if _, err := w.PutSchedule(w.ctx, queue.Schedule{ID: "0", Queue: "q", Cron: "@hourly"}, false); err != nil {
			t.Error(err)
		}
		uses := w.uses(t)
		if uses["schedules"].Used != 1 || uses["schedules"].Refused != 1 || uses["subscriptions"].Used != 1 {
			t.Errorf("%+v", uses)
		}
	})
}

// The queues that share rates count among the quotas, because each takes a field.
func TestManySharingQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		quotas := make(manage.Quotas)
		for i := range 10 {
			value := "1/s"
			for j := range 100 {
				value += fmt.Sprintf(" q%d-%d", i, j)
			}
			quotas[fmt.Sprint("limit:", i)] = value
		}
		err := manage.SetQuotas(w.ctx, w.Client, quotas)
		if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "more than 1000 quotas and queues that share rates") {
			t.Error(err)
		}
		delete(quotas, "limit:9")
		w.quotas(t, quotas)
	})
}

// Invalid quotas are refused with the name, the value and the remedy, and change nothing.
func TestInvalidQuotas(t *testing.T) {
	t.Parallel()
	for quota, remedy := range map[[2]string]string{
		{"waiting", "1"}:                               "use one of tasks_waiting, bytes_waiting, enqueue_rate, running, memory, fuel_rate",
		{"tasks_waiting", "0"}:                         "use a number of 1 or more",
		{"tasks_waiting", "many"}:                      "use a number of 1 or more",
		{"tasks_waiting:q", "1"}:                       "use one of",
		{"rate", "100"}:                                `write tasks by s, m, h or d, such as "100/s"`,
		{"rate", "0/s"}:                                "use 1 to 100000 tasks",
		{"rate", "1/s burst 0"}:                        "a burst of 1 to 1000000",
		{"rate", "1/s q"}:                              "write a rate alone",
		{"limit:x", "1/s"}:                             "name the queues that share it",
		{"limit:x", "1/s ..."}:                         "",
		{"limit:x", "1/s burst"}:                       "write a number after burst",
		{"limit:x", "1/s burst 1 burst"}:               "",
		{"limit:x", "1/s" + strings.Repeat(" q", 101)}: "name at most 100 queues",
		{"subscriptions", "none"}:                      "use an empty value to remove it",
		{"limit:X", "1/s q"}:                           "name the limit with up to 64",
		{"rate:a b", "1/s"}:                            "a b",
		{"weight", "1001"}:                             "use a number of 1 to 1000",
		{"weight:q", "0"}:                              "use a number of 1 to 1000",
		{"fuel_rate", "2"}:                             `write fuel by s, m, h or d, such as "2G/s" or "2G/s burst 10G"`,
		{"fuel_rate", "2000T/s"}:                       "use 1 to 1000000000000000 fuel",
		{"fuel_rate", "2KG/s"}:                         "write fuel",
		{"fuel_day", "2x"}:                             "use a number of 1 or more",
		{"rate", "2k/s"}:                               "write tasks",
		{"running", "2k"}:                              "use a number of 1 or more",
		{"log_bytes:q", "1"}:                           "use one of",
	} {
		_, err := manage.Quotas{quota[0]: quota[1]}.Normal()
		if (err == nil) != (remedy == "") || err != nil && (!errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), remedy)) {
			t.Errorf("%v: %v", quota, err)
		}
	}
	for text, want := range map[string]string{
		"100/s": "100/s burst 100", "10/m": "10/m burst 1", "90/m  burst 7": "90/m burst 7", "7200/h": "7200/h burst 2",
	} {
		if got, err := (manage.Quotas{"rate": text}).Normal(); err != nil || got["rate"] != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if got, err := (manage.Quotas{"limit:x": "1/s charge refund charge"}).Normal(); err != nil || got["limit:x"] != "1/s burst 1 charge refund" {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"2G/s": "2000000000/s burst 2000000000", "3600M/h burst 5k": "3600000000/h burst 5000", "1T/s": "1000000000000/s burst 1000000000000",
	} {
		if got, err := (manage.Quotas{"fuel_rate": text, "fuel_day": "36T"}).Normal(); err != nil || got["fuel_rate"] != want || got["fuel_day"] != "36000000000000" {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
