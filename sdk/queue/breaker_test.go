package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

// breaker is the circuit breaker of the version p sha256:0 in these tests.
var breaker = &listen.Breaker{
	Plugin: "p", Digest: "sha256:0", Queues: []string{"q", "other"}, Failures: 3, Pause: 30 * time.Second, MaxPause: 100 * time.Second,
}

// guarded asks for tasks of the version with the circuit breaker.
func (w *world) guarded(t testing.TB, node *listen.Node, count int) listen.ReserveReply {
	t.Helper()
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{{
		Queue: "q", Count: count, Start: true, Plugin: breaker.Plugin, Digest: breaker.Digest, Breaker: true,
	}})[0]
	if reply.Err != nil {
		t.Fatal(reply.Err)
	}
	return reply
}

// endedBy settles a task that ends so: "complete"; a reason, for which it fails, or is tried again if "again" follows; "fatal", a
// failure that does not count; or "later", by which it puts itself off.
func endedBy(task listen.Reservation, how string) listen.Settlement {
	s := listen.Settlement{Claim: task.Claim()}
	reason, again := strings.CutSuffix(how, " again")
	switch {
	case how == "complete":
		return s
	case how == "later":
		s.Requeue, s.Delay = listen.RequeueReschedule, 1000*time.Second
	case again:
		s.Requeue, s.Delay = listen.RequeueRetry, 1000*time.Second
	}
	s.Failure = &queue.Failure{Reason: queue.ReasonExhausted, Message: "no luck"}
	if how != "later" && how != "fatal" {
		s.Counts = queue.Reason(reason)
	}
	return s
}

func (w *world) end(t testing.TB, node *listen.Node, task listen.Reservation, how string) {
	t.Helper()
	reply := node.SettleAll(w.ctx, []listen.SettleRequest{{
		Queue: "q", Settlements: []listen.Settlement{endedBy(task, how)}, Breaker: breaker,
	}})[0]
	if reply.Err != nil || reply.Errs[0] != nil {
		t.Fatal(reply)
	}
}

// runs runs tasks of the version, one after another, which end in these ways.
func (w *world) runs(t testing.TB, node *listen.Node, ways ...string) {
	t.Helper()
	for _, how := range ways {
		w.enqueue(t, "q", "", queue.Options{})
		reply := w.guarded(t, node, 1)
		if len(reply.Tasks) != 1 {
			t.Fatalf("reserved %+v", reply)
		}
		w.end(t, node, reply.Tasks[0], how)
	}
}

// opened makes a breaker open at second 0, with tasks that wait.
func (w *world) opened(t testing.TB) *listen.Node {
	t.Helper()
	w.at(0)
	node := w.node(t, "q")
	w.runs(t, node, "error", "error", "error")
	for range 5 {
		w.enqueue(t, "q", "", queue.Options{})
	}
	return node
}

// probed takes the probe of a breaker whose pause is over.
func (w *world) probed(t testing.TB, node *listen.Node) listen.Reservation {
	t.Helper()
	reply := w.guarded(t, node, 10)
	if len(reply.Tasks) != 1 || reply.Quarantined != listen.CauseFailures || reply.Early {
		t.Fatalf("reserved %+v, want a probe", reply)
	}
	return reply.Tasks[0]
}

// shut checks that nothing is reserved for the version, and until which second of the test's clock; 0: until a probe ends.
func (w *world) shut(t testing.TB, until float64) {
	t.Helper()
	reply := w.guarded(t, w.node(t, "q"), 10)
	var eta time.Time
	if until != 0 {
		eta = store.ParseSeconds(fmt.Sprintf("%.6f", 1700000000+until))
	}
	if len(reply.Tasks) > 0 || reply.Quarantined != listen.CauseFailures || !reply.NextETA.Equal(eta) {
		t.Fatalf("reserved %+v, want none until %s", reply, eta)
	}
}

func (w *world) breakers(t testing.TB) []listen.Quarantine {
	t.Helper()
	return must[[]listen.Quarantine](t)(listen.NewFleet(w.Client).Quarantines(w.ctx))
}

