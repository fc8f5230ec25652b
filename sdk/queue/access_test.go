package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// hostScripts are those of handlers' buckets, which hosts run besides.
const hostScripts = "../../host/kv/scripts/*.lua"

// acts are what the programs of a role do. There are tasks in the queue "work" for who runs some. The test of the role
// operator is in host/admin, with what operators do.
var acts = map[string]func(t *testing.T, w *world){
	"producer": produce, "publisher": publishOnly, "worker": workOn, "host": host, "relay": relay, "outbox-relay": relayOutbox,
}

// ACL.md shows each role's permissions for the tenant acme, and Python's for blueque.
func TestAccessListsOnThePage(t *testing.T) {
	t.Parallel()
	page := string(must[[]byte](t)(os.ReadFile("ACL.md")))
	shown := regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindAllString(page, -1)
	for _, role := range manage.Roles() {
		tenant := "acme"
		if !role.In(tenant) {
			tenant = queue.DefaultTenant
		}
		line := role.ACL(tenant)
		at := slices.Index(shown, line)
		if at < 0 {
			t.Errorf("ACL.md does not have the line of the role %s in sdk/queue/manage/access.go:\n%s", role.Name, line)
			continue
		}
		shown = slices.Delete(shown, at, at+1)
	}
	if len(shown) > 0 {
		t.Errorf("ACL.md has lines that no role has:\n%s", strings.Join(shown, "\n"))
	}
}

// Each user of ACL.md may do what its role needs: the commands that its scripts name, whichever way they go, and those that
// were seen when it did its work. It may do nothing else, and nothing of another tenant.
func TestAccessLists(t *testing.T) {
	t.Parallel()
	for role, act := range acts {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := queuetest.Start(t)
			admin := server.Client(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			list := queuetest.AccessList(t, "ACL.md", "acme-"+role)
			if err := admin.Do(ctx, list...).Err(); err != nil {
				t.Fatalf("ACL SETUSER of a %s: %v", role, err)
			}
			others := newWorld(t, server.URL())
			others.Store().Keys, others.Config().Tenant = store.Keys{Tenant: "acme"}, "acme"
			must[[]queue.Receipt](t)(others.Queue("work").EnqueueMany(ctx, make([]queue.Spec, 4)))
			for _, id := range []string{"a", "b"} {
				must[queue.Subscription](t)(others.Subscribe(ctx, queue.Subscription{ID: id, Topic: "orders", Queue: id}))
			}
			if err := admin.ConfigResetStat(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			client := must[*queue.Client](t)(queue.New("redis://acme-"+role+":PASSWORD@"+server.Addr()+"/0?read_timeout=20s", queue.Config{Tenant: "acme"}))
			defer client.Close()
			w := &world{Client: client, rdb: client.Store().RDB.(*redis.Client), ctx: ctx}
			sent := queuetest.Watch(w.rdb)
			act(t, w)

			needed := seen(t, admin)
			maps.Copy(needed, sent.Needed())
			if role == "host" {
				for _, s := range store.AllScripts {
					queuetest.AddCommands(needed, s.Source)
				}
				for _, file := range must[[]string](t)(filepath.Glob(hostScripts)) {
					queuetest.AddCommands(needed, string(must[[]byte](t)(os.ReadFile(file))))
				}
			}
			exact(t, list, needed, admin)
			confined(t, w, others)
			if role == "publisher" {
				publishesOnly(t, w)
			}
		})
	}
}

// exact checks that a list grants what is needed, nothing else, and that nothing was denied.
func exact(t *testing.T, list []any, needed map[string]bool, admin *redis.Client) {
	t.Helper()
	granted := make(map[string]bool)
	for _, word := range list {
		if command, ok := strings.CutPrefix(word.(string), "+"); ok {
			granted[command] = true
		}
	}
	if !maps.Equal(granted, needed) {
		t.Errorf("ACL.md has for %s\n%s, and it needs\n+%s", list[2], slices.Sorted(maps.Keys(granted)), strings.Join(slices.Sorted(maps.Keys(needed)), " +"))
	}
	for _, entry := range must[[]*redis.ACLLogEntry](t)(admin.ACLLog(t.Context(), 100).Result()) {
		t.Errorf("Redis denied %s %q to %s", entry.Reason, entry.Object, entry.Username)
	}
}

