package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/release"
)

// beside starts two hosts with a release of the plugin mail and a canary beside it.
func beside(t *testing.T, config Config, old, next []byte, share release.Share) (a, b *node, canary release.Release) {
	t.Helper()
	a = start(t, settings{Config: config})
	b = start(t, settings{tenants: []string{a.tenant}, Config: config})
	first := a.pushRelease("mail", old, "version: one")
	canary = a.pushCanary("mail", next, "version: two", share)
	if err := a.rdb.HDel(a.ctx, a.tenant+"_release_mail", "2 first").Err(); err != nil { // each task is to be counted
		t.Fatal(err)
	}
	for _, n := range []*node{a, b} {
		n.serves("mail", first.Number)
		n.has("mail", canary.Number, plugins.StateCanary)
		n.awareOf("mail", canary.Number)
	}
	return a, b, canary
}

// feed runs tasks of which one in five has the input on which runtimetest.Exit fails. It ends when enough is true, and
// returns how many tasks ran.
func (n *node) feed(most int, enough func() bool) (tasks int64) {
	n.t.Helper()
	for i := 0; i < most && !enough(); i += 50 {
		specs := make([]queue.Spec, 50)
		for j := range specs {
			specs[j].Parameters = []byte("0\n")
			if j%5 == 0 {
				specs[j].Parameters = []byte("3\n")
			}
		}
		receipts, err := n.client.Queue("mail").EnqueueMany(n.ctx, specs)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, receipt := range receipts {
			n.wait(receipt.ID)
		}
		tasks += int64(len(specs))
	}
	return tasks
}

// is waits until a release of mail is in a state, and returns the reason.
func (n *node) is(number int, state string) (reason string) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("release %d is %s", number, state), func() bool {
		r, err := release.NewStore(n.client).Release(n.ctx, "mail", number)
		if err != nil {
			n.t.Fatal(err)
		}
		if reason = r.Reason; r.Stage != nil {
			reason = r.Stage.Reason
		}
		return r.State() == state
	})
	return reason
}

func (n *node) halted(number int) bool {
	n.t.Helper()
	all, err := release.NewStore(n.client).Stopped(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return all["mail"].Number == number
}

// counts waits until Redis has the counts of this many tasks, and returns those of the canary.
func (n *node) counts(tasks int64) (canary release.Counts) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%d tasks are counted", tasks), func() bool {
		trial, err := release.NewStore(n.client).Trial(n.ctx, "mail")
		var old release.Counts
		canary = release.Counts{}
		for i := range trial.Steps {
			old.Merge(&trial.Steps[i].Old)
			canary.Merge(&trial.Steps[i].New)
		}
		return err == nil && old.Runs+canary.Runs == tasks
	})
	return canary
}

// A canary that fails in a fifth of its tasks is halted by itself after a few of them, and each host tells so.
func TestBadCanaryIsHalted(t *testing.T) {
	t.Parallel()
	a, b, canary := beside(t, Config{}, runtimetest.Echo(t), runtimetest.Exit(t), percent(20))
	_, err := a.client.Subscribe(a.ctx, queue.Subscription{ID: "told", Topic: TopicReleases, Queue: "told", Active: true})
	if err != nil {
		t.Fatal(err)
	}
	a.feed(4000, func() bool { return a.halted(canary.Number) })
	if reason := a.is(canary.Number, release.StateHalted); !strings.Contains(reason, " tasks failed; of the release before, 0 of ") {
		t.Errorf("the reason is %q", reason)
	}
	trial, err := release.NewStore(a.client).Trial(a.ctx, "mail")
	if err != nil || len(trial.Steps) != 1 || trial.Steps[0].New.Runs > 300 {
		t.Errorf("halted after %+v, %v", trial, err)
	} else {
		t.Logf("halted after %d tasks of the canary", trial.Steps[0].New.Runs)
	}
	for _, n := range []*node{a, b} {
		n.awareOf("mail", 0)
		n.counted(1, "quern_release_stopped", "tenant", n.tenant, "plugin", "mail")
	}
	a.eventually("one host logs it", func() bool { return a.log.lines("release stopped: ")+b.log.lines("release stopped: ") == 1 })
	var told []*queue.Task
	a.eventually("it is published", func() bool { told = a.list("told"); return len(told) == 1 })
	var event struct{ Event, Plugin, Reason, Remedy string }
	if err := json.Unmarshal(a.task(told[0].ID).Parameters, &event); err != nil || event.Event != "stopped" || event.Plugin != "mail" ||
		event.Reason == "" || event.Remedy == "" {
		t.Errorf("published was %+v, %v", event, err)
	}
	if task := a.wait(a.enqueue("mail", "3\n")); task.Status != queue.Complete {
		t.Errorf("after that a task is %s", task.Status)
	}
	a.pushRelease("mail", runtimetest.Exit(t), "version: three")
	a.counted(0, "quern_release_stopped", "tenant", a.tenant, "plugin", "mail")
}

