package host

import (
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Two tenants on one host and one Redis: each has its tasks run by its own plugin or by the common
// one, and finds no word of the other.
func TestTenants(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	one, other := "acme", "zebra"
	n := start(t, settings{
		server: server, tenants: []string{one, other},
		guests: map[string][]byte{
			"who": runtimetest.Version(t, "common"), one + "/who": runtimetest.Version(t, "own"),
			one + "/mine": runtimetest.Version(t, "mine"), "env": runtimetest.Env(t),
		},
	})
	n.eventually("all is loaded", func() bool { return n.Ready() == nil }) // until then the common one may serve
	n.eventually("all is served", func() bool { return n.log.lines("serving queue") == 5 })
	theirs := n.clientOf(other)
	run := func(client *queue.Client, queueName string) *queue.Task {
		id, err := client.Queue(queueName).Enqueue(n.ctx, nil, queue.Options{ID: "the-same-id-" + queueName})
		if err != nil {
			t.Fatal(err)
		}
		task, err := client.Wait(n.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return task
	}
	if task := run(n.client, "who"); string(task.Result) != "own" {
		t.Errorf("the tenant's own plugin lost to %q", task.Result)
	}
	if task := run(theirs, "who"); string(task.Result) != "common" {
		t.Errorf("the other tenant was served by %q", task.Result)
	}
	if task := run(n.client, "mine"); string(task.Result) != "mine" {
		t.Errorf("served by %q", task.Result)
	}
	for tenant, client := range map[string]*queue.Client{one: n.client, other: theirs} {
		if task := run(client, "env"); !strings.Contains(string(task.Result), "TASK_TENANT="+tenant+"\n") {
			t.Errorf("environment of a task of %s:\n%s", tenant, task.Result)
		}
	}
	// A queue that only one tenant has a plugin for is not served for the other.
	id, err := theirs.Queue("mine").Enqueue(n.ctx, nil, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n.separate(one, other)
	if task, err := theirs.Task(n.ctx, id); err != nil || task.Status != queue.Pending {
		t.Errorf("a task without a plugin: %+v, %v", task, err)
	}
	n.counted(3, "quern_tasks_total", "tenant", one, "outcome", "complete")
	n.counted(2, "quern_tasks_total", "tenant", other, "outcome", "complete")
}

// separate checks that every key is of one of the tenants, and what it holds has no word of the other.
func (n *node) separate(one, other string) {
	n.t.Helper()
	keys, err := n.rdb.Keys(n.ctx, "*").Result()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, key := range keys {
		var stranger string
		switch {
		case strings.HasPrefix(key, one+"_"):
			stranger = other
		case strings.HasPrefix(key, other+"_"):
			stranger = one
		default:
			n.t.Errorf("key %s is of no tenant", key)
			continue
		}
		if strings.Contains(key, stranger) {
			n.t.Errorf("key %s speaks of %s", key, stranger)
		}
		var text []string
		switch kind := n.rdb.Type(n.ctx, key).Val(); kind {
		case "hash":
			for field, value := range n.rdb.HGetAll(n.ctx, key).Val() {
				text = append(text, field, value)
			}
		case "list":
			text = n.rdb.LRange(n.ctx, key, 0, -1).Val()
		case "set":
			text = n.rdb.SMembers(n.ctx, key).Val()
		case "zset":
			text = n.rdb.ZRange(n.ctx, key, 0, -1).Val()
		case "string":
			text = []string{n.rdb.Get(n.ctx, key).Val()}
		}
		if all := strings.Join(text, " "); strings.Contains(all, stranger) {
			n.t.Errorf("key %s holds a word of %s: %s", key, stranger, all)
		}
	}
}

// Many tenants with backlogs on few slots: all of them get on alike.
func TestManyTenants(t *testing.T) {
	t.Parallel()
	const count, each = 20, 50
	tenants := make([]string, count)
	for i := range tenants {
		tenants[i] = queuetest.Tenant()
	}
	n := start(t, settings{
		Config: Config{Concurrency: 4}, tenants: tenants, idle: true,
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
	})
	clients := make([]*queue.Client, count)
	for i, tenant := range tenants {
		clients[i] = n.clientOf(tenant)
		specs := make([]queue.Spec, each)
		for j := range specs {
			specs[j].Parameters = []byte("5")
		}
		if _, err := clients[i].Queue("sleep").EnqueueMany(n.ctx, specs); err != nil {
			t.Fatal(err)
		}
	}
	n.run()
	done := func(client *queue.Client) int64 {
		count, err := manage.New(client).Queue("sleep").Count(n.ctx, queue.Complete)
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	n.eventually("all tenants are served", func() bool {
		return !slices.ContainsFunc(clients, func(client *queue.Client) bool {
			served, err := client.Queue("sleep").HasListener(n.ctx)
			return err != nil || !served
		})
	})
	before := make([]int64, count)
	for i, client := range clients {
		before[i] = done(client)
	}
	last := slices.Index(before, slices.Min(before))
	// Whoever ran tasks before the others were served waits until they have had as much.
	n.eventually("half of a tenant's tasks are done", func() bool { return done(clients[last]) >= min(each, before[last]+each/2) })
	for i, client := range clients {
		if before[i] < each && done(client) == before[i] {
			t.Errorf("tenant %d has had nothing while tenant %d has had 25", i, last)
		}
	}
	for _, client := range clients {
		n.eventually("all is done", func() bool { return done(client) == each })
	}
}