// The user of Python's clients may do what the real package does, and nothing else.
func TestAccessListOfPython(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	admin := server.Client(t)
	ctx := t.Context()
	list := queuetest.AccessList(t, "ACL.md", "blueque-python")
	if err := admin.Do(ctx, list...).Err(); err != nil {
		t.Fatalf("ACL SETUSER: %v", err)
	}
	if err := admin.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	python := queuetest.Python(t, "redis://blueque-python:PASSWORD@"+server.Addr()+"/0")
	python.EnqueueDueTasks("q")
	due := python.Schedule("q", "x", time.Now().Add(50*time.Millisecond))
	eventually(t, "the task is due", func() bool {
		python.EnqueueDueTasks("q")
		return python.Task(due).Status == "pending"
	})
	listener := python.Register("q")
	for _, end := range []func(id, text string){python.Complete, python.Fail} {
		python.Enqueue("q", "x")
		task := python.Listen("q")
		python.Start(task.ID, 1)
		end(task.ID, "y")
		python.Task(task.ID)
		python.DeleteTask("q", task.ID)
	}
	needed := seen(t, admin)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	orphan := fmt.Sprintf("%s_%d", listener[:strings.LastIndex(listener, "_")], gone.Process.Pid)
	python.Enqueue("q", "x")
	admin.SAdd(ctx, "blueque_listeners_q", orphan)
	admin.LMove(ctx, "blueque_pending_tasks_q", "blueque_reserved_tasks_q_"+orphan, "right", "left")
	admin.ConfigResetStat(ctx)
	if python.ClaimOrphan("q") == nil {
		t.Error("no orphan was claimed")
	}
	maps.Copy(needed, seen(t, admin))
	for _, command := range []string{"auth", "hello", "ping", "select"} {
		needed[command] = true
	}
	exact(t, list, needed, admin)
}

