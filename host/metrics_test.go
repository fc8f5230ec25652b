package host

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMetricsAfterARun(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 3, Grace: time.Nanosecond},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "exit": runtimetest.Exit(t), "broken": []byte("not a module")},
	})
	n.settled("sleep", "exit")
	// The series of a queue that is served are there before its first task.
	if got := n.metric("quern_tasks_total", "tenant", n.tenant, "queue", "sleep", "plugin", "sleep", "outcome", "complete"); got != 0 {
		t.Errorf("counted %v complete before the first task", got)
	}
	for name, want := range map[string]float64{"quern_slots": 3, "quern_slots_in_use": 0, "quern_queue_depth": 0, "quern_queue_listeners": 2, "quern_results_refused_total": 0} {
		if got := n.metric(name); got != want {
			t.Errorf("%s is %v on an idle host, want %v", name, got, want)
		}
	}
	n.complete("sleep", n.enqueueMany("sleep", 5, "1"))
	n.enqueueMany("exit", 2, "1")
	n.count("exit", queue.Failed, 2)
	n.enqueueMany("sleep", 4, "60000")
	n.count("sleep", queue.Started, 3)
	n.enqueueAs("sleep", "", queue.Options{Delay: time.Hour})

	n.eventually("the queues are sampled anew", func() bool { // at most every 3 s
		return n.metric("quern_queue_depth", "queue", "sleep", "state", "scheduled") == 1
	})
	for state, want := range map[string]float64{"pending": 1, "reserved": 0, "started": 3, "complete": 5, "failed": 0} {
		if got := n.metric("quern_queue_depth", "tenant", n.tenant, "queue", "sleep", "state", state); got != want {
			t.Errorf("%v tasks are %s, want %v", got, state, want)
		}
	}
	if age := n.metric("quern_queue_oldest_pending_age_seconds", "queue", "sleep"); age <= 0 {
		t.Errorf("the oldest pending task waits for %v s", age)
	}
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{5, "quern_tasks_total", []string{"queue", "sleep", "outcome", "complete"}},
		{2, "quern_tasks_total", []string{"queue", "exit", "outcome", "failed", "reason", "error"}},
		{8, "quern_task_wait_seconds", []string{"tenant", n.tenant, "queue", "sleep"}},
		{5, "quern_task_duration_seconds", []string{"tenant", n.tenant, "queue", "sleep", "plugin", "sleep"}},
		{3, "quern_slots_in_use", nil},
		{1, "quern_plugin_info", []string{"tenant", "", "plugin", "sleep", "digest", digest(runtimetest.Sleep(t))}},
		{1, "quern_plugin_loads_total", []string{"plugin", "sleep", "result", "ok"}},
		{1, "quern_plugin_loads_total", []string{"plugin", "broken", "result", "refused"}},
	} {
		n.counted(want.value, want.name, want.labels...)
	}
}

// What is wrong shows while it is, and no longer.
func TestMetricsOfWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--maxmemory", "1gb")
	n := start(t, settings{
		Config: Config{Grace: time.Nanosecond}, server: server, lease: time.Second,
		guests: map[string][]byte{"exit": runtimetest.Exit(t), "broken": []byte("not a module")},
		yaml:   map[string]string{"exit": "dead: exit.dead"},
	})
	n.settled("exit")
	if got := n.metric("quern_plugin_refused", "plugin", "broken"); got != 1 {
		t.Errorf("a refused plugin shows %v", got)
	}
	if err := n.client.Queue("exit").Pause(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.eventually("the pause shows", func() bool { return n.metric("quern_queue_paused", "tenant", n.tenant, "queue", "exit") == 1 })
	if err := n.client.Queue("exit").Resume(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.enqueueMany("exit", 2, "1")
	n.count("exit", queue.Failed, 2)
	n.eventually("dead letters show, and the pause no longer", func() bool {
		return n.metric("quern_queue_dead_letters", "queue", "exit.dead") == 2 && n.metric("quern_queue_paused") == 0
	})
	for name, bounds := range map[string][2]float64{
		"quern_redis_memory_max_bytes": {1 << 30, 1 << 30}, "quern_redis_memory_used_bytes": {1, 1 << 30},
		"quern_redis_round_trip_seconds": {1e-9, 10}, "quern_clock_skew_seconds": {-10, 10},
	} {
		if got := n.metric(name, "redis", server.Addr()); got < bounds[0] || got > bounds[1] {
			t.Errorf("%s is %v, want it from %v to %v", name, got, bounds[0], bounds[1])
		}
	}

	n.install("broken", runtimetest.Echo(t))
	n.settled("broken")
	if got := n.metric("quern_plugin_refused"); got != 0 {
		t.Errorf("a mended plugin shows %v", got)
	}
	server.Pause()
	n.eventually("a Redis that hangs shows nothing", func() bool {
		text := n.scrape()
		return !strings.Contains(text, "quern_redis_round_trip_seconds{") && !strings.Contains(text, "quern_redis_memory_used_bytes{")
	})
	server.Resume()
	n.eventually("the late renewal counts", func() bool { return n.metric("quern_lease_renewals_late_total", "tenant", n.tenant) > 0 })
}

// A task that does not fit into the memory waits, and for how long is counted while it does.
func TestMetricsOfMemory(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 2, Memory: 96 << 20, Grace: time.Nanosecond},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}, yaml: map[string]string{"sleep": "limits: {memory: 64MiB}"},
	})
	n.settled("sleep")
	if limit := n.metric("quern_memory_limit_bytes"); limit != 96<<20 {
		t.Errorf("the limit is %v", limit)
	}
	n.enqueueMany("sleep", 2, "60000")
	n.count("sleep", queue.Started, 1)
	before := n.metric("quern_memory_wait_seconds_total") // for room for what the plugin itself takes, perhaps
	n.eventually("the second one waits", func() bool { return n.metric("quern_memory_wait_seconds_total") > before+0.2 })
	if got := n.metric("quern_memory_reserved_bytes"); got < 64<<20 || got > 96<<20 {
		t.Errorf("%v bytes are reserved, want those of one task", got)
	}
}

