package doctor_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

func TestMain(m *testing.M) { os.Exit(queuetest.Main(m)) }

// tenant is one that nothing is wrong with, in which a listener serves the queue served.
func tenant(t *testing.T) (*queue.Client, *redis.Client) {
	t.Helper()
	t.Parallel()
	rdb := queuetest.Shared(t).Client(t)
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	node := listen.New(client)
	check(t, node.Join(t.Context()), node.Register(t.Context(), "served"))
	return client, rdb
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// finds compares what the checks whose names begin so find with the beginnings of lines: check, level, queue, command, problem.
func finds(t *testing.T, client *queue.Client, checks string, want ...string) {
	t.Helper()
	findings, err := doctor.Examine(t.Context(), client)
	check(t, err)
	var found []string
	for _, f := range findings {
		if strings.HasPrefix(f.Check, checks) {
			found = append(found, fmt.Sprint(f.Check, " ", f.Level, " ", f.Queue, " ", f.Command, " ", f.Problem))
		}
	}
	slices.Sort(found)
	if !slices.EqualFunc(found, want, strings.HasPrefix) {
		t.Errorf("found %q, want %q", found, want)
	}
}

// A schedule whose queue nobody serves, or whose ticks do not come, is found; a paused one is not.
func TestSchedules(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	for id, name := range map[string]string{"fine": "served", "unserved": "nobody", "late": "served", "waits": "served", "paused": "nobody"} {
		s := queue.Schedule{ID: id, Queue: name, Cron: "@daily"}
		if id == "waits" {
			s.Overlap = queue.OverlapQueue
		}
		_, err := client.PutSchedule(ctx, s, false)
		check(t, err)
	}
	check(t, client.PauseSchedule(ctx, "paused"))
	for _, id := range []string{"late", "waits", "paused"} {
		check(t, rdb.HSet(ctx, client.Tenant()+"_schedule_"+id, "next", "1700000000", "last_id", "waits@1699999940").Err())
	}
	for _, id := range []string{"ahead", "cron ahead"} {
		s := queue.Schedule{ID: strings.ReplaceAll(id, " ", "-"), Queue: "served", Cron: "@every 2s"}
		if s.ID != id {
			s.Cron = "*/5 * * * *"
		}
		_, err := client.PutSchedule(ctx, s, false)
		check(t, err, rdb.HSet(ctx, client.Tenant()+"_schedule_"+s.ID, "next", time.Now().Add(time.Hour).Unix()).Err())
	}
	finds(t, client, "schedule-", "schedule-ahead warning served [schedule pause ahead] the next tick of the schedule ahead comes only in ",
		"schedule-ahead warning served [schedule pause cron-ahead] ", "schedule-late error served [schedule show late] ", "schedule-late warning served [schedule show waits] ",
		"schedule-paused note nobody [schedule resume paused] ", "schedule-unserved warning nobody [schedule pause unserved] ")
}

// A schedule that no version of its plugin has any more stands still, also if it is paused: to resume it would change nothing.
func TestAbsentSchedules(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	node := listen.New(client)
	check(t, node.Join(ctx))
	_, err := node.Renew(ctx, map[string]string{"kind": listen.KindQuern, "plugins": `[{"plugin":"mail","queues":["served"],"state":"serving"}]`})
	check(t, err)
	for id, plugin := range map[string]string{"mail.gone": "mail", "mail.paused": "mail", "other.gone": "other"} {
		_, err := client.PutSchedule(ctx, queue.Schedule{ID: id, Queue: "served", Cron: "@daily", Owner: queue.OwnedByPlugin(plugin)}, false)
		check(t, err, rdb.HSet(ctx, client.Tenant()+"_schedule_"+id, "absent", time.Now().Unix()).Err())
	}
	check(t, client.PauseSchedule(ctx, "mail.paused"))
	finds(t, client, "schedule-", "schedule-unserved note served [schedule delete mail.gone] the schedule mail.gone stands still",
		"schedule-unserved note served [schedule delete mail.paused] ", "schedule-unserved warning served [schedule delete other.gone] ")
	// A key that something else wrote is no lack of rights.
	check(t, rdb.Del(ctx, client.Tenant()+"_ticks").Err(), rdb.Set(ctx, client.Tenant()+"_ticks", "x", 0).Err())
	finds(t, client, "redis-access", "redis-access error  [] the schedules cannot be read, and is not checked: ")
}

// A task that is open for ever, and tasks whose dependencies nobody looks at, are found; those that wait as they should are not.
func TestFlows(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	for _, options := range []queue.Options{{ID: "first"}, {ID: "next", After: []string{"first"}}, {ID: "batch", Open: true}, {ID: "forgotten", Open: true}} {
		_, err := client.Queue("served").Enqueue(ctx, nil, options)
		check(t, err)
	}
	finds(t, client, "flow-")
	check(t,
		rdb.HSet(ctx, client.Tenant()+"_task_forgotten", "updated", "1700000000").Err(),
		rdb.ZAdd(ctx, client.Tenant()+"_blocked_served", redis.Z{Member: "next", Score: 1700000000}).Err(),
	)
	finds(t, client, "flow-", "flow-open warning served [task await forgotten --close] ", "flow-unseen error served [] ")
}

// A database of handlers that does not serve a host is found, with its error.
func TestDatabaseAway(t *testing.T) {
	client, _ := tenant(t)
	node := listen.New(client)
	check(t, node.Join(t.Context()))
	_, err := node.Renew(t.Context(), map[string]string{"kind": listen.KindQuern, "databases_away": `[{"secret":"database.shop","why":"it cannot be reached","remedy":"start it"}]`})
	check(t, err)
	finds(t, client, "host-database", "host-database error  [] 1 database does not serve for handlers on "+node.ID()+
		", so tasks that use it are put off: the first is database.shop: it cannot be reached")
}

// What a listener has switched off is found with the rule and the time left, and so is a webhook that ended itself.
func TestWebhooks(t *testing.T) {
	client, _ := tenant(t)
	ctx := t.Context()
	_, subscribed := client.Subscribe(ctx, queue.Subscription{ID: "gone", Topic: "t", Webhook: &queue.Webhook{URL: "https://example.com/", Secrets: []string{"webhook.gone"}}})
	_, changed := client.ChangeSubscription(ctx, "gone", func(s *queue.Subscription) error {
		s.Active, s.Reason = false, queue.ReasonGone
		return nil
	})
	node := listen.New(client)
	check(t, subscribed, changed, node.Join(ctx))
	_, err := node.Renew(ctx, map[string]string{
		"kind": listen.KindWebhook, "destinations_off": `[{"destination":"https://example.com","failures":10,"until":4102444800,"error":"the server answered 500"}]`,
	})
	check(t, err)
	finds(t, client, "webhook-", "webhook-inactive warning webhook.gone [subscription resume gone] the webhook gone is switched off: the server answered 410 Gone",
		"webhook-off warning webhook.gone [subscription deliveries gone] "+node.ID()+
			" has switched off webhooks to https://example.com: 10 deliveries in a row failed (the server answered 500); the next one tries it in ")
}

// A database whose relay is gone, is behind, refuses rows or is not notified is found.
func TestRelays(t *testing.T) {
	client, rdb := tenant(t)
	relay, ctx := listen.NewRelayClient(client), t.Context()
	check(t, rdb.HSet(ctx, client.Tenant()+"_relays", "gone", `{"name":"gone","table":"outbox","told":1,"lag_seconds":90}`, "garbled", "{").Err(),
		relay.Publish(ctx, listen.RelayState{Name: "fine", Table: "outbox", Notified: true, Lag: 0.5, Waiting: 3}))
	finds(t, client, "relay-")
	now, err := client.Clock(ctx)
	check(t, err,
		rdb.HSet(ctx, client.Tenant()+"_relays", "gone", fmt.Sprintf(`{"name":"gone","table":"outbox","told":%d}`, now.Unix()-60)).Err(),
		relay.Publish(ctx, listen.RelayState{Name: "orders", Table: "outbox", Notified: true, Refused: 1, Error: "queue full"}),
		relay.Publish(ctx, listen.RelayState{Name: "shop", Table: "raquel:jobs", Lag: 90, Waiting: 7, Refused: 2, Error: "queue full", Parked: "row 7 cannot be changed"}))
	finds(t, client, "relay-",
		"relay-lag error  [database ls] 7 rows wait in the database shop, the oldest for 1m30s: queue full",
		"relay-refused warning  [database ls] 1 row of the database orders could not become tasks",
		"relay-refused warning  [database ls] 2 rows of the database shop were refused or cannot be changed: row 7 cannot be changed",
		"relay-silent error  [database ls] no relay leads outbox of the database gone since ",
		"relay-unnotified warning  [database ls] notifications of new rows of the database shop do not arrive")
}

// Deliveries that are tried again, or have just failed for good, are found with the error; those that wait for their first attempt, were
// cancelled, or failed long ago are not.
func TestFailingWebhooks(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	node := listen.New(client)
	check(t, node.Join(ctx))
	for id, settle := range map[string]listen.Settlement{
		"again":     {Failure: &queue.Failure{Message: "the host has no secret webhook.again\nmore"}, Requeue: listen.RequeueRetry, Delay: time.Hour},
		"lost":      {Failure: &queue.Failure{Message: "the server answered 404"}},
		"past":      {Failure: &queue.Failure{Message: "no"}},
		"cancelled": {Failure: &queue.Failure{Reason: queue.ReasonCancelled, Message: "no"}},
		"first":     {},
	} {
		name := queue.WebhookQueues + id
		_, err := client.Subscribe(ctx, queue.Subscription{ID: id, Topic: id, Webhook: &queue.Webhook{URL: "https://example.com/", Secrets: []string{"webhook.x"}}})
		check(t, err, node.Register(ctx, name))
		_, err = client.Publish(ctx, id, nil, queue.PublishOptions{ID: id})
		check(t, err)
		task := node.Reserve(ctx, []listen.ReserveRequest{{Queue: name, Count: 1, Start: true}})[0].Tasks[0]
		settle.Claim = task.Claim()
		errs, err := node.Settle(ctx, name, []listen.Settlement{settle})
		check(t, append(errs, err)...)
	}
	check(t, rdb.HSet(ctx, client.Tenant()+"_task_"+queue.PublishedID("past", "past"), "updated", "1700000000").Err())
	finds(t, client, "webhook-failing",
		"webhook-failing warning webhook.again [subscription deliveries again] attempt 1 of the delivery "+queue.PublishedID("again", "again")+
			" of the webhook again failed, and it is tried again at ",
		"webhook-failing warning webhook.lost [subscription deliveries lost] attempt 1 of the delivery "+queue.PublishedID("lost", "lost")+
			" of the webhook lost failed for good: the server answered 404")
	findings, err := doctor.Examine(ctx, client)
	check(t, err)
	i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Queue == "webhook.again" })
	if !strings.HasSuffix(findings[i].Problem, ": the host has no secret webhook.again…") {
		t.Errorf("%+v", findings[i])
	}
}

