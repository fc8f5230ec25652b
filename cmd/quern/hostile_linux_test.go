package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A tenant whose own Redis user writes values of 100 MB and 300,000 names of queues takes no memory of the host that it shares with
// others: it is not served, the log names the key and the remedy, and the others go on.
func TestHostileTenant(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	if testing.Short() {
		t.Skip("Redis and the host are busy for half a minute")
	}
	server := queuetest.Start(t)
	admin := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	url := func(tenant string) string { return "redis://" + tenant + "-host:PASSWORD@" + server.Addr() + "/0" }
	for _, tenant := range []string{"good", "evil"} {
		grantTenant(t, admin, tenant)
	}
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	host := newUser(t, "redis://127.0.0.1:1/0").spawn("serve", "--plugins", plugins, "--http", "127.0.0.1:0", "--lease", "30s", "--poll", "200ms",
		"--tenants", "good,evil", "--tenant-redis", "good="+url("good"), "--tenant-redis", "evil="+url("evil"))
	address := host.stderr.await(t, regexp.MustCompile(`listening: .*http=(\S+)`))
	for _, tenant := range []string{"good", "evil"} {
		host.stderr.await(t, regexp.MustCompile("serving queue: tenant="+tenant))
	}
	good := newUser(t, url("good"))
	good.must("enqueue", "echo", "hello", "--wait", "--tenant", "good")
	newUser(t, url("evil")).must("enqueue", "echo", "hello", "--wait", "--tenant", "evil")
	before := peak(t, host.Process.Pid)

	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: testTimeout, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	evil := func(script string, keys ...string) {
		t.Helper()
		if err := client.Eval(ctx, script+" return 1", keys).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const large = "string.rep('x', 100 * 1024 * 1024)"
	for i := range 3 {
		evil(fmt.Sprintf("for i = 1, 100000 do redis.call('ZADD', KEYS[1], 0, 'queue-%d-' .. i) end", i), "evil_queues")
	}
	evil("redis.call('HSET', KEYS[1], 'field', "+large+")", "evil_subscriptions")
	evil("redis.call('SET', KEYS[1], "+large+") redis.call('SET', KEYS[2], "+large+")", "evil_generation", "evil_sample")
	evil("redis.call('HSET', KEYS[1], 'a', "+large+", 'b', "+large+")", "evil_crashes")
	evil("redis.call('ZADD', KEYS[1], 0, 's') redis.call('HSET', KEYS[2], 'owner', 'hand', 'queue', 'echo', 'cron', '@daily', 'task', "+large+")", "evil_ticks", "evil_schedule_s")
	evil("redis.call('HSET', KEYS[1], 'status', 'pending', 'parameters', 'x', 'run', '0', 'headers', "+large+") redis.call('LPUSH', KEYS[2], 't')", "evil_task_t", "evil_pending_tasks_echo")
	evil("redis.call('PUBLISH', KEYS[1], "+large+") redis.call('PUBLISH', KEYS[2], '')", "evil_channel_echo", "evil_control")

	down := func() bool {
		_, body := get(t, "http://"+address+"/metrics")
		return strings.Contains(body, `quern_tenant_up{tenant="evil"} 0`) && strings.Contains(body, `quern_tenant_up{tenant="good"} 1`)
	}
	eventually(t, "the tenant is not up", down)
	host.stderr.await(t, regexp.MustCompile(`\[ERROR\] .*tenant=evil .*key evil_\w+ has .*, which is larger than anything that Quern writes: delete`))
	for i := range 10 {
		good.must("enqueue", "echo", strconv.Itoa(i), "--wait", "--tenant", "good")
	}
	eventually(t, "the tenant is still not up", down)
	after := peak(t, host.Process.Pid)
	t.Logf("peak memory: %d MiB before, %d MiB after", before>>20, after>>20)
	if after-before > 150<<20 {
		t.Errorf("the host's memory grew from %d to %d MiB", before>>20, after>>20)
	}
}

// peak is the most memory that a process has had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.ParseInt(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(status))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
