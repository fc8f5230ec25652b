package page_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// stats waits until the counts of a queue are as wanted.
func (w *world) stats(t *testing.T, name string, wanted func(manage.Stats) bool) {
	t.Helper()
	w.eventually(t, "the counts of "+name, func() (bool, error) {
		stats, err := manage.New(w.Client).Queue(name).Stats(w.ctx)
		return wanted(stats), err
	})
}

// fill types values into named fields of the dialog, or chooses them: name, value, and so on.
func (w *world) fill(t *testing.T, values ...string) {
	t.Helper()
	for i := 0; i < len(values); i += 2 {
		w.do(t, chromedp.SetValue(fmt.Sprintf(`dialog [name=%q]`, values[i]), values[i+1]))
	}
}

// A queue is paused, limited, and continued; its failed tasks are tried again, its waiting ones cancelled, its finished ones purged.
func TestQueueActions(t *testing.T) {
	w := setup(t)
	node := w.node(t, nil, "mail")
	for range 3 {
		w.enqueue(t, "mail", "x", queue.Options{})
		w.run(t, node, "mail", failed("no"))
	}
	w.goTo(t, "/queues", "Queues")
	w.do(t, chromedp.Evaluate[chromedp.Void](`{ const all = fetch; window.fetch = (to, how) => String(to).includes("/findings") ? new Promise(() => {}) : all(to, how) }`))
	w.goTo(t, "/queues/mail", "Queue mail") // although the doctor does not answer
	w.press(t, "Pause")
	w.see(t, "Pause mail?", "0 waiting tasks; 0 running tasks go on")
	w.accessible(t, "dialog")
	w.press(t, "Leave it", "Pause", "Pause")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Paused })
	w.press(t, "Resume", "Resume")
	w.stats(t, "mail", func(s manage.Stats) bool { return !s.Paused })
	w.press(t, "Limit")
	w.fill(t, "limit", "7")
	w.press(t, "Set the limit")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Limit == 7 })

	w.press(t, "Retry failed", "Retry 3 tasks")
	w.see(t, "3 of 3 tasks", "done")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Pending] == 3 && s.Depth[queue.Failed] == 0 })

	w.goTo(t, "/queues/mail", "Queue mail")
	w.press(t, "Cancel pending")
	w.see(t, "queue mail, status pending")
	w.press(t, "Cancel 3 tasks")
	w.see(t, "3 of 3 tasks") // then the page goes nowhere any more
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Failed] == 3 })

	w.goTo(t, "/queues/mail", "Queue mail")
	w.press(t, "Purge")
	w.see(t, "0 complete tasks and 3 failed tasks")
	w.fill(t, "age", "0")
	w.press(t, "Delete them")
	w.see(t, "3 tasks deleted.")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Failed] == 0 })
}

// A task is tried again, cancelled and deleted.
func TestTaskActions(t *testing.T) {
	w := setup(t)
	node := w.node(t, nil, "mail")
	mended := w.enqueue(t, "mail", "x", queue.Options{})
	w.run(t, node, "mail", complete("yes"))
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+mended, "last_error", `{"reason":"error","message":"the attempt before"}`).Err())
	w.goTo(t, "/tasks/"+mended, "Task "+mended)
	w.see(t, "yes")
	if evaluate[bool](t, w, `document.body.innerText.includes("the attempt before")`) {
		t.Error("a task that is complete tells why it is not")
	}
	id := w.enqueue(t, "mail", "x", queue.Options{})
	w.run(t, node, "mail", failed("no"))
	w.goTo(t, "/tasks/"+id, "Task "+id)
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+id, "record", "1 2048").Err())
	w.goTo(t, "/tasks/"+id, "Task "+id)
	w.press(t, "Replay")
	w.see(t, "quern task replay "+id+" --tenant "+w.Tenant())
	w.press(t, "Leave it")
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+id, "record", "1 2048 encrypted").Err())
	w.goTo(t, "/tasks/"+id, "Task "+id)
	w.see(t, "of run 1, 2 KiB, encrypted")
	w.press(t, "Replay")
	w.see(t, "quern task replay "+id+" --tenant "+w.Tenant()+" --identity FILE", "FILE has a private key")
	w.press(t, "Leave it")
	w.press(t, "Retry", "Retry the task")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Pending] == 1 })
	w.press(t, "Cancel")
	w.see(t, "It is pending. It will not run")
	w.press(t, "Cancel the task")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Failed] == 1 })
	w.see(t, "cancelled")
	w.press(t, "Delete", "Delete the task")
	w.until(t, `document.querySelector("h1").innerText === "Queue mail"`)
	if _, err := w.Task(w.ctx, id); !errors.Is(err, queue.ErrNoTask) {
		t.Errorf("the task is still there: %v", err)
	}
}

