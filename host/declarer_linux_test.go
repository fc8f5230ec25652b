package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// owned are the schedules that plugins own.
func (n *node) owned() (ids []string) {
	n.t.Helper()
	all, err := manage.New(n.client).Schedules(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range all {
		if s.PluginOwner() != "" {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// A manifest's schedules run, change with it, and stand still without it; a pause by hand stays.
func TestDeclaredSchedule(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"echo": runtimetest.Echo(t)},
		yaml:   map[string]string{"echo": `schedule: [{cron: "* * * * * *", parameters: hello}, {name: daily, cron: "@daily"}]`},
	})
	n.eventually("a task is complete", func() bool {
		s, err := n.client.Schedule(n.ctx, "echo")
		return err == nil && s.LastID != "" && n.task(s.LastID).Status == queue.Complete
	})
	if task := n.task(n.scheduleState("echo").LastID); string(task.Result) != "hello" || task.Key != "echo" {
		t.Errorf("%+v", task)
	}
	if err := n.client.PauseSchedule(n.ctx, "echo"); err != nil {
		t.Fatal(err)
	}
	n.write("echo.yaml", []byte(`schedule: [{cron: "*/2 * * * * *"}]`))
	absent := func(id string) bool { return !n.scheduleState(id).Absent.IsZero() }
	n.eventually("changed", func() bool {
		s, err := n.client.Schedule(n.ctx, "echo")
		return err == nil && s.Cron == "*/2 * * * * *" && !s.Paused.IsZero() && !absent("echo") && absent("echo.daily")
	})
	if plugins := n.published(); len(plugins) != 1 {
		t.Fatalf("%+v", plugins)
	}
	n.write("echo.yaml", []byte(`{}`))
	n.eventually("absent", func() bool { return absent("echo") })
	fired := n.scheduleState("echo").Fired
	n.write("echo.yaml", []byte(`schedule: [{cron: "* * * * * *"}]`)) // the roll-back
	n.eventually("back", func() bool { return !absent("echo") })
	if s := n.scheduleState("echo"); s.Paused.IsZero() || s.Fired != fired || fired == 0 {
		t.Errorf("its pause and its counters are over: %+v", s)
	}
}

// What hosts have declared counts while a live one has it: not that of a version that was tried on one host, and not what one host
// restarted.
func TestDeclaredByTheFleet(t *testing.T) {
	t.Parallel()
	const first = `{schedule: [{cron: "@hourly"}], ` + subscribingManifest + "}"
	tenants := []string{queuetest.Tenant()}
	host := func(manifest string) *node {
		return start(t, settings{tenants: tenants, guests: map[string][]byte{"echo": runtimetest.Echo(t)}, yaml: map[string]string{"echo": manifest}})
	}
	n := host(first)
	says := func(cron, filter string) func() bool {
		return func() bool {
			s, err := n.client.Schedule(n.ctx, "echo")
			subscription, failed := n.client.Subscription(n.ctx, "echo/orders.*")
			return cmp.Or(err, failed) == nil && s.Cron == cron && s.Absent.IsZero() && fmt.Sprint(subscription.Filter.Data) == filter && subscription.Absent.IsZero()
		}
	}
	const old, other = "map[/total:12]", "map[]"
	n.eventually("stored", says("@hourly", old))
	canary := host(`{schedule: [{cron: "@daily"}], subscribe: [{topic: "orders.*"}]}`)
	n.eventually("the last version counts", says("@daily", other))
	again := func() {
		n.current().upkeep.Declarer.Ask()
		canary.current().upkeep.Declarer.Ask()
	}
	again()
	restarted := host(first)
	restarted.eventually("the last one to start counts", says("@hourly", old))
	again()
	canary.write("echo.yaml", []byte(`schedule: [{cron: "@monthly"}]`))
	n.eventually("changed, and what others have stays", says("@monthly", old))
	canary.write("echo.yaml", []byte(`{}`))
	n.eventually("what no version says any more is replaced", func() bool { n.current().upkeep.Declarer.Ask(); return says("@hourly", old)() })
	if err := errors.Join(restarted.stop(), n.stop()); err != nil {
		t.Fatal(err)
	}
	n.eventually("what no host has is absent", func() bool {
		canary.rdb.Del(n.ctx, n.tenant+"_duty_declared")
		canary.current().upkeep.Declarer.Ask()
		return !n.scheduleState("echo").Absent.IsZero()
	})
}

// What another owner has stays, and the host's log tells; the plugin's other schedules are stored.
func TestDeclaredScheduleOfAnother(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"echo": runtimetest.Echo(t)},
		yaml:   map[string]string{"echo": `schedule: [{cron: "@hourly"}, {name: daily, cron: "@daily"}]`}, idle: true,
	})
	n.schedule(queue.Schedule{ID: "echo", Queue: "q", Cron: "@daily"})
	n.run()
	n.eventually("stored", func() bool { return slices.Equal(n.owned(), []string{"echo.daily"}) })
	n.eventually("told", func() bool {
		return n.log.has("schedule was not stored: somebody else owns its ID", "another owner: hand")
	})
}

