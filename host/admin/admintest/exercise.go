// Package admintest tests the contract of admin.Tenant. The same tests run over each implementation.
package admintest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// Open makes the tenant under test, which must act on the client's tenant and its buckets in store. The tenant must
// last until the test ends.
type Open func(t *testing.T, client *queue.Client, store *kv.Store) admin.Tenant

// bench has the tenant of one test, and the client, store and listener that act on the same tenant directly.
type bench struct {
	admin.Tenant
	t      *testing.T
	ctx    context.Context
	client *queue.Client
	store  *kv.Store
	node   *listen.Node
}

// Exercise tests the implementation whose tenants open makes.
func Exercise(t *testing.T, open Open) {
	for name, test := range map[string]func(*bench){
		"tasks":         (*bench).tasks,
		"changes":       (*bench).changes,
		"flows":         (*bench).flows,
		"queues":        (*bench).queues,
		"topics":        (*bench).topics,
		"quotas":        (*bench).quotas,
		"subscriptions": (*bench).subscriptions,
		"schedules":     (*bench).schedules,
		"fleet":         (*bench).fleet,
		"releases":      (*bench).releases,
		"buckets":       (*bench).buckets,
		"pauses":        (*bench).pauses,
		"usage":         (*bench).usage,
		"absent":        (*bench).absent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := queuetest.Shared(t).Client(t)
			client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			store := kv.New(rdb, client.Tenant())
			b := &bench{
				Tenant: open(t, client, store), t: t, ctx: t.Context(), client: client, store: store,
				node: listen.New(client),
			}
			b.must(b.node.Join(b.ctx))
			test(b)
		})
	}
}

