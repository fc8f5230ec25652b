package release_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/release"
)

func percent(steps ...release.Step) *release.Share { return &release.Share{Steps: steps} }

// canary checks which release hosts are to give a share of the tasks, and its percentage: 0 for none.
func (w *world) canary(plugin string, number int, percent float64) {
	w.t.Helper()
	all, _, err := w.Serving(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	got, is := 0, 0.0
	if c := all[plugin].Canary; c != nil {
		got, is = c.Number, c.Stage.Percent()
	}
	if got != number || is != percent || all[plugin].Err != nil {
		w.t.Errorf("hosts are to give release %d %v%% of the tasks (%v), want %d %v%%", got, is, all[plugin].Err, number, percent)
	}
}

func TestCanary(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	if _, err := w.stage(w, "mail", []byte("one"), percent(release.Step{Percent: 10})); !errors.Is(err, release.ErrNoRelease) {
		t.Errorf("a canary without a release that serves: %v", err)
	}
	w.must(w.push(w, "mail", []byte("one")))
	share := percent(release.Step{Percent: 10, Seconds: 60}, release.Step{Percent: 50, Tasks: 100})
	if r := w.must(w.stage(w, "mail", []byte("two"), share)); r.Number != 2 || r.State() != release.StateCanary {
		t.Errorf("pushed %+v", r)
	}
	w.serving("mail", 1, 0)
	w.canary("mail", 2, 10)
	if again := w.must(w.stage(w, "mail", []byte("two"), share)); again.Number != 2 {
		t.Errorf("the same canary has become release %d", again.Number)
	}
	w.must(w.AdvanceRelease(ctx, "mail", 2, 0))
	w.must(w.AdvanceRelease(ctx, "mail", 2, 0)) // another host was later
	w.canary("mail", 2, 50)
	if _, err := w.AdvanceRelease(ctx, "mail", 1, 0); !errors.Is(err, release.ErrNoCanary) {
		t.Errorf("advanced another release: %v", err)
	}
	w.must(w.AdvanceRelease(ctx, "mail", 2, 1)) // the last step
	w.serving("mail", 2, 1)
	w.canary("mail", 0, 0)
	if got, want := w.states("mail"), "2 serving, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	w.must(w.stage(w, "mail", []byte("three"), percent(release.Step{Percent: 10})))
	halted := w.must(w.HaltRelease(ctx, "mail", 3, "too many errors"))
	if halted.State() != release.StateHalted || halted.Stage.Reason != "too many errors" || halted.Stage.Percent() != 10 {
		t.Errorf("halted %+v", halted)
	}
	w.must(w.HaltRelease(ctx, "mail", 3, "again"))
	w.canary("mail", 0, 0)
	w.serving("mail", 2, 1)
	for name, err := range map[string]error{
		"promoted":   second(w.PromoteRelease(ctx, "mail", 3)),
		"halted 2":   second(w.HaltRelease(ctx, "mail", 2, "x")),
		"halted":     second(w.HaltRelease(ctx, "mail", 0, "x")),
		"advanced 3": second(w.AdvanceRelease(ctx, "mail", 3, 0)),
	} {
		if !errors.Is(err, release.ErrNoCanary) {
			t.Errorf("%s without a canary: %v", name, err)
		}
	}

	w.must(w.stage(w, "mail", []byte("four"), percent(release.Step{Percent: 10})))
	w.must(w.stage(w, "mail", []byte("five"), &release.Share{Label: "customer", Value: "acme"})) // replaces it
	w.canary("mail", 5, 0)
	w.must(w.push(w, "mail", []byte("six"))) // as well
	w.serving("mail", 6, 2)                  // no canary that never served
	if got, want := w.states("mail"), "6 serving, 5 halted, 4 halted, 3 halted, 2 replaced, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.must(w.stage(w, "mail", []byte("seven"), percent(release.Step{Percent: 10})))
	if back := w.must(w.ServeRelease(ctx, "mail", 0)); back.Number != 2 {
		t.Errorf("rolled back to %d", back.Number)
	}
	w.canary("mail", 0, 0)
	if got, want := w.states("mail"), "7 halted, 6 rolled back, 5 halted, 4 halted, 3 halted, 2 serving, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.must(w.ServeRelease(ctx, "mail", 7)) // a halted one, by its number
	w.serving("mail", 7, 2)
}

func second(_ release.Release, err error) error { return err }

func TestFrozenPluginTakesNoCanary(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.must(w.push(w, "mail", []byte("one")))
	w.must(w.stage(w, "mail", []byte("two"), percent(release.Step{Percent: 10, Seconds: 1})))
	if err := w.DeleteRelease(ctx, "mail", 2); !errors.Is(err, release.ErrCanary) {
		t.Errorf("deleted the canary: %v", err)
	}
	if err := w.FreezeReleases(ctx, "mail", true); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"pushed":   second(w.stage(w, "mail", []byte("three"), percent(release.Step{Percent: 10}))),
		"promoted": second(w.PromoteRelease(ctx, "mail", 0)),
		"advanced": second(w.AdvanceRelease(ctx, "mail", 2, 0)),
		"served":   second(w.ServeRelease(ctx, "mail", 2)),
	} {
		if !errors.Is(err, release.ErrFrozen) {
			t.Errorf("%s a canary of a frozen plugin: %v", name, err)
		}
	}
	w.must(w.HaltRelease(ctx, "mail", 2, "x")) // the way out stays open
	w.serving("mail", 1, 0)
}