// Tasks that are put off again and again are found, the one that was put off the most by name; a few times are nothing.
func TestRescheduled(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	for id, times := range map[string]int{"calm": 9, "polls": 10, "mad": 97, "waits": 0} {
		_, err := client.Queue("served").Enqueue(ctx, nil, queue.Options{ID: id, Delay: time.Hour})
		check(t, err, rdb.HSet(ctx, client.Tenant()+"_task_"+id, "reschedules", times).Err())
	}
	finds(t, client, "task-rescheduled", "task-rescheduled note served [task show mad] the task mad of the queue served was put off 97 times since ")
	check(t, rdb.HSet(ctx, client.Tenant()+"_task_mad", "reschedules", 100).Err())
	finds(t, client, "task-rescheduled", "task-rescheduled warning served [task show mad] the task mad of the queue served was put off 100 times since ")
	findings, err := doctor.Examine(ctx, client)
	check(t, err)
	i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Check == "task-rescheduled" })
	if f := findings[i]; f.Tasks != 2 || !strings.HasSuffix(f.Problem, "; 1 more of its tasks: 10 times or more") {
		t.Errorf("%+v", f)
	}
}

// A webhook by whose deliveries its server cannot tell that they are ours is found, while it is active.
func TestUnsignedWebhooks(t *testing.T) {
	client, _ := tenant(t)
	for id, hook := range map[string]queue.Webhook{
		"plain": {}, "paused": {}, "signed": {Secrets: []string{"webhook.signed"}},
		"token": {SecretHeaders: map[string]string{"Authorization": "webhook.token"}},
	} {
		hook.URL = "https://example.com/"
		_, err := client.Subscribe(t.Context(), queue.Subscription{ID: id, Topic: "t", Webhook: &hook})
		check(t, err)
	}
	_, err := client.ChangeSubscription(t.Context(), "paused", func(s *queue.Subscription) error { s.Active = false; return nil })
	check(t, err)
	finds(t, client, "webhook-", "webhook-unsigned note webhook.plain [subscription update plain --secret webhook.plain] the webhook plain has no secret: ")
}