func TestBreakerCountsARow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ways string
		open bool
	}{
		{"error,error", false},
		{"error,error,error", true},
		{"error,error,complete,error,error", false},
		{"error,trap,error,trap,error", false},
		{"trap,error,error,error", true},
		{"error again,error again,error", true},
		{"error,error,later,fatal,error", true},
		{"later,later,later,later", false},
		{"fatal,fatal,fatal,fatal", false},
	} {
		t.Run(c.ways, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.at(0)
				node := w.node(t, "q")
				w.runs(t, node, strings.Split(c.ways, ",")...)
				w.enqueue(t, "q", "", queue.Options{})
				if list := w.breakers(t); (len(list) == 1) != c.open {
					t.Errorf("listed: %+v", list)
				}
				if c.open {
					w.shut(t, 30)
				} else if reply := w.guarded(t, node, 1); len(reply.Tasks) != 1 || reply.Quarantined != "" {
					t.Errorf("reserved %+v", reply)
				}
			})
		})
	}
}

// One probe runs after each pause. It fails, and the pause doubles up to its maximum; it completes, and all is open.
func TestBreakerProbes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.opened(t)
		at := 0.0
		for i, pause := range []float64{30, 60, 100, 100} {
			w.at(at + pause - 0.001)
			w.shut(t, at+pause)
			at += pause
			want := listen.Quarantine{
				Plugin: "p", Digest: "sha256:0", Cause: listen.CauseFailures, Failures: 3 + i, Reason: queue.ReasonError,
				Until: store.ParseSeconds(fmt.Sprintf("%.6f", 1700000000+at)),
			}
			if list := w.breakers(t); len(list) != 1 || fmt.Sprint(list[0]) != fmt.Sprint(want) ||
				!strings.Contains(list[0].Why(), fmt.Sprintf("%d of its runs in a row failed (error), and a task runs as a probe at 2023", 3+i)) {
				t.Errorf("%+v, want %+v", list, want)
			}
			w.at(at)
			if list := w.breakers(t); len(list) > 0 {
				t.Errorf("listed without a task that waits for it: %+v", list)
			}
			probe := w.probed(t, node)
			w.at(at + 1)
			w.shut(t, 0)
			if want.Probe = probe.ID; fmt.Sprint(w.breakers(t)) != fmt.Sprint([]listen.Quarantine{want}) || !strings.Contains(want.Why(), probe.ID) {
				t.Errorf("%+v, want %+v", w.breakers(t), want)
			}
			at++
			w.end(t, node, probe, "error")
		}
		w.at(at + 100)
		w.end(t, node, w.probed(t, node), "complete")
		w.enqueue(t, "q", "", queue.Options{})
		if reply := w.guarded(t, node, 10); len(reply.Tasks) != 1 || reply.Quarantined != "" {
			t.Errorf("after it completed: %+v", reply)
		}
		if fields := w.rdb.HGetAll(w.ctx, w.Store().Keys.Crashes()).Val(); len(fields) > 0 {
			t.Errorf("%v is left", fields)
		}
	})
}

// Only the version with the breaker waits: not another one, none without a manifest that asks for it, and no worker.
func TestBreakerIsOfOneVersion(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.opened(t)
		for _, request := range []listen.ReserveRequest{
			{Queue: "q", Count: 1, Start: true, Plugin: "p", Digest: "sha256:1", Breaker: true},
			{Queue: "q", Count: 1, Start: true, Plugin: "other", Digest: "sha256:0", Breaker: true},
			{Queue: "q", Count: 1, Start: true, Plugin: "p", Digest: "sha256:0"},
			{Queue: "q", Count: 1},
		} {
			if reply := node.Reserve(w.ctx, []listen.ReserveRequest{request})[0]; len(reply.Tasks) != 1 || reply.Quarantined != "" {
				t.Errorf("%+v reserved %+v", request, reply)
			}
		}
		w.shut(t, 30)
	})
}

