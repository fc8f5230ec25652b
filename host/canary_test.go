package host

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

func percent(p float64) release.Share { return release.Share{Steps: []release.Step{{Percent: p}}} }

// has waits until the host has a release of a plugin in a state.
func (n *node) has(plugin string, number int, state string) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("release %d of %s is %s", number, plugin, state), func() bool {
		return slices.ContainsFunc(n.catalog.directory.List(), func(s plugins.Status) bool {
			return s.Plugin == plugin && s.Release == number && s.State == state
		})
	})
}

// awareOf waits until the host knows the canary of a plugin; 0 for none.
func (n *node) awareOf(plugin string, number int) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("the canary of %s is %d", plugin, number), func() bool {
		canary, _ := n.tenants[n.tenant].releases.Staged(plugin)
		return canary == nil && number == 0 || canary != nil && canary.Number == number
	})
}

// versions lists the versions that ran a task, the first attempt first.
func (n *node) versions(id string) (all []string) {
	n.t.Helper()
	attempts, err := manage.New(n.client).History(n.ctx, n.task(id))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, a := range attempts {
		all = append(all, a.Version)
	}
	return all
}

func yamlOf(version string, lines ...string) string {
	return strings.Join(append([]string{"version: " + version}, lines...), "\n")
}

// Of each task, the release that runs it is the one that release.Stage.Takes names, on each of two hosts.
func TestCanaryRunsItsShare(t *testing.T) {
	t.Parallel()
	one, two := runtimetest.Version(t, "one"), runtimetest.Version(t, "two")
	a := start(t, settings{})
	b := start(t, settings{tenants: []string{a.tenant}})
	first := a.pushRelease("version", one, "")
	canary := a.pushCanary("version", two, "{}", percent(20))
	for _, n := range []*node{a, b} {
		n.serves("version", first.Number)
		n.has("version", canary.Number, plugins.StateCanary)
		n.awareOf("version", canary.Number)
	}
	ids := a.enqueueMany("version", 500, "")
	a.complete("version", ids)
	ran := make(map[string]int)
	for _, id := range ids {
		want := "one"
		if canary.Stage.Takes(canary.Number, id, nil) {
			want = "two"
		}
		if got := string(a.task(id).Result); got != want {
			t.Errorf("%s ran on %s, want %s", id, got, want)
		}
		ran[want]++
	}
	if ran["two"] < 50 || ran["two"] > 150 {
		t.Errorf("of 500 tasks ran %v", ran)
	}
	for side, want := range map[string]int{sideCanary: ran["two"], sideStable: ran["one"]} {
		a.eventually("the tasks are counted as those of the "+side, func() bool {
			counted := 0.0
			for _, n := range []*node{a, b} {
				counted += n.metric("quern_release_tasks_total", "tenant", a.tenant, "plugin", "version", "release", side, "outcome", "complete")
			}
			return counted == float64(want)
		})
	}
	labelled := a.pushCanary("version", two, "{}", release.Share{Label: "customer", Value: "acme"})
	for _, n := range []*node{a, b} {
		n.has("version", labelled.Number, plugins.StateCanary)
		n.awareOf("version", labelled.Number)
	}
	for value, want := range map[string]string{"acme": "two", "other": "one"} {
		task := a.wait(a.enqueueAs("version", "", queue.Options{Labels: map[string]string{"customer": value}}))
		if string(task.Result) != want {
			t.Errorf("the task of %s ran on %s", value, task.Result)
		}
	}
}

// All attempts of a task run on its side, and retry as the manifest of that side says.
func TestRetriesStayOnTheirSide(t *testing.T) {
	t.Parallel()
	module := runtimetest.Exit(t)
	a := start(t, settings{})
	b := start(t, settings{tenants: []string{a.tenant}})
	retry := func(attempts int) string {
		return fmt.Sprintf("retry: {max_attempts: %d, base: 10ms, min: 10ms, jitter: false}", attempts)
	}
	first := a.pushRelease("exit", module, yamlOf("one", retry(2)))
	canary := a.pushCanary("exit", module, yamlOf("two", retry(4)), percent(50))
	for _, n := range []*node{a, b} {
		n.serves("exit", first.Number)
		n.has("exit", canary.Number, plugins.StateCanary)
		n.awareOf("exit", canary.Number)
	}
	ids := a.enqueueMany("exit", 40, "3\n")
	a.count("exit", queue.Failed, 40)
	for _, id := range ids {
		want := []string{"one", "one"}
		if canary.Stage.Takes(canary.Number, id, nil) {
			want = []string{"two", "two", "two", "two"}
		}
		if got := a.versions(id); !slices.Equal(got, want) {
			t.Errorf("%s ran on %v, want %v", id, got, want)
		}
	}
}

