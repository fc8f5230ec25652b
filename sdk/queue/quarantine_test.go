package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// dieOver ends a new node that runs what waits, as a plugin's version p sha256:0, and reclaims from it at a
// second of the test's clock.
func (w *world) dieOver(t testing.TB, second float64, terms listen.FailurePolicy) (node *listen.Node) {
	t.Helper()
	w.at(second - 5)
	must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
	node = w.node(t, "q")
	batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 10, Start: true, Plugin: "p", Digest: "sha256:0", FailurePolicy: terms}})[0]
	if batch.Err != nil || len(batch.Tasks) == 0 {
		t.Fatalf("reserved %+v", batch)
	}
	w.die(t, node)
	w.at(second)
	must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0))
	return node
}

// quarantined tells whether a host gets nothing for a version of the plugin p.
func (w *world) quarantined(t testing.TB, digest string) bool {
	t.Helper()
	node := w.node(t, "q")
	batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, Plugin: "p", Digest: digest}})[0]
	if batch.Err != nil || (batch.Quarantined == listen.CauseCrashes) != (len(batch.Tasks) == 0) {
		t.Fatalf("reserved %+v", batch)
	}
	for _, task := range batch.Tasks {
		if errs, err := node.Release(w.ctx, "q", []listen.Claim{{ID: task.ID, Run: task.Run}}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	return batch.Quarantined != ""
}

// completeAll completes what waits, by a worker without a plugin.
func (w *world) completeAll(t testing.TB) {
	t.Helper()
	node := w.node(t, "q")
	for _, task := range node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 10}})[0].Tasks {
		w.settle(t, node, "q", listen.Settlement{Claim: listen.Claim{ID: task.ID, Run: task.Run}})
	}
}

func TestOneTaskQuarantinesItsVersion(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.enqueue(t, "q", "", queue.Options{ID: "poison"})
		ended := []string{w.dieOver(t, 10, listen.FailurePolicy{MaxCrashes: 1000}).ID()}
		for second := 20.0; w.task(t, "poison").Status != queue.Failed; second += 10 {
			ended = append(ended, w.dieOver(t, second, listen.FailurePolicy{MaxCrashes: 1000}).ID())
		}
		if len(ended) != listen.DefaultMaxCrashes {
			t.Errorf("one task ended %d hosts, want the smaller number of manifest and host, %d", len(ended), listen.DefaultMaxCrashes)
		}
		w.enqueue(t, "q", "", queue.Options{ID: "next"})
		if !w.quarantined(t, "sha256:0") {
			t.Error("the version runs on")
		}
		got := must[[]listen.Quarantine](t)(listen.NewFleet(w.Client).Quarantines(w.ctx))
		if len(got) != 1 || got[0].Plugin != "p" || got[0].Digest != "sha256:0" || !slices.Equal(got[0].Listeners, ended) {
			t.Errorf("%+v, want %v", got, ended)
		}
		if got[0].Until != store.ParseSeconds(w.Store().Clock).Add(24*time.Hour) {
			t.Errorf("until %s", got[0].Until)
		}

		if w.quarantined(t, "sha256:1") {
			t.Error("another version does not run")
		}
		listener := must[*worker.Listener](t)(worker.NewListener(w.ctx, w.Client, "q"))
		task := must[*queue.Task](t)(listener.TryListen(w.ctx))
		if task == nil || worker.NewProcessor(w.Client, task).Release(w.ctx) != nil {
			t.Errorf("a worker without a plugin got %v", task)
		}
		if ttl := must[time.Duration](t)(w.rdb.TTL(w.ctx, w.Store().Keys.Crashes()).Result()); ttl <= 0 {
			t.Errorf("%s lives %s", w.Store().Keys.Crashes(), ttl)
		}

		w.at(30 + 24*3600)
		if w.quarantined(t, "sha256:0") || len(must[[]listen.Quarantine](t)(listen.NewFleet(w.Client).Quarantines(w.ctx))) != 0 {
			t.Error("it is quarantined a day later")
		}
		w.at(40)
		if err := manage.New(w.Client).EndQuarantine(w.ctx, "p", "sha256:0"); err != nil {
			t.Fatal(err)
		}
		if got := must[[]listen.Quarantine](t)(listen.NewFleet(w.Client).Quarantines(w.ctx)); len(got) != 0 || w.quarantined(t, "sha256:0") {
			t.Errorf("after its release: %+v", got)
		}
	})
}