// A canary that is equal to the release beside it is not halted, however many tasks fail on both.
func TestEqualCanaryGoesOn(t *testing.T) {
	t.Parallel()
	a, b, canary := beside(t, Config{}, runtimetest.Exit(t), runtimetest.Exit(t), percent(30))
	tasks := a.feed(500, func() bool { return false })
	counts := a.counts(tasks)
	if counts.Runs < 100 || counts.Failed() < 10 || counts.Failures[release.KindError] != counts.Failed() || counts.Duration.Total() == 0 {
		t.Errorf("counted %d tasks of the canary, %v failed", counts.Runs, counts.Failures)
	}
	a.is(canary.Number, release.StateCanary)
	if a.log.has("release stopped") || b.log.has("release stopped") {
		t.Error("a host has stopped it")
	}
}

// A host that only reports leaves a bad canary.
func TestBadCanaryIsReported(t *testing.T) {
	t.Parallel()
	a, b, canary := beside(t, Config{KeepBadReleases: true}, runtimetest.Echo(t), runtimetest.Exit(t), percent(20))
	a.feed(4000, func() bool { return a.log.has("release is bad") && b.log.has("release is bad") })
	a.is(canary.Number, release.StateCanary)
	if n := a.log.lines("release is bad"); n != 1 {
		t.Errorf("it is reported %d times", n)
	}
}

// A release that a push made to serve, and whose tasks all fail, makes way for the one before. An operator may insist.
func TestBadReleaseIsRolledBack(t *testing.T) {
	t.Parallel()
	a := start(t, settings{})
	first := a.pushRelease("mail", runtimetest.Echo(t), "version: one")
	a.serves("mail", first.Number)
	a.complete("mail", a.enqueueMany("mail", 100, "3\n"))
	a.eventually("the runs are counted", func() bool {
		complete, _, err := a.current().access.runsOf(a.ctx, &first)
		return err == nil && complete == 100
	})
	second := a.pushRelease("mail", runtimetest.Exit(t), "version: two")
	a.serves("mail", second.Number)
	for _, id := range a.enqueueMany("mail", 30, "3\n") {
		a.wait(id)
	}
	if reason := a.is(second.Number, release.StateRolledBack); !strings.Contains(reason, "tasks failed; of the release before, 0 of 100 runs") {
		t.Errorf("the reason is %q", reason)
	}
	a.serves("mail", first.Number)
	if _, err := release.NewStore(a.client).ServeRelease(a.ctx, "mail", second.Number); err != nil {
		t.Fatal(err)
	}
	a.serves("mail", second.Number)
	for _, id := range a.enqueueMany("mail", 30, "3\n") {
		a.wait(id)
	}
	if _, err := release.NewStore(a.client).AddTrial(a.ctx, &second, &release.Trial{}); !errors.Is(err, release.ErrNoTrial) {
		t.Errorf("a release that an operator chose is on trial: %v", err)
	}
	a.is(second.Number, release.StateServing)
}

