package release_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/release"
)

// staged pushes a canary with 10 % and then 50 % of the tasks.
func (w *world) staged(plugin string, module []byte) release.Release {
	w.t.Helper()
	files := contents(plugin, module)
	r, err := release.New(plugin, files)
	if err != nil {
		w.t.Fatal(err)
	}
	share := &release.Share{Steps: []release.Step{{Percent: 10, Seconds: 60}, {Percent: 50}}}
	return w.must(release.Push(w.t.Context(), w, r, files, share))
}

func counts(complete, failed int) release.Counts {
	var c release.Counts
	for i := range complete {
		c.Complete(time.Duration(i)*time.Millisecond, int64(i)<<16)
	}
	for i := range failed {
		c.Fail(release.Kind(i % 3))
	}
	return c
}

// The counts of all hosts are added up, by step, and belong to one release.
func TestTrial(t *testing.T) {
	w := newWorld(t)
	first := w.must(w.push(w, "mail", []byte("one")))
	second := w.staged("mail", []byte("two"))
	host := release.Trial{Steps: []release.TrialStep{{Index: 0, Old: counts(90, 2), New: counts(9, 1)}, {Index: 1, New: counts(0, 5)}}}
	if _, err := w.AddTrial(t.Context(), &second, &host); err != nil {
		t.Fatal(err)
	}
	got, err := w.AddTrial(t.Context(), &second, &host)
	if err != nil {
		t.Fatal(err)
	}
	want := release.Trial{Number: second.Number, Steps: host.Steps}
	for i := range want.Steps {
		step := want.Steps[i]
		want.Steps[i].Old.Merge(&step.Old)
		want.Steps[i].New.Merge(&step.New)
	}
	if !reflect.DeepEqual(got.Trial, want) || got.Deaths > 0 {
		t.Errorf("the sum is %+v, want %+v", got, want)
	}
	if again, err := w.Trial(t.Context(), "mail"); err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("%+v, %v", again, err)
	}
	if life := w.rdb.TTL(t.Context(), w.keys.Trial("mail")).Val(); life < 24*time.Hour {
		t.Errorf("the counts expire in %s", life)
	}
	// A host that has not heard of the next canary counts no longer.
	third := w.staged("mail", []byte("three"))
	if _, err := w.AddTrial(t.Context(), &second, &host); !errors.Is(err, release.ErrNoTrial) {
		t.Errorf("counted for a canary that is over: %v", err)
	}
	if got, err := w.AddTrial(t.Context(), &third, &release.Trial{}); err != nil || len(got.Steps) != 0 || got.Number != third.Number {
		t.Errorf("the next trial begins with %+v, %v", got, err)
	}
	if _, err := w.AddTrial(t.Context(), &first, &release.Trial{}); !errors.Is(err, release.ErrNoTrial) {
		t.Errorf("the release that serves beside the canary: %v", err)
	}
}

// A release that a push made to serve is on trial for an hour, but not once an operator chose it.
func TestTrialOfPush(t *testing.T) {
	w := newWorld(t)
	on := func(r release.Release, want bool) {
		t.Helper()
		if _, err := w.AddTrial(t.Context(), &r, &release.Trial{}); (err == nil) != want {
			t.Errorf("release %d is on trial: %v, want %v", r.Number, err, want)
		}
	}
	first := w.must(w.push(w, "mail", []byte("one")))
	on(first, true)
	second := w.must(w.push(w, "mail", []byte("two")))
	on(first, false)
	on(second, true)
	w.must(w.ServeRelease(t.Context(), "mail", 1))
	on(first, false)
	w.must(w.ServeRelease(t.Context(), "mail", 2))
	on(second, false)
	third := w.must(w.push(w, "mail", []byte("three")))
	w.rdb.HSet(t.Context(), w.keys.Release("mail"), "3 trial", float64(time.Now().Unix()-3601))
	on(third, false)
	fourth := w.staged("mail", []byte("four"))
	on(fourth, true)
	w.must(w.PromoteRelease(t.Context(), "mail", 0))
	on(fourth, false)
}

