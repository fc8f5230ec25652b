package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// put stores a schedule and tells what became of it.
func (w *world) put(t testing.TB, s queue.Schedule) queue.Put {
	t.Helper()
	put, err := w.PutSchedule(w.ctx, s, false)
	if err != nil {
		t.Fatal(err)
	}
	return put
}

func (w *world) schedule(t testing.TB, id string) *queue.Schedule {
	t.Helper()
	return must[*queue.Schedule](t)(w.Schedule(w.ctx, id))
}

// tick reads a schedule and ends its tick, at seconds after the world's beginning; next is 60 seconds later.
func (w *world) tick(t testing.TB, id string, at int64) listen.TickEnd {
	t.Helper()
	s := w.schedule(t, id)
	return must[listen.TickEnd](t)(listen.NewFleet(w.Client).Tick(w.ctx, s, time.Unix(1700000000+at, 0), listen.PassedTicks{}, time.Unix(1700000060+at, 0)))
}

func (w *world) due(t testing.TB) (ids []string, next time.Time) {
	t.Helper()
	due := must[listen.Due](t)(listen.NewFleet(w.Client).DueSchedules(w.ctx, 10))
	for _, s := range due.Schedules {
		ids = append(ids, s.ID)
	}
	return ids, due.Next
}

func TestSchedule(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		priority := 70
		s := queue.Schedule{
			ID: "nightly", Queue: "q", Cron: "0 0 * * *", Timezone: "Europe/Berlin", Parameters: []byte("a\x00\xff"),
			Options: queue.Options{
				Priority: &priority, Timeout: time.Minute, Labels: map[string]string{"a": "b"},
				Retry:   queue.Retry{MaxAttempts: 3, Base: 2 * time.Second, MaxAge: time.Hour},
				FairKey: "ada", FairWeight: 3, ConcurrencyKey: "bert", MaxConcurrent: 2,
			},
			Missed: queue.MissedAll, Window: time.Hour, Overlap: queue.OverlapSkip,
		}
		if put := w.put(t, s); put != queue.PutNew {
			t.Errorf("put: %s", put)
		}
		got := w.schedule(t, "nightly")
		want := s.WithDefaults()
		if !slices.Equal(got.Fields(), want.Fields()) || got.Owner != queue.ScheduleByHand || got.MaxMissed != 100 || !got.Since.Equal(time.Unix(1700000000, 0)) || !got.Next.IsZero() {
			t.Errorf("%+v", got)
		}
		if ids, _ := w.due(t); !slices.Equal(ids, []string{"nightly"}) {
			t.Errorf("due: %v", ids)
		}
		if end := must[listen.TickEnd](t)(listen.NewFleet(w.Client).Tick(w.ctx, got, time.Time{}, listen.PassedTicks{}, time.Unix(1700000060, 0))); end != listen.TickPlanned {
			t.Errorf("plan: %s", end)
		}
		if ids, next := w.due(t); ids != nil || !next.Equal(time.Unix(1700000060, 0)) {
			t.Errorf("due: %v, next %s", ids, next)
		}
		if end := w.tick(t, "nightly", 60); end != listen.TickEarly {
			t.Errorf("before its time: %s", end)
		}
		w.at(60)
		// What does not change the expression leaves the next tick where it is.
		s.Parameters = []byte("text")
		if put := w.put(t, s); put != queue.PutChanged {
			t.Errorf("put: %s", put)
		}
		if put := w.put(t, s); put != queue.PutSame {
			t.Errorf("put: %s", put)
		}
		if end := must[listen.TickEnd](t)(listen.NewFleet(w.Client).Tick(w.ctx, got, time.Unix(1700000060, 0), listen.PassedTicks{}, time.Time{})); end != listen.TickChanged {
			t.Errorf("with the old definition: %s", end)
		}
		if end := w.tick(t, "nightly", 60); end != listen.TickFired {
			t.Errorf("fire: %s", end)
		}
		task := w.task(t, "nightly@1700000060")
		if string(task.Parameters) != "text" || task.Priority != 70 || task.Timeout != time.Minute || task.Key != "nightly" || task.Labels["a"] != "b" ||
			task.Retry.MaxAttempts != 3 || task.Retry.Base != 2*time.Second || task.Retry.MaxAge != time.Hour || task.Status != queue.Pending {
			t.Errorf("%+v", task)
		}
		if task.FairKey != "ada" || task.FairWeight != 3 || task.ConcurrencyKey != "bert" || task.MaxConcurrent != 2 {
			t.Errorf("its keys: %+v", task)
		}
		got = w.schedule(t, "nightly")
		if got.Last.Unix() != 1700000060 || got.LastID != task.ID || got.Next.Unix() != 1700000120 || got.Fired != 1 {
			t.Errorf("%+v", got.ScheduleState)
		}
		s.Cron = "0 1 * * *"
		w.put(t, s)
		if got = w.schedule(t, "nightly"); !got.Next.IsZero() || got.Since.Unix() != 1700000060 || got.Fired != 1 {
			t.Errorf("with another expression: %+v", got.ScheduleState)
		}
		if err := w.DeleteSchedule(w.ctx, "nightly", ""); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			w.DeleteSchedule(w.ctx, "nightly", ""), w.PauseSchedule(w.ctx, "nightly"), w.ResumeSchedule(w.ctx, "nightly"),
			errorOf(w.Schedule(w.ctx, "nightly")), errorOf(manage.New(w.Client).RunSchedule(w.ctx, "nightly")),
		} {
			if !errors.Is(err, queue.ErrNoSchedule) {
				t.Errorf("%v, want ErrNoSchedule", err)
			}
		}
		if n := w.rdb.Exists(w.ctx, w.Store().Keys.Ticks(), w.Store().Keys.Schedule("nightly")).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