// A probe that ends without an answer, or whose host dies, makes room for another one at once.
func TestProbeWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, w *world, node *listen.Node, probe listen.Reservation){
		"later": func(t *testing.T, w *world, node *listen.Node, probe listen.Reservation) {
			w.end(t, node, probe, "later")
		},
		"fatal": func(t *testing.T, w *world, node *listen.Node, probe listen.Reservation) {
			w.end(t, node, probe, "fatal")
		},
		"given back": func(t *testing.T, w *world, node *listen.Node, probe listen.Reservation) {
			must[[]error](t)(node.Release(w.ctx, "q", []listen.Claim{probe.Claim()}))
		},
		"cancelled": func(t *testing.T, w *world, node *listen.Node, probe listen.Reservation) {
			must[bool](t)(w.Queue("q").Cancel(w.ctx, probe.ID))
			reply := node.SettleAll(w.ctx, []listen.SettleRequest{{
				Queue: "q", Settlements: []listen.Settlement{endedBy(probe, "error again")}, Breaker: breaker,
			}})[0]
			if reply.Err != nil || reply.Errs[0] == nil {
				t.Errorf("%+v, want that it is cancelled", reply)
			}
		},
		"deleted": func(t *testing.T, w *world, _ *listen.Node, probe listen.Reservation) {
			w.rdb.Del(w.ctx, w.Store().Keys.Task(probe.ID))
		},
		"settled without the breaker": func(t *testing.T, w *world, node *listen.Node, probe listen.Reservation) {
			w.settle(t, node, "q", endedBy(probe, "complete"))
		},
		"its host dies": func(t *testing.T, w *world, node *listen.Node, _ listen.Reservation) { w.reclaimFrom(t, node) },
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.opened(t)
				w.at(30)
				node := w.node(t, "q")
				end(t, w, node, w.probed(t, node))
				next := w.node(t, "q")
				w.end(t, next, w.probed(t, next), "error")
				w.shut(t, 90)
			})
		})
	}
}

// What began before the breaker opened neither closes it nor makes its pause longer.
func TestOnlyTheProbeCounts(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node := w.node(t, "q")
		for range 9 {
			w.enqueue(t, "q", "", queue.Options{})
		}
		tasks := w.guarded(t, node, 8).Tasks
		var settlements []listen.Settlement
		for i, how := range []string{"error", "error", "error", "complete", "trap"} {
			settlements = append(settlements, endedBy(tasks[i], how))
		}
		request := []listen.SettleRequest{{Queue: "q", Settlements: settlements, Breaker: breaker}}
		for range 2 { // a repeated settlement does not count again
			if reply := node.SettleAll(w.ctx, request)[0]; reply.Err != nil {
				t.Fatal(reply.Err)
			}
		}
		w.shut(t, 30)
		w.at(10)
		w.end(t, node, tasks[5], "error")
		w.shut(t, 30)
		w.at(30)
		probe := w.probed(t, node)
		w.end(t, node, tasks[6], "complete")
		w.end(t, node, tasks[7], "error")
		w.shut(t, 0)
		w.end(t, node, probe, "error")
		w.shut(t, 90)
		if list := w.breakers(t); len(list) != 1 || list[0].Failures != 4 {
			t.Errorf("%+v, want a row of 4", list)
		}
	})
}

// Redis's clock is set back: no pause gets longer.
func TestBreakerAndTheClock(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.opened(t)
		w.at(-3600)
		if list := w.breakers(t); len(list) > 0 {
			t.Errorf("listed: %+v", list)
		}
		w.end(t, node, w.probed(t, node), "error")
		w.shut(t, -3600+60)
	})
}

// The listeners of all queues of the plugin hear when the breaker opens, and when its probe has ended.
func TestBreakerWakes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node := w.node(t, "q")
		w.runs(t, node, "error", "error")
		w.enqueue(t, "q", "", queue.Options{})
		last := w.guarded(t, node, 1).Tasks[0]
		sub := w.rdb.Subscribe(w.ctx, w.Store().Keys.Channel("other"))
		defer sub.Close()
		must[any](t)(sub.Receive(w.ctx))
		heard := func(what string) {
			t.Helper()
			receive(t, what, sub.Channel())
		}
		w.end(t, node, last, "error")
		heard("that it is open")
		for i, how := range []string{"later", "error", "complete"} {
			w.at(30 + 100*float64(i))
			w.enqueue(t, "q", "", queue.Options{})
			w.end(t, node, w.probed(t, node), how)
			heard("the end of the probe: " + how)
		}
		w.runs(t, node, "error", "complete")
		w.rdb.Publish(w.ctx, w.Store().Keys.Channel("other"), "end")
		if message := receive(t, "the end", sub.Channel()); message.Payload != "end" {
			t.Errorf("a message without a reason: %v", message)
		}
	})
}