func TestWhoIsToBlame(t *testing.T) {
	t.Parallel()
	once := listen.FailurePolicy{NoRerun: true}
	for _, c := range []struct {
		name    string
		fresh   bool // each host runs a task of its own
		terms   listen.FailurePolicy
		seconds []float64 // when the hosts are found dead
		want    bool
	}{
		{"many tasks that run beside others", true, listen.FailurePolicy{}, []float64{10, 20, 30, 40, 50, 60}, false},
		{"tasks that must not run twice", true, once, []float64{10, 20, 30}, true},
		{"two hosts", true, once, []float64{10, 20}, false},
		{"all hosts at once", true, once, []float64{10, 11, 12, 13, 14}, false},
		{"rarely", true, once, []float64{10, 3000, 4000, 7500, 9000}, false},
		{"tasks that may lose one", true, listen.FailurePolicy{MaxCrashes: 1}, []float64{10, 20, 30}, true},
		{"one task", false, listen.FailurePolicy{}, []float64{10, 20, 30}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.at(0)
				w.enqueue(t, "q", "", queue.Options{})
				for i, second := range c.seconds {
					if i > 0 && c.fresh {
						w.completeAll(t)
						w.enqueue(t, "q", "", queue.Options{})
					}
					w.dieOver(t, second, c.terms)
				}
				w.completeAll(t)
				w.enqueue(t, "q", "", queue.Options{})
				if got := w.quarantined(t, "sha256:0"); got != c.want {
					t.Errorf("quarantined: %v, want %v", got, c.want)
				}
			})
		})
	}
}

// What somebody damaged of the deaths is none: tasks are reserved and reclaimed, and three more deaths count.
func TestDamagedDeaths(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "x", "nan", "-1", "1.2.3 L", "0x7fffffff a 1", "0 L 1.2.3", "0 L . M", "0 L", " L 1700000006.1.",
	} {
		t.Run(text, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.at(0)
				w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), "p sha256:0", text)
				w.enqueue(t, "q", "", queue.Options{})
				for i, second := range []float64{10, 20, 30} {
					if w.quarantined(t, "sha256:0") || len(must[[]listen.Quarantine](t)(listen.NewFleet(w.Client).Quarantines(w.ctx))) > 0 {
						t.Fatalf("it is quarantined after %d deaths", i)
					}
					w.completeAll(t)
					id := w.enqueue(t, "q", "", queue.Options{})
					w.rdb.RPush(w.ctx, w.Store().Keys.Attempts(id), "1 - 1.2.3 L p sha256:0 crashed ")
					w.dieOver(t, second, listen.FailurePolicy{NoRerun: true})
					if status := w.task(t, id).Status; status != queue.Failed {
						t.Errorf("the task is %s", status)
					}
					w.enqueue(t, "q", "", queue.Options{})
				}
				if !w.quarantined(t, "sha256:0") {
					t.Error("it is not quarantined")
				}
			})
		})
	}
}

// When there is no room to note deaths over another version, those of more than an hour ago are forgotten.
func TestOldDeathsMakeRoom(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		now, ago := store.ParseSeconds(w.Store().Clock).Unix(), store.ParseSeconds(w.Store().Clock).Add(-2*time.Hour).Unix()
		fields := []string{
			"recent d", fmt.Sprintf("0 a %d b %d", ago, now), "held d", fmt.Sprintf("%d a %d", now+1000, ago),
			"over d", fmt.Sprintf("%d a %d", ago, ago), "damaged d", "x",
		}
		for i := len(fields) / 2; i < 1000; i++ {
			fields = append(fields, fmt.Sprintf("old%d d", i), fmt.Sprintf("0 a %d", ago))
		}
		if err := w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), fields).Err(); err != nil {
			t.Fatal(err)
		}
		for second := 10.0; second < 40; second += 10 {
			w.enqueue(t, "q", "", queue.Options{})
			w.dieOver(t, second, listen.FailurePolicy{NoRerun: true})
		}
		w.enqueue(t, "q", "", queue.Options{})
		if !w.quarantined(t, "sha256:0") {
			t.Error("a new version is not quarantined")
		}
		got := slices.Sorted(slices.Values(must[[]string](t)(w.rdb.HKeys(w.ctx, w.Store().Keys.Crashes()).Result())))
		if want := []string{"held d", "p sha256:0", "recent d"}; !slices.Equal(got, want) {
			t.Errorf("%d versions are left, want %q; the first are %q", len(got), want, got[:min(5, len(got))])
		}
	})
}