// While canaries are pushed, promoted and halted under load, no task is lost, and each ran on one version.
func TestPromoteAndHaltUnderLoad(t *testing.T) {
	t.Parallel()
	const pushes, tasks = 24, 960
	a := start(t, settings{})
	b := start(t, settings{tenants: []string{a.tenant}})
	store := release.NewStore(a.client)
	modules, digests := versions(t, 5)
	a.serves("version", a.pushRelease("version", modules[0], "").Number)
	var ids []string
	for i := range pushes {
		canary := a.pushCanary("version", modules[(i+1)%len(modules)], fmt.Sprintf("version: %d", i), percent(50))
		ids = append(ids, a.enqueueMany("version", tasks/pushes, "")...)
		if i%4 == 0 {
			a.has("version", canary.Number, plugins.StateCanary)
			b.has("version", canary.Number, plugins.StateCanary)
		}
		var err error
		switch i % 3 {
		case 0:
			_, err = store.PromoteRelease(a.ctx, "version", canary.Number)
		case 1:
			_, err = store.HaltRelease(a.ctx, "version", canary.Number, "test")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.PromoteRelease(a.ctx, "version", 0); err != nil {
		t.Fatal(err)
	}
	a.complete("version", ids)
	a.ranOnOne(ids, digests, 3)
}

// A host that cannot have the canary runs none of its tasks. Another host does.
func TestHostWithoutTheCanary(t *testing.T) {
	t.Parallel()
	one, two := runtimetest.Version(t, "one"), runtimetest.Version(t, "two")
	small := start(t, settings{Config: Config{Memory: 256 << 20}})
	large := start(t, settings{tenants: []string{small.tenant}})
	first := small.pushRelease("version", one, "")
	canary := small.pushCanary("version", two, "limits: {memory: 1GiB}", percent(50))
	large.has("version", canary.Number, plugins.StateCanary)
	small.has("version", canary.Number, plugins.StateRefused)
	for _, n := range []*node{small, large} {
		n.serves("version", first.Number)
		n.awareOf("version", canary.Number)
	}
	ids := small.enqueueMany("version", 40, "")
	small.complete("version", ids)
	own, nodes := small.current().listener.ID(), make(map[string]int)
	for _, id := range ids {
		task, want := small.task(id), "one"
		if canary.Stage.Takes(canary.Number, id, nil) {
			want = "two"
			nodes[task.Node]++
		}
		if string(task.Result) != want || task.Attempts != 1 || task.Rejects+task.Reschedules != 0 {
			t.Errorf("%s ran on %s, want %s: %+v", id, task.Result, want, task)
		}
	}
	wanted := int64(0)
	for _, n := range nodes {
		wanted += int64(n)
	}
	small.eventually("all tasks of the canary are counted, also those that waited for the host", func() bool {
		trial, err := release.NewStore(small.client).Trial(small.ctx, "version")
		return err == nil && len(trial.Steps) == 1 && trial.Steps[0].New.Runs == wanted
	})
	if nodes[own] > 0 || len(nodes) != 1 {
		t.Errorf("tasks of the canary ran on %v, and the host that refuses it is %s", nodes, own)
	}
}

// A canary that no host can run is halted, and says why.
func TestCanaryThatNoHostCanRun(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Memory: 256 << 20, Poll: 100 * time.Millisecond}})
	first := a.pushRelease("version", runtimetest.Version(t, "one"), "")
	a.serves("version", first.Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "limits: {memory: 1GiB}", percent(50))
	a.has("version", canary.Number, plugins.StateRefused)
	a.agePush("version")
	store := release.NewStore(a.client)
	a.eventually("the canary is halted", func() bool {
		r, err := store.Release(a.ctx, "version", canary.Number)
		return err == nil && r.State() == release.StateHalted && strings.Contains(r.Stage.Reason, "no host can run it: ") &&
			strings.Contains(r.Stage.Reason, "more than the")
	})
	a.awareOf("version", 0)
	a.complete("version", a.enqueueMany("version", 20, ""))
}