// However many canaries were pushed, the release that serves and the one before it are kept.
func TestCanariesDoNotDisplaceWhatServes(t *testing.T) {
	w := newWorld(t)
	w.must(w.push(w, "mail", []byte("zero")))
	w.must(w.push(w, "mail", []byte("one")))
	for i := range release.MaxKept + 2 {
		w.must(w.stage(w, "mail", []byte{byte(i)}, percent(release.Step{Percent: 10})))
	}
	w.serving("mail", 2, 1)
	w.canary("mail", release.MaxKept+4, 10)
	if r := w.must(w.Release(t.Context(), "mail", 2)); !r.Serving {
		t.Errorf("%+v", r)
	}
	if r := w.must(w.ServeRelease(t.Context(), "mail", 0)); r.Number != 1 {
		t.Errorf("went back to release %d", r.Number)
	}
}

// A canary may not have a queue that the release in its place does not serve.
func TestQueuesOfCanary(t *testing.T) {
	w := newWorld(t)
	push := func(module string, share *release.Share, queues ...string) error {
		files := contents("mail", []byte(module))
		r, err := release.New("mail", files)
		if err != nil {
			t.Fatal(err)
		}
		r.Queues = queues
		_, err = release.Push(t.Context(), w, r, files, share)
		return err
	}
	share := percent(release.Step{Percent: 10})
	if err := errors.Join(push("one", nil, "mail", "bulk"), push("two", share, "mail")); err != nil {
		t.Fatal(err)
	}
	err := push("three", share, "mail", "news")
	if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), `no queue "news": push without --canary`) {
		t.Errorf("pushed a canary with a queue of its own: %v", err)
	}
	w.canary("mail", 2, 10)
}

func TestInvalidShares(t *testing.T) {
	t.Parallel()
	for text, share := range map[string]*release.Share{
		"names no tasks":  {},
		"label and steps": {Label: "a", Steps: []release.Step{{Percent: 1}}},
		"its label has":   {Label: strings.Repeat("a", 2000)},
		"22 steps":        percent(make([]release.Step, 22)...),
		": 0%: use more":  percent(release.Step{}),
		": NaN%: use":     percent(release.Step{Percent: math.NaN()}),
		": 101%: use":     percent(release.Step{Percent: 101}),
		"step 2, 5%: use more than 10%, and at most 100%":                                              percent(release.Step{Percent: 10, Tasks: 1}, release.Step{Percent: 5}),
		"step 1, 10%: only the last step can be without an end: use 10%/10m, or 10%/500 for 500 tasks": percent(release.Step{Percent: 10}, release.Step{Percent: 50}),
		"10%: it lasts for -1 s: use at most 366 days, such as 10%/1h":                                 percent(release.Step{Percent: 10, Seconds: -1}),
		"10%: it lasts for -1 tasks: use 1 or more, such as 10%/500":                                   percent(release.Step{Percent: 10, Tasks: -1}),
	} {
		if err := share.Validate(); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %q", share, err, text)
		}
	}
}