// A queue that nobody serves is told with the plugin that may be meant, and with the line of its manifest.
func TestQueueOfAPlugin(t *testing.T) {
	client, _ := tenant(t)
	node := listen.New(client)
	check(t, node.Join(t.Context()), node.Register(t.Context(), "images"))
	_, err := node.Renew(t.Context(), map[string]string{
		"kind": listen.KindQuern, "plugins": `[{"plugin": "thumbnails", "queues": ["images"]}, {"plugin": "other", "queues": ["x"]}, {"plugin": "refuses", "error": "no"}]`,
	})
	check(t, err)
	for name, want := range map[string]string{
		"thumbnails":      "if images was meant, enqueue to that and cancel these: `quern task cancel --queue thumbnails`, then `quern queue purge thumbnails --all`; else if the plugin thumbnails is to serve it, write queues: [images, thumbnails] into thumbnails.yaml; else put a plugin",
		"thumbnails.bulk": "if images was meant, enqueue to that and cancel these: `quern task cancel --queue thumbnails.bulk`, then `quern queue purge thumbnails.bulk --all`; else if the plugin thumbnails is to serve it, write queues: [images, thumbnails.bulk] into thumbnails.yaml; else ",
		"imagse":          "if images was meant, enqueue to that and cancel these: `quern task cancel --queue imagse`, then `quern queue purge imagse --all`; else if the plugin thumbnails is to serve it, write queues: [images, imagse] into thumbnails.yaml; else ",
		"srved":           "if served was meant, enqueue to that and cancel these: `quern task cancel --queue srved`, then `quern queue purge srved --all`; else put a plugin",
		"quite.different": "put a plugin",
		"refuses":         "mend the plugin refuses",
	} {
		_, err := client.Queue(name).Enqueue(t.Context(), nil, queue.Options{ID: "task-" + name})
		check(t, err)
		findings, err := doctor.Examine(t.Context(), client)
		check(t, err)
		i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Check == "queue-unserved" && f.Queue == name })
		if i < 0 || !strings.HasPrefix(findings[i].Remedy, want) {
			t.Errorf("%s: %+v, want %q", name, findings, want)
		}
		_, err = client.Queue(name).Cancel(t.Context(), "task-"+name)
		check(t, err)
	}
}

