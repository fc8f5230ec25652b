package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// monitored is a fleet of three hosts with one slot each, and a Prometheus that scrapes them.
type monitored struct {
	*user
	t          *testing.T
	plugins    string
	sources    string // a file for --sources
	addresses  []string
	hosts      []*child
	prometheus *scraper
	rdb        *redis.Client
	alerting   []string // queries about alerts, which answer while some fire
}

// TestMonitoring shares a fleet, since it takes long to start. Its parts run one after the other: the alerts disturb the rest.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	server := queuetest.Start(t, "--maxmemory", "1gb")
	m := &monitored{t: t, rdb: server.Client(t), user: newUser(t, server.URL()), plugins: folder(t, map[string][]byte{
		"echo": runtimetest.Echo(t), "paused": runtimetest.Echo(t), "sleep": runtimetest.Sleep(t), "exit": runtimetest.Exit(t),
		"refused": []byte("not a module"), "store": runtimetest.BuildCHandler(t, `#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	quern_kv_set(QUERN_TEXT("store"), QUERN_TEXT("key"), QUERN_TEXT("value"), 0);
	quern_kv_get(QUERN_TEXT("another"), QUERN_TEXT("key")); // is denied
	return QUERN_COMPLETE;
}
`),
	})}
	write(t, filepath.Join(m.plugins, "store.yaml"), "capabilities: {kv: [{bucket: store, access: rw}]}")
	write(t, filepath.Join(m.plugins, "exit.yaml"), "{version: 1.2.3, retry: {max_attempts: 2, base: 10ms, min: 10ms}, dead: exit.dead}")
	write(t, filepath.Join(m.plugins, "shop.url"), "postgres://u@127.0.0.1:1/shop") // which is away: that has series, too
	m.sources = write(t, filepath.Join(m.plugins, "sources"), "- {name: shop, postgres: {file: shop.url}}")
	for range 3 {
		m.addresses = append(m.addresses, freeAddress(t))
		m.hosts = append(m.hosts, m.host(m.addresses[len(m.addresses)-1]))
	}
	m.prometheus = startPrometheus(t, m.addresses...)
	m.must("queue", "pause", "paused")
	m.must("enqueue", "paused")
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Series", m.series}, {"Dashboards", m.dashboards}, {"Exemplars", m.exemplars}, {"Alerts", m.alerts},
	} {
		if testing.Short() && part.name == "Alerts" {
			return // which promtool tests in package metrics, too
		}
		if !t.Run(part.name, part.run) {
			return // the next one would wait in vain
		}
	}
}

// host starts a host at an address, and returns when it is ready.
func (m *monitored) host(address string) *child {
	m.t.Helper()
	host := m.spawn("serve", "--plugins", m.plugins, "--sources", m.sources, "--http", address, "--concurrency", "1", "--lease", "3s", "--poll", "1s", "--log-level", "error")
	awaitStatus(m.t, "http://"+address+"/readyz", http.StatusOK)
	return host
}

// series: what the hosts count reaches Prometheus, and all rules can be evaluated.
func (m *monitored) series(t *testing.T) {
	p := m.prometheus
	p.await(`count(up == 1)`, 3)
	for range 3 {
		m.must("enqueue", "waiting")
	}
	m.must("enqueue", "sleep", "--delay", "1h")
	m.must("subscription", "create", "orders", "--topic", "orders", "--queue", "echo")
	for range 4 {
		m.must("enqueue", "sleep", "50", "--wait")
	}
	p.await(`sum(quern_task_duration_seconds_count{queue="sleep"})`, 4)
	p.await(`sum(quern_tasks_total{queue="sleep",outcome="complete"})`, 4)
	p.await(`sum(quern_task_duration_seconds_bucket{queue="sleep",le="1.0"}) - sum(quern_task_duration_seconds_sum{queue="sleep"} < 0.2) <= bool 4`, 1)
	m.faults(t) // now, because queues are counted every 10 s
	m.releases(t)
	m.load(t)
	p.await(`tenant_queue_state:quern_queue_depth:max{queue="waiting",state="pending"}`, 3)
	p.await(`tenant_queue_state:quern_queue_depth:max{queue="sleep",state="scheduled"}`, 1)
	p.await(`tenant_queue:quern_queue_listeners:max{queue="sleep"}`, 3)
	p.await(`tenant_queue:quern_queue_paused:max`, 1)
	p.await(`count(redis:quern_redis_memory_max_bytes:max == 1024^3)`, 1)
	p.await(`count(quern_redis_round_trip_seconds > 0 and quern_redis_round_trip_seconds < 10)`, 3)
	p.await(`count(abs(quern_clock_skew_seconds) < 10)`, 3)
	p.await(`count(quern_memory_limit_bytes > 0)`, 3)

	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.api("rules", &rules)
	count := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			count++
			if rule.Health == "err" {
				t.Errorf("rule %s of %s: %s", rule.Name, group.Name, rule.LastError)
			}
		}
	}
	if count < 40 {
		t.Errorf("%d rules are loaded", count)
	}
}

