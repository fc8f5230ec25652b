package metrics

import (
	"bytes"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
)

// exposition is what a scrape returns in Prometheus's text format, with goX for the Go version.
func exposition(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	var out bytes.Buffer
	for _, f := range gather(t, reg) {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(out.String(), goruntime.Version(), "goX")
}

func TestNew(t *testing.T) {
	t.Parallel()
	t.Run("ErrTwice", func(t *testing.T) {
		t.Parallel()
		_, reg := setup(t)
		m, err := New(reg, Config{})
		var twice prometheus.AlreadyRegisteredError
		if m != nil || !errors.As(err, &twice) {
			t.Errorf("New on a registry that has the catalogue = %v, %v; want an AlreadyRegisteredError", m, err)
		}
		if err != nil && !strings.Contains(err.Error(), `register "quern_tasks_total"`) {
			t.Errorf("error is %q; want it to name the family", err)
		}
	})
	t.Run("OKZeroConfig", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		if _, err := New(reg, Config{}); err != nil {
			t.Fatal(err)
		}
		if got, want := exposition(t, reg), `quern_build_info{go="goX",host="",revision="unknown",version="devel"} 1`; !strings.Contains(got, want) {
			t.Errorf("exposition lacks %s", want)
		}
	})
}

// Histograms are native only if asked for, and classic in any case.
func TestNativeHistograms(t *testing.T) {
	t.Parallel()
	for _, native := range []bool{false, true} {
		reg := prometheus.NewRegistry()
		m, err := New(reg, Config{NativeHistograms: native})
		if err != nil {
			t.Fatal(err)
		}
		m.Tasks("acme", "q", "p").Started("", time.Second)
		for _, f := range gather(t, reg) {
			for _, s := range f.GetMetric() {
				if h := s.GetHistogram(); h != nil && (h.Schema != nil != native || len(h.GetBucket()) != 3) {
					t.Errorf("native %v: %s is %v", native, f.GetName(), h)
				}
			}
		}
	}
}

// What a scrape shows before there is anything to show.
func TestInitialExposition(t *testing.T) {
	t.Parallel()
	t.Run("NothingServed", func(t *testing.T) {
		t.Parallel()
		m, reg := setup(t)
		m.CollectQueues(empty)
		golden(t, "nothing-served.golden", exposition(t, reg))
	})
	t.Run("QueueServed", func(t *testing.T) {
		t.Parallel()
		m, reg := setup(t)
		m.CollectQueues(empty)
		m.PluginLoaded("", "thumbnails", "ok")
		m.PluginServing("", "thumbnails", "1.4.0", "sha256:00", "scan", true)
		m.QueueServed("blueque", "thumbnails", "thumbnails")
		golden(t, "queue-served.golden", exposition(t, reg))
	})
}

func TestEveryMethodCounts(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	exercise(m)
	golden(t, "exercised.golden", exposition(t, reg))
}

func TestTaskDone(t *testing.T) {
	t.Parallel()
	for outcome, timed := range map[string]uint64{
		"complete": 1, "failed": 1, "retried": 1, "rescheduled": 1, "released": 0, "lost": 0,
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			m, reg := setup(t)
			m.Tasks("acme", "q", "p").Done(outcome, "", "", time.Second)
			if got := testutil.ToFloat64(m.vecs[tasks].counter.WithLabelValues("acme", "q", "p", outcome, "")); got != 1 {
				t.Errorf("tasks with outcome %s = %v, want 1", outcome, got)
			}
			var durations uint64
			for _, f := range gather(t, reg) {
				if f.GetName() == "quern_task_duration_seconds" {
					for _, s := range f.GetMetric() {
						durations += s.GetHistogram().GetSampleCount()
					}
				}
			}
			if durations != timed {
				t.Errorf("a task that is %s gives %d durations, want %d", outcome, durations, timed)
			}
		})
	}
}