// A schedule is made, run, changed without what the form does not show, paused, and deleted.
func TestScheduleActions(t *testing.T) {
	w := setup(t)
	w.goTo(t, "/schedules", "Schedules")
	w.press(t, "Make a schedule")
	w.accessible(t, "dialog")
	w.fill(t, "id", "nightly", "queue", "reports", "cron", "61 * * * *", "parameters", "all\u200b", "labels", "a=b=c")
	w.press(t, "Make it")
	w.see(t, "the minute: end of range (61)")
	w.fill(t, "cron", "@yearly")
	w.press(t, "Make it")
	w.until(t, `document.querySelector("h1").innerText === "Schedule nightly"`)
	schedule := func() *queue.Schedule {
		s, err := w.Schedule(w.ctx, "nightly")
		must(t, err)
		return s
	}
	w.see(t, "Nobody serves the queue reports")
	s := schedule()
	if s.Cron != "@yearly" || string(s.Parameters) != "all\u200b" || s.Options.Labels["a"] != "b=c" {
		t.Errorf("%+v", s)
	}
	s.Options.Timeout, s.Options.Retry.Base = time.Minute, time.Hour
	_, err := w.PutSchedule(w.ctx, *s, false)
	must(t, err)
	w.see(t, "1 min")
	w.press(t, "Change")
	w.fill(t, "overlap", "skip")
	w.press(t, "Change it")
	w.eventually(t, "it is changed", func() (bool, error) { return schedule().Overlap == queue.OverlapSkip, nil })
	if s := schedule(); s.Overlap != queue.OverlapSkip || s.Options.Timeout != time.Minute || s.Options.Retry.Base != time.Hour || string(s.Parameters) != "all\u200b" || s.Options.Labels["a"] != "b=c" {
		t.Errorf("%+v", s)
	}
	w.until(t, `!document.querySelector("dialog").open`) // and the page goes nowhere any more
	w.goTo(t, "/schedules", "Schedules")
	w.press(t, "Make a schedule")
	w.fill(t, "id", "nightly", "queue", "other", "cron", "@daily")
	w.press(t, "Make it")
	w.see(t, "a schedule of this name exists: change that one")
	if s := schedule(); s.Cron != "@yearly" || s.Queue != "reports" {
		t.Errorf("%+v", s)
	}
	w.press(t, "Leave it")
	w.goTo(t, "/schedules/nightly", "Schedule nightly")
	w.press(t, "Pause")
	w.see(t, "No tick fires until it is resumed.")
	w.press(t, "Pause")
	w.see(t, "paused since")
	w.press(t, "Resume", "Resume")
	w.eventually(t, "it goes on", func() (bool, error) { return schedule().Paused.IsZero(), nil })
	w.press(t, "Run now", "Run now")
	w.see(t, "Task nightly@run-")
	w.goTo(t, "/schedules/nightly", "Schedule nightly")
	w.press(t, "Delete", "Delete the schedule")
	w.see(t, "None: the button makes one")
	if _, err := w.Schedule(w.ctx, "nightly"); !errors.Is(err, queue.ErrNoSchedule) {
		t.Error(err)
	}
}

