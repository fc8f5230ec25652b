package host

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// two is a host of two tenants; the second one does harm by its own keys.
type two struct {
	*node
	other string
}

func startTwo(t *testing.T, s settings) *two {
	t.Helper()
	s.tenants = []string{queuetest.Tenant(), queuetest.Tenant()}
	s.lease, s.Poll, s.hclog = time.Second, 50*time.Millisecond, hclog.Info
	s.guests = map[string][]byte{"echo": runtimetest.Echo(t), "sleep": runtimetest.Sleep(t)}
	n := &two{start(t, s), s.tenants[1]}
	n.eventually("both are served", func() bool { return n.log.lines("serving queue: ") == 4 })
	return n
}

// serves checks that a tenant's task is run.
func (n *two) serves(tenant string) {
	n.t.Helper()
	client := n.clientOf(tenant)
	id, err := client.Queue("echo").Enqueue(n.ctx, []byte("x"), queue.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	if task, err := client.Wait(n.ctx, id); err != nil || string(task.Result) != "x" {
		n.t.Fatalf("%+v, %v", task, err)
	}
}

func (n *two) listenerOf(tenant string) string {
	n.t.Helper()
	nodes, err := listen.NewFleet(n.clientOf(tenant)).Nodes(n.ctx)
	if err != nil || len(nodes) != 1 {
		n.t.Fatalf("listeners of %s: %v, %v", tenant, nodes, err)
	}
	return nodes[0].ID
}

// A tenant whose Redis does not answer keeps no other one waiting.
func TestRedisOfOneTenantHangs(t *testing.T) {
	t.Parallel()
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	n := startTwo(t, settings{distant: proxy})
	proxy.HoldReplies(n.other + "_reserved_tasks_echo")
	t.Cleanup(proxy.Pass)
	if _, err := n.clientOf(n.other).Queue("echo").Enqueue(n.ctx, nil, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	n.eventually("a reply is held", func() bool { return proxy.Held() > 0 })
	for range 5 {
		n.serves(n.tenant)
	}
}

// Why a tenant refuses the host is told once, however often it is tried again.
func TestRefusalIsToldOnce(t *testing.T) {
	t.Parallel()
	tenants := []string{queuetest.Tenant(), queuetest.Tenant()}
	if err := queuetest.Shared(t).Client(t).Set(t.Context(), tenants[1]+"_nodes", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{tenants: tenants})
	n.eventually("it is tried again", func() bool { return n.metric("quern_redis_errors_total", "op", "join") >= 3 }) // the second was told before
	if told := n.log.lines("tenant is not served"); told != 1 {
		t.Errorf("told %d times", told)
	}
}

// What one tenant's keys say concerns that tenant alone, and is over when they say something else.
func TestKeysOfOneTenant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, value string // of the tenant; "L" at the end is its listener
		forget     bool   // take the listener out of NS_nodes as well
		up         bool   // whether the tenant is served all the same
	}{
		"newer version":     {key: "version", value: "99", forget: true},
		"version of no use": {key: "version", value: "soon", forget: true},
		"nodes":             {key: "nodes", value: "x"},
		"node":              {key: "node_L", value: "x"},
		"queues":            {key: "queues", value: "x"},
		"paused":            {key: "paused", value: "x"},
		"limits":            {key: "limits", value: "x", up: true},
		"crashes":           {key: "crashes", value: "x", up: true},
		"control":           {key: "control", value: "x", up: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startTwo(t, settings{})
			listener := n.listenerOf(n.other)
			key := n.other + "_" + strings.Replace(c.key, "_L", "_"+listener, 1)
			n.rdb.Del(n.ctx, key)
			n.rdb.Set(n.ctx, key, c.value, 0)
			if c.forget {
				n.rdb.ZRem(n.ctx, n.other+"_nodes", listener)
			}
			if !c.up {
				n.eventually("the metric tells", func() bool { return n.metric("quern_tenant_up", "tenant", n.other) == 0 })
				n.eventually("the log tells, by the tenant", func() bool { return n.log.has("[ERROR]", "tenant="+n.other, key) })
				n.eventually("readiness names this tenant alone", func() bool {
					text, err := n.Host.Ready()
					return err == nil && strings.Contains(text, n.other) && !strings.Contains(text, n.tenant)
				})
			}
			n.eventually("the first tenant is up", func() bool { return n.metric("quern_tenant_up", "tenant", n.tenant) == 1 })
			n.serves(n.tenant)
			n.rdb.Del(n.ctx, key)
			n.serves(n.other)
			n.eventually("it is up", func() bool { return n.metric("quern_tenant_up", "tenant", n.other) == 1 })
		})
	}
}

