package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// examined is what `quern doctor` finds, as CHECK by tenant.
func examined(t *testing.T, u *user, status int, args ...string) (found []string, all []doctor.Finding) {
	t.Helper()
	r := u.run(append([]string{"doctor", "-o", "json"}, args...)...)
	var report struct {
		OK       bool
		Findings []doctor.Finding
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.status != status || report.OK != (status == exitDone) {
		t.Fatalf("exit %d, expected %d: %s%s: %v", r.status, status, r.stdout, r.stderr, err)
	}
	for _, f := range report.Findings {
		found = append(found, strings.TrimSpace(f.Check+" "+f.Tenant))
		if f.Problem == "" || f.Remedy == "" {
			t.Errorf("%+v lacks a text", f)
		}
	}
	return found, report.Findings
}

// Nothing is found where nothing is wrong.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t, "--appendonly", "yes").URL())
	u.host(folder(t, map[string][]byte{"mail": runtimetest.Echo(t)}))
	u.must("enqueue", "mail", "--wait")
	found, _ := examined(t, u, exitDone)
	if slices.ContainsFunc(found, func(f string) bool {
		return f != "redis-latency" && f != "host-memory blueque" && f != "host-reset blueque"
	}) {
		t.Errorf("found %q", found)
	}
	if out := u.must("doctor"); !regexp.MustCompile(`(?m)^\d+ checks of 1 tenant: 0 errors, (1 warning|[02-9] warnings)$`).MatchString(out) {
		t.Error(out)
	}
}

// Whatever is wrong is found, with a remedy that can be pasted, in all tenants or in the one that is named.
func TestDoctorFinds(t *testing.T) { overBoth(t, testDoctorFinds) }

