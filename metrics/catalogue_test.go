package metrics

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "write the golden files anew")

// catalogue lists every family: those that are counted, and those that are made at the scrape.
var catalogue = append(slices.Concat(counted, ofRelays),
	queueDepth, queueOldestPendingAge, queueListeners, queueQuarantined, queuePaused, queueDeadLetters, tenantUp,
	tenantWeight, tenantCost,
	pluginRefused, releaseStopped, memoryLimit, memoryReserved, memoryWait, instances, runtimeHeld, hostCalls, hostCallBytes,
	sqlConnections, sqlConnectionsMax, sqlDatabasesAway, sqlWait, sqlStatements, sqlCommits,
	topicPublications, topicTasks,
)

// setup returns a catalogue in a registry of its own.
func setup(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m, err := New(reg, Config{Version: "1.2.3", Revision: "abcdef0"})
	if err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// exercise calls every method once, as a host does that serves one queue.
func exercise(m *Metrics) {
	m.CollectQueues(func(context.Context) ([]QueueSample, error) {
		return []QueueSample{{
			Tenant: "acme", Queue: "thumbnails",
			Depth:            map[string]int64{"pending": 3, "started": 1, "complete": 40},
			OldestPendingAge: 1500 * time.Millisecond,
			Listeners:        2,
			Quarantined:      "crashes",
			Paused:           true,
			DeadLetters:      new(int64),
		}}, nil
	})
	m.CollectTenants(func() map[string]bool { return map[string]bool{"acme": true} })
	m.CollectShares(func() map[string]ShareSample { return map[string]ShareSample{"acme": {3, 1500 * time.Millisecond}} })
	m.QueuesHidden("acme", 12)
	m.QuotaUsed("acme", 0.5)
	m.ScheduleTicks("acme", "fired", 2)
	m.ScheduleLate("acme", 20*time.Millisecond)
	m.Slots(8)
	m.PluginLoaded("acme", "thumbnails", "ok")
	m.PluginServing("acme", "thumbnails", "1.4.0", "sha256:00", "scan", true)
	m.CollectRuntime(func() RuntimeSample {
		return RuntimeSample{Idle: 3, Busy: 1, Code: 10 << 20, Snapshots: 4 << 20, Instances: 1 << 20, Stacks: 8 << 10}
	})
	m.CollectTopics(func() []TopicSample { return []TopicSample{{"acme", "orders", 12, 2, 30}} })
	m.CollectHostCalls(func(calls func(function, result string, n uint64), bytes func(function string, n uint64)) {
		calls("kv_get", "ok", 12)
		calls("kv_get", "EDENIED", 1)
		bytes("kv_get", 3000)
	})
	m.QueueServed("acme", "thumbnails", "thumbnails")
	m.SlotsInUse(1)
	m.Tasks("acme", "thumbnails", "thumbnails").Started("", 2*time.Millisecond)
	m.Tasks("acme", "thumbnails", "thumbnails").Ran(25*time.Millisecond, 40_000_000)
	m.Tasks("acme", "thumbnails", "thumbnails").Done("complete", "", "", 40*time.Millisecond)
	m.TaskDropped("acme", "thumbnails")
	m.ResultRefused("acme", "thumbnails")
	m.ReleaseTask("acme", "thumbnails", "canary", "complete")
	m.LogLinesDropped("acme", "thumbnails", 3)
	m.HostLogLinesDropped(2)
	m.CollectStopped(func(stopped func(tenant, plugin string)) { stopped("acme", "thumbnails") })
	m.CollectRefused(func(refused func(tenant, plugin string)) { refused("acme", "broken"); refused("acme", "broken") })
	m.CollectMemory(func() MemorySample {
		return MemorySample{Limit: 2 << 30, Reserved: map[string]int64{"tasks": 64 << 20, "deliveries": 16 << 20}, Waited: 1500 * time.Millisecond}
	})
	m.CollectSQL(func() SQLSample {
		return SQLSample{
			Used: 3, Idle: 2, Max: 100, Away: 1, Waited: 250 * time.Millisecond, OK: 40, Refused: 2, OverLimit: 1, Unavailable: 3,
			Committed: 12, CommitRefused: 1, CommitsUnknown: 1,
		}
	})
	m.LeaseRenewedLate("acme")
	m.RedisSampled("127.0.0.1:6379", &RedisSample{
		RoundTrip: 250 * time.Microsecond, ClockSkew: -20 * time.Millisecond, MemoryUsed: 5 << 20, MemoryMax: 1 << 30, MemoryKnown: true,
	})
	m.RedisError("settle")
	m.Relay("shop")
	m.RelayLeads("shop", true, false)
	m.RelayLag("shop", 1500*time.Millisecond)
	m.RelayRows("shop", "relayed", 48)
	m.RelayFailed("shop")
}

func gather(t *testing.T, reg *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// golden compares got with a file of testdata, which -update writes.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := "testdata/" + file
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := udiff.Unified(path, "exposed", string(want), got); diff != "" {
		t.Errorf("%s is not what is exposed; if the change is meant, run: go test ./metrics -update\n%s", path, diff)
	}
}

// What dashboards and alerts of others are built on: a change here is a change of Quern's interface.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	exercise(m)

	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, f := range gather(t, reg) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintf(table, "%s\t%s\t{%s}\t%s\n",
			f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","), f.GetHelp())
	}
	table.Flush()
	golden(t, "catalogue.golden", out.String())
}