// Subscriptions that make no task, because they cannot be read, are found and do not hide the others.
func TestDamagedSubscriptions(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	_, err := client.Subscribe(ctx, queue.Subscription{ID: "unserved", Topic: "t", Queue: "nobody"})
	check(t, err, rdb.HSet(ctx, client.Tenant()+"_subscriptions", "broken", "{").Err())
	finds(t, client, "subscription-", `subscription-damaged error  [] what is published makes no task for some: subscriptions ["broken"]`,
		"subscription-unserved warning nobody [subscription show unserved] ")
	finds(t, client, "redis-access") // this is no lack of rights
}

func TestDroppedPublications(t *testing.T) {
	client, _ := tenant(t)
	for _, want := range []string{"1 publication", "2 publications"} {
		_, err := client.Publish(t.Context(), "t", nil, queue.PublishOptions{})
		check(t, err)
		finds(t, client, "topic-dropped", "topic-dropped warning  [publication ls t] "+want+" to topic t had no subscriber, and nobody subscribes to it")
	}
}

// A tenant with more queues than it may have is told who may have made them.
func TestManyQueues(t *testing.T) {
	client, _ := tenant(t)
	other := listen.New(client)
	check(t, listen.NewFleet(client).SetMaxQueues(t.Context(), 1), other.Join(t.Context()))
	finds(t, client, "queues-")
	check(t, other.Register(t.Context(), "more"))
	finds(t, client, "queues-", "queues-many warning  [] the tenant has 2 queues, more than the maximum of 1: hosts look at the others in turn")
}