// What a tenant's grants do not allow is not declared for it, though the common plugin serves it.
func TestDeclaredUnderGrants(t *testing.T) {
	t.Parallel()
	grants, err := manifest.ParseGrants("g.yaml", []byte(`"*": {capabilities: {}, schedule: {every: 1h}}`))
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		grants: grants, guests: map[string][]byte{"a": runtimetest.Echo(t), "b": runtimetest.Echo(t), "c": runtimetest.Echo(t), "d": runtimetest.Echo(t)},
		yaml: map[string]string{
			"a": `schedule: [{cron: "* * * * * *"}]`, "b": `schedule: [{cron: "@hourly"}]`, "c": `subscribe: [{topic: orders}]`, "d": `schedule: [{cron: "@every 59m"}]`,
		},
	})
	n.eventually("stored", func() bool { return len(n.owned()) > 0 })
	for _, queue := range []string{"a", "c", "d"} {
		n.wait(n.enqueue(queue, "x"))
	}
	subscriptions, err := n.client.Subscriptions(n.ctx)
	if owned := n.owned(); !slices.Equal(owned, []string{"b"}) || len(subscriptions) > 0 || err != nil {
		t.Errorf("declared %q and %+v, %v", owned, subscriptions, err)
	}
}

const subscribingManifest = `subscribe: [{topic: "orders.*", filter: {data: {/total: 12}}}]`

// A manifest's subscriptions come with the plugin, change with it, and are absent without it; a pause by hand stays.
func TestDeclaredSubscription(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"echo": runtimetest.Echo(t)}, yaml: map[string]string{"echo": subscribingManifest}})
	const id = "echo/orders.*"
	stored := func(is func(s queue.Subscription) bool) func() bool {
		return func() bool {
			s, err := n.client.Subscription(n.ctx, id)
			return err == nil && is(s)
		}
	}
	n.eventually("stored", stored(func(s queue.Subscription) bool { return s.Active && s.Queue == "echo" && s.Plugin == "echo" }))
	for payload, subscribers := range map[string]int{`{"total": 12}`: 1, `{"total": 13}`: 0} {
		p, err := n.client.Publish(n.ctx, "orders.made", []byte(payload), queue.PublishOptions{})
		if err != nil || p.Subscribers != subscribers {
			t.Errorf("%s: %+v, %v", payload, p, err)
		}
		if subscribers > 0 {
			if task := n.wait(queue.PublishedID(p.ID, id)); string(task.Result) != payload {
				t.Errorf("%+v", task)
			}
		}
	}
	if _, err := n.client.ChangeSubscription(n.ctx, id, func(s *queue.Subscription) error { s.Active = false; return nil }); err != nil {
		t.Fatal(err)
	}
	n.write("echo.yaml", []byte(`subscribe: [{topic: "orders.*"}]`))
	n.eventually("changed", stored(func(s queue.Subscription) bool { return len(s.Filter.Data) == 0 && !s.Active }))
	n.write("echo.yaml", []byte(`{}`))
	n.eventually("absent", stored(func(s queue.Subscription) bool { return !s.Absent.IsZero() && !s.Active }))
}