func (b *bench) must(errs ...error) {
	b.t.Helper()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) is(what string, got, want any) {
	b.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// refused checks that err is the error that the contract names.
func (b *bench) refused(what string, err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) {
		b.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// enqueue enqueues tasks with these IDs in the queue q.
func (b *bench) enqueue(ids ...string) {
	b.t.Helper()
	specs := make([]queue.Spec, len(ids))
	for i, id := range ids {
		specs[i] = queue.Spec{
			Parameters: []byte("of " + id),
			Options:    queue.Options{ID: id, Labels: map[string]string{"name": id}},
		}
	}
	receipts, err := b.Queue("q").EnqueueMany(b.ctx, specs)
	b.must(err)
	b.is("receipts", len(receipts), len(ids))
}

// run reserves and settles the next task of the queue q. The task fails with the message or, if message is empty,
// completes.
func (b *bench) run(message string) { b.runAfter(func() {}, message) }

// runAfter is run, and calls meanwhile before it settles the task.
func (b *bench) runAfter(meanwhile func(), message string) {
	b.t.Helper()
	batch := b.node.Reserve(b.ctx, []listen.ReserveRequest{{
		Queue: "q", Count: 1, Start: true, Plugin: "p",
		Digest: "sha256:0", Version: "1.0.0",
	}})[0]
	if batch.Err != nil || len(batch.Tasks) != 1 {
		b.t.Fatalf("reserved %+v", batch)
	}
	meanwhile()
	settlement := listen.Settlement{Claim: batch.Tasks[0].Claim(), Result: []byte("done " + batch.Tasks[0].ID)}
	if message != "" {
		settlement.Failure = &queue.Failure{Reason: queue.ReasonError, Message: message}
	}
	errs, err := b.node.Settle(b.ctx, "q", []listen.Settlement{settlement})
	b.must(append(errs, err)...)
}

func idsOf(tasks []admin.Task) (ids []string) {
	for _, task := range tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

func (b *bench) tasks() {
	b.enqueue("one", "two", "three")
	b.run("")
	b.run("no")
	one, err := b.Task(b.ctx, "one")
	b.must(err)
	b.is("a task", fmt.Sprintf("%s %s %s %s %s", one.Status, *one.Parameters, *one.Result, one.Version, one.Labels),
		"complete of one done one 1.0.0 map[name:one]")
	two, err := b.Summary(b.ctx, "two")
	b.must(err)
	b.is("a summary", fmt.Sprintf("%s %s %q %q", two.Status, two.Failure().Message, admin.Bytes(two.Parameters, nil),
		admin.Bytes(two.Result, nil)), `failed no "" ""`)
	waited, err := b.Wait(b.ctx, "one")
	b.must(err)
	b.is("waited for", *waited.Result, "done one")
	b.is("history", fmt.Sprint(len(two.History), two.History[0].Outcome, two.History[0].Version), "1failed1.0.0")
	all, err := b.List(b.ctx, &admin.Filter{Queue: "q"}, 0, 0)
	b.must(err)
	ids := idsOf(all)
	some, err := b.List(b.ctx, &admin.Filter{Queue: "q"}, 1, 1)
	b.must(err)
	b.is("a page", idsOf(some), ids[1:2])
	slices.Sort(ids)
	b.is("all", ids, "[one three two]")
	labelled, err := b.List(b.ctx, &admin.Filter{Queue: "q", Label: []string{"name=one"}}, 0, 10)
	b.must(err)
	b.is("labelled", idsOf(labelled), "[one]")
	b.enqueue("5c92ebad-78be", "5c92ebad-3ac3", "5c92ebae-34ac")
	found, err := b.FindTasks(b.ctx, "5c92ebad", 10)
	b.must(err)
	slices.Sort(found)
	b.is("found", found, "[5c92ebad-3ac3 5c92ebad-78be]")
	lines, err := b.Log(b.ctx, "one", 0)
	b.must(err)
	b.is("lines", len(lines), 0)
}

func (b *bench) changes() {
	b.enqueue("one", "two", "three")
	b.run("no")
	q := b.Queue("q")
	retried, err := b.Retry(b.ctx, "one")
	b.must(err)
	b.is("retried", retried.ID, "one")
	_, err = b.Retry(b.ctx, "one")
	b.refused("a task that waits is retried", err, queue.ErrStatus)
	done, err := q.Cancel(b.ctx, "two")
	b.must(err)
	b.is("cancelled at once", done, true)
	b.refused("a task that waits is deleted", q.Delete(b.ctx, "three"), queue.ErrStatus)
	b.must(q.Delete(b.ctx, "two"))
	b.runAfter(func() {
		b.refused("a task that runs is cancelled as one that waits", q.CancelWaiting(b.ctx, "three"), queue.ErrStatus)
		runs, err := b.Task(b.ctx, "three")
		b.must(err)
		b.is("asked to stop", runs.CancelAsked, false)
	}, "")
	b.enqueue("four")
	b.must(q.CancelWaiting(b.ctx, "four"), q.Delete(b.ctx, "four"))
	purged, err := q.Purge(b.ctx, listen.PurgeOptions{Everything: true})
	b.must(err)
	b.is("purged", purged, 1)
}

func (b *bench) flows() {
	_, err := b.Queue("q").EnqueueMany(b.ctx, []queue.Spec{
		{Options: queue.Options{ID: "first"}},
		{Options: queue.Options{ID: "next", After: []string{"first"}}},
		{Options: queue.Options{ID: "open", Open: true}},
	})
	b.must(err)
	dependencies, err := b.Dependencies(b.ctx, "next", 0, 10)
	b.must(err)
	b.is("dependencies", len(dependencies), 1)
	tree, err := b.Tree(b.ctx, "first", manage.TreeOptions{Depth: 3, Width: 10, Total: 10})
	b.must(err)
	b.is("tree", fmt.Sprint(tree.ID, len(tree.Children), tree.Children[0].ID), "first1next")
	b.must(b.Queue("q").Await(b.ctx, "open", "first"), b.Queue("q").Close(b.ctx, "open"))
	cancelled, err := b.CancelFlow(b.ctx, "first", false)
	b.must(err)
	b.is("cancelled", cancelled.Cancelled, 3)
}

func (b *bench) queues() {
	b.must(b.node.Register(b.ctx, "served"))
	b.enqueue("one", "two")
	b.run("")
	known, err := b.Queues(b.ctx)
	b.must(err)
	b.is("queues", slices.Sorted(maps.Keys(known)), "[q served]")
	b.is("listeners", known["served"], 1)
	counts, err := b.QueueCounts(b.ctx, []string{"q", "unused"})
	b.must(err)
	b.is("counts", fmt.Sprint(counts[0].Queue, counts[0].Pending, counts[0].Complete, counts[1].Queue, counts[1].Pending),
		"q1 1unused0")
	q := b.Queue("q")
	b.must(b.Pauses().Pause(b.ctx, manage.Pause{Queue: "q", Reason: "a move"}), q.SetLimit(b.ctx, 7))
	limit, err := q.Limit(b.ctx)
	b.must(err)
	paused, err := admin.CountQueue(b.ctx, b, "q")
	b.must(err)
	b.is("paused with a limit", fmt.Sprint(paused.Paused, paused.Limit, limit), "true 7 7")
	b.is("why", fmt.Sprintf("%d %s %t", len(paused.Pauses), paused.Pauses[0].Reason, paused.Pauses[0].Since > 0), "1 a move true")
	b.must(b.Pauses().Resume(b.ctx, manage.Pause{Queue: "q"}))
	for name, want := range map[string]bool{"served": true, "q": false} {
		has, err := b.Queue(name).HasListener(b.ctx)
		b.must(err)
		b.is("a listener of "+name, has, want)
	}
	waiting, failed, err := q.DeadLetters(b.ctx)
	b.must(err)
	b.is("letters", waiting+failed, 0)
	busiest, all, err := b.BusiestQueues(b.ctx, 1)
	b.must(err)
	b.is("busiest", fmt.Sprint(len(busiest), all), "1 2")
}

func (b *bench) pauses() {
	b.enqueue("one")
	for _, p := range []manage.Pause{
		{Queue: "q"},
		{Queue: "q", Key: "k"},
		{Queue: "q", Accepting: true, Reason: "full"},
		{Plugin: "p", Reason: "a bug"},
		{Reason: "a move"},
		{Accepting: true},
	} {
		b.must(b.Pauses().Pause(b.ctx, p))
		list, err := b.Pauses().List(b.ctx)
		b.must(err)
		b.is("pauses", len(list), 1)
		b.is("a pause", fmt.Sprint(list[0].Queue, list[0].Key, list[0].Plugin, list[0].Accepting, list[0].Reason, list[0].Since > 0),
			fmt.Sprint(p.Queue, p.Key, p.Plugin, p.Accepting, p.Reason, true))
		if !p.Accepting && p.Plugin == "" && p.Key == "" {
			task, err := b.Task(b.ctx, "one")
			b.must(err)
			b.is("why a task waits", strings.HasPrefix(task.WaitsBecause, p.What()+" is paused"), true)
		}
		_, err = b.Queue("q").EnqueueMany(b.ctx, []queue.Spec{{Options: queue.Options{ID: "new"}}})
		if p.Accepting {
			b.refused("an enqueue during a pause", err, manage.ErrPaused)
		} else {
			b.must(err)
			b.must(b.Queue("q").CancelWaiting(b.ctx, "new"), b.Queue("q").Delete(b.ctx, "new"))
		}
		batch := b.node.Reserve(b.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, Plugin: "p", Digest: "sha256:0"}})[0]
		b.must(batch.Err)
		b.is("taken during a pause of "+p.What(), len(batch.Tasks) > 0, p.Accepting || p.Key != "")
		for _, task := range batch.Tasks {
			_, err := b.node.Settle(b.ctx, "q", []listen.Settlement{{Claim: task.Claim()}})
			b.must(err)
			b.must(b.Queue("q").Delete(b.ctx, task.ID))
			b.must(b.Pauses().Resume(b.ctx, p))
			b.enqueue("one")
		}
		b.must(b.Pauses().Resume(b.ctx, p), b.Pauses().Resume(b.ctx, p))
	}
	b.refused("a pause of a plugin's accepting", b.Pauses().Pause(b.ctx, manage.Pause{Plugin: "p", Accepting: true}), queue.ErrInvalid)
}

func (b *bench) usage() {
	now, err := b.Clock(b.ctx)
	b.must(err)
	if now = now.UTC(); now.Add(time.Minute).Day() != now.Day() {
		b.t.Skip("the day is about to end")
	}
	b.must(b.node.Tally(b.ctx, []listen.Tally{
		{Queue: "a", Plugin: "p", Digest: "d", Complete: 3, Usage: listen.Usage{Runs: 4, Complete: 3, Failed: 1, Fuel: 1 << 40, CPU: time.Second, BytesIn: 7}},
		{Queue: "b", Usage: listen.Usage{Runs: 1, Retried: 1, Fuel: 2, Took: time.Minute, BytesOut: 8, LogBytes: 9}},
	}))
	today := now.Format(time.DateOnly)
	for _, from := range []string{"", today, now.AddDate(0, 0, -300).Format(time.DateOnly)} {
		days, err := b.Usage(b.ctx, from, "")
		b.must(err)
		b.is("usage", fmt.Sprintf("%+v", days), fmt.Sprintf("%+v", []manage.Usage{{
			Day: today, Runs: 5, Complete: 3, Failed: 1, Retried: 1, Fuel: 1<<40 + 2, CPUSeconds: 1, RunSeconds: 60,
			BytesIn: 7, BytesOut: 8, LogBytes: 9,
		}}))
	}
	days, err := b.Usage(b.ctx, "2020-01-01", "2020-01-31")
	b.must(err)
	b.is("usage long ago", len(days), 0)
	for _, wrong := range [][2]string{{"yesterday", ""}, {"", "2020-13-01"}, {"2020-02-01", "2020-01-01"}, {"2020-01-01", "2022-01-01"}} {
		_, err := b.Usage(b.ctx, wrong[0], wrong[1])
		b.refused(fmt.Sprint(wrong), err, queue.ErrInvalid)
	}
}

func (b *bench) quotas() {
	b.must(b.SetQuotas(b.ctx, manage.Quotas{"tasks_waiting": "2", "rate:q": "90/m burst 3", "limit:shared": "1/s q r", "weight": "3"}))
	b.enqueue("one", "two")
	_, err := b.Queue("q").EnqueueMany(b.ctx, []queue.Spec{{}, {}})
	b.refused("over the quota", err, manage.ErrQuota)
	b.refused("over the quota", err, queue.ErrQueueFull)
	quotas, err := b.Quotas(b.ctx)
	b.must(err)
	b.is("quotas", quotas, "[{tenant tasks_waiting 2  2 2 1 2} {tenant limit:shared 1/s burst 1 q r  0 1 0 0} "+
		"{tenant rate:q 90/m burst 3  0 3 0 0} {tenant weight 3  0 0 0 0}]")
	b.refused("no quota", b.SetQuotas(b.ctx, manage.Quotas{"tasks_waiting": "none"}), queue.ErrInvalid)
	b.must(b.SetQuotas(b.ctx, manage.Quotas{"tasks_waiting": "", "rate:q": "", "limit:shared": "", "weight": ""}))
	b.must(b.Queue("q").SetRollingLimit(b.ctx, 2))
	b.enqueue("three")
	counts, err := admin.CountQueue(b.ctx, b, "q")
	b.must(err)
	b.is("dropped", fmt.Sprint(counts.Pending, counts.Failed, counts.Totals["failed:dropped"], counts.DropOldest), "2 1 1 true")
	quotas, err = b.Quotas(b.ctx)
	b.must(err)
	b.is("limits", quotas, "[{queue q   2 2 1 1}]")
}

func (b *bench) topics() {
	_, err := b.Subscribe(b.ctx, queue.Subscription{
		ID: "s", Topic: "orders", Queue: "q", Active: true, FairKey: "attributes.type", FairWeight: 2, ConcurrencyKey: "c",
		MaxConcurrent: 3,
	})
	b.must(err)
	published, err := b.Publish(b.ctx, "orders", []byte("42"),
		queue.PublishOptions{ID: "p", Attributes: map[string]string{"type": "new"}})
	b.must(err)
	b.is("published", fmt.Sprint(published.ID, published.Existed, published.Subscribers), "pfalse 1")
	again, err := b.Publish(b.ctx, "orders", []byte("43"), queue.PublishOptions{ID: "p"})
	b.must(err)
	b.is("published again", fmt.Sprint(again.Existed, again.Taken), "true true")
	p, err := b.Publication(b.ctx, "p")
	b.must(err)
	b.is("a publication", fmt.Sprint(*p.Payload, p.Attributes, p.Summary), "42map[type:new] map[pending:1]")
	list, err := b.Publications(b.ctx, "orders", 0, 10)
	b.must(err)
	b.is("publications", len(list), 1)
	topics, err := b.Topics(b.ctx)
	b.must(err)
	b.is("topics", fmt.Sprint(len(topics), topics[0].Topic, topics[0].Published), "1orders1")
	topic, err := b.Topic(b.ctx, "orders")
	b.must(err)
	b.is("a topic", fmt.Sprint(topic.Subscriptions, topic.List[0].ID), "1s")
	task, err := b.Task(b.ctx, queue.PublishedID("p", "s"))
	b.must(err)
	b.is("keys of its task", fmt.Sprint(task.FairKey, task.FairWeight, *task.Lane), "new2 {c 3 false 0 1}")
}

func (b *bench) subscriptions() {
	hook := queue.Subscription{
		ID: "hook", Topic: "orders", Webhook: &queue.Webhook{URL: "https://example.com/hook"},
		Active: true,
	}
	made, err := b.Subscribe(b.ctx, hook)
	b.must(err)
	b.is("its queue", made.Queue, "webhook.hook")
	_, err = b.Subscribe(b.ctx, hook)
	b.refused("a second one of the ID", err, queue.ErrExists)
	changed, err := b.ChangeSubscription(b.ctx, "hook",
		func(s *queue.Subscription) error { s.Webhook.URL = "https://example.com/other"; return nil })
	b.must(err)
	b.is("changed", changed.Webhook.URL, "https://example.com/other")
	read, err := b.Subscription(b.ctx, "hook")
	b.must(err)
	b.is("read", read.Webhook.URL, "https://example.com/other")
	_, err = b.Publish(b.ctx, "orders", []byte("42"), queue.PublishOptions{})
	b.must(err)
	deliveries, err := b.Deliveries(b.ctx, "hook", "", 10)
	b.must(err)
	b.is("deliveries", fmt.Sprint(len(deliveries), deliveries[0].Status), "1pending")
	replayed, err := b.Replay(b.ctx, "hook", time.Unix(1, 0), true)
	b.must(err)
	b.is("to be replayed", replayed.Publications, 1)
	all, err := b.Subscriptions(b.ctx)
	b.must(err)
	b.is("subscriptions", len(all), 1)
	b.must(b.Unsubscribe(b.ctx, "hook"))
	_, err = b.Subscription(b.ctx, "hook")
	b.refused("a deleted one", err, queue.ErrNoSubscription)
}

func (b *bench) schedules() {
	s := queue.Schedule{
		ID: "nightly", Queue: "q", Cron: "@daily", Parameters: []byte("x"),
		Options: queue.Options{FairKey: "f", ConcurrencyKey: "c"},
	}
	for _, want := range []queue.Put{queue.PutNew, queue.PutSame} {
		put, err := b.PutSchedule(b.ctx, s, false)
		b.must(err)
		b.is("put", put, want)
	}
	s.Cron = "@hourly"
	put, err := b.PutSchedule(b.ctx, s, false)
	b.must(err)
	b.is("put", put, queue.PutChanged)
	b.must(b.Pauses().PauseSchedule(b.ctx, "nightly"))
	read, err := b.Schedule(b.ctx, "nightly")
	b.must(err)
	b.is("read", fmt.Sprint(read.Cron, read.Paused > 0, *read.Parameters), "@hourlytruex")
	b.must(b.Pauses().ResumeSchedule(b.ctx, "nightly"))
	id, err := b.RunSchedule(b.ctx, "nightly")
	b.must(err)
	task, err := b.Task(b.ctx, id)
	b.must(err)
	b.is("its task", fmt.Sprint(*task.Parameters, task.FairKey, *task.Lane), "xf{c 1 false 0 1}")
	synced, err := b.SyncSchedules(b.ctx, "file", []queue.Schedule{{ID: "other", Queue: "q", Cron: "@daily"}}, false)
	b.must(err)
	b.is("synced", synced.New, "[other]")
	all, err := b.Schedules(b.ctx)
	b.must(err)
	b.is("schedules", len(all), 2)
	b.must(b.DeleteSchedule(b.ctx, "nightly", ""))
	_, err = b.Schedule(b.ctx, "nightly")
	b.refused("a deleted one", err, queue.ErrNoSchedule)
}

// breaker lets the circuit breaker of a version open, and closes it.
func (b *bench) breaker() {
	node := listen.New(b.client)
	b.must(node.Join(b.ctx))
	b.enqueue("fails")
	batch := node.Reserve(b.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, Plugin: "mail", Digest: "sha256:1"}})[0]
	b.must(batch.Err)
	reply := node.SettleAll(b.ctx, []listen.SettleRequest{{
		Queue: "q", Settlements: []listen.Settlement{{
			Claim: batch.Tasks[0].Claim(), Failure: &queue.Failure{Reason: queue.ReasonTrap}, Counts: queue.ReasonTrap,
		}},
		Breaker: &listen.Breaker{Plugin: "mail", Digest: "sha256:1", Failures: 1, Pause: time.Hour, MaxPause: time.Hour},
	}})[0]
	b.must(reply.Err)
	quarantines, err := b.Quarantines(b.ctx)
	b.must(err)
	for i := range quarantines {
		if left := time.Until(admin.Moment(quarantines[i].Until)); left < 50*time.Minute || left > 70*time.Minute {
			b.t.Errorf("the pause ends in %s", left)
		}
		quarantines[i].Until = 0
	}
	b.is("a circuit breaker", fmt.Sprint(quarantines), "[{mail sha256:1 failures [] 0 1 trap }]")
	b.must(b.EndQuarantine(b.ctx, "mail", "sha256:1"))
	quarantines, err = b.Quarantines(b.ctx)
	b.must(err)
	b.is("quarantines", len(quarantines), 0)
}