// A subscription is made, published to, paused, changed and deleted; a webhook's deliveries are there, its destination that is
// switched off is told, and what was published is delivered again after it is counted.
func TestTopicActions(t *testing.T) {
	w := setup(t)
	w.goTo(t, "/topics", "Topics")
	w.press(t, "Make a subscription")
	w.accessible(t, "dialog")
	w.fill(t, "id", "partner", "topic", "orders.*", "url", "https://partner.example/hook", "attributes", "wrong")
	w.press(t, "Make it")
	w.see(t, "wrong: write NAME=VALUE")
	w.fill(t, "attributes", "type=made\ntenant=ac*")
	w.press(t, "Make it")
	w.until(t, `document.querySelector("h1").innerText === "Subscription partner"`)
	off, err := json.Marshal([]webhook.Off{{Destination: "https://partner.example", Failures: 10, Until: 4102444800, Error: "HTTP 503"}})
	must(t, err)
	sender := listen.New(w.Client)
	must(t, sender.Join(w.ctx))
	_, err = sender.Renew(w.ctx, map[string]string{"kind": listen.KindWebhook, "destinations_off": string(off)})
	must(t, err)
	w.see(t, "its destination is switched off", "HTTP 503")
	w.accessible(t, "switched off")

	w.goTo(t, "/topics", "Topics")
	w.see(t, "Destinations that are switched off", "orders.*", "type=made", "tenant=ac*")
	w.press(t, "Publish")
	w.fill(t, "topic", "orders.new", "payload", `{"total": 1}`, "attributes", "x", "id", "one")
	w.press(t, "Publish it")
	w.until(t, `document.querySelector("dialog .wrong").innerText === "x: write NAME=VALUE"`) // nothing was sent: no doubt whether it was done
	w.fill(t, "attributes", "type=made\ntenant=acme")
	w.press(t, "Publish it")
	w.see(t, "Publication one", "1 subscriber.", `{"total": 1}`)
	w.goTo(t, "/topics/orders.new", "Topic orders.new")
	w.press(t, "Publish")
	w.see(t, "It has 1 active subscription: each that matches gets one task.")
	w.fill(t, "id", "one")
	w.press(t, "Publish it")
	w.see(t, "It was published before: nothing is published now.")

	w.goTo(t, "/subscriptions/partner", "Subscription partner")
	w.see(t, queue.PublishedID("one", "partner"))
	w.press(t, "Replay", "Count")
	w.see(t, "Deliver 1 publication to partner again?")
	w.press(t, "Deliver 1 publication")
	w.see(t, "1 task enqueued in webhook.partner.")
	w.stats(t, "webhook.partner", func(s manage.Stats) bool { return s.Depth[queue.Pending] == 2 })
	_, err = w.Publish(w.ctx, "orders.new", nil, queue.PublishOptions{ID: "two", Attributes: map[string]string{"type": "made", "tenant": "acme"}})
	must(t, err)
	must(t, w.Queue("webhook.partner").SetLimit(w.ctx, 4)) // of which three are there
	w.press(t, "Replay", "Count", "Deliver 2 publications")
	two, err := w.Publication(w.ctx, "two")
	must(t, err)
	w.see(t, "1 task enqueued in webhook.partner. deliver publication two again", "go on with quern subscription replay partner --since "+two.Created.UTC().Format("2006-01-02T15:04:05.000000Z"))
	must(t, w.Queue("webhook.partner").SetLimit(w.ctx, 0))
	w.press(t, "Pause")
	w.fill(t, "reason", "they asked")
	w.press(t, "Pause")
	w.see(t, "they asked")
	_, err = w.ChangeSubscription(w.ctx, "partner", func(s *queue.Subscription) error {
		s.Filter.Data = map[string]any{"/customer": json.Number("9007199254740993"), "/rate": json.Number("1.50")}
		return nil
	})
	must(t, err)
	w.see(t, "/customer=9007199254740993", "/rate=1.50")
	w.press(t, "Change")
	w.fill(t, "attributes", "type=made")
	w.press(t, "Change it")
	w.until(t, `!document.body.innerText.includes("tenant=ac*")`)
	s, err := w.Subscription(w.ctx, "partner")
	must(t, err)
	if numbers := fmt.Sprint(s.Filter.Data); numbers != "map[/customer:9007199254740993 /rate:1.50]" {
		t.Errorf("the filter has other numbers: %s", numbers)
	}
	if s.Active || s.Reason != "they asked" || s.Webhook.URL != "https://partner.example/hook" || len(s.Filter.Attributes) != 1 {
		t.Errorf("%+v", s)
	}
	w.press(t, "Resume", "Resume")
	w.see(t, "active")
	w.press(t, "Delete", "Delete the subscription")
	w.until(t, `document.querySelector("h1").innerText === "Topics"`)
	if _, err := w.Subscription(w.ctx, "partner"); !errors.Is(err, queue.ErrNoSubscription) {
		t.Error(err)
	}
}