var sinceText = regexp.MustCompile(`"since":[0-9.]+`)

// agePush lets the step of a canary begin an hour ago, as far as hosts read it.
func (n *node) agePush(plugin string) {
	n.t.Helper()
	key := n.tenant + "_releases"
	text, err := n.rdb.HGet(n.ctx, key, plugin).Result()
	if err != nil {
		n.t.Fatal(err)
	}
	old := fmt.Sprintf(`"since":%d`, time.Now().Add(-time.Hour).Unix())
	if err := n.rdb.HSet(n.ctx, key, plugin, sinceText.ReplaceAllString(text, old), ".", "aged").Err(); err != nil {
		n.t.Fatal(err)
	}
}

// Steps follow each other by time, and after the last one the canary serves.
func TestStepsByTime(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}})
	b := start(t, settings{tenants: []string{a.tenant}, Config: Config{Poll: 50 * time.Millisecond}})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}", release.Share{Steps: []release.Step{
		{Percent: 1, Seconds: 3600}, {Percent: 50, Seconds: 3600},
	}})
	for _, step := range []int{1, 2} {
		a.awareOf("version", canary.Number)
		a.agePush("version")
		a.eventually("the next step", func() bool {
			canary, _ := b.tenants[b.tenant].releases.Staged("version")
			return step == 2 && canary == nil || canary != nil && canary.Stage.Step == step
		})
	}
	a.serves("version", canary.Number)
	b.serves("version", canary.Number)
}

// A step with a number of tasks ends when that number of tasks has ended on the canary, on all hosts together.
func TestStepsByCount(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}})
	b := start(t, settings{tenants: []string{a.tenant}, Config: Config{Poll: 50 * time.Millisecond}})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}", release.Share{Steps: []release.Step{
		{Percent: 50, Tasks: 20}, {Percent: 100, Tasks: 20},
	}})
	if err := a.rdb.HDel(a.ctx, a.tenant+"_release_version", "2 first").Err(); err != nil { // each task is to be counted
		t.Fatal(err)
	}
	for _, n := range []*node{a, b} {
		n.has("version", canary.Number, plugins.StateCanary)
		n.awareOf("version", canary.Number)
	}
	a.complete("version", a.enqueueMany("version", 10, "")) // 10 at most
	if canary, _ := a.tenants[a.tenant].releases.Staged("version"); canary == nil || canary.Stage.Step != 0 {
		t.Errorf("after 10 tasks the canary is %+v", canary)
	}
	step := func() int {
		r, err := release.NewStore(a.client).Release(a.ctx, "version", canary.Number)
		if err != nil {
			t.Fatal(err)
		}
		if r.Stage == nil {
			return 2 // it serves
		}
		return r.Stage.Step
	}
	for next := 1; next <= 2; next++ {
		for _, n := range []*node{a, b} { // a host counts for the step that it knows
			n.eventually("the host knows the step", func() bool {
				canary, _ := n.tenants[n.tenant].releases.Staged("version")
				return canary != nil && canary.Stage.Step == next-1
			})
		}
		a.enqueueMany("version", 80, "")
		a.eventually(fmt.Sprintf("step %d", next), func() bool { return step() == next })
	}
	a.serves("version", canary.Number)
	b.serves("version", canary.Number)
}