func (b *bench) fleet() {
	b.must(b.node.Register(b.ctx, "q"))
	b.enqueue("held")
	b.node.Reserve(b.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})
	nodes, err := b.Nodes(b.ctx)
	b.must(err)
	b.is("nodes", fmt.Sprint(len(nodes), nodes[0].Alive, nodes[0].Queues, nodes[0].Holds), "1 true [q] map[q:[held]]")
	leased, err := b.Leased(b.ctx, 10)
	b.must(err)
	b.is("leased", len(leased), 1)
	_, err = b.ReclaimNode(b.ctx, b.node.ID(), 3)
	b.refused("a live listener is reclaimed", err, queue.ErrStatus)
	b.refused("nobody is drained", b.Drain(b.ctx, "nobody~00000000_1"), listen.ErrNoNode)
	b.must(b.Drain(b.ctx, b.node.ID()))
	plugins, err := b.Plugins(b.ctx)
	b.must(err)
	quarantines, err := b.Quarantines(b.ctx)
	b.must(err)
	b.is("plugins and quarantines", len(plugins)+len(quarantines), 0)
	b.breaker()
	b.must(listen.NewRelayClient(b.client).Publish(b.ctx, listen.RelayState{Name: "shop", Table: "outbox", Leader: "host 1", Waiting: 3}))
	relays, err := b.Relays(b.ctx)
	b.must(err)
	b.is("relays", fmt.Sprintf("%d %s %t %d %t", len(relays), relays[0].Name, relays[0].Alive, relays[0].Waiting, relays[0].Told > 0), "1 shop true 3 true")
	b.refused("a source with a relay is forgotten", b.ForgetRelay(b.ctx, "shop"), queue.ErrStatus)
	b.refused("an unknown source is forgotten", b.ForgetRelay(b.ctx, "other"), listen.ErrNoRelay)
	findings, err := b.Findings(b.ctx, b.Tenant.Tenant())
	b.must(err)
	if len(findings) == 0 { // a test's Redis keeps nothing on disk, which is a finding
		b.t.Error("nothing is found")
	}
	entries, err := b.AuditEntries(b.ctx, 10)
	b.must(err)
	for _, entry := range entries {
		if entry.Action == "" || entry.Time == 0 {
			b.t.Errorf("an entry: %+v", entry)
		}
	}
	clock, err := b.Clock(b.ctx)
	b.must(err)
	if age := time.Since(clock); age.Abs() > time.Minute {
		b.t.Errorf("the clock is %s off", age)
	}
	tenants, err := b.Tenants(b.ctx)
	b.must(err)
	if !slices.Contains(tenants, b.Tenant.Tenant()) || b.Address() == "" {
		b.t.Errorf("tenants %v at %q", tenants, b.Address())
	}
}