// However many versions tasks ran, whoever reclaims keeps a bound.
func TestDeathsAreBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		var fields []string
		for i := range 1000 {
			fields = append(fields, fmt.Sprintf("p%d d", i), "0 a "+w.Store().Clock)
		}
		if err := w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), fields).Err(); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "q", "", queue.Options{})
		w.dieOver(t, 10, listen.FailurePolicy{NoRerun: true})
		if n := w.rdb.HLen(w.ctx, w.Store().Keys.Crashes()).Val(); n != 1000 {
			t.Errorf("%d versions are noted, want 1000 at most", n)
		}
	})
}

// A task that a Quern host began and a Python listener ended says nothing against the plugin.
func TestPythonListenersBlameNoPlugin(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		for i := range 4 {
			id := w.enqueue(t, "q", "", queue.Options{})
			node, hold := w.held(t, "q")
			if errs, err := node.Release(w.ctx, "q", []listen.Claim{hold}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
			w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("q"), "host_7")
			w.rdb.LMove(w.ctx, w.Store().Keys.Pending("q"), w.Store().Keys.Reserved("q", "host_7"), "RIGHT", "LEFT")
			w.rdb.SAdd(w.ctx, w.Store().Keys.Started("q"), "host_7 9 "+id)
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "started", "node", "host_7", "pid", "9", "max_crashes", "1")
			w.at(float64(10 * (i + 1)))
			if got := must[listen.Reclaimed](t)(manage.New(w.Client).ReclaimNode(w.ctx, "host_7", 0)); got.Failed != 1 {
				t.Fatalf("%+v", got)
			}
		}
		w.enqueue(t, "q", "", queue.Options{})
		if w.quarantined(t, "sha256:0") {
			t.Error("it is quarantined")
		}
	})
}

// Workers that start tasks at once without a plugin neither count nor wait.
func TestWorkersWithoutPluginAreNotQuarantined(t *testing.T) {
	t.Parallel()
	want := listen.ReserveRequest{Queue: "q", Count: 1, Start: true, FailurePolicy: listen.FailurePolicy{NoRerun: true}}
	for name, start := range map[string]func(w *world, node *listen.Node, id string) listen.ReserveReply{
		"reserved": func(w *world, node *listen.Node, _ string) listen.ReserveReply {
			return node.Reserve(w.ctx, []listen.ReserveRequest{want})[0]
		},
		"adopted": func(w *world, node *listen.Node, id string) listen.ReserveReply {
			node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})
			return node.Adopt(w.ctx, want, []string{id})
		},
		"started after its reserve": func(w *world, node *listen.Node, id string) listen.ReserveReply {
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
			if batch.Err == nil && len(batch.Tasks) == 1 {
				_, batch.Err = node.Start(w.ctx, "q", batch.Tasks[0].Claim())
			}
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "on_crash", "fail")
			return batch
		},
		"reserved as older workers did": func(w *world, node *listen.Node, id string) listen.ReserveReply {
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{want})[0]
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "plugin", "", "digest", "")
			return batch
		},
		"quarantined before": func(w *world, node *listen.Node, _ string) listen.ReserveReply {
			w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), " ", "4102444800 L "+w.Store().Clock)
			return node.Reserve(w.ctx, []listen.ReserveRequest{want})[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				for second := range 4 {
					w.at(float64(10 * second))
					id := w.enqueue(t, "q", "", queue.Options{})
					// As a Python client leaves a task that it puts back.
					w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "run", 1, "plugin", "p", "digest", "sha256:0")
					node := w.node(t, "q")
					if batch := start(w, node, id); batch.Err != nil || len(batch.Tasks) != 1 {
						t.Fatalf("after %d deaths: %+v", second, batch)
					}
					if task := w.task(t, id); task.Status != queue.Started || task.Plugin != "" || task.Digest != "" {
						t.Errorf("the task is %s by %q %q", task.Status, task.Plugin, task.Digest)
					}
					w.die(t, node)
					must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0))
				}
				if list := must[[]listen.Quarantine](t)(listen.NewFleet(w.Client).Quarantines(w.ctx)); len(list) > 0 && list[0].Plugin != "" {
					t.Errorf("quarantined: %+v", list)
				}
			})
		})
	}
}