// With pin: task, all attempts of a task run on the release of the first one, through the promotion of another; when its
// release is deleted, on the one that serves.
func TestPinThroughPromotion(t *testing.T) {
	t.Parallel()
	module, retry := runtimetest.Exit(t), "retry: {max_attempts: 20, base: 500ms, min: 500ms, max: 500ms, jitter: false}"
	a := start(t, settings{})
	b := start(t, settings{tenants: []string{a.tenant}})
	store, exit := release.NewStore(a.client), manage.New(a.client).Queue("exit")
	first := a.pushRelease("exit", module, yamlOf("one", retry, "pin: task"))
	a.serves("exit", first.Number)
	b.serves("exit", first.Number)
	ids := a.enqueueMany("exit", 10, "3\n")
	// attempted lets each task have more attempts, and then change what happens while none runs.
	attempted := func(more int, change func()) {
		t.Helper()
		from := make(map[string]int)
		for _, id := range ids {
			from[id] = a.task(id).Attempts
		}
		for _, id := range ids {
			a.eventually("further attempts", func() bool { return a.task(id).Attempts >= from[id]+more })
		}
		if err := exit.Pause(a.ctx); err != nil {
			t.Fatal(err)
		}
		change()
		if err := exit.Resume(a.ctx); err != nil {
			t.Fatal(err)
		}
	}
	var canary release.Release
	attempted(1, func() {
		canary = a.pushCanary("exit", module, yamlOf("two", retry, "pin: task"), percent(100))
		a.has("exit", canary.Number, plugins.StateCanary)
		a.awareOf("exit", canary.Number)
		b.awareOf("exit", canary.Number)
	})
	attempted(1, func() {
		if _, err := store.PromoteRelease(a.ctx, "exit", 0); err != nil {
			t.Fatal(err)
		}
		a.serves("exit", canary.Number)
		b.serves("exit", canary.Number)
	})
	attempted(1, func() {
		for _, id := range ids {
			if got := a.versions(id); slices.Contains(got, "two") || len(got) < 3 {
				t.Errorf("%s ran on %v", id, got)
			}
		}
		if !slices.ContainsFunc([]*node{a, b}, func(n *node) bool { return n.log.has("beside=1") }) {
			t.Error("no host has fetched release 1 again")
		}
		if err := store.DeleteRelease(a.ctx, "exit", first.Number); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*node{a, b} {
			n.eventually("release 1 is gone", func() bool {
				return !slices.ContainsFunc(n.catalog.directory.List(), func(s plugins.Status) bool { return s.Release == first.Number })
			})
		}
	})
	a.count("exit", queue.Failed, int64(len(ids)))
	for _, id := range ids {
		if got := a.versions(id); len(got) != 20 || got[0] != "one" || got[19] != "two" || slices.Contains(got[slices.Index(got, "two"):], "one") {
			t.Errorf("%s ran on %v", id, got)
		}
	}
	const line, why = "tasks run on the release that serves, and not on their own", "it was deleted, halted or rolled back"
	if !a.log.has(line, why) && !b.log.has(line, why) {
		t.Error("no host says that it ran tasks on another release")
	}
}

// Without pin, an attempt runs on what its side serves then.
func TestAttemptsFollowThePromotion(t *testing.T) {
	t.Parallel()
	module, retry := runtimetest.Exit(t), "retry: {max_attempts: 60, base: 50ms, min: 50ms, backoff: linear, max: 50ms, jitter: false}"
	a := start(t, settings{})
	a.serves("exit", a.pushRelease("exit", module, yamlOf("one", retry)).Number)
	id := a.enqueue("exit", "3\n")
	a.eventually("an attempt", func() bool { return a.task(id).Attempts > 0 })
	second := a.pushRelease("exit", module, yamlOf("two", retry))
	a.serves("exit", second.Number)
	a.eventually("an attempt on the second release", func() bool { return slices.Contains(a.versions(id), "two") })
	if got := a.versions(id); got[0] != "one" {
		t.Errorf("ran on %v", got)
	}
}

// A host that refuses a canary for all tasks leaves most of its backlog alone, and pauses between its reserves.
func TestHostWithoutTheCanaryLeavesTheBacklog(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Memory: 256 << 20}})
	first := a.pushRelease("version", runtimetest.Version(t, "one"), "")
	a.serves("version", first.Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "limits: {memory: 1GiB}", percent(100))
	a.has("version", canary.Number, plugins.StateRefused)
	a.awareOf("version", canary.Number)
	ids := a.enqueueMany("version", 3000, "")
	put := 0
	a.eventually("the first task was put aside three seconds ago", func() bool {
		pipeline, first := a.rdb.Pipeline(), time.Time{}
		for _, id := range ids {
			pipeline.HGet(a.ctx, a.tenant+"_task_"+id, "aside")
		}
		replies, _ := pipeline.Exec(a.ctx) // the error is that of a task without the field
		put = 0
		for _, reply := range replies {
			if second, err := reply.(*redis.StringCmd).Float64(); err == nil {
				put++
				if at := time.UnixMicro(int64(second * 1e6)); first.IsZero() || at.Before(first) {
					first = at
				}
			}
		}
		return put > 0 && a.rdb.Time(a.ctx).Val().Sub(first) > 3*time.Second
	})
	if put > len(ids)/2 {
		t.Errorf("the host has put aside %d of %d tasks", put, len(ids))
	}
}