// While a schedule is paused nothing comes due; afterwards its ticks count from the end of the pause.
func TestPausedSchedule(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.put(t, queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * *"})
		w.tick(t, "s", 0)
		for range 2 {
			if err := w.PauseSchedule(w.ctx, "s"); err != nil {
				t.Fatal(err)
			}
		}
		w.at(300)
		if ids, next := w.due(t); ids != nil || !next.IsZero() {
			t.Errorf("due: %v, next %s", ids, next)
		}
		if end := w.tick(t, "s", 60); end != listen.TickChanged {
			t.Errorf("tick: %s", end)
		}
		w.put(t, queue.Schedule{ID: "s", Queue: "q", Cron: "*/2 * * * *"}) // stays paused
		if ids, _ := w.due(t); ids != nil || w.schedule(t, "s").Paused.Unix() != 1700000000 {
			t.Errorf("due: %v", ids)
		}
		for range 2 {
			if err := w.ResumeSchedule(w.ctx, "s"); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.schedule(t, "s"); s.Since.Unix() != 1700000300 || !s.Next.IsZero() || !s.Paused.IsZero() {
			t.Errorf("%+v", s.ScheduleState)
		}
		if ids, _ := w.due(t); !slices.Equal(ids, []string{"s"}) {
			t.Errorf("due: %v", ids)
		}
	})
}

// Of many hosts that fire a tick at once one does, and after each lost answer there is still one task.
func TestOneTaskATick(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.put(t, queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * *"})
		read := make([]*queue.Schedule, 8)
		for i := range read {
			read[i] = w.schedule(t, "s")
		}
		ends := make([]listen.TickEnd, len(read))
		var group sync.WaitGroup
		for i, s := range read {
			group.Go(func() {
				ends[i], _ = listen.NewFleet(w.Client).Tick(w.ctx, s, time.Unix(1700000000, 0), listen.PassedTicks{Skipped: 3, Missed: 2}, time.Unix(1700000060, 0))
			})
		}
		group.Wait()
		slices.Sort(ends)
		if want := append(slices.Repeat([]listen.TickEnd{listen.TickChanged}, 7), listen.TickFired); !slices.Equal(ends, want) {
			t.Errorf("%v", ends)
		}
		if s := w.schedule(t, "s"); s.Fired != 1 || s.MissedTicks != 2 || s.Skipped != 3 {
			t.Errorf("%+v", s.ScheduleState)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
		// A schedule that was deleted and made again has no second task for the tick.
		if err := w.DeleteSchedule(w.ctx, "s", ""); err != nil {
			t.Fatal(err)
		}
		w.put(t, queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * *"})
		w.tick(t, "s", 0)
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
	})
}

func TestOverlap(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			overlap queue.Overlap
			second  listen.TickEnd
		}{{queue.OverlapAllow, listen.TickFired}, {queue.OverlapSkip, listen.TickSkipped}, {queue.OverlapQueue, listen.TickBusy}} {
			w.at(0)
			q := string(c.overlap)
			w.put(t, queue.Schedule{ID: q, Queue: q, Cron: "* * * * *", Overlap: c.overlap})
			if end := w.tick(t, q, 0); end != listen.TickFired {
				t.Errorf("%s: the first: %s", q, end)
			}
			w.at(60)
			if end := w.tick(t, q, 60); end != c.second {
				t.Errorf("%s: the second: %s", q, end)
			}
			if c.overlap == queue.OverlapQueue {
				if _, next := w.due(t); next.Unix() != 1700000061 {
					t.Errorf("looked at again at %s", next)
				}
			}
			node := w.node(t, q)
			first := w.reserve(t, node, q, true)
			w.settle(t, node, q, listen.Settlement{Claim: first.Claim(), Failure: &queue.Failure{}})
			w.at(61)
			if end := w.tick(t, q, 61); end != listen.TickFired {
				t.Errorf("%s: after the end of the first: %s", q, end)
			}
		}
		if s := w.schedule(t, "skip"); s.Skipped != 1 || s.Fired != 2 {
			t.Errorf("%+v", s.ScheduleState)
		}
	})
}