// A flow is cancelled together; open dependencies are closed; a task is enqueued by hand.
func TestFlowActions(t *testing.T) {
	w := setup(t)
	first := w.enqueue(t, "mail", "x", queue.Options{})
	second := w.enqueue(t, "mail", "x", queue.Options{After: []string{first}})
	third := w.enqueue(t, "mail", "x", queue.Options{After: []string{second}, Open: true})
	w.goTo(t, "/tasks/"+third, "Task "+third)
	w.see(t, "Waits for 1 task", "and nobody adds more")
	w.press(t, "Close", "Close them")
	w.eventually(t, "it is closed", func() (bool, error) {
		task, err := w.Task(w.ctx, third)
		return err == nil && !task.After.Open, err
	})
	w.goTo(t, "/tasks/"+first, "Task "+first)
	w.press(t, "Cancel the flow")
	w.see(t, "2 tasks shown in the tree wait for this one, directly or not")
	w.accessible(t, "dialog")
	w.press(t, "Cancel the flow")
	w.see(t, "3 cancelled, 0 being stopped, 0 had finished.")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Failed] == 3 })
	w.goTo(t, "/queues/mail", "Queue mail")
	w.press(t, "Enqueue")
	w.see(t, "One task, behind the 0 tasks that are pending.")
	w.fill(t, "parameters", "by hand", "id", "hand-1")
	w.press(t, "Enqueue it")
	w.see(t, "Task hand-1", "by hand")
	w.goTo(t, "/queues/mail", "Queue mail")
	w.press(t, "Enqueue")
	w.fill(t, "id", "hand-1")
	w.press(t, "Enqueue it")
	w.see(t, "It was enqueued before: nothing is enqueued now.")
}

// A job can be stopped; a search and the dead letters make jobs, too.
func TestJobs(t *testing.T) {
	w := setup(t)
	node := w.node(t, nil, "mail")
	for i := range 4 {
		w.enqueue(t, "mail", "x", queue.Options{Labels: map[string]string{"half": fmt.Sprint(i % 2)}})
		w.run(t, node, "mail", failed("no"))
	}
	w.goTo(t, "/search", "Search")
	w.do(t, chromedp.SendKeys(`input[name="label"]`, "half=1\r"))
	w.see(t, "2 tasks")
	w.press(t, "Delete all finished ones")
	w.see(t, "label half=1")
	w.press(t, "Delete 2 tasks")
	w.see(t, "2 of 2 tasks")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Failed] == 2 })

	w.goTo(t, "/search?status=complete", "Search")
	w.see(t, "None.")
	w.goTo(t, "/search?queue=mail", "Search")
	w.press(t, "Cancel all that are not finished")
	w.see(t, "No task passes: there is nothing to do.")
	w.press(t, "Leave it")

	job, err := manage.NewJobs(w.Client).New(w.ctx, "retry", `{"queue":"mail"}`, "ada")
	must(t, err)
	claim, err := manage.NewJobs(w.Client).WorkOn(w.ctx, job.ID) // by this process, which does not go on
	must(t, err)
	w.goTo(t, "/jobs/"+job.ID, "Job")
	w.see(t, "counting")
	w.press(t, "Stop", "Stop it")
	w.eventually(t, "the job is to stop", func() (bool, error) { return claim.Stopped(w.ctx) })
}

