package host

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// owned are the schedules that plugins own.
func (n *node) owned() (ids []string) {
	n.t.Helper()
	all, err := n.client.Schedules(n.ctx)
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

// A manifest's schedules run, change with it, and go with it; a pause by hand stays.
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
	n.eventually("changed", func() bool {
		s, err := n.client.Schedule(n.ctx, "echo")
		return err == nil && s.Cron == "*/2 * * * * *" && !s.Paused.IsZero() && slices.Equal(n.owned(), []string{"echo"})
	})
	plugins, err := Plugins(n.ctx, n.client)
	if err != nil || len(plugins) != 1 {
		t.Fatalf("%+v, %v", plugins, err)
	}
	n.write("echo.yaml", []byte(`{}`))
	n.eventually("gone", func() bool { return len(n.owned()) == 0 })
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
	n.eventually("told", func() bool { return n.log.has("op=declare", "queue=echo", "another owner: hand") })
}

// A schedule outlives the plugin for the time of a restart, by Redis's clock, while some host lives.
func TestDeclaredScheduleWithoutAHost(t *testing.T) {
	t.Parallel()
	server, clock := queuetest.StartAhead(t, 0)
	common := settings{
		server: server, tenants: []string{queuetest.Tenant()}, guests: map[string][]byte{"echo": runtimetest.Echo(t)},
		yaml: map[string]string{"echo": `schedule: [{cron: "@daily"}]`},
	}
	n := start(t, common)
	n.eventually("stored", func() bool { return len(n.owned()) == 1 })
	n.eventually("published", func() bool {
		plugins, err := Plugins(n.ctx, n.client)
		return err == nil && len(plugins) == 1 && slices.Equal(plugins[0].Schedules, []string{"echo"})
	})
	other := start(t, settings{server: server, tenants: common.tenants, idle: true})
	if err := other.current().access.node.Join(n.ctx); err != nil {
		t.Fatal(err)
	}
	sweep := func(after time.Duration) {
		t.Helper()
		clock.Set(t, after)
		if err := errors.Join(other.rdb.Del(n.ctx, n.tenant+"_duty_declared").Err(), other.current().declarer.sweep(n.ctx)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(0)
	if s := n.scheduleState("echo"); !s.Absent.IsZero() {
		t.Error("the plugin counts as absent while it is there")
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	sweep(time.Hour) // nobody looked for that long
	if s := n.scheduleState("echo"); s.Absent.IsZero() {
		t.Error("it is not noted that the plugin is absent")
	}
	clock.Set(t, 26*time.Hour)
	absent, err := n.client.Schedule(n.ctx, "echo")
	if err == nil {
		err = other.current().ticker.look(n.ctx, absent, time.Now().Add(26*time.Hour))
	}
	if err != nil || n.scheduleState("echo").Fired > 0 {
		t.Errorf("a tick came without the plugin: %v", err)
	}
	back := start(t, common)
	back.eventually("back, and the missed tick is fired", func() bool {
		s := back.scheduleState("echo")
		return s.Absent.IsZero() && s.Fired == 1
	})
	if err := back.stop(); err != nil {
		t.Fatal(err)
	}
	sweep(27 * time.Hour)
	sweep(27*time.Hour + absentTime - 10*time.Second)
	if got := n.owned(); len(got) != 1 {
		t.Errorf("schedules %v", got)
	}
	other.current().declarer.since = time.Now()
	sweep(27*time.Hour + absentTime + 10*time.Second)
	if got := n.owned(); len(got) != 1 {
		t.Errorf("a host that has just begun left %v", got)
	}
	other.current().declarer.since = time.Time{}
	sweep(27*time.Hour + absentTime + 20*time.Second)
	if got := n.owned(); len(got) != 0 {
		t.Errorf("schedules %v", got)
	}
}