// An operator ends it, and the row begins anew. A version that also ended hosts is listed once.
func TestBreakerIsClosedByHand(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.opened(t)
		w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), "p sha256:0", "4102444800 a 1 b 2 c 3")
		if list := w.breakers(t); len(list) != 1 || list[0].Cause != listen.CauseCrashes || list[0].Why() != "its tasks ended a, b, c" {
			t.Errorf("%+v", list)
		}
		if reply := w.guarded(t, node, 1); reply.Quarantined != listen.CauseCrashes || len(reply.Tasks) > 0 {
			t.Errorf("reserved %+v", reply)
		}
		if err := manage.New(w.Client).EndQuarantine(w.ctx, "p", "sha256:0"); err != nil {
			t.Fatal(err)
		}
		w.runs(t, node, "error", "error")
		if reply := w.guarded(t, node, 10); len(reply.Tasks) == 0 || reply.Quarantined != "" {
			t.Errorf("reserved %+v", reply)
		}
	})
}

// What somebody damaged is no state: tasks run and are settled, and a new row counts.
func TestDamagedBreaker(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "x", "nan error 0 30 3 - -", "1700000100 error nan 30 3 - -", "1700000100 error 0 nan 3 - -", "1700000100 error 0 30 0x3 - -",
		"1700000100 error 0 30 3 -", "1700000100 0 30 3 - - -", "1.2.3 error 1700000000 30 3 - -",
	} {
		t.Run(text, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.at(0)
				w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), "p sha256:0 failures", text)
				node := w.node(t, "q")
				w.runs(t, node, "error", "error", "error")
				w.shut(t, 30)
			})
		})
	}
	t.Run("no hash", func(t *testing.T) {
		everywhere(t, func(t *testing.T, w *world) {
			w.rdb.Set(w.ctx, w.Store().Keys.Crashes(), "x", 0)
			w.runs(t, w.node(t, "q"), "error", "complete", "error", "error", "error", "error")
			w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1, queue.Failed: 5})
		})
	})
}

// The rows of versions are bounded: old ones make room, and if there are none, a new version has no row.
func TestBreakersAreBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		now := store.ParseSeconds(w.Store().Clock).Unix()
		row := func(ends, from int64) string { return fmt.Sprintf("%d error %d 30.000000 3 - -", ends, from) }
		fields := []string{"open d failures", row(now+1000, now-7200), "row d failures", row(0, now-60), "dead d", fmt.Sprintf("0 a %d", now)}
		for i := len(fields) / 2; i < 1000; i++ {
			fields = append(fields, fmt.Sprintf("new%d d failures", i), row(0, now-60))
		}
		key := w.Store().Keys.Crashes()
		must[int64](t)(w.rdb.HSet(w.ctx, key, fields).Result())
		node := w.node(t, "q")
		w.runs(t, node, "error", "error", "error", "error")
		if n := w.rdb.HLen(w.ctx, key).Val(); n != 1000 || w.rdb.HExists(w.ctx, key, "p sha256:0 failures").Val() {
			t.Errorf("%d fields, want the 1000 of before", n)
		}
		for i, field := range fields {
			if strings.HasPrefix(field, "new") {
				fields[i+1] = row(0, now-7200)
			}
		}
		must[int64](t)(w.rdb.HSet(w.ctx, key, fields).Result())
		w.runs(t, node, "error", "error", "error")
		w.shut(t, 30)
		got := slices.Sorted(slices.Values(must[[]string](t)(w.rdb.HKeys(w.ctx, key).Result())))
		if want := []string{"dead d", "open d failures", "p sha256:0 failures", "row d failures"}; !slices.Equal(got, want) {
			t.Errorf("%d fields are left, want %q; the first are %q", len(got), want, got[:min(5, len(got))])
		}
		if ttl := w.rdb.TTL(w.ctx, key).Val(); ttl <= 0 || ttl > 24*time.Hour {
			t.Errorf("they live %s", ttl)
		}
	})
}