// A host without the canary soon gets to its own tasks, although many of the canary are before them.
func TestTaskBehindThoseOfTheCanary(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Memory: 256 << 20}})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	share := release.Share{Label: "customer", Value: "acme"}
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "limits: {memory: 1GiB}", share)
	a.has("version", canary.Number, plugins.StateRefused)
	a.awareOf("version", canary.Number)
	specs := make([]queue.Spec, 400)
	for i := range specs {
		specs[i].Options.Labels = map[string]string{"customer": "acme"}
	}
	if _, err := a.client.Queue("version").EnqueueMany(a.ctx, specs); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got := string(a.wait(a.enqueue("version", "")).Result); got != "one" {
		t.Errorf("the task ran on %s", got)
	}
	if took := time.Since(began); took > 20*time.Second { // with a pause of 2 s for each 16 tasks, about 45 s
		t.Errorf("the task waited %s", took)
	}
}

// A task of a canary that ends wakes the queues of the release that serves: its max_running bounds both.
func TestCanaryWakesWhatMaxRunningBounds(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: never}})
	first := a.pushRelease("version", runtimetest.Version(t, "one"), "max_running: 1")
	a.serves("version", first.Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}", percent(100))
	a.has("version", canary.Number, plugins.StateCanary)
	a.awareOf("version", canary.Number)
	a.complete("version", a.enqueueMany("version", 5, ""))
}