// A tenant whose listener is taken out again and again begins anew each time, after a longer pause; the other one is served.
func TestLeaseOfOneTenantTakenAgainAndAgain(t *testing.T) {
	t.Parallel()
	n := startTwo(t, settings{})
	joins := func() int { return n.log.lines("joined: ", "tenant="+n.other) }
	for range 3 {
		before := joins()
		n.eventually("it joins anew", func() bool {
			n.rdb.Del(n.ctx, n.other+"_nodes")
			return joins() > before
		})
		n.serves(n.tenant)
	}
	lost, joined := n.log.times(t, "lease lost: ", "tenant="+n.other), n.log.times(t, "joined: ", "tenant="+n.other)
	for i, most := range []time.Duration{rejoinPause, 2 * rejoinPause, 4 * rejoinPause} {
		least := most / 2
		if pause := joined[i+1].Sub(lost[i]); pause < least-time.Millisecond { // the log cuts its times
			t.Errorf("joined anew %s after loss %d, not %s at least", pause, i+1, least)
		}
	}
}

// A host that every tenant refuses ends, and says what each has said.
func TestEveryTenantRefuses(t *testing.T) {
	t.Parallel()
	n := startTwo(t, settings{})
	for _, tenant := range []string{n.tenant, n.other} {
		n.refuse(tenant)
	}
	err := n.end()
	if !errors.Is(err, listen.ErrVersion) || !strings.Contains(err.Error(), n.tenant) || !strings.Contains(err.Error(), n.other) {
		t.Errorf("the host ended: %v", err)
	}
}

// refuse makes the tenant's keys refuse the host.
func (n *two) refuse(tenant string) {
	n.t.Helper()
	n.rdb.Set(n.ctx, tenant+"_version", 99, 0)
	n.rdb.Del(n.ctx, tenant+"_nodes")
}

// drain drains the host for a tenant.
func (n *two) drain(tenant string) {
	n.t.Helper()
	if err := manage.New(n.clientOf(tenant)).Drain(n.ctx, n.listenerOf(tenant)); err != nil {
		n.t.Fatal(err)
	}
}

// shows tells whether a family has a series of the tenant.
func (n *two) shows(name, tenant string) bool {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == name && label.GetName() == "tenant" && label.GetValue() == tenant {
					return true
				}
			}
		}
	}
	return false
}

// A host that the only tenant which is not drained refuses ends, and does not say before that it tries again.
func TestLastTenantRefuses(t *testing.T) {
	t.Parallel()
	n := startTwo(t, settings{})
	n.drain(n.other)
	n.eventually("one has left", func() bool { return n.log.has("left: ", "tenant="+n.other) })
	n.refuse(n.tenant)
	err := n.end()
	if !errors.Is(err, listen.ErrVersion) || !strings.Contains(err.Error(), n.tenant) || strings.Contains(err.Error(), n.other) {
		t.Errorf("the host ended: %v", err)
	}
	if n.log.has("trying again", "version") {
		t.Error("the log says that the host tries again")
	}
}

// A tenant that refused before its Redis went away may be served again when that is back: the host waits for it.
func TestRefusalIsOldWhenRedisIsAway(t *testing.T) {
	t.Parallel()
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	n := startTwo(t, settings{distant: proxy})
	n.refuse(n.other)
	n.eventually("one refuses", func() bool { return n.log.has("tenant is not served", "tenant="+n.other) })
	proxy.Refuse()
	n.eventually("its Redis is away", func() bool { return n.log.has("[WARN]", "tenant="+n.other, "op=join") })
	n.refuse(n.tenant)
	n.eventually("the other refuses", func() bool { return n.log.has("tenant is not served", "tenant="+n.tenant) })
	for _, tenant := range []string{n.tenant, n.other} {
		n.rdb.Del(n.ctx, tenant+"_version")
	}
	proxy.Pass()
	n.serves(n.tenant)
	n.serves(n.other)
}