// confined checks that the user of a tenant can touch no other tenant, and Redis neither.
func confined(t *testing.T, w, others *world) {
	t.Helper()
	if n := must[int64](t)(others.rdb.Exists(w.ctx, "acme_queues").Result()); n != 1 {
		t.Fatal("the tenant has no queue")
	}
	beta := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: "beta"}))
	defer beta.Close()
	_, enqueued := beta.Queue("q").Enqueue(w.ctx, nil, queue.Options{})
	_, polled := beta.Task(w.ctx, "x")
	subscription := w.rdb.Subscribe(w.ctx, "beta_channel_q")
	defer subscription.Close()
	_, subscribed := subscription.Receive(w.ctx)
	for what, err := range map[string]error{
		"enqueue": enqueued, "read": polled, "subscribe": subscribed, "join": listen.New(beta).Join(w.ctx),
		"publish": w.rdb.Publish(w.ctx, "beta_channel_q", "").Err(), "script": w.rdb.Eval(w.ctx, "return redis.call('GET', 'beta_version')", nil).Err(),
		"FLUSHALL": w.rdb.FlushAll(w.ctx).Err(), "KEYS": w.rdb.Keys(w.ctx, "*").Err(), "CONFIG SET": w.rdb.ConfigSet(w.ctx, "save", "").Err(),
		"ACL": w.rdb.Do(w.ctx, "ACL", "LIST").Err(), "SCRIPT FLUSH": w.rdb.ScriptFlush(w.ctx).Err(), "a longer name": w.rdb.Get(w.ctx, "acme2_version").Err(),
	} {
		// Of a key that a script names Redis 7.0 says in words alone that it is denied.
		if err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't access at least one of the keys") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// seen are the commands that Redis has run since its counts were reset, but for those of the test itself.
func seen(t *testing.T, admin *redis.Client) map[string]bool {
	t.Helper()
	commands := make(map[string]bool)
	stat := regexp.MustCompile(`cmdstat_(\S+?):calls=[1-9]`)
	for _, match := range stat.FindAllStringSubmatch(must[string](t)(admin.Info(t.Context(), "commandstats").Result()), -1) {
		commands[match[1]] = true
	}
	for _, own := range []string{"config|resetstat", "info"} {
		delete(commands, own)
	}
	return commands
}

// produce is what a producer does: it enqueues, waits, looks, and changes its mind.
func produce(t *testing.T, w *world) {
	q, ctx := w.Queue("q"), w.ctx
	w.enqueue(t, "q", "\xff", queue.Options{ID: "bytes", Priority: new(70), Key: "k", Labels: map[string]string{"a": "b"}, Retry: queue.Retry{MaxAge: time.Hour}})
	w.enqueue(t, "q", "", queue.Options{ID: "late", Delay: time.Hour})
	w.enqueue(t, "q", "same", queue.Options{Unique: &queue.Unique{}})
	must[[]queue.Receipt](t)(q.EnqueueMany(ctx, make([]queue.Spec, 3)))
	durable := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: w.Tenant(), Replicas: 1, ReplicaTimeout: time.Millisecond}))
	defer durable.Close()
	if _, err := durable.Queue("q").Enqueue(ctx, nil, queue.Options{}); !errors.Is(err, queue.ErrNotReplicated) {
		t.Error(err)
	}
	waiting, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := w.Wait(waiting, "late"); err == nil {
		t.Error("a task that is due in an hour is done")
	}
	task := w.task(t, "bytes")
	must[[]manage.Attempt](t)(manage.New(w.Client).History(ctx, task))
	must[[]manage.LogLine](t)(manage.New(w.Client).Log(ctx, "bytes", 0))
	must[[]byte](t)(w.Parameters(ctx, "bytes", math.MaxInt64))
	must[[]*queue.Task](t)(manage.QueueOf(q).List(ctx, manage.ListOptions{Limit: 9, Key: "k"}))
	for _, status := range append(queue.Statuses(), "") {
		must[[]*queue.Task](t)(manage.QueueOf(q).List(ctx, manage.ListOptions{Limit: 9, Status: status}))
	}
	must[map[string]int64](t)(w.Queues(ctx))
	must[manage.Stats](t)(manage.QueueOf(q).Stats(ctx))
	must[int64](t)(q.Limit(ctx))
	must[bool](t)(w.Queue("work").HasListener(ctx))
	must[bool](t)(q.Cancel(ctx, "late"))
	if err := q.Retry(ctx, "late"); err != nil {
		t.Error(err)
	}
	must[bool](t)(q.Cancel(ctx, "late"))
	if err := q.Delete(ctx, "late"); err != nil {
		t.Error(err)
	}
	w.enqueue(t, "q", "", queue.Options{ID: "batch", Open: true})
	if err := errors.Join(q.Await(ctx, "batch", "bytes"), q.Close(ctx, "batch")); err != nil {
		t.Error(err)
	}
	must[*manage.TreeNode](t)(manage.New(w.Client).Tree(ctx, "bytes", manage.TreeOptions{}))
	must[[]listen.Dependency](t)(manage.New(w.Client).Dependencies(ctx, "batch", 0, 9))
	if _, err := w.Result(ctx, "bytes", 9); !errors.Is(err, queue.ErrNoTask) {
		t.Error(err)
	}
	must[manage.FlowCancelled](t)(manage.New(w.Client).CancelFlow(ctx, "batch", true))
}