func testDoctorFinds(t *testing.T, by over) {
	server := queuetest.Start(t, "--maxmemory-policy", "allkeys-lru", "--save", "")
	u := by.user(t, server.URL(), "acme")
	rdb := server.Client(t)
	u.must("enqueue", "nobody")
	u.must("enqueue", "nobody", "--tenant", "acme")
	u.must("queue", "limit", "nobody", "1")
	u.must("enqueue", "held")
	u.must("queue", "pause", "held")
	u.host(folder(t, map[string][]byte{"page": []byte("<html>"), "held": runtimetest.Echo(t), "bad": runtimetest.Exit(t)}))
	u.must("enqueue", "page")
	for range 3 {
		u.run("enqueue", "bad", "65 no", "--wait")
	}
	now, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		rdb.Set(t.Context(), "blueque_paused_x", "", 0).Err(),
		rdb.HSet(t.Context(), "blueque_crashes", "mail "+"0a", "4102444800 a~00000001_1 1.0").Err(),
		rdb.HSet(t.Context(), "blueque_crashes", "mail 0b failures", "4102444800 trap 1.0 30 5 - -").Err(),
		rdb.ZAdd(t.Context(), "blueque_queues", redis.Z{Member: "odd", Score: 0}).Err(),
		rdb.Set(t.Context(), "blueque_pending_tasks_odd", "x", 0).Err(),
		rdb.ZAdd(t.Context(), "blueque_nodes", redis.Z{Member: "fast~00000001_1", Score: float64(now.Unix() + 9)}).Err(),
		rdb.HSet(t.Context(), "blueque_node_fast~00000001_1", "kind", "quern", "version", "other", "lease", "10", "clock", fmt.Sprint(now.Unix()+3600)).Err(),
		rdb.ZAdd(t.Context(), "blueque_nodes", redis.Z{Member: "dead~00000001_1", Score: float64(now.Unix() - 9)}).Err(),
		rdb.LPush(t.Context(), "blueque_reserved_tasks_nobody_dead~00000001_1", "x").Err(),
		rdb.HSet(t.Context(), fmt.Sprint("blueque_minute_", now.Unix()/60), "failed held", 9, "complete held", 1).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	u.must("enqueue", "large", "--id", "large")
	for _, err := range []error{
		rdb.ZAdd(t.Context(), "blueque_nodes", redis.Z{Member: "full~00000001_1", Score: float64(now.Unix() + 60)}).Err(),
		rdb.HSet(t.Context(), "blueque_node_full~00000001_1", "kind", "quern", "version", "other", "memory", "1000", "waits_for_memory", `["large"]`,
			"plugins", `[{"plugin": "large", "queues": ["large"], "left_out": ["large"], "state": "left out by --queues"}]`).Err(),
		rdb.HSet(t.Context(), "blueque_task_large", "created", fmt.Sprint(now.Unix()-3600), "updated", fmt.Sprint(now.Unix()-3600)).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	eventually(t, "the host publishes its plugins", func() bool {
		found, _ = examined(t, u, exitFailed)
		return slices.Contains(found, "plugin-refused blueque")
	})
	for _, want := range []string{
		"redis-settings", "host-lease blueque", "host-memory blueque", "host-version blueque", "host-clock blueque", "plugin-refused blueque",
		"plugin-quarantined blueque", "queue-unserved blueque", "queue-unserved acme", "queue-paused blueque", "queue-full blueque", "queue-failing blueque", "queue-damaged blueque",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not found, only %q", want, found)
		}
	}
	if found, _ := examined(t, u, exitFailed, "--tenant", "acme"); slices.ContainsFunc(found, func(f string) bool { return strings.HasSuffix(f, "blueque") }) {
		t.Errorf("of acme: %q", found)
	}
	for _, remedy := range []string{
		"look at their errors: `quern task ls --tenant blueque bad --status failed`", "mend the plugin page, which would serve it: it is refused",
		"name it in --queues of full~00000001_1, which has the plugin large, but leaves the queue out",
		"end the pause: `quern queue resume --tenant blueque held`", "start a host with `quern serve --tenants acme`; none runs",
	} {
		if r := u.run("doctor"); !strings.Contains(r.stdout, "  "+remedy+"\n") {
			t.Errorf("%s is not in\n%s", remedy, r.stdout)
		}
	}
	if r, want := u.run("doctor"), "the plugin mail waits for its circuit breaker: 5 of its runs in a row failed (trap)"; !strings.Contains(r.stdout, want) {
		t.Errorf("%s is not in\n%s", want, r.stdout)
	}
	info := rdb.InfoMap(t.Context(), "memory").Val()["Memory"]
	used, err := strconv.ParseInt(info["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction")
	if err := rdb.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(used+used/20, 10)).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it finds a Redis that is almost full", func() bool { // a server examines every 5 s
		found, _ = examined(t, u, exitFailed)
		return slices.Contains(found, "redis-memory")
	})
	rdb.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(used/2, 10))
	eventually(t, "it finds a Redis that is full", func() bool { return strings.Contains(u.run("doctor").stdout, "Redis is full: it uses") })
}

// What the Redis user may not read is told, and that of Redis once, however many tenants there are.
func TestDoctorWithoutPermission(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--maxmemory-policy", "allkeys-lru")
	u := newUser(t, server.URL())
	u.must("enqueue", "mail")
	u.must("enqueue", "mail", "--tenant", "acme")
	rdb := server.Client(t)
	if err := rdb.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-config", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	found, all := examined(t, u, exitFailed, "--redis", strings.Replace(server.URL(), "redis://", "redis://reader:secret@", 1))
	var unread []string
	for i, f := range all {
		if found[i] == "redis-access" {
			unread = append(unread, f.Problem)
		}
	}
	if len(unread) != 2 || !strings.HasPrefix(unread[0], "CONFIG GET cannot be read") || !strings.HasPrefix(unread[1], "INFO cannot be read") {
		t.Errorf("%q, of %q", unread, found)
	}
	if pings := rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_ping"]; !strings.HasPrefix(pings, "calls=11,") {
		t.Errorf("the latency of one Redis was measured with %s", pings)
	}
}

// Without Redis there is nothing to examine.
func TestDoctorWithoutRedis(t *testing.T) {
	t.Parallel()
	if r := newUser(t, "redis://127.0.0.1:1/0").run("doctor"); r.status != exitRefused || !strings.Contains(r.stderr, "connection refused") {
		t.Errorf("%+v", r)
	}
}