// A listener that cannot leave when its tenant is drained is told of at once, and does not make the host's end an error.
func TestDrainedTenantCannotLeave(t *testing.T) {
	t.Parallel()
	n := startTwo(t, settings{Config: Config{Concurrency: 2}})
	id, err := n.clientOf(n.other).Queue("sleep").Enqueue(n.ctx, []byte("1000"), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n.eventually("it runs", func() bool { return n.metric("quern_slots_in_use") == 1 })
	n.drain(n.other)
	n.eventually("it is drained", func() bool { return n.log.has("draining: taking no more", "tenant="+n.other) })
	listeners := n.other + "_listeners_echo"
	n.rdb.Del(n.ctx, listeners)
	n.rdb.Set(n.ctx, listeners, "x", 0)
	if task, err := n.clientOf(n.other).Wait(n.ctx, id); err != nil || task.Status != queue.Complete {
		t.Errorf("what ran is %+v, %v", task, err)
	}
	n.eventually("the log tells", func() bool { return n.log.has("[ERROR]", "its listener did not leave", "tenant="+n.other, "WRONGTYPE") })
	n.serves(n.tenant)
	if err := n.stop(); err != nil {
		t.Errorf("the host ended: %v", err)
	}
}

// Draining the listener of one tenant ends what the host does for it, after the tasks that run. The others are served until
// they are drained too: then the host ends.
func TestDrainOneTenant(t *testing.T) {
	t.Parallel()
	n := startTwo(t, settings{Config: Config{Concurrency: 2}})
	theirs := n.clientOf(n.other)
	enqueue := func(parameters string) string {
		id, err := theirs.Queue("sleep").Enqueue(n.ctx, []byte(parameters), queue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	running := enqueue("1500")
	n.eventually("it runs", func() bool { return n.metric("quern_slots_in_use") == 1 })
	n.drain(n.other)
	n.eventually("it is drained", func() bool { return n.log.has("draining: taking no more", "tenant="+n.other) })
	late := enqueue("0")
	if nodes, err := listen.NewFleet(n.client).Nodes(n.ctx); err != nil || len(nodes) != 1 || nodes[0].Draining {
		t.Errorf("the other listener: %+v, %v", nodes, err)
	}
	n.serves(n.tenant)
	if task, err := theirs.Wait(n.ctx, running); err != nil || task.Status != queue.Complete {
		t.Errorf("what ran is %+v, %v", task, err)
	}
	n.eventually("it has left", func() bool { return n.log.has("left: ", "tenant="+n.other) })
	n.serves(n.tenant)
	if task, err := theirs.Task(n.ctx, late); err != nil || task.Status != queue.Pending {
		t.Errorf("what came later is %+v, %v", task, err)
	}
	if text, err := n.Host.Ready(); err != nil || text != "ok, but tenant "+n.other+" is drained" {
		t.Errorf("readiness: %q, %v", text, err)
	}
	if n.shows("quern_tenant_up", n.other) || !n.shows("quern_tenant_up", n.tenant) {
		t.Error("quern_tenant_up tells of a drained tenant, or not of the other one")
	}
	if err := manage.New(n.client).Drain(n.ctx, n.listener()); err != nil {
		t.Fatal(err)
	}
	if err := n.end(); err != nil {
		t.Errorf("the host ended: %v", err)
	}
	n.gone("echo", "sleep")
}

// What a drained tenant runs beyond the grace period goes back; the tasks of others go on.
func TestDrainOneTenantGivesBack(t *testing.T) {
	t.Parallel()
	n := startTwo(t, settings{Config: Config{Concurrency: 4, Grace: 50 * time.Millisecond}})
	mine := n.enqueue("sleep", "2000")
	theirs := n.clientOf(n.other)
	receipts, err := theirs.Queue("sleep").EnqueueMany(n.ctx, []queue.Spec{{Parameters: []byte("60000")}, {Parameters: []byte("60000")}})
	if err != nil {
		t.Fatal(err)
	}
	n.eventually("all run", func() bool { return n.metric("quern_slots_in_use") == 3 })
	n.drain(n.other)
	n.eventually("it has left", func() bool { return n.log.has("left: ", "tenant="+n.other) })
	for _, receipt := range receipts {
		if task, err := theirs.Task(n.ctx, receipt.ID); err != nil || task.Status != queue.Pending || task.Attempts != 0 {
			t.Errorf("a task that ran is %+v, %v", task, err)
		}
	}
	if task := n.wait(mine); task.Status != queue.Complete {
		t.Errorf("the other's task is %+v", task)
	}
}