func (b *bench) releases() {
	mail := b.Releases("mail")
	stage := func(module string, share *release.Share) (release.Release, error) {
		files := []release.Content{{Name: "mail.wasm", Data: []byte(module)}, {Name: "mail.yaml", Data: []byte("{}")}}
		r, err := release.New("mail", files)
		b.must(err)
		r.Note, r.Version = "new", "1.0"
		return release.Push(b.ctx, mail, r, files, share)
	}
	push := func(module string) (release.Release, error) { return stage(module, nil) }
	states := func() (text string) {
		all, err := mail.List(b.ctx)
		b.must(err)
		for _, r := range all {
			text += fmt.Sprintf("%d %s, ", r.Number, r.State())
		}
		return text
	}
	b.is("releases of no plugin", states(), "")
	first, err := push("one")
	b.must(err)
	b.is("a release", fmt.Sprintf("%d %s %s %s %d %t", first.Number, first.Plugin, first.Version, first.Note, len(first.Files), first.Serving), "1 mail 1.0 new 2 true")
	if first.By == "" && b.Address()[0] == 'h' || first.Created == 0 {
		b.t.Errorf("nobody pushed %+v", first)
	}
	_, err = push("two")
	b.must(err)
	b.is("releases", states(), "2 serving, 1 replaced, ")
	_, err = mail.PushRelease(b.ctx, func() release.Release {
		r, err := release.New("mail", []release.Content{{Name: "mail.wasm", Data: []byte("nowhere")}})
		b.must(err)
		return r
	}(), nil)
	b.refused("a release without its pieces", err, release.ErrMissing)
	b.refused("a piece of other bytes", mail.PutPiece(b.ctx, first.Files[0].Pieces[0], []byte("eno")), queue.ErrInvalid)
	back, err := mail.Serve(b.ctx, 0)
	b.must(err)
	b.is("the rollback", back.Number, 1)
	_, err = mail.Serve(b.ctx, 0)
	b.refused("there is no release before", err, release.ErrNoRelease)
	b.must(mail.Freeze(b.ctx, true))
	b.is("frozen", states(), "2 rolled back, 1 frozen, ")
	_, err = push("three")
	b.refused("a push to a frozen plugin", err, release.ErrFrozen)
	b.must(mail.Freeze(b.ctx, false))
	b.refused("the release that serves is deleted", mail.Delete(b.ctx, 1), release.ErrServes)
	b.must(mail.Delete(b.ctx, 2))
	canary, err := stage("four", &release.Share{Steps: []release.Step{{Percent: 12.5, Seconds: 60}, {Percent: 50, Tasks: 9}}})
	b.must(err)
	b.is("a canary", fmt.Sprintf("%d %s %s", canary.Number, canary.State(), canary.Stage.Share), "3 canary 12.5%/1m,50%/9")
	b.refused("the canary is deleted", mail.Delete(b.ctx, 3), release.ErrCanary)
	tried, err := mail.Trial(b.ctx)
	b.must(err)
	b.is("no task of the canary has ended", fmt.Sprint(tried.New.Runs, tried.Old.Runs), "0 0")
	halted, err := mail.Halt(b.ctx, 0, "it is slow")
	b.must(err)
	b.is("the canary is halted", halted.State()+": "+halted.Stage.Reason, "halted: it is slow")
	_, err = mail.Promote(b.ctx, 3)
	b.refused("a halted canary is promoted", err, release.ErrNoCanary)
	_, err = stage("five", &release.Share{Label: "customer", Value: "acme"})
	b.must(err)
	b.is("canaries", states(), "4 canary, 3 halted, 1 serving, ")
	_, err = mail.Promote(b.ctx, 0)
	b.must(err)
	b.is("the promoted canary", states(), "4 serving, 3 halted, 1 replaced, ")
	b.must(mail.Delete(b.ctx, 1))
	b.must(mail.Delete(b.ctx, 3))
	b.is("left", states(), "4 serving, ")
	const artifact = "oci://registry.example.com/acme/mail@sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	elsewhere, err := release.Push(b.ctx, mail, first.InRegistry(artifact), nil, nil)
	b.must(err)
	b.is("a release in a registry", fmt.Sprint(elsewhere.Number, elsewhere.Artifact, len(elsewhere.Files[0].Pieces)), "5"+artifact+"0")
	elsewhere, err = release.Push(b.ctx, mail, first.InRegistry(artifact), nil, nil)
	b.must(err)
	b.is("the same release", elsewhere.Number, 5)
	b.must(mail.Delete(b.ctx, 0))
	b.is("left of none", states(), "")
	_, err = b.Releases("../mail").List(b.ctx)
	b.refused("a name that is no plugin's", err, queue.ErrInvalid)
}