// What is alike is told together, the worst first; dead letters wait for people.
func TestQueues(t *testing.T) {
	client, _ := tenant(t)
	ctx := t.Context()
	for i := range 9 {
		name := fmt.Sprintf("batch.%d", i)
		_, err := client.Queue(name).EnqueueMany(ctx, make([]queue.Spec, 9-i))
		check(t, err)
		if i < 4 {
			check(t, client.Queue(name).Pause(ctx))
		}
	}
	_, err := client.Queue("serve").Enqueue(ctx, nil, queue.Options{})
	_, named := client.Queue("mail.dead").Enqueue(ctx, nil, queue.Options{})
	for i := range 5 {
		_, err := client.PutSchedule(ctx, queue.Schedule{ID: fmt.Sprint("off-", i), Queue: "served", Cron: "@daily"}, false)
		check(t, err, client.PauseSchedule(ctx, fmt.Sprint("off-", i)))
	}
	check(t, client.Queue("batch.8").Hold(ctx, time.Hour))
	_, failing := client.Queue("served").Enqueue(ctx, nil, queue.Options{Dead: "lost"})
	check(t, err, named, failing)
	node := listen.New(client)
	check(t, node.Join(ctx), node.Register(ctx, "served"))
	task := node.Reserve(ctx, []listen.ReserveRequest{{Queue: "served", Count: 1, Start: true}})[0].Tasks[0]
	_, err = node.Settle(ctx, "served", []listen.Settlement{{Claim: task.Claim(), Failure: &queue.Failure{Message: "no"}}})
	check(t, err)
	finds(t, client, "queue-unserved", "queue-unserved error  [] 10 queues with tasks are served by nobody: batch.0, batch.1, batch.2 and 7 more")
	finds(t, client, "queue-paused", "queue-paused warning  [] 4 queues with tasks are paused: batch.0, batch.1, batch.2 and 1 more")
	finds(t, client, "dead-letters", "dead-letters note lost [task ls lost] 1 dead letters wait", "dead-letters note mail.dead [task ls mail.dead] 1 dead letters wait")
	finds(t, client, "schedule-paused", "schedule-paused note  [] 5 schedules are paused: off-0, off-1, off-2 and 2 more")
	finds(t, client, "queue-held", "queue-held note batch.8 [queue resume batch.8] the queue batch.8 is held until ")
	check(t, client.Queue("batch.8").Resume(ctx))
	finds(t, client, "queue-held")
	_, err = client.Queue("lost").Enqueue(ctx, nil, queue.Options{}) // the letter is the next task still
	check(t, err)
	finds(t, client, "dead-letters", "dead-letters note lost ", "dead-letters note mail.dead ")
	findings, err := doctor.Examine(ctx, client)
	check(t, err)
	i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Check == "queue-unserved" })
	if f := findings[i]; f.Tasks != 46 || f.Since == 0 || len(f.Queues) != 10 || f.Queues[0] != "batch.0" || !strings.HasPrefix(f.Remedy, "for batch.0: ") {
		t.Errorf("%+v", f)
	}
	levels := map[doctor.Level]int{doctor.Error: 0, doctor.Warning: 1, doctor.Note: 2}
	if !slices.IsSortedFunc(findings, func(a, b doctor.Finding) int { return levels[a.Level] - levels[b.Level] }) {
		t.Errorf("the worst do not come first: %+v", findings)
	}
}