// A canary in a crash loop is halted at the second host that dies over its tasks. Package queue tests which deaths are
// blamed on a version.
func TestCrashingCanaryIsHalted(t *testing.T) {
	t.Parallel()
	a, b, canary := beside(t, Config{}, runtimetest.Echo(t), runtimetest.Exit(t), percent(50))
	die := func(seconds ...int64) {
		t.Helper()
		text := "0"
		for i, at := range seconds {
			text += fmt.Sprintf(" dead~0000000%d_1 %d", i, at)
		}
		if err := a.rdb.HSet(a.ctx, a.tenant+"_release_mail", fmt.Sprint(canary.Number, " deaths"), text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().Unix()
	die(now)
	a.counts(a.feed(50, func() bool { return false }))
	a.is(canary.Number, release.StateCanary)
	die(now, now+60)
	if reason := a.is(canary.Number, release.StateHalted); !strings.Contains(reason, "2 hosts died") {
		t.Errorf("the reason is %q", reason)
	}
	a.awareOf("mail", 0)
	b.awareOf("mail", 0)
	if task := a.wait(a.enqueue("mail", "3\n")); task.Status != queue.Complete {
		t.Errorf("after that a task is %s: %s", task.Status, task.Error)
	}
}

// A push that changes only the manifest makes way as well for the release before, which has the same module.
func TestBadManifestIsRolledBack(t *testing.T) {
	t.Parallel()
	a := start(t, settings{})
	module, input := runtimetest.Echo(t), strings.Repeat("x", 2048)
	first := a.pushRelease("mail", module, "version: one")
	a.serves("mail", first.Number)
	a.complete("mail", a.enqueueMany("mail", 100, input))
	a.eventually("the runs are counted", func() bool {
		complete, _, err := a.current().access.runsOf(a.ctx, &first)
		return err == nil && complete == 100
	})
	second := a.pushRelease("mail", module, "version: one\nlimits: {output: 1KiB}")
	a.serves("mail", second.Number)
	for _, id := range a.enqueueMany("mail", 30, input) {
		a.wait(id)
	}
	if reason := a.is(second.Number, release.StateRolledBack); !strings.Contains(reason, "of the release before, 0 of 100 runs") {
		t.Errorf("the reason is %q", reason)
	}
	a.serves("mail", first.Number)
}

// A task whose deadline was over before it began says nothing of its release. One that ran into its deadline failed.
func TestDeadlinesOnTrial(t *testing.T) {
	t.Parallel()
	a, b, canary := beside(t, Config{}, runtimetest.Echo(t), runtimetest.Sleep(t), percent(100))
	now, s := time.Now(), a.current()
	version := a.catalog.directory.Acquire(a.tenant, "mail")
	defer version.Release()
	reserved := listen.Reservation{ID: "late", Deadline: now.Add(-time.Second)}
	late := &ended{task: &task{
		Task: listen.NewTask("mail", reserved, &listen.ReserveReply{Clock: now}, now), version: version, release: canary.Number,
		tenant: s.access, Slot: schedule.Slot{Queue: schedule.Queue{Tenant: a.tenant, Name: "mail"}},
	}}
	late.outcome = s.intake.runner.call(a.ctx, late.task, service.Services{})
	if late.settlement = settlement(late, a.config.Retry); late.settlement.Failure.Reason != queue.ReasonExpired {
		t.Errorf("the task fails for %s", late.settlement.Failure.Reason)
	}
	s.settler.onTrial(late, late.settlement.Outcome())
	ran := a.enqueueAs("mail", "60000", queue.Options{Deadline: time.Now().Add(time.Second)})
	if task := a.wait(ran); task.Reason != queue.ReasonExpired {
		t.Errorf("the task is %s for %s", task.Status, task.Reason)
	}
	b.wait(b.enqueue("mail", "0"))
	if counts := a.counts(2); counts.Failures[release.KindLimit] != 1 {
		t.Errorf("counted for canary %d: %+v", canary.Number, counts.Failures)
	}
}

// A task that waited for a host with its release counts, without duration and fuel.
func TestDelayedOnTrial(t *testing.T) {
	t.Parallel()
	a, _, canary := beside(t, Config{}, runtimetest.Echo(t), runtimetest.Echo(t), percent(20))
	now, s := time.Now(), a.current()
	version := a.catalog.directory.Acquire(a.tenant, "mail")
	defer version.Release()
	const each = 15 // more than the first runs, which count without duration
	for i := range 2 * each {
		reserved := listen.Reservation{ID: fmt.Sprint(i), Delayed: i < each}
		s.settler.onTrial(&ended{task: &task{
			Task: listen.NewTask("mail", reserved, &listen.ReserveReply{Clock: now}, now), version: version, release: canary.Number,
			tenant: s.access, Slot: schedule.Slot{Queue: schedule.Queue{Tenant: a.tenant, Name: "mail"}},
		}}, listen.OutcomeComplete)
	}
	if counts := a.counts(2 * each); counts.Runs != 2*each || counts.Duration.Total() != each {
		t.Errorf("counted %d tasks, %d of them with duration", counts.Runs, counts.Duration.Total())
	}
}