// relayOutbox does what `quern relay` does for an outbox.
func relayOutbox(t *testing.T, w *world) {
	t.Helper()
	back := listen.NewRelayClient(w.Client)
	spec := queue.Spec{Options: queue.Options{ID: "row", Once: time.Hour, Report: "outbox"}}
	must[[]queue.Receipt](t)(w.Queue("work").EnqueueMany(w.ctx, []queue.Spec{spec}))
	must[queue.Published](t)(w.Publish(w.ctx, "orders", nil, queue.PublishOptions{ID: "p"}))
	must[queue.Published](t)(w.Publish(w.ctx, "orders", nil, queue.PublishOptions{ID: "p"})) // once more
	if err := back.ForgetOnce(w.ctx, []string{"row"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	reports := must[[]listen.Report](t)(back.Reports(w.ctx, "outbox", time.Millisecond))
	if err := back.ForgetReports(w.ctx, "outbox", append(reports, listen.Report{Entry: "1-1"})); err != nil {
		t.Fatal(err)
	}
	if err := w.rdb.HSet(w.ctx, w.Store().Keys.Relays(), "gone", `{"name":"gone","reports":"gone","told":1}`).Err(); err != nil {
		t.Fatal(err)
	}
	if err := back.Publish(w.ctx, listen.RelayState{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	must[*queue.Task](t)(w.Summary(w.ctx, "row"))
	if _, err := w.Result(w.ctx, "row", 1); !errors.Is(err, queue.ErrNoTask) {
		t.Fatal(err)
	}
}

// relay does what `quern relay` does also for a table of another library: it gives rows back.
func relay(t *testing.T, w *world) {
	t.Helper()
	relayOutbox(t, w)
	must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, slices.Collect(maps.Keys(must[map[string]int64](t)(w.Queues(w.ctx))))...))
	must[bool](t)(w.Queue("work").Cancel(w.ctx, "row"))
	back := listen.NewRelayClient(w.Client)
	if ends, _, err := back.Ends(w.ctx, []string{"row"}); err != nil || len(ends) != 1 {
		t.Fatal(ends, err)
	}
	if err := w.Queue("work").Delete(w.ctx, "row"); err != nil {
		t.Fatal(err)
	}
}

// publishOnly is what a program does that only publishes: also more than one call can write, durably, and for a task.
func publishOnly(t *testing.T, w *world) {
	for _, options := range []queue.PublishOptions{{ID: "p", Attributes: map[string]string{"type": "made"}, Parent: "task"}, {ID: "p"}} {
		if got := must[queue.Published](t)(w.Publish(w.ctx, "orders", make([]byte, queue.PublishBytes), options)); got.Subscribers != 2 {
			t.Errorf("%+v", got)
		}
	}
	durable := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: w.Tenant(), Replicas: 1, ReplicaTimeout: time.Millisecond}))
	defer durable.Close()
	if _, err := durable.Publish(w.ctx, "orders", nil, queue.PublishOptions{}); !errors.Is(err, queue.ErrNotReplicated) {
		t.Error(err)
	}
}