// A listener that is alive is drained; the tasks of a Python listener, of which nobody knows, are returned by hand.
func TestNodeActions(t *testing.T) {
	w := setup(t)
	node := w.node(t, nil, "mail")
	w.goTo(t, "/nodes", "Nodes")
	w.press(t, "Drain")
	w.see(t, "finishes its 0 tasks")
	w.press(t, "Drain it")
	w.see(t, "draining")
	if _, drain, err := node.Marks(w.ctx, nil); err != nil || !drain {
		t.Errorf("the listener is not drained: %v", err)
	}
	must(t, w.rdb.SAdd(w.ctx, w.Tenant()+"_listeners_slow", "old.example.com_17").Err())
	must(t, w.rdb.ZAdd(w.ctx, w.Tenant()+"_queues", redis.Z{Score: 1, Member: "slow"}).Err())
	id := w.enqueue(t, "slow", "x", queue.Options{})
	must(t, w.rdb.RPopLPush(w.ctx, w.Tenant()+"_pending_tasks_slow", w.Tenant()+"_reserved_tasks_slow_old.example.com_17").Err())
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+id, "status", "reserved", "node", "old.example.com_17").Err())
	w.see(t, "old.example.com_17")
	w.press(t, "Reclaim")
	w.see(t, "The 1 task that old.example.com_17 holds return to their queues. Make sure that its process has ended")
	w.press(t, "Reclaim them")
	w.see(t, "1 returned")
	w.stats(t, "slow", func(s manage.Stats) bool { return s.Depth[queue.Pending] == 1 })
}

// What the doctor found is mended where it is shown.
func TestFindings(t *testing.T) {
	w := setup(t)
	digest := strings.Repeat("a1", 32)
	w.node(t, []upkeep.PluginInfo{{Plugin: "mail", Digest: digest, Queues: []string{"mail"}, State: "serving"}}, "mail", "later")
	w.enqueue(t, "mail", "x", queue.Options{})
	must(t, w.Queue("mail").Pause(w.ctx))
	must(t, w.Queue("mail").SetLimit(w.ctx, 1))
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_crashes", "mail "+digest, "4102444800 a~00000001_1 1.0").Err())
	open := w.enqueue(t, "later", "x", queue.Options{Open: true})
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+open, "updated", "1700000000").Err())
	_, err := w.PutSchedule(w.ctx, queue.Schedule{ID: "report", Queue: "mail", Cron: "@yearly", Owner: queue.OwnedByPlugin("report")}, false)
	must(t, err)
	s, err := w.Schedule(w.ctx, "report")
	must(t, err)
	_, err = listen.NewFleet(w.Client).NoteSchedule(w.ctx, s, false, 0)
	must(t, err)
	_, err = w.Publish(w.ctx, "orders.lost", nil, queue.PublishOptions{})
	must(t, err)
	w.goTo(t, "", "Overview")
	w.see(t, "Topic orders.lost")
	w.press(t, "Close")
	w.see(t, open+" waits for tasks")
	w.press(t, "Close them")
	w.eventually(t, "it is closed", func() (bool, error) {
		task, err := w.Task(w.ctx, open)
		return err == nil && !task.After.Open, err
	})
	w.press(t, "Delete", "Delete the schedule")
	w.until(t, `document.querySelector("h1").innerText === "Schedules"`)
	if _, err := w.Schedule(w.ctx, "report"); !errors.Is(err, queue.ErrNoSchedule) {
		t.Error(err)
	}
	w.goTo(t, "", "Overview")
	w.press(t, "Resume", "Resume")
	w.stats(t, "mail", func(s manage.Stats) bool { return !s.Paused })
	w.press(t, "Limit to 2", "Set the limit")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Limit == 2 })
	w.press(t, "Release", "Release it")
	w.eventually(t, "the quarantine ends", func() (bool, error) {
		left, err := listen.NewFleet(w.Client).Quarantines(w.ctx)
		return len(left) == 0, err
	})
	w.until(t, `document.querySelectorAll(".findings button").length === 0`)
}