// dashboards: each query of each panel, and of each variable, answers with data while the hosts work.
func (m *monitored) dashboards(t *testing.T) {
	files, err := filepath.Glob("../../metrics/dashboards/*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("dashboards %v: %v", files, err)
	}
	variable := strings.NewReplacer("$job", ".+", "$tenant", ".+", "$queue", ".+", "$plugin", ".+", "$instance", ".+", "$__rate_interval", "10s", "$__interval", "10s", "$__range", "1m")
	unanswered := map[string]string{} // the dashboards, by query
	for _, file := range files {
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
			Templating struct {
				List []struct{ Name, Definition string }
			}
		}
		if err := json.Unmarshal(content(t, file), &dashboard); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				query := strings.ReplaceAll(variable.Replace(target.Expr), " or vector(0)", "")
				if strings.Contains(query, "ALERTS") {
					m.alerting = append(m.alerting, query)
				} else {
					unanswered[query] = file + ": " + panel.Title
				}
			}
		}
		for _, v := range dashboard.Templating.List[1:] { // the first one is the data source
			match := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
			if match == nil {
				t.Fatalf("%s: the variable %s asks %q", file, v.Name, v.Definition)
			}
			unanswered["count by ("+match[2]+") ("+variable.Replace(match[1])+")"] = file + ": " + v.Name
		}
	}
	if len(unanswered) < 60 {
		t.Errorf("%d queries", len(unanswered))
	}
	deadline := time.Now().Add(testTimeout / 2)
	for len(unanswered) > 0 && time.Now().Before(deadline) {
		m.load(t)
		for query := range unanswered {
			if strings.Contains(query, "$") {
				t.Fatalf("%s has a variable that is not replaced: %s", unanswered[query], query)
			}
			if len(m.prometheus.query(query)) > 0 {
				delete(unanswered, query)
			}
		}
	}
	for query, where := range unanswered {
		t.Errorf("%s has no data: %s", where, query)
	}
}

// load is a little of all that hosts do.
func (m *monitored) load(t *testing.T) {
	m.must("enqueue", "echo", "x", "--wait")
	m.must("enqueue", "sleep", "200", "--wait")
	m.must("enqueue", "exit", "1")
	m.must("topic", "publish", "orders", "7")
	m.must("enqueue", "store", "x", "--wait")
	m.must("enqueue", "staged", "x", "--wait")
	if err := m.rdb.LPush(t.Context(), "blueque_pending_tasks_echo", "no-task").Err(); err != nil {
		t.Fatal(err)
	}
}