// A task's trace is an exemplar, if somebody may find it: where OpenMetrics is spoken.
func TestExemplars(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for id, want := range map[string]int{trace: 2, "": 0} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			m, reg := setup(t)
			m.Tasks("acme", "q", "p").Started(id, time.Second)
			m.Tasks("acme", "q", "p").Done("complete", "", id, time.Second)
			found := 0
			for _, f := range gather(t, reg) {
				for _, s := range f.GetMetric() {
					for _, b := range s.GetHistogram().GetBucket() {
						for _, label := range b.GetExemplar().GetLabel() {
							if label.GetName() != "trace_id" || label.GetValue() != trace {
								t.Errorf("%s has the exemplar %v", f.GetName(), label)
							}
							found++
						}
					}
				}
			}
			if found != want {
				t.Errorf("%d exemplars, want %d", found, want)
			}
		})
	}
}

// A Redis that does not answer has no figures, and one whose user may not ask has no memory.
func TestRedisSampled(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	m.RedisSampled("a:6379", &RedisSample{RoundTrip: time.Millisecond, ClockSkew: -2 * time.Second})
	m.RedisSampled("b:6379", &RedisSample{MemoryUsed: 1, MemoryMax: 2, MemoryKnown: true})
	m.CollectQueues(empty)
	got := exposition(t, reg)
	for series, want := range map[string]bool{
		`quern_clock_skew_seconds{redis="a:6379"} -2`: true, `quern_redis_round_trip_seconds{redis="a:6379"} 0.001`: true,
		`quern_redis_memory_used_bytes{redis="a:6379"}`: false, `quern_redis_memory_max_bytes{redis="b:6379"} 2`: true, `redis=""`: false,
	} {
		if strings.Contains(got, series) != want {
			t.Errorf("%s is shown: %v, want %v in:\n%s", series, !want, want, got)
		}
	}
	m.RedisSampled("a:6379", nil)
	m.RedisSampled("b:6379", nil)
	if got := exposition(t, reg); strings.Contains(got, "6379") {
		t.Errorf("a Redis that is away is shown:\n%s", got)
	}
}

// What a task changes is shown, also after its queue was forgotten: by then its series are others.
func TestTasksOfAForgottenQueue(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	m.CollectQueues(empty)
	for range 2 {
		m.QueueServed("acme", "q\xff", "p")
		m.Tasks("acme", "q\xff", "p").Started("", time.Second)
		m.Tasks("acme", "q\xff", "p").Ran(time.Second, 1)
		m.Tasks("acme", "q\xff", "p").Done("complete", "", "", time.Second)
		got := exposition(t, reg)
		for _, series := range []string{
			`quern_tasks_total{outcome="complete",plugin="p",queue="q�",reason="",tenant="acme"} 1`,
			`quern_task_wait_seconds_count{queue="q�",tenant="acme"} 1`,
			`quern_task_fuel_total{plugin="p",queue="q�",tenant="acme"} 1`,
		} {
			if !strings.Contains(got, series) {
				t.Errorf("no %s in:\n%s", series, got)
			}
		}
		m.QueueForgotten("acme", "q\xff")
		if got := exposition(t, reg); strings.Contains(got, `queue="q�"`) {
			t.Errorf("forgotten, and still shown:\n%s", got)
		}
	}
}

// A clock that was set back, a negative count: no panic, no counter that falls.
func TestNonsenseIsHarmless(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	m.Tasks("acme", "q", "p").Started("", -time.Second)
	m.Tasks("acme", "q", "p").Done("complete", "", "", -time.Second)
	m.Tasks("acme", "q", "p").Ran(-time.Second, -1)
	m.LogLinesDropped("acme", "q", -1)
	m.PluginServing("acme", "p", "1", "sha256:00", "scan", false)
	m.PluginLoaded("acme\xff", "p\xff", "broken\xff")
	m.QueueServed("acme", "q\xff", "p\xff")
	if got := exposition(t, reg); !strings.Contains(got, `quern_task_wait_seconds_sum{queue="q",tenant="acme"} 0`) ||
		!strings.Contains(got, `plugin="p�",result="broken�"`) {
		t.Errorf("exposition:\n%s", got)
	}
}