// A queue that takes nothing lets the tick wait, and says why.
func TestErrTick(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.put(t, queue.Schedule{ID: "full", Queue: "full", Cron: "* * * * *"})
		w.put(t, queue.Schedule{ID: "damaged", Queue: "damaged", Cron: "* * * * *"})
		w.enqueue(t, "full", "", queue.Options{})
		if err := errors.Join(w.Queue("full").SetLimit(w.ctx, 1), w.rdb.Set(w.ctx, w.Store().Keys.Pending("damaged"), "x", 0).Err()); err != nil {
			t.Fatal(err)
		}
		if end := w.tick(t, "full", 0); end != listen.TickFull {
			t.Errorf("tick: %s", end)
		}
		_, err := listen.NewFleet(w.Client).Tick(w.ctx, w.schedule(t, "damaged"), time.Unix(1700000000, 0), listen.PassedTicks{}, time.Time{})
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("tick: %v", err)
		}
		if ids, next := w.due(t); ids != nil || next.Unix() != 1700000001 {
			t.Errorf("due: %v, next %s", ids, next)
		}
		w.depth(t, "full", map[queue.Status]int64{queue.Pending: 1})
	})
}

func TestErrPutSchedule(t *testing.T) {
	w := setup(t)
	good := queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * *"}
	w.put(t, good)
	if put, err := w.PutSchedule(w.ctx, queue.Schedule{ID: "s", Queue: "other", Cron: "* * * * *"}, true); err != nil || put != queue.PutKept {
		t.Errorf("%s, %v", put, err)
	}
	other := good
	other.Owner = queue.OwnedByPlugin("mail")
	if _, err := w.PutSchedule(w.ctx, other, false); !errors.Is(err, queue.ErrOwned) || !strings.Contains(err.Error(), "hand") {
		t.Errorf("%v", err)
	}
	if err := w.DeleteSchedule(w.ctx, "s", queue.OwnedByPlugin("mail")); !errors.Is(err, queue.ErrOwned) {
		t.Errorf("%v", err)
	}
	for want, change := range map[string]func(*queue.Schedule){
		"use 1 to 100 letters": func(s *queue.Schedule) { s.ID = "a@b" },
		`queue "a b"`:          func(s *queue.Schedule) { s.Queue = "a b" },
		"cron expression":      func(s *queue.Schedule) { s.Cron = "" },
		"at most 65536":        func(s *queue.Schedule) { s.Parameters = make([]byte, 65537) },
		"missed \"never\"":     func(s *queue.Schedule) { s.Missed = "never" },
		"max missed 5":         func(s *queue.Schedule) { s.MaxMissed = 5 },
		"max missed 1001":      func(s *queue.Schedule) { s.Missed, s.MaxMissed = queue.MissedAll, 1001 },
		"window -1s":           func(s *queue.Schedule) { s.Window = -time.Second },
		`overlap "replace"`:    func(s *queue.Schedule) { s.Overlap = "replace" },
		"unsupported options":  func(s *queue.Schedule) { s.Options.Delay = time.Second },
		"options of its tasks": func(s *queue.Schedule) { s.Options.Dead = "dead" },
		"of the retry policy":  func(s *queue.Schedule) { s.Options.Retry.Base = -1 },
		"priority 101":         func(s *queue.Schedule) { s.Options.Priority = new(int); *s.Options.Priority = 101 },
		"17 labels":            func(s *queue.Schedule) { s.Options.Labels = manyLabels(17) },
	} {
		bad := good
		change(&bad)
		if _, err := w.PutSchedule(w.ctx, bad, false); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func manyLabels(n int) map[string]string {
	labels := make(map[string]string, n)
	for i := range n {
		labels[fmt.Sprint(i)] = ""
	}
	return labels
}

// A list is all of its owner's schedules, and touches those of nobody else.
func TestSyncSchedules(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.put(t, queue.Schedule{ID: "mine", Queue: "q", Cron: "* * * * *"})
		list := []queue.Schedule{{ID: "a", Queue: "q", Cron: "* * * * *"}, {ID: "b", Queue: "q", Cron: "* * * * *"}}
		for _, dry := range []bool{true, false} {
			if sync, err := w.SyncSchedules(w.ctx, "file", list, dry); err != nil || !slices.Equal(sync.New, []string{"a", "b"}) {
				t.Errorf("dry %v: %+v, %v", dry, sync, err)
			}
		}
		list = []queue.Schedule{{ID: "b", Queue: "q", Cron: "* * * * *"}, {ID: "c", Queue: "q", Cron: "* * * * *"}, {ID: "a", Queue: "other", Cron: "* * * * *"}}
		w.put(t, queue.Schedule{ID: "gone", Queue: "q", Cron: "* * * * *", Owner: "file"})
		for _, dry := range []bool{true, false} {
			sync, err := w.SyncSchedules(w.ctx, "file", list, dry)
			if err != nil || fmt.Sprint(sync) != "{[c] [a] [b] [gone]}" {
				t.Errorf("dry %v: %+v, %v", dry, sync, err)
			}
		}
		var ids []string
		for _, s := range must[[]*queue.Schedule](t)(manage.New(w.Client).Schedules(w.ctx)) {
			ids = append(ids, s.ID)
		}
		if !slices.Equal(ids, []string{"a", "b", "c", "mine"}) {
			t.Errorf("%v", ids)
		}
		for want, list := range map[error][]queue.Schedule{
			queue.ErrOwned:   {{ID: "new", Queue: "q", Cron: "* * * * *"}, {ID: "mine", Queue: "q", Cron: "* * * * *"}},
			queue.ErrInvalid: {{ID: "new", Queue: "q", Cron: "* * * * *"}, {ID: "new", Queue: "q", Cron: "* * * * *"}},
		} {
			if _, err := w.SyncSchedules(w.ctx, "file", list, false); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		if got := must[[]*queue.Schedule](t)(manage.New(w.Client).Schedules(w.ctx)); len(got) != 4 {
			t.Errorf("a list that is refused changed something: %d schedules", len(got))
		}
	})
}

// Of lists of one owner that come at the same time one remains, whole.
func TestSyncSchedulesTogether(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var group sync.WaitGroup
		var made atomic.Int64
		for i := range 6 {
			group.Go(func() {
				list := []queue.Schedule{{ID: fmt.Sprint("a", i), Queue: "q", Cron: "* * * * *"}, {ID: fmt.Sprint("b", i), Queue: "q", Cron: "* * * * *"}}
				if _, err := w.SyncSchedules(w.ctx, "file", list, false); err == nil {
					made.Add(1)
				} else if !errors.Is(err, queue.ErrOvertaken) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if got := must[[]*queue.Schedule](t)(manage.New(w.Client).Schedules(w.ctx)); made.Load() < 1 || len(got) != 2 || got[0].ID[1:] != got[1].ID[1:] {
			t.Errorf("%d lists were made, and of them there are %+v", made.Load(), got)
		}
	})
}

// What is deleted by hand disappears, or comes back with the next put.
func TestScheduleHalfDeleted(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		s := queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * *"}
		w.put(t, s)
		w.rdb.Del(w.ctx, w.Store().Keys.Ticks())
		if put := w.put(t, s); put != queue.PutChanged {
			t.Errorf("put: %s", put)
		}
		if ids, _ := w.due(t); !slices.Equal(ids, []string{"s"}) {
			t.Errorf("due: %v", ids)
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Schedule("s"))
		w.due(t)
		if n := w.rdb.ZCard(w.ctx, w.Store().Keys.Ticks()).Val(); n != 0 {
			t.Error("an entry without a schedule stays")
		}
	})
}

func TestRunSchedule(t *testing.T) {
	w := setup(t)
	w.put(t, queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * *", Parameters: []byte("p")})
	id := must[string](t)(manage.New(w.Client).RunSchedule(w.ctx, "s"))
	if task := w.task(t, id); !strings.HasPrefix(id, "s@run-") || string(task.Parameters) != "p" || task.Key != "s" {
		t.Errorf("%+v", task)
	}
}

// A page has at least one schedule, whatever limit is asked for: who goes on from page to page comes to the end.
func TestSmallestSchedulePage(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, id := range []string{"a", "b"} {
			w.put(t, queue.Schedule{ID: id, Queue: "q", Cron: "* * * * *"})
		}
		for _, limit := range []int{-1, 0, 1} {
			page, next, err := manage.New(w.Client).SchedulePage(w.ctx, "", limit)
			if err != nil || len(page) != 1 || next != "a" {
				t.Errorf("limit %d: %d schedules, then %q: %v", limit, len(page), next, err)
			}
		}
	})
}