// A queue whose name is like one that is served is told with that one.
func TestMisspelledQueue(t *testing.T) {
	client, _ := tenant(t)
	_, err := client.Queue("srved").Enqueue(t.Context(), nil, queue.Options{})
	check(t, err)
	findings, err := doctor.Examine(t.Context(), client)
	check(t, err)
	if i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Check == "queue-unserved" }); i < 0 || !strings.HasPrefix(findings[i].Remedy, "if served was meant, enqueue to that") {
		t.Errorf("%+v", findings)
	}
}

// Slots that are full of long tasks are found after a minute without a start, with the queues that have them; slots that change hands
// are not, until a task has waited for long.
func TestBusy(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	now := time.Now()
	seconds := func(ago time.Duration) string { return fmt.Sprintf("%.3f", float64(now.Add(-ago).UnixMilli())/1000) }
	check(t, rdb.ZRem(ctx, client.Tenant()+"_nodes", rdb.ZRange(ctx, client.Tenant()+"_nodes", 0, 0).Val()).Err()) // of the other listener, which says nothing of slots
	node := listen.New(client)
	check(t, node.Join(ctx), node.Register(ctx, "served"))
	_, err := client.Queue("served").Enqueue(ctx, nil, queue.Options{})
	check(t, err)
	about := func(began time.Duration) {
		t.Helper()
		_, err := node.Renew(ctx, map[string]string{
			"kind": listen.KindQuern, "slots": "6", "slots_in_use": "6", "clock": seconds(0), "began": seconds(began),
			"running": `{"reports":{"tasks":4,"since":` + seconds(5*time.Minute) + `}}`,
		})
		check(t, err)
	}
	waited := func(ago time.Duration) {
		t.Helper()
		tasks, err := manage.New(client).Queue("served").List(ctx, manage.ListOptions{Status: queue.Pending})
		check(t, err, rdb.HSet(ctx, client.Tenant()+"_task_"+tasks[0].ID, "created", seconds(ago), "updated", seconds(ago)).Err())
	}
	about(2 * time.Minute)
	finds(t, client, "host-busy")
	waited(90 * time.Second)
	finds(t, client, "host-busy", "host-busy warning reports [task ls reports --status started] all slots are in use: 6 slots on 1 host (4 by the queue reports, the longest for 5m")
	about(time.Second)
	finds(t, client, "host-busy")
	waited(11 * time.Minute)
	finds(t, client, "host-busy", "host-busy warning  [] all slots are in use: 6 slots on 1 host ") // nothing hangs: there is nothing to cancel
	// A host with free slots that serves other queues takes none of these tasks.
	other := listen.New(client)
	check(t, other.Join(ctx), other.Register(ctx, "elsewhere"))
	free := map[string]string{
		"kind": listen.KindQuern, "slots": "6", "slots_in_use": "1", "clock": seconds(0), "began": seconds(0),
		"running": `{"served":{"tasks":1,"since":` + seconds(5*time.Minute) + `,"last":` + seconds(2*time.Minute) + `}}`,
	}
	_, err = other.Renew(ctx, free)
	check(t, err)
	finds(t, client, "host-busy", "host-busy warning  [] all slots are in use: 6 slots on 1 host ")
	finds(t, client, "queue-stuck")
	// One with free slots that serves this queue would, unless its plugin may run no more.
	check(t, other.Register(ctx, "served"))
	finds(t, client, "host-busy")
	finds(t, client, "queue-stuck", "queue-stuck warning served [task ls served --status started] the queue served runs 1 of its tasks, the longest for 5m")
	free["waits_for_memory"] = `["served"]`
	_, err = other.Renew(ctx, free)
	check(t, err)
	finds(t, client, "queue-stuck")
}