func TestPluginServing(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	want := func(info, modes string) {
		t.Helper()
		var text strings.Builder
		for f, shown := range map[*family]string{pluginInfo: info, pluginResetMode: modes} {
			fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s gauge\n%s%s\n", f.name, f.help, f.name, f.name, shown)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text.String()), "quern_plugin_info", "quern_plugin_reset_mode_info"); err != nil {
			t.Error(err)
		}
	}
	none := func() {
		t.Helper()
		want(`{digest="",plugin="",tenant="",version=""} 0`, `{digest="",plugin="",reset_mode="",tenant="",version=""} 0`)
	}
	none()
	m.PluginServing("", "p", "1", "sha256:01", "scan", true)
	want(`{digest="sha256:01",plugin="p",tenant="",version="1"} 1`, `{digest="sha256:01",plugin="p",reset_mode="scan",tenant="",version="1"} 1`)
	m.PluginServing("", "p", "2", "sha256:02", "new", true)
	m.PluginServing("", "p", "1", "sha256:01", "scan", false)
	want(`{digest="sha256:02",plugin="p",tenant="",version="2"} 1`, `{digest="sha256:02",plugin="p",reset_mode="new",tenant="",version="2"} 1`)
	m.PluginServing("", "p", "2", "sha256:02", "new", false)
	none()
}

// What a scrape shows of the runtime is what it is at that moment.
func TestCollectRuntime(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	want := func(text string) {
		t.Helper()
		var wanted strings.Builder
		for _, f := range []*family{instances, runtimeHeld} {
			fmt.Fprintf(&wanted, "# HELP %s %s\n# TYPE %s gauge\n", f.name, f.help, f.name)
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, f.name) {
					wanted.WriteString(line)
				}
			}
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(wanted.String()), "quern_instances", "quern_runtime_held_bytes"); err != nil {
			t.Error(err)
		}
	}
	want(`quern_instances{state="busy"} 0
quern_instances{state="idle"} 0
quern_runtime_held_bytes{kind="code"} 0
quern_runtime_held_bytes{kind="instances"} 0
quern_runtime_held_bytes{kind="snapshots"} 0
quern_runtime_held_bytes{kind="stacks"} 0
`)
	sample := RuntimeSample{Idle: 1, Busy: 2, Code: 3, Snapshots: 4, Instances: 5, Stacks: 6}
	m.CollectRuntime(func() RuntimeSample { return sample })
	want(`quern_instances{state="busy"} 2
quern_instances{state="idle"} 1
quern_runtime_held_bytes{kind="code"} 3
quern_runtime_held_bytes{kind="instances"} 5
quern_runtime_held_bytes{kind="snapshots"} 4
quern_runtime_held_bytes{kind="stacks"} 6
`)
	sample = RuntimeSample{Idle: 7, Stacks: -1}
	want(`quern_instances{state="busy"} 0
quern_instances{state="idle"} 7
quern_runtime_held_bytes{kind="code"} 0
quern_runtime_held_bytes{kind="instances"} 0
quern_runtime_held_bytes{kind="snapshots"} 0
quern_runtime_held_bytes{kind="stacks"} 0
`)
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	const workers, rounds = 8, 50
	m, reg := setup(t)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				exercise(m)
				m.PluginServing("", "p", fmt.Sprint(w), "sha256:00", "scan", i%2 == 0)
				if _, err := reg.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	done := m.vecs[tasks].counter.WithLabelValues("acme", "thumbnails", "thumbnails", "complete", "")
	if got := testutil.ToFloat64(done); got != workers*rounds {
		t.Errorf("%v tasks were counted, want %d", got, workers*rounds)
	}
}

func BenchmarkTask(b *testing.B) {
	m, err := New(prometheus.NewRegistry(), Config{})
	if err != nil {
		b.Fatal(err)
	}
	m.QueueServed("acme", "thumbnails", "thumbnails")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := time.Duration(1); pb.Next(); i = i*3%time.Hour + 1 {
			m.Tasks("acme", "thumbnails", "thumbnails").Started("", i)
			m.Tasks("acme", "thumbnails", "thumbnails").Ran(i, int64(i))
			m.Tasks("acme", "thumbnails", "thumbnails").Done("complete", "", "", i)
		}
	})
}