// A damaged or overfull key breaks no host.
func TestDamagedTrial(t *testing.T) {
	w := newWorld(t)
	w.must(w.push(w, "mail", []byte("one")))
	r := w.staged("mail", []byte("two"))
	key := w.keys.Trial("mail")
	for _, field := range []string{"x", "0", "0 new", "-1 new runs", "99 new runs", "0 new took 900", "0 new took -1", "0 new took x", "1 old runs"} {
		w.rdb.HSet(t.Context(), key, field, "nonsense")
	}
	w.rdb.HSet(t.Context(), key, "number", r.Number)
	got, err := w.AddTrial(t.Context(), &r, &release.Trial{Steps: []release.TrialStep{{Index: 1, Old: counts(1, 0)}}})
	if err != nil || got.At(1).Old.Runs != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range 6000 {
		w.rdb.HSet(t.Context(), key, fmt.Sprint("field ", i), 1)
	}
	if got, err = w.AddTrial(t.Context(), &r, &release.Trial{Steps: []release.TrialStep{{Index: 1, Old: counts(1, 1)}}}); err != nil ||
		got.At(1).Old.Runs != 3 || got.At(1).Old.Failed() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	w.rdb.Del(t.Context(), key)
	w.rdb.Set(t.Context(), key, "text", 0)
	if _, err := w.AddTrial(t.Context(), &r, &release.Trial{}); err == nil {
		t.Error("a key of another type is no error")
	}
}

// The deaths of hosts that are blamed on the release come with the counts.
func TestDeathsOfTrial(t *testing.T) {
	w := newWorld(t)
	w.must(w.push(w, "mail", []byte("one")))
	r := w.staged("mail", []byte("two"))
	w.rdb.HSet(t.Context(), w.keys.Release("mail"), fmt.Sprint(r.Number, " deaths"), "1700000061 a 1700000000.5 b 1700000060")
	got, err := w.AddTrial(t.Context(), &r, &release.Trial{})
	if err != nil || got.Deaths != 2 || got.Crashed.Unix() != 1700000061 {
		t.Errorf("%d deaths, the last crash at %s, %v", got.Deaths, got.Crashed, err)
	}
}

// A bad canary ends, and a bad release that serves makes way for the one before. Whoever comes second changes nothing.
func TestStopRelease(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	stop := func(number int, want bool) {
		t.Helper()
		if got, err := w.StopRelease(ctx, "mail", number, "it is bad"); got != want || err != nil {
			t.Errorf("stopped release %d: %v, %v, want %v", number, got, err, want)
		}
	}
	stopped := func(number, serving int) {
		t.Helper()
		all, err := w.Stopped(ctx)
		one := all["mail"]
		if err != nil || one.Number != number || one.Serving != serving || number > 0 && (one.Reason != "it is bad" || one.At == 0) {
			t.Errorf("stopped is %+v, %v, want %d in favour of %d", all, err, number, serving)
		}
	}
	w.must(w.push(w, "mail", []byte("one")))
	stop(1, false) // there is nothing before it
	w.staged("mail", []byte("two"))
	stop(2, true)
	stop(2, false)
	w.serving("mail", 1, 0)
	if got, want := w.states("mail"), "2 halted, 1 serving"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	stopped(2, 1)
	w.must(w.push(w, "mail", []byte("three")))
	stopped(0, 0)
	stop(3, true)
	stop(3, false)
	if got, want := w.states("mail"), "3 rolled back, 2 halted, 1 serving"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r := w.must(w.Release(ctx, "mail", 3)); r.Reason != "it is bad" || r.RolledBack == 0 {
		t.Errorf("%+v", r)
	}
	stopped(3, 1)
	w.must(w.ServeRelease(ctx, "mail", 3))
	stopped(0, 0)
	stop(3, false) // an operator wants it
	w.must(w.push(w, "mail", []byte("four")))
	stop(4, true)
	stopped(4, 3)
	if err := w.DeleteRelease(ctx, "mail", 4); err != nil {
		t.Fatal(err)
	}
	stopped(0, 0)
	stop(9, false)
	if _, err := w.StopRelease(ctx, "nosuch", 1, "it is bad"); !errors.Is(err, release.ErrNoRelease) {
		t.Errorf("stopped a plugin without releases: %v", err)
	}
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	var h release.Histogram
	for i := range 1000 {
		h.Add(float64(i + 1))
	}
	for _, share := range []float64{0.05, 0.5, 0.95, 1} {
		if got, want := h.Quantile(share), 1000*share; got < 0.81*want || got > 1.19*want {
			t.Errorf("quantile %v is %v, want about %v", share, got, want)
		}
	}
	h.Add(-1)
	h.Add(1e300)
	if h.Total() != 1002 || (&release.Histogram{}).Quantile(0.5) != 0 {
		t.Errorf("%d values, %v", h.Total(), (&release.Histogram{}).Quantile(0.5))
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for reason, want := range map[queue.Reason]string{
		queue.ReasonError: "error", queue.ReasonTrap: "trap", queue.ReasonMemory: "limit", queue.ReasonTimeout: "limit",
		queue.ReasonCPU: "limit", queue.ReasonOutput: "limit", queue.ReasonExpired: "limit", queue.ReasonExhausted: "error",
	} {
		if got := release.KindOf(reason).String(); got != want {
			t.Errorf("%s is of kind %s, want %s", reason, got, want)
		}
	}
}