// publishesOnly: who may only publish can change no subscription, and reach nothing but tasks and publications.
func publishesOnly(t *testing.T, w *world) {
	t.Helper()
	_, subscribed := w.Subscribe(w.ctx, queue.Subscription{ID: "mine", Topic: "orders", Queue: "mine"})
	_, scheduled := w.PutSchedule(w.ctx, queue.Schedule{ID: "mine", Queue: "mine", Cron: "@daily"}, false)
	for what, err := range map[string]error{
		"subscribe": subscribed, "unsubscribe": w.Unsubscribe(w.ctx, "a"), "schedule": scheduled, "join": listen.New(w.Client).Join(w.ctx),
		"a bucket": w.rdb.Get(w.ctx, "acme_kv_b").Err(), "a host": w.rdb.HGetAll(w.ctx, "acme_node_x").Err(),
	} {
		if err == nil || errors.Is(err, redis.Nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// workOn is what a worker in Go does with the tasks of "work".
func workOn(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	run := 0
	err := worker.Run(ctx, w.Client, "work", func(ctx context.Context, task *queue.Task) ([]byte, error) {
		processor := worker.NewProcessor(w.Client, task)
		must[[]byte](t)(listen.New(w.Client).ReadCheckpoint(ctx, task.ID))
		for _, err := range []error{processor.Checkpoint(ctx, []byte("x")), processor.Progress(ctx, 0.5, "half")} {
			if err != nil {
				t.Error(err)
			}
		}
		w.enqueue(t, "next", "", queue.Options{})
		run++
		switch run {
		case 1:
			return []byte("\xff"), nil
		case 2:
			return nil, errors.New("no")
		case 3:
			return nil, worker.Later(errors.New("not yet"), time.Hour)
		}
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil || run < 4 {
		t.Errorf("worked on %d tasks: %v", run, err)
	}
	listener := must[*worker.Listener](t)(worker.NewListener(w.ctx, w.Client, "work"))
	if task := must[*queue.Task](t)(listener.TryListen(w.ctx)); task == nil || worker.NewProcessor(w.Client, task).Reject(w.ctx, "no") != nil {
		t.Errorf("could not reject %v", task)
	}
	must[[]string](t)(listen.NodeAs(w.Client, listener.ID(), os.Getpid()).Held(w.ctx, "work")) // as once a lease
	if err := listener.Close(w.ctx); err != nil {
		t.Error(err)
	}
}

// host is what a host, or who tends its queues, does besides what scripts do.
// administer is what the API does besides.
func administer(t *testing.T, w *world) {
	ctx := w.ctx
	job := must[*manage.Job](t)(manage.NewJobs(w.Client).New(ctx, "retry", "{}", "ada"))
	work := must[*manage.JobWork](t)(manage.NewJobs(w.Client).WorkOn(ctx, job.ID))
	for _, err := range []error{
		manage.New(w.Client).Audit(ctx, manage.AuditEntry{Who: "ada"}), manage.NewJobs(w.Client).Start(ctx, job.ID), work.Forget(ctx), work.Add(ctx, []manage.JobItem{{ID: "a"}}),
		work.End(ctx, 0, []manage.JobItem{{End: manage.JobEndGone}}), work.Become(ctx, manage.JobDone, false, ""), work.Leave(ctx), manage.NewJobs(w.Client).Stop(ctx, job.ID),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	must[[]manage.AuditEntry](t)(manage.New(w.Client).AuditLog(ctx, "", 1))
	must[[]*manage.Job](t)(manage.NewJobs(w.Client).List(ctx))
	must[[]manage.JobItem](t)(manage.NewJobs(w.Client).Items(ctx, job.ID, 0, 1))
	must[bool](t)(work.Stopped(ctx))
	if _, alive, _, err := listen.NewFleet(w.Client).Leases(ctx); err != nil {
		t.Error(alive, err)
	}
	if _, _, err := w.Queue("work").EnqueueRequest(ctx, "request", nil, []queue.Spec{{Options: queue.Options{ID: "once"}}}); err != nil {
		t.Error(err)
	}
}

func host(t *testing.T, w *world) {
	ctx := w.ctx
	if err := listen.Prepare(ctx, w.Client); err != nil {
		t.Fatal(err)
	}
	produce(t, w)
	node := w.node(t, "work")
	want := listen.ReserveRequest{Queue: "work", Count: 4, Start: true, Plugin: "p", Digest: "d", MaxRunning: 2, FailurePolicy: listen.FailurePolicy{MaxCrashes: 1, Dead: "dead"}}
	first := node.Reserve(ctx, []listen.ReserveRequest{want})[0]
	full := node.Reserve(ctx, []listen.ReserveRequest{want})[0] // looks for what does not run any more
	if first.Err != nil || full.Err != nil || len(first.Tasks) != 2 || len(full.Tasks) != 0 {
		t.Fatalf("%+v, then %+v", first, full)
	}
	must[bool](t)(w.Queue("work").HasListener(ctx))
	must[map[string][]string](t)(node.HeldAll(ctx, []string{"work"}))
	must[[]byte](t)(listen.New(w.Client).ReadCheckpoint(ctx, first.Tasks[0].ID))
	must[bool](t)(node.TakeDuty(ctx, "due", time.Minute))
	must[bool](t)(node.KeepDuty(ctx, "due", time.Minute))
	for range 2 { // counted once, and read
		must[map[string]manage.Stats](t)(manage.New(w.Client).FleetStats(ctx, node, 10, []string{"work"}))
	}
	if _, _, err := node.Marks(ctx, []string{first.Tasks[0].ID}); err != nil {
		t.Error(err)
	}
	must[[]string](t)(listen.NewFleet(w.Client).Unleased(ctx))
	must[listen.Weights](t)(listen.ReadWeights(ctx, w.Client))
	if err := manage.GrantQuotas(ctx, w.Client, manage.Quotas{"fuel_rate": "1G/s", "memory": "1000", "log_bytes": "1000"}); err != nil {
		t.Error(err)
	}
	w.append(t, node, first.Tasks[0].Claim(), "a line")
	w.settle(t, node, "work", listen.Settlement{Claim: first.Tasks[0].Claim(), Result: []byte("\xff")})
	must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(ctx))
	if err := manage.New(w.Client).Drain(ctx, node.ID()); err != nil {
		t.Error(err)
	}
	w.die(t, node)
	if got := must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(ctx, node.ID(), 0)); got.Failed != 1 {
		t.Errorf("reclaimed %+v, want one task that failed", got)
	}
	must[[]listen.Quarantine](t)(listen.NewFleet(w.Client).Quarantines(ctx))
	administer(t, w)
	q := w.Queue("work")
	must[bool](t)(recount(ctx, q))
	for _, err := range []error{manage.New(w.Client).EndQuarantine(ctx, "p", "d"), q.Pause(ctx), q.Resume(ctx), q.SetLimit(ctx, 9), q.SetLimit(ctx, 0)} {
		if err != nil {
			t.Error(err)
		}
	}
	must[queue.Subscription](t)(w.Subscribe(ctx, queue.Subscription{ID: "s", Topic: "t", Queue: "topic"}))
	must[queue.Published](t)(w.Publish(ctx, "t", nil, queue.PublishOptions{ID: "p"}))
	must[[]manage.PublishedTask](t)(manage.New(w.Client).PublicationTasks(ctx, "p", 0, 1))
	must[[]*queue.Publication](t)(manage.New(w.Client).Publications(ctx, "t", 0, 1))
	must[[]manage.Topic](t)(manage.New(w.Client).Topics(ctx))
	must[manage.Topic](t)(manage.New(w.Client).Topic(ctx, "t"))
	must[[]string](t)(listen.NewFleet(w.Client).Unpublished(ctx))
	must[manage.Replayed](t)(manage.New(w.Client).Replay(ctx, "s", time.Unix(1, 0), true))
	must[int](t)(w.purgePublications(listen.PurgeOptions{Everything: true}))
	if err := errors.Join(w.Republish(ctx, must[queue.Published](t)(w.Publish(ctx, "t", nil, queue.PublishOptions{})).ID), listen.NewFleet(w.Client).ForgetUnpublished(ctx, "p"), listen.NewFleet(w.Client).PostponeUnpublished(ctx, []string{"p"}), w.Unsubscribe(ctx, "s")); err != nil {
		t.Error(err)
	}
	watch := listen.NewWatch(w.Client)
	defer watch.Close()
	if err := errors.Join(watch.Add(ctx, "work"), watch.Control(ctx, func() {}), watch.Ended(ctx, func() {}), watch.Remove(ctx, "work")); err != nil {
		t.Error(err)
	}
	if n := must[int](t)(manage.QueueOf(q).Purge(ctx, listen.PurgeOptions{Everything: true})); n != 2 {
		t.Errorf("purged %d tasks, want 2", n)
	}
}