// releases makes two plugins with a canary each. One canary is stopped as hosts stop a bad one.
func (m *monitored) releases(t *testing.T) {
	for _, name := range []string{"staged", "stopped"} {
		dir := folder(t, map[string][]byte{name: runtimetest.Echo(t)})
		for _, share := range [][]string{nil, {"--canary", "50%"}} {
			write(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("version: %d.0.0", len(share)))
			m.must(append([]string{"plugin", "push", filepath.Join(dir, name+".wasm")}, share...)...)
		}
	}
	client, err := queue.NewFromRedis(m.rdb, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if stopped, err := release.NewStore(client).StopRelease(t.Context(), "stopped", 2, "it is bad"); !stopped || err != nil {
		t.Fatalf("stopped: %t, %v", stopped, err)
	}
	m.must("enqueue", "staged", "x", "--wait")
}

// faults bring about what no load does: a quarantine as three deaths leave it, a task that its host loses, and a log that takes no
// lines.
func (m *monitored) faults(t *testing.T) {
	digest := regexp.MustCompile(`"plugin":"paused"[^}]*?"digest":"(.+?)"`).FindStringSubmatch(m.must("plugin", "ls", "-o", "json"))
	if digest == nil {
		t.Fatal("no host serves the plugin paused")
	}
	m.must("enqueue", "sleep", "3000", "--id", "taken")
	eventually(t, "the task runs", func() bool {
		return strings.Contains(m.must("task", "show", "taken", "-o", "json"), `"status":"started"`)
	})
	m.must("queue", "pause", "sleep")
	m.must("enqueue", "sleep", "1", "--id", "unheard")
	if err := errors.Join(
		m.rdb.HSet(t.Context(), "blueque_crashes", "paused "+digest[1], "4102444800 a~00000001_1 1.0 b~00000001_1 2.0 c~00000001_1 3.0").Err(),
		m.rdb.HIncrBy(t.Context(), "blueque_task_taken", "run", 1).Err(),
		m.rdb.Set(t.Context(), "blueque_log_unheard", "no list", 0).Err(),
	); err != nil {
		t.Fatal(err)
	}
	m.must("queue", "resume", "sleep")
}

// openMetrics is what a host shows to a Prometheus that understands exemplars.
func openMetrics(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// exemplars: a task with a trace is found by it, from a scrape and from Prometheus.
func (m *monitored) exemplars(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	m.must("enqueue", "echo", "traced", "--wait", "--traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	for _, family := range []string{"quern_task_wait_seconds", "quern_task_duration_seconds"} {
		exemplar := regexp.MustCompile(`(?m)^` + family + `_bucket{.*} \d+ # {trace_id="` + trace + `"}`)
		// A client may see a task's end before its host has counted it.
		eventually(t, "a host shows the trace of a task at "+family, func() bool {
			return slices.ContainsFunc(m.addresses, func(address string) bool { return exemplar.MatchString(openMetrics(t, address)) })
		})
		eventually(t, "Prometheus has the trace of a task at "+family, func() bool {
			var found []struct {
				Exemplars []struct{ Labels map[string]string }
			}
			m.prometheus.api("query_exemplars?query="+family+"_bucket&start="+url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))+
				"&end="+url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339)), &found)
			for _, series := range found {
				for _, exemplar := range series.Exemplars {
					if exemplar.Labels["trace_id"] == trace {
						return true
					}
				}
			}
			return false
		})
	}
}

// firing are the names of the alerts that fire.
func (m *monitored) firing() (names []string) {
	var now struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}
	m.prometheus.api("alerts", &now)
	for _, alert := range now.Alerts {
		for name, text := range alert.Annotations {
			if strings.Contains(text, "<no value>") || strings.Contains(text, "error expanding") || strings.Contains(text, "%!") || text == "" {
				m.t.Errorf("%s of %s is %q", name, alert.Labels["alertname"], text)
			}
		}
		if name := alert.Labels["alertname"]; alert.State == "firing" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// until waits until each of the alerts has been seen firing, or not firing, while something is done again and again.
func (m *monitored) until(fires bool, do func(), names ...string) {
	m.t.Helper()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(testTimeout); len(names) > 0; {
		do()
		firing := m.firing()
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(firing, name) == fires })
		select {
		case <-ticker.C:
		case <-deadline:
			m.t.Fatalf("%v: waited in vain for firing to be %v; %v fire", names, fires, firing)
		}
	}
}

// alerts: what is wrong makes alerts fire, and what mends it ends them.
func (m *monitored) alerts(t *testing.T) {
	nothing := func() {}

	// A file that is no module, in whose queue tasks wait, and tasks that fail and leave dead letters.
	module := filepath.Join(m.plugins, "waiting.wasm")
	write(t, module, "not a module")
	wrong := []string{"QuernPluginQuarantined", "QuernPluginRefused", "QuernQueueHasNoListener", "QuernTasksFail", "QuernQueueFails", "QuernDeadLettersGrow"}
	m.until(true, func() { m.must("enqueue", "exit", "1") }, wrong...)
	for _, query := range m.alerting {
		eventually(t, query+" has data", func() bool { return len(m.prometheus.query(query)) > 0 })
	}
	m.must("plugin", "release", "paused")
	write(t, module, string(runtimetest.Echo(t)))
	if err := os.Remove(filepath.Join(m.plugins, "refused.wasm")); err != nil {
		t.Fatal(err)
	}
	m.until(false, func() { m.must("enqueue", "exit", "0", "--wait") }, "QuernPluginQuarantined", "QuernPluginRefused", "QuernQueueHasNoListener", "QuernTasksFail", "QuernQueueFails")

	// Every slot is taken for longer than the test lasts, and a task waits. One host is killed with its task.
	var tasks []string
	for range 4 {
		tasks = append(tasks, strings.TrimSpace(m.must("enqueue", "sleep", "600000")))
	}
	m.until(true, nothing, "QuernSlotsFull")
	if err := m.hosts[2].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	m.hosts[2].wait(t)
	m.until(true, nothing, "QuernHostGone", "QuernHostDied")
	m.hosts[2] = m.host(m.addresses[2])
	for _, id := range tasks {
		m.must("task", "cancel", id)
	}
	m.until(false, nothing, "QuernSlotsFull", "QuernHostGone", "QuernHostDied")
}
