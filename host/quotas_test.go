package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// However many hosts and plugins there are, no more tasks of a tenant run than its quota says, or than the memory that
// they may use allows: 96 MiB each. Each end makes room for the next task at once, without a poll.
func TestRunningTasksOfATenant(t *testing.T) {
	t.Parallel()
	for _, quotas := range []manage.Quotas{{"running": "3"}, {"memory": fmt.Sprint(4*96<<20 - 1)}} {
		t.Run(fmt.Sprint(quotas), func(t *testing.T) {
			t.Parallel()
			runningTasksOfATenant(t, quotas)
		})
	}
}

func runningTasksOfATenant(t *testing.T, quotas manage.Quotas) {
	t.Helper()
	common := settings{
		Config: Config{Concurrency: 4, Poll: time.Hour}, tenants: []string{queuetest.Tenant()},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "nap": runtimetest.Sleep(t)},
	}
	hosts := []*node{start(t, common), start(t, common)}
	for _, n := range hosts {
		n.settledAs(2, "sleep", "nap")
	}
	n := hosts[0]
	n.setQuotas(quotas)
	n.runsAtMostThree()
}

func (n *node) setQuotas(quotas manage.Quotas) {
	n.t.Helper()
	if err := manage.SetQuotas(n.ctx, n.client, quotas); err != nil {
		n.t.Fatal(err)
	}
}

// used returns how much of a quota of the tenant is used, and its value.
func (n *node) used(name string) (used int64, value string) {
	n.t.Helper()
	uses, err := manage.QuotaUses(n.ctx, n.client)
	i := slices.IndexFunc(uses, func(use manage.QuotaUse) bool { return use.Name == name })
	if err != nil || i < 0 {
		n.t.Fatalf("no quota %s: %v", name, err)
	}
	return uses[i].Used, uses[i].Value
}

// After the fuel of a day is burnt, tasks wait on all hosts, until the quota is raised: then they begin without a poll.
func TestFuelOfADay(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: time.Hour}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	n.settledAs(1, "sleep")
	n.setQuotas(manage.Quotas{"fuel_day": "1"})
	n.wait(n.enqueue("sleep", "0"))
	n.eventually("the fuel is counted", func() bool { used, _ := n.used("fuel_day"); return used > 0 })
	id := n.enqueue("sleep", "0")
	throttled := n.client.Tenant() + "_throttled"
	n.eventually("the task was not reserved", func() bool { return n.rdb.SIsMember(n.ctx, throttled, "sleep").Val() })
	if task := n.task(id); task.Status != queue.Pending {
		t.Errorf("the task is %s", task.Status)
	}
	n.setQuotas(manage.Quotas{"fuel_day": "36T"})
	n.wait(id)
}

// What the file of a host says of a tenant's quotas counts as soon as the host has joined. A handler that finds no room in
// the tenant's store, and the reader of a log that was cut, learn why.
func TestQuotasOfTheHost(t *testing.T) {
	t.Parallel()
	server, tenant := queuetest.Shared(t), queuetest.Tenant()
	n := start(t, settings{
		server: server, tenants: []string{tenant},
		Config: Config{
			Services: guest.Config{KV: map[string]*kv.Store{tenant: kv.New(server.Client(t), tenant)}},
			Quotas:   map[string]manage.Quotas{tenant: {"kv_bytes": "10", "log_bytes": "2000"}},
		},
		guests: map[string][]byte{
			"store": runtimetest.BuildCHandler(t, `#include "quern.h"
QUERN_HANDLER int handle(void) {
  char set[2] = {'0' - quern_kv_set("b", 1, "k", 1, "123456789", 9, 0), '0' - quern_kv_set("b", 1, "k", 1, "0123456789", 10, 0)};
  return quern_output_write(set, sizeof set);
}`),
			"exit": runtimetest.Exit(t),
		},
		yaml: map[string]string{"store": "capabilities: {kv: [{bucket: b, access: rw}]}"},
	})
	logged := func(id, want string) {
		t.Helper()
		n.eventually(want, func() bool {
			return slices.ContainsFunc(n.taskLog(id), func(line manage.LogLine) bool { return strings.Contains(line.Text, want) })
		})
	}
	id := n.enqueue("store", "")
	if task := n.wait(id); string(task.Result) != "06" { // EQUOTA
		t.Errorf("%q, want EQUOTA: %+v", task.Result, task.Failure())
	}
	logged(id, "the quota kv_bytes of tenant "+tenant+" is 10, and 10 are used: delete keys")
	id = n.enqueue("exit", "0 "+strings.Repeat("x", 1900)+"\n")
	n.wait(id)
	logged(id, "lines are left out: the logs of tenant "+tenant+" have reached the quota log_bytes of 2000")
	if dropped := n.metric("quern_log_lines_dropped_total", "queue", "exit"); dropped != 1 {
		t.Errorf("%v lines are counted", dropped)
	}
	if used, value := n.used("kv_bytes"); used != 10 || value != "10" {
		t.Errorf("%d of %s", used, value)
	}
}

// Tasks over a rate wait without a slot, and begin when there is a token, without a poll.
func TestRateOfATenant(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 4, Poll: time.Hour}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
	})
	n.settledAs(1, "sleep")
	if err := manage.SetQuotas(n.ctx, n.clientOf(n.tenant), manage.Quotas{"rate:sleep": "20/s burst 5"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ids := n.enqueueMany("sleep", 25, "0")
	n.complete("sleep", ids)
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("25 tasks at 20/s with a burst of 5 took %s, want 1s", took)
	}
}