// Wherever the pusher of a canary dies, hosts see either no new canary or one that is whole; the one before goes on until
// then.
func TestPusherOfCanaryDies(t *testing.T) {
	w := newWorld(t)
	w.must(w.push(w, "mail", []byte("one")))
	w.must(w.stage(w, "mail", []byte("two"), percent(release.Step{Percent: 10})))
	for writes := 0; ; writes++ {
		r, err := w.stage(&dying{w, writes}, "mail", []byte("three"), percent(release.Step{Percent: 20}))
		if err == nil {
			if writes < 3 || r.Number != 3 {
				t.Errorf("release %d after %d writes", r.Number, writes)
			}
			break
		}
		if !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		w.canary("mail", 2, 10)
	}
	w.canary("mail", 3, 20)
	w.serving("mail", 1, 0)
}

// A share takes as many tasks as it says, the same ones at each attempt, and those of smaller shares as well.
func TestTakes(t *testing.T) {
	t.Parallel()
	stage := release.Stage{Share: *percent(release.Step{Percent: 5, Tasks: 1}, release.Step{Percent: 20, Tasks: 1}, release.Step{Percent: 100})}
	const tasks = 10_000
	var taken [3]int
	other := 0
	for i := range tasks {
		id := fmt.Sprint("task-", i)
		was := false
		for step := range taken {
			stage.Step = step
			takes := stage.Takes(7, id, nil)
			if was && !takes {
				t.Fatalf("%s leaves the canary at step %d", id, step)
			}
			if was = takes; takes {
				taken[step]++
			}
		}
		stage.Step = 1
		if stage.Takes(7, id, nil) && stage.Takes(8, id, nil) {
			other++
		}
	}
	if math.Abs(float64(taken[0])-500) > 110 || math.Abs(float64(taken[1])-2000) > 200 || taken[2] != tasks {
		t.Errorf("of %d tasks the canary gets %v", tasks, taken)
	}
	if math.Abs(float64(other)-400) > 100 {
		t.Errorf("%d tasks are of the 20%% of two canaries, want about 400: each has tasks of its own", other)
	}
	labelled := release.Stage{Share: release.Share{Label: "customer", Value: "acme"}}
	if !labelled.Takes(1, "a", map[string]string{"customer": "acme"}) || labelled.Takes(1, "a", map[string]string{"customer": "b"}) ||
		labelled.Takes(1, "a", nil) {
		t.Error("a share by label takes other tasks")
	}
}

func TestShareText(t *testing.T) {
	t.Parallel()
	for want, share := range map[string]*release.Share{
		"0.5%":             percent(release.Step{Percent: 0.5}),
		"label:a=b=c":      {Label: "a", Value: "b=c"},
		"1%/10m,10%/500":   percent(release.Step{Percent: 1, Seconds: 600}, release.Step{Percent: 10, Tasks: 500}),
		"1%/1h,2%/1h30m":   percent(release.Step{Percent: 1, Seconds: 3600}, release.Step{Percent: 2, Seconds: 5400}),
		"1%/1m30s,2%/24h":  percent(release.Step{Percent: 1, Seconds: 90}, release.Step{Percent: 2, Seconds: 86400}),
		"1%/20s,100%/10s":  percent(release.Step{Percent: 1, Seconds: 20}, release.Step{Percent: 100, Seconds: 10}),
		"1%/1h0m1s,2%/1ms": percent(release.Step{Percent: 1, Seconds: 3601}, release.Step{Percent: 2, Seconds: 0.001}),
	} {
		if got := share.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A canary whose step is none, as somebody else wrote it, is damaged: nothing else is read from it.
func TestDamagedStage(t *testing.T) {
	w := newWorld(t)
	w.must(w.push(w, "mail", []byte("one")))
	w.must(w.stage(w, "mail", []byte("two"), percent(release.Step{Percent: 10, Seconds: 60})))
	line := w.rdb.HGet(t.Context(), w.keys.Releases(), "mail").Val()
	damaged := strings.Replace(line, `"step":0`, `"step":-1`, 1)
	if damaged == line {
		t.Fatalf("the entry has no step: %s", line)
	}
	w.rdb.HSet(t.Context(), w.keys.Releases(), "mail", damaged)
	all, _, err := w.Serving(t.Context())
	if one := all["mail"]; err != nil || !errors.Is(one.Err, queue.ErrInvalid) || one.Canary != nil {
		t.Errorf("%+v, %v", one, err)
	}
	w.rdb.HSet(t.Context(), w.keys.Release("mail"), "2 step", "-1 1")
	if _, err := w.Releases(t.Context(), "mail"); err == nil {
		t.Error("a release with a step below 0 is read")
	}
}