// What a plugin declares outlives it for days, by Redis's clock: its schedule stands still, what was paused by hand stays so, and
// what was missed is known when it is back. A host that has just begun deletes nothing.
func TestDeclaredWithoutAHost(t *testing.T) {
	t.Parallel()
	server, clock := queuetest.StartAhead(t, 0)
	common := settings{
		server: server, tenants: []string{queuetest.Tenant()}, guests: map[string][]byte{"echo": runtimetest.Echo(t)},
		yaml: map[string]string{"echo": `{schedule: [{cron: "@hourly"}, {name: off, cron: "@hourly"}], ` + subscribingManifest + "}"},
	}
	const subscription = "echo/orders.*"
	n := start(t, common)
	published := func() bool {
		live := n.published()
		return len(live) == 1 && slices.Equal(live["echo"].Schedules, []string{"echo", "echo.off"}) && slices.Equal(live["echo"].Subscriptions, []string{subscription})
	}
	n.eventually("stored", func() bool {
		_, err := n.client.Subscription(n.ctx, subscription)
		return err == nil && len(n.owned()) == 2
	})
	if !published() {
		t.Error("it is stored before it is published, and a sweep of another host may take it for absent")
	}
	other := start(t, settings{server: server, tenants: common.tenants, idle: true})
	if err := other.current().access.listener.Join(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.client.PauseSchedule(n.ctx, "echo.off"); err != nil {
		t.Fatal(err)
	}
	declarer := other.current().upkeep.Declarer
	sweep := func(after, lived time.Duration) {
		t.Helper()
		clock.Set(t, after)
		if err := errors.Join(other.rdb.Del(n.ctx, n.tenant+"_duty_declared").Err(), declarer.Sweep(n.ctx, lived)); err != nil {
			t.Fatal(err)
		}
	}
	absent := func() (schedule, subscribed bool) {
		t.Helper()
		s, err := n.client.Subscription(n.ctx, subscription)
		if err != nil {
			t.Fatal(err)
		}
		return !n.scheduleState("echo").Absent.IsZero(), !s.Absent.IsZero()
	}
	sweep(0, time.Hour)
	if a, b := absent(); a || b {
		t.Errorf("the plugin counts as absent while it is there: %v, %v", a, b)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	sweep(time.Hour, time.Hour) // nobody looked for that long
	if a, b := absent(); !a || !b {
		t.Errorf("it is not noted that the plugin is absent: %v, %v", a, b)
	}
	sweep(2*time.Hour, time.Hour)
	fired := n.scheduleState("echo").Fired
	s, err := n.client.Schedule(n.ctx, "echo")
	if err == nil {
		err = other.current().upkeep.Ticker.Look(n.ctx, s, time.Now().Add(2*time.Hour))
	}
	if err != nil || n.scheduleState("echo").Fired != fired {
		t.Errorf("a tick came without the plugin: %v", err)
	}
	const absentTime = 7 * 24 * time.Hour // what outlives a plugin
	sweep(absentTime-time.Hour, time.Hour)
	if got := n.owned(); len(got) != 2 {
		t.Errorf("schedules %v", got)
	}
	back := start(t, common)
	back.eventually("back, and what it missed is made up for", func() bool {
		a, b := absent()
		s := back.scheduleState("echo")
		return !a && !b && s.Fired == fired+1 && s.MissedTicks > 100
	})
	if s := back.scheduleState("echo.off"); s.Paused.IsZero() || s.Fired > 0 {
		t.Errorf("the pause by hand is over: %+v", s)
	}
	if err := back.stop(); err != nil {
		t.Fatal(err)
	}
	sweep(absentTime, time.Hour)
	sweep(2*absentTime+time.Hour, time.Minute)
	if got := n.owned(); len(got) != 2 {
		t.Errorf("a host that has just begun: %v", got)
	}
	sweep(2*absentTime+time.Hour, time.Hour)
	if _, err := n.client.Subscription(n.ctx, subscription); !errors.Is(err, queue.ErrNoSubscription) || len(n.owned()) != 0 {
		t.Errorf("they are still there: %v, %v", err, n.owned())
	}
}

// What the manifests of live hosts have no more is deleted soon, although no host saw it go; what somebody else has of an ID stays.
func TestUndeclared(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"echo": runtimetest.Echo(t)}, yaml: map[string]string{"echo": `subscribe: [{topic: mine}]`}, idle: true,
	})
	now, err := n.client.Clock(n.ctx)
	for _, s := range []queue.Subscription{
		{ID: "echo/mine", Topic: "mine", Queue: "q"}, {ID: "echo/old", Topic: "old", Queue: "echo", Plugin: "echo"}, {ID: "away/old", Topic: "old", Queue: "away", Plugin: "away"},
	} {
		if s.Plugin != "" {
			s.Absent = now.Add(-11 * time.Minute)
		}
		_, failed := n.client.Subscribe(n.ctx, s)
		err = cmp.Or(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.run()
	n.eventually("told", func() bool {
		return n.log.has("subscription was not stored: somebody else owns its ID", "another owner: hand")
	})
	n.eventually("served", func() bool {
		queues, err := n.client.Queues(n.ctx)
		return err == nil && queues["echo"] > 0 && len(n.published()) == 1
	})
	declarer := start(t, settings{tenants: []string{n.tenant}, idle: true}).current().upkeep.Declarer
	gone := func(lived time.Duration) bool {
		t.Helper()
		if err := errors.Join(n.rdb.Del(n.ctx, n.tenant+"_duty_declared").Err(), declarer.Sweep(n.ctx, lived)); err != nil {
			t.Fatal(err)
		}
		_, err := n.client.Subscription(n.ctx, "echo/old")
		return errors.Is(err, queue.ErrNoSubscription)
	}
	if gone(time.Minute) {
		t.Error("a host that has just begun deleted it")
	}
	n.eventually("gone", func() bool { return gone(time.Hour) })
	for id, where := range map[string]string{"echo/mine": "q", "away/old": "away"} {
		if s, err := n.client.Subscription(n.ctx, id); err != nil || s.Queue != where {
			t.Errorf("%+v, %v", s, err)
		}
	}
}