// The tasks of a canary wait for its own breaker, on which one of them is the probe. Other tasks run meanwhile.
func TestBreakerOfACanary(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node, half := w.node(t, "q"), &release.Stage{Share: release.Share{Steps: []release.Step{{Percent: 50}}}}
		here := canaryHere
		here.Breaker = true
		stable := 0
		for i := range 20 {
			if !half.Takes(8, w.enqueue(t, "q", "x", queue.Options{ID: fmt.Sprint("t", i)}), nil) {
				stable++
			}
		}
		set := func(ends int) {
			w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), "mail sha256:8 failures", fmt.Sprintf("%d error 1699999990 30 3 - -", ends))
		}
		take := func(all, canary int) {
			t.Helper()
			reply := node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", half, here)})[0]
			ofCanary := slices.DeleteFunc(slices.Clone(reply.Tasks), func(r listen.Reservation) bool { return r.Release == 0 })
			if reply.Err != nil || len(reply.Tasks) != all || len(ofCanary) != canary || reply.Quarantined != "" {
				t.Fatalf("reserved %d tasks, %d of the canary, want %d, %d: %+v", len(reply.Tasks), len(ofCanary), all, canary, reply)
			}
			for _, task := range ofCanary {
				if state := w.rdb.HGet(w.ctx, w.Store().Keys.Crashes(), "mail sha256:8 failures").Val(); !strings.HasSuffix(state, node.ID()+" "+task.ID) {
					t.Errorf("the probe is not recorded: %s", state)
				}
			}
		}
		set(1700000005)
		take(stable, 0)
		w.at(6)
		must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
		take(1, 1)
		take(0, 0)
	})
}

// While the version that serves waits for a probe, a task of another release is not the probe, and the next one may be.
func TestAnotherReleaseIsNoProbe(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), "mail sha256:7 failures", "1699999999 error 1699999990 30 3 - -")
		node, stage := w.node(t, "q"), &release.Stage{Share: release.Share{Label: "a", Value: "b"}}
		w.enqueue(t, "q", "", queue.Options{ID: "canary", Labels: map[string]string{"a": "b"}})
		w.enqueue(t, "q", "", queue.Options{ID: "probe"})
		request := stagedRequest("q", stage, canaryHere)
		request.Breaker = true
		for _, want := range []struct {
			id    string
			early bool
		}{{"canary", true}, {"probe", false}} {
			reply := node.Reserve(w.ctx, []listen.ReserveRequest{request})[0]
			if len(reply.Tasks) != 1 || reply.Tasks[0].ID != want.id || reply.Early != want.early || reply.Quarantined != listen.CauseFailures {
				t.Fatalf("reserved %+v, want %v", reply, want)
			}
		}
	})
}

// A plugin without a circuit breaker pays nothing, and one with it a read for each batch of completions.
func TestWhatABreakerCosts(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	w.at(0)
	node := w.node(t, "q")
	commands := func(with *listen.Breaker) (each int64) {
		for range 10 {
			w.enqueue(t, "q", "", queue.Options{})
		}
		request := listen.ReserveRequest{
			Queue: "q", Count: 10, Start: true, Plugin: "p", Digest: "sha256:0", Breaker: with != nil,
		}
		settle := listen.SettleRequest{Queue: "q", Breaker: with}
		scripts, each, _ := w.scripts(t, func() {
			reply := node.Reserve(w.ctx, []listen.ReserveRequest{request})[0]
			for _, task := range reply.Tasks {
				settle.Settlements = append(settle.Settlements, endedBy(task, "complete"))
			}
			if ended := node.SettleAll(w.ctx, []listen.SettleRequest{settle})[0]; reply.Err != nil || ended.Err != nil || len(reply.Tasks) != 10 {
				t.Fatal(reply.Err, ended.Err)
			}
		})
		if scripts != 2 {
			t.Fatalf("%d scripts, want a reserve and a settle", scripts)
		}
		return each
	}
	if err := listen.Prepare(w.ctx, w.Client); err != nil {
		t.Fatal(err)
	}
	if plain, with := commands(nil), commands(breaker); with != plain+1 {
		t.Errorf("%d commands a script without a circuit breaker, %d with it, want one more", plain, with)
	}
}