// A release that a host cannot fetch is found with what to mend; one that it is fetching is not.
func TestUnfetchedRelease(t *testing.T) {
	client, _ := tenant(t)
	node := listen.New(client)
	check(t, node.Join(t.Context()))
	_, err := node.Renew(t.Context(), map[string]string{
		"kind": listen.KindQuern, "plugins": `[{"plugin":"mail","release":2,"state":"refused","error":"release 2: refused","unfetched":true},
			{"plugin":"other","release":3,"state":"fetching","since":1}]`,
	})
	check(t, err)
	finds(t, client, "plugin-refused", "plugin-refused error  [] the plugin mail is refused on "+node.ID()+": release 2: refused")
	findings, err := doctor.Examine(t.Context(), client)
	check(t, err)
	if !slices.ContainsFunc(findings, func(f doctor.Finding) bool {
		return strings.HasPrefix(f.Remedy, "mend what the error names: the host tries again")
	}) {
		t.Errorf("%+v", findings)
	}
}

// A version whose runs fail is found by its own runs, however many of another version were complete before.
func TestFailingVersion(t *testing.T) {
	client, _ := tenant(t)
	ctx := t.Context()
	node := listen.New(client)
	check(t, node.Join(ctx), node.Register(ctx, "mail"))
	_, err := client.Queue("mail").Enqueue(ctx, nil, queue.Options{})
	check(t, err)
	check(t, node.Tally(ctx, []listen.Tally{
		{Queue: "mail", Plugin: "mail", Digest: "sha256:f6fd894ca2fd0000", Version: "1.4.0", Complete: 900, Failed: 100},
		{Queue: "mail", Plugin: "mail", Digest: "sha256:0fb33ee5aaaa0000", Version: "1.5.0", Failed: 18},
	}))
	finds(t, client, "version-failing")
	_, err = node.Renew(ctx, map[string]string{
		"kind": listen.KindQuern, "plugins": `[{"plugin":"mail","version":"1.5.0","digest":"sha256:0fb33ee5aaaa0000","queues":["mail"],"state":"serving"}]`,
	})
	check(t, err)
	finds(t, client, "version-failing", "version-failing error mail [task ls mail --status failed] 18 of 18 runs of mail 1.5.0 (0fb33ee5) failed in this hour and the one before; of another version (1.4.0) 100 of 1000")
	// A version of the same module, with another manifest, is another one.
	_, err = node.Renew(ctx, map[string]string{
		"kind": listen.KindQuern, "plugins": `[{"plugin":"mail","version":"1.5.1","digest":"sha256:0fb33ee5aaaa0000","queues":["mail"],"state":"serving"}]`,
	})
	check(t, err)
	finds(t, client, "version-failing")
	check(t, node.Tally(ctx, []listen.Tally{{Queue: "mail", Plugin: "mail", Digest: "sha256:0fb33ee5aaaa0000", Version: "1.5.1", Failed: 7}}))
	finds(t, client, "version-failing", "version-failing error mail [task ls mail --status failed] 7 of 7 runs of mail 1.5.1 (0fb33ee5) failed")
}

// A release that hosts stopped by themselves is found until another one is pushed.
func TestStoppedRelease(t *testing.T) {
	client, _ := tenant(t)
	ctx, store := t.Context(), release.NewStore(client)
	push := func(module string) {
		t.Helper()
		files := []release.Content{{Name: "mail.wasm", Data: []byte(module)}}
		r, err := release.New("mail", files)
		check(t, err)
		_, err = release.Push(ctx, store, r, files, nil)
		check(t, err)
	}
	push("one")
	push("two")
	finds(t, client, "release-stopped")
	stopped, err := store.StopRelease(ctx, "mail", 2, "20 of 100 tasks failed")
	check(t, err)
	if !stopped {
		t.Error("the release was not stopped")
	}
	finds(t, client, "release-stopped", "release-stopped warning  [plugin releases mail] hosts stopped release 2 of the plugin mail, so release 1 serves: 20 of 100 tasks failed")
	push("three")
	finds(t, client, "release-stopped")
}