// What a queue adds to every scrape, which grows with the queues: at most 20 series, also while its plugin runs tasks.
func TestSeriesOfAQueue(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Concurrency: 1, Grace: time.Nanosecond}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	n.settled("sleep")
	n.complete("sleep", n.enqueueMany("sleep", 2, "1"))
	n.enqueueMany("sleep", 2, "60000")
	n.count("sleep", queue.Started, 1)
	var series []string
	n.eventually("a scrape shows the task that runs", func() bool {
		series = slices.DeleteFunc(strings.Split(n.scrape(), "\n"), func(line string) bool { return !strings.Contains(line, `queue="sleep"`) })
		return slices.ContainsFunc(series, func(line string) bool { return strings.Contains(line, `state="started"`) })
	})
	if len(series) > 20 {
		t.Errorf("a queue has %d series, want at most 20:\n%s", len(series), strings.Join(series, "\n"))
	}
	for _, name := range []string{"quern_tasks_total{", "quern_task_wait_seconds_bucket{", "quern_task_duration_seconds_bucket{", "quern_queue_depth{"} {
		if !slices.ContainsFunc(series, func(line string) bool { return strings.HasPrefix(line, name) }) {
			t.Errorf("no series %s", name)
		}
	}
}

// What a host says of itself is in Redis as soon as it serves.
func TestAbout(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 3, Queues: []string{"!hidden"}, Version: "1.2.3", Grace: time.Nanosecond},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "hidden": runtimetest.Echo(t), "broken": []byte("not a module")},
		yaml:   map[string]string{"sleep": "{version: 4.5.6, queues: [sleep, nap]}"},
	})
	n.settled("sleep", "nap")
	n.enqueueMany("nap", 2, "60000")
	n.count("nap", queue.Started, 2)
	var about map[string]string
	n.eventually("slots in use are published", func() bool {
		nodes, err := listen.NewFleet(n.client).Nodes(n.ctx)
		if err != nil || len(nodes) != 1 {
			return false
		}
		about = nodes[0].About
		return about["slots_in_use"] == "2"
	})
	for field, want := range map[string]string{"kind": "quern", "version": "1.2.3", "draining": "false", "slots": "3", "queues": `["nap","sleep"]`} {
		if about[field] != want {
			t.Errorf("%s is %q, want %q", field, about[field], want)
		}
	}
	var published []upkeep.PluginInfo
	if err := json.Unmarshal([]byte(about["plugins"]), &published); err != nil {
		t.Fatalf("%q: %v", about["plugins"], err)
	}
	states := make(map[string]upkeep.PluginInfo)
	for _, p := range published {
		states[p.Plugin] = p
	}
	p := states["sleep"]
	if p.State != "serving" || p.Digest != digest(runtimetest.Sleep(t)) || p.Version != "4.5.6" || !slices.Equal(p.Queues, []string{"sleep", "nap"}) {
		t.Errorf("%+v", p)
	}
	if p := states["broken"]; p.State != "refused" || p.Error == "" {
		t.Errorf("%+v", p)
	}
	if p := states["hidden"]; p.State != StateLeftOut || !slices.Equal(p.LeftOut, p.Queues) {
		t.Errorf("%+v", p)
	}
}

// A host is ready when its plugins are loaded and Redis serves, and not any more when it drains.
func TestReady(t *testing.T) {
	t.Parallel()
	n := start(t, settings{idle: true, guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "broken": []byte("not a module")}})
	if err := n.Ready(); err == nil {
		t.Error("ready before it runs")
	}
	n.run()
	n.eventually("ready", func() bool { return n.Ready() == nil })
	n.enqueue("sleep", "300")
	n.count("sleep", queue.Started, 1)
	n.terminate()
	n.eventually("not ready", func() bool { return n.Ready() != nil })
	if err := n.Ready(); err.Error() != "draining" {
		t.Errorf("a host that drains says: %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{
		"concurrency -1: use 1 to 10000":            {Concurrency: -1},
		"memory -1: use a positive number of bytes": {Memory: -1},
		"grace -1s: use 0s or more":                 {Grace: -time.Second},
		"poll 1ms: use at least 10ms":               {Poll: time.Millisecond},
		`queues "a[": use a name or a glob`:         {Queues: []string{"a["}},
		`queues "!": use a name or a glob`:          {Queues: []string{"!"}},
	} {
		if err := config.withDefaults().validate(); err == nil || len(err.Error()) < len(name) || err.Error()[:len(name)] != name {
			t.Errorf("%+v: %v, want %s…", config, err, name)
		}
	}
	for _, test := range []struct {
		queues []string
		queue  string
		want   bool
	}{
		{nil, "a", true},
		{[]string{"a"}, "a", true},
		{[]string{"a"}, "b", false},
		{[]string{"mail.*"}, "mail.in", true},
		{[]string{"mail.*"}, "post", false},
		{[]string{"!mail.*"}, "mail.in", false},
		{[]string{"!mail.*"}, "post", true},
		{[]string{"mail.*", "!mail.in"}, "mail.in", false},
		{[]string{"mail.*", "!mail.in"}, "mail.out", true},
		{[]string{"!mail.*", "mail.in"}, "mail.in", true},
	} {
		if got := (Config{Queues: test.queues}).serves(test.queue); got != test.want {
			t.Errorf("%v serves %s: %v", test.queues, test.queue, got)
		}
	}
}