// The rows that a registrar method cannot check: that the method was the one for the row's type, and
// that the table itself is consistent.
func TestCatalogueRows(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	exercise(m)
	exposed := map[string]*dto.MetricFamily{}
	for _, f := range gather(t, reg) {
		exposed[f.GetName()] = f
	}
	if len(exposed) != len(catalogue) {
		t.Errorf("%d families are exposed, %d are in the catalogue", len(exposed), len(catalogue))
	}
	for _, row := range catalogue {
		f := exposed[row.name]
		if f == nil {
			t.Errorf("%s is in the catalogue and not exposed", row.name)
			continue
		}
		if got := strings.ToLower(f.GetType().String()); got != string(row.kind) {
			t.Errorf("%s is exposed as a %s, the catalogue says %s", row.name, got, row.kind)
		}
		if f.GetUnit() != row.unit {
			t.Errorf("%s has the unit %q, the catalogue says %q", row.name, f.GetUnit(), row.unit)
		}
		if (row.unit != "") != hasUnit(row.name) || !strings.HasSuffix(strings.TrimSuffix(row.name, "_total"), row.unit) {
			t.Errorf("%s has the unit %q, which its name does not end in", row.name, row.unit)
		}
		if (row.kind == counter) != strings.HasSuffix(row.name, "_total") {
			t.Errorf("%s is a %s: counters and they alone end in _total", row.name, row.kind)
		}
	}
}

// hasUnit tells whether a family's name ends in one of Prometheus's base units.
func hasUnit(name string) bool {
	name = strings.TrimSuffix(name, "_total")
	return strings.HasSuffix(name, "_seconds") || strings.HasSuffix(name, "_bytes")
}

func TestLabelsAreNoIDs(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"tenant", "queue", "plugin", "version", "digest", "outcome", "reason", "state", "result",
		"function", "op", "reset_mode", "kind", "redis", "topic", "source", "release", // and of quern_build_info:
		"host", "revision", "go",
	}
	for _, row := range catalogue {
		for _, label := range row.labels {
			if !slices.Contains(allowed, label) {
				t.Errorf("%s has the label %q; labels are %v", row.name, label, allowed)
			}
		}
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	m, reg := setup(t)
	exercise(m)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestBucketsAscend(t *testing.T) {
	t.Parallel()
	for _, f := range catalogue {
		if b := buckets[f]; (f.kind == histogram) != (len(b) > 0) || !slices.IsSorted(b) {
			t.Errorf("%s is a %s with the buckets %v; want histograms alone to have them, ascending", f.name, f.kind, b)
		}
	}
}