// Which hosts have a canary, as far as they publish it.
func TestPresenceOfCanary(t *testing.T) {
	t.Parallel()
	n := start(t, settings{idle: true})
	serving := upkeep.PluginInfo{Plugin: "mail", Release: 1, State: plugins.StateServing}
	refuses := upkeep.PluginInfo{Plugin: "mail", Release: 2, State: plugins.StateRefused}
	unfetched, has, fetches := refuses, refuses, refuses
	unfetched.Unfetched, has.State, fetches.State = true, plugins.StateCanary, plugins.StateFetching
	local := upkeep.PluginInfo{Plugin: "mail", State: plugins.StateServing}
	for name, tt := range map[string]struct {
		hosts [][]upkeep.PluginInfo
		want  rollout.Presence
	}{
		"Refused":   {[][]upkeep.PluginInfo{{serving, refuses}, {refuses}, {local}, {}}, rollout.Presence{}},
		"Has":       {[][]upkeep.PluginInfo{{serving, refuses}, {serving, has}}, rollout.Presence{Has: true, May: true}},
		"May":       {[][]upkeep.PluginInfo{{serving, refuses}, {serving}}, rollout.Presence{May: true}},
		"Fetching":  {[][]upkeep.PluginInfo{{serving, refuses}, {serving, fetches}}, rollout.Presence{May: true}},
		"Unfetched": {[][]upkeep.PluginInfo{{serving, refuses}, {serving, unfetched}}, rollout.Presence{May: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := n.clientOf(queuetest.Tenant())
			for _, plugins := range tt.hosts {
				node := listen.New(client)
				text, err := json.Marshal(plugins)
				if err == nil {
					err = node.Join(n.ctx)
				}
				if err == nil {
					_, err = node.Renew(n.ctx, map[string]string{"plugins": string(text)})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got, err := presence(n.ctx, client, "mail", 2)
			if err != nil || got.Has != tt.want.Has || !got.Has && got.May != tt.want.May {
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// A step with a number of tasks does not end on counts that say that the canary is bad, whichever host reads them first.
func TestStepOfBadCanaryDoesNotEnd(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}", release.Share{Steps: []release.Step{{Percent: 20, Tasks: 60}}})
	a.has("version", canary.Number, plugins.StateCanary)
	fields := []any{"number", canary.Number, "0 old runs", 240, "0 new runs", 60, "0 new limit", 15}
	if err := a.rdb.HSet(a.ctx, a.tenant+"_trial_version", fields...).Err(); err != nil { // its writer has died
		t.Fatal(err)
	}
	a.eventually("the canary is halted", func() bool {
		r, err := release.NewStore(a.client).Release(a.ctx, "version", canary.Number)
		if err == nil && r.State() == release.StateServing {
			t.Fatal("the canary serves")
		}
		return err == nil && r.State() == release.StateHalted
	})
}

// A canary whose tasks do not end proves nothing, however long its step lasts.
func TestStepOfHangingCanaryDoesNotEnd(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}",
		release.Share{Steps: []release.Step{{Percent: 20, Seconds: 0.5}}})
	key := a.tenant + "_trial_version"
	if err := a.rdb.HSet(a.ctx, key, "number", canary.Number, "0 old runs", 40).Err(); err != nil {
		t.Fatal(err)
	}
	a.has("version", canary.Number, plugins.StateCanary)
	state := func() string {
		r, err := release.NewStore(a.client).Release(a.ctx, "version", canary.Number)
		if err != nil {
			t.Fatal(err)
		}
		return r.State()
	}
	began := time.Now()
	a.eventually("its step is over", func() bool {
		return time.Since(began) > 3*time.Second && a.log.has("the step of a canary does not end: ")
	})
	if n := a.log.lines("the step of a canary does not end: "); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
	if got := state(); got != release.StateCanary {
		t.Errorf("it is %s", got)
	}
	if err := a.rdb.HSet(a.ctx, key, "0 new runs", 1).Err(); err != nil {
		t.Fatal(err)
	}
	a.eventually("the canary serves", func() bool { return state() == release.StateServing })
}

// A step of all tasks has nothing to compare, so it ends on a queue without tasks.
func TestStepOfAllTasksEnds(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}",
		release.Share{Steps: []release.Step{{Percent: 100, Seconds: 0.5}}})
	a.serves("version", canary.Number)
}

// A step does not end soon after a host died that ran a task of the canary: the task may kill the next host.
func TestStepAfterCrashDoesNotEnd(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}, lease: 10 * time.Minute})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}",
		release.Share{Steps: []release.Step{{Percent: 20, Seconds: 3600}}})
	a.has("version", canary.Number, plugins.StateCanary)
	crashed := func(at time.Time) {
		t.Helper()
		if err := a.rdb.HSet(a.ctx, a.tenant+"_release_version", fmt.Sprint(canary.Number, " deaths"), at.Unix()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	crashed(time.Now())
	a.agePush("version")
	a.eventually("the host says so", func() bool { return a.log.lines("the step of a canary does not end") == 1 })
	crashed(time.Now().Add(-time.Hour))
	a.serves("version", canary.Number)
}

// A canary over whose tasks two hosts died is not promoted by time, whichever host looks first.
func TestStepOfDeadlyCanaryDoesNotEnd(t *testing.T) {
	t.Parallel()
	a := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}})
	a.serves("version", a.pushRelease("version", runtimetest.Version(t, "one"), "").Number)
	canary := a.pushCanary("version", runtimetest.Version(t, "two"), "{}",
		release.Share{Steps: []release.Step{{Percent: 20, Seconds: 3600}}})
	a.has("version", canary.Number, plugins.StateCanary)
	now := time.Now().Unix()
	deaths := fmt.Sprintf("0 dead~00000001_1 %d dead~00000002_1 %d", now-60, now)
	if err := a.rdb.HSet(a.ctx, a.tenant+"_release_version", fmt.Sprint(canary.Number, " deaths"), deaths).Err(); err != nil {
		t.Fatal(err)
	}
	a.agePush("version")
	a.eventually("the canary is halted", func() bool {
		r, err := release.NewStore(a.client).Release(a.ctx, "version", canary.Number)
		if err == nil && r.State() == release.StateServing {
			t.Fatal("the canary serves")
		}
		return err == nil && r.State() == release.StateHalted
	})
}