// Errors of a search are grouped, a match in an earlier run is shown, and a pending task says why it waits.
func TestErrorsAndWaits(t *testing.T) {
	w := setup(t)
	node := w.node(t, nil, "mail")
	for range 3 {
		w.enqueue(t, "mail", "x", queue.Options{})
		w.run(t, node, "mail", failed("KeyError: 'to'\nat line 7"))
	}
	w.enqueue(t, "mail", "x", queue.Options{})
	w.run(t, node, "mail", failed("HTTP 503"))
	late := w.enqueue(t, "mail", `{"id": 12345678901234567891.0}`, queue.Options{})
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+late, "last_error", `{"reason":"error","message":"HTTP 503 once"}`).Err())
	w.run(t, node, "mail", complete("done"))
	w.goTo(t, "/search?queue=mail", "Search")
	w.see(t, "Their errors", "KeyError: 'to'", "HTTP 503")
	w.goTo(t, "/search?error=503", "Search")
	w.see(t, "an earlier run: HTTP 503 once")
	w.goTo(t, "/search?queue=mail", "Search")
	w.press(t, "Retry all with this text", "Retry 3 tasks")
	w.see(t, "3 of 3 tasks")

	w.goTo(t, "/tasks/"+late, "Task "+late)
	w.press(t, "JSON")
	w.see(t, "12345678901234567891.0")
	waits := w.enqueue(t, "mail", "x", queue.Options{})
	w.goTo(t, "/tasks/"+waits, "Task "+waits)
	w.see(t, "It waits for its turn.")
	must(t, w.Queue("mail").Pause(w.ctx))
	w.see(t, "It waits: the queue mail is paused since ")
	alone := w.enqueue(t, "nobody", "x", queue.Options{})
	w.goTo(t, "/tasks/"+alone, "Task "+alone)
	w.see(t, "It waits: no host or worker serves the queue nobody.")
}

// A dead letter leads to the task that it stands for; letters that wait or failed are tried again together.
func TestDeadLetters(t *testing.T) {
	w := setup(t)
	w.dead = "graves"
	node := w.node(t, nil, "mail", w.dead)
	var ids []string
	for i := range 2 {
		ids = append(ids, w.enqueue(t, "mail", "x", queue.Options{}))
		w.run(t, node, "mail", failed("no"))
		if i == 0 {
			w.run(t, node, "graves", failed("no grave"))
		}
	}
	w.goTo(t, "/dead", "Dead letters")
	w.see(t, ids...)
	w.press(t, "Retry all letters", "Retry 2 tasks")
	w.see(t, "2 of 2 tasks")
	w.stats(t, "mail", func(s manage.Stats) bool { return s.Depth[queue.Pending] == 2 })
}

// Whoever has no token signs in; the page has no buttons for what a role may not do; signing out forgets the token.
func TestSignIn(t *testing.T) {
	w, viewer := setupViewer(t)
	w.enqueue(t, "mail", "x", queue.Options{})
	w.do(t, chromedp.Navigate(w.base+"#/"+w.Tenant()+"/queues/mail"))
	w.see(t, "Sign in")
	w.do(t, chromedp.SendKeys(`input[name="token"]`, "wrong\r"))
	w.see(t, "the token is unknown or was revoked")
	w.accessible(t, "sign in")
	w.do(t, chromedp.SendKeys(`input[name="token"]`, viewer+"\r"))
	w.see(t, "Queue mail", "vera (viewer)", "pending (1)")
	if evaluate[bool](t, w, `[...document.querySelectorAll("main button")].length > 0`) {
		t.Error("a viewer has buttons")
	}
	if evaluate[string](t, w, `location.href + document.cookie + localStorage.length`) != w.base+"#/"+w.Tenant()+"/queues/mail0" {
		t.Error("the token is in an address, a cookie or the local storage")
	}
	w.press(t, "Sign out")
	w.until(t, `document.querySelector("h1")?.innerText === "Sign in" && sessionStorage.length === 0`)
}

// Nothing of another site may run in the page, frame it or be sent from it; its files have ETags, also below a base path.
func TestHeaders(t *testing.T) {
	w := setup(t, func(c *api.Config) { c.BasePath = "/quern" })
	get := func(path, tag string) (status int, header http.Header) {
		request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, path, nil)
		must(t, err)
		request.Header.Set("If-None-Match", tag)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		must(t, response.Body.Close())
		return response.StatusCode, response.Header
	}
	for _, path := range []string{w.base, w.base + "app.js", strings.TrimSuffix(w.base, "quern/"), strings.TrimSuffix(w.base, "/")} {
		status, header := get(path, "")
		policy := header.Get("Content-Security-Policy")
		if status != http.StatusOK || header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(policy, "frame-ancestors 'none'") ||
			!strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %d %v", path, status, header)
		}
		if again, _ := get(path, header.Get("ETag")); again != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again)
		}
	}
	w.enqueue(t, "mail", "x", queue.Options{})
	w.goTo(t, "/queues", "Queues")
	w.see(t, "mail", "1 queue")
}