func (b *bench) buckets() {
	handler := b.store.For([]kv.Grant{{Bucket: "seen", Write: true, Quota: 1 << 20}},
		func(bucket string, _ bool) error { return errors.New(bucket) })
	for _, key := range []string{"a", "b"} {
		_, err := handler.Increment(b.ctx, "seen", key, 1)
		b.must(err)
	}
	buckets, err := b.Buckets(b.ctx)
	b.must(err)
	b.is("buckets", fmt.Sprint(len(buckets), buckets[0].Bucket, buckets[0].Keys), "1seen2")
	keys, err := b.Keys(b.ctx, "seen", "", "a", 10)
	b.must(err)
	b.is("keys after a", keys, "[b]")
	value, err := b.Value(b.ctx, "seen", "a")
	b.must(err)
	b.is("a value", string(value), "1")
}

// absent asks for things that do not exist.
func (b *bench) absent() {
	_, err := b.Task(b.ctx, "none")
	b.refused("a task", err, queue.ErrNoTask)
	_, err = b.Retry(b.ctx, "none")
	b.refused("a retry", err, queue.ErrNoTask)
	b.refused("a delete", b.Queue("q").Delete(b.ctx, "none"), queue.ErrNoTask)
	_, err = b.Topic(b.ctx, "none")
	b.refused("a topic", err, queue.ErrNoTopic)
	_, err = b.Publication(b.ctx, "none")
	b.refused("a publication", err, queue.ErrNoPublication)
	_, err = b.Task(b.ctx, "not an ID")
	b.refused("an ID", err, queue.ErrInvalid)
	_, err = b.Queue("q").Limit(b.ctx)
	b.must(err)
	counts, err := b.QueueCounts(b.ctx, []string{"none"})
	b.must(err)
	b.is("a queue", fmt.Sprint(counts[0].Queue, counts[0].Pending), "none0")
}
