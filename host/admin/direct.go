package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// Direct acts on a tenant through its Redis.
type Direct struct {
	*queue.Client
	*manage.Manager
	*listen.Fleet
	Jobs *manage.Jobs
	KV   *kv.Store // the buckets of the tenant's handlers
}

var _ Tenant = (*Direct)(nil)

// NewDirect returns a Direct that acts on the client's tenant. Its method Close closes the client.
func NewDirect(client *queue.Client, store *kv.Store) *Direct {
	return &Direct{client, manage.New(client), listen.NewFleet(client), manage.NewJobs(client), store}
}

// pageBytes bounds how many bytes of tasks, or of subscriptions, are read at a time.
const pageBytes = 4 << 20

// BusiestQueues counts the tasks of at most limit queues: those with the most pending tasks of priority 50, or with the
// most listeners. all is the number of the tenant's queues.
func (t *Direct) BusiestQueues(ctx context.Context, limit int) (queues []Queue, all int64, err error) {
	names, all, err := t.Manager.BusiestQueues(ctx, limit)
	if err == nil {
		queues, err = t.QueueCounts(ctx, names)
	}
	return queues, all, err
}

// QueueCounts counts the tasks of the named queues. The result has the order of names.
func (t *Direct) QueueCounts(ctx context.Context, names []string) ([]Queue, error) {
	stats, err := t.Manager.Stats(ctx, names...)
	if err != nil {
		return nil, err
	}
	pauses, err := t.pausesOf(ctx, names)
	if err != nil {
		return nil, err
	}
	shapes := make([]Queue, len(names))
	for i, name := range names {
		shapes[i] = NewQueue(t.Tenant(), name, stats[i])
		shapes[i].Pauses = pauses[i]
	}
	return shapes, nil
}

// pausesOf reads the pauses of queues; of a single one also those of its keys, for which it reads all of the tenant.
func (t *Direct) pausesOf(ctx context.Context, names []string) ([][]manage.Pause, error) {
	if len(names) != 1 {
		return t.Manager.Pauses().Of(ctx, names...)
	}
	all, err := t.Manager.Pauses().List(ctx)
	return [][]manage.Pause{slices.DeleteFunc(all, func(p manage.Pause) bool {
		return p.Plugin != "" || p.Queue != "" && p.Queue != names[0]
	})}, err
}

// Buckets lists the buckets of the tenant's handlers. If a bucket is damaged, Buckets returns the other buckets and an
// error.
func (t *Direct) Buckets(ctx context.Context) ([]Bucket, error) {
	buckets, err := t.KV.Buckets(ctx)
	if err != nil && len(buckets) == 0 {
		return nil, err
	}
	serving, unknown := t.Plugins(ctx)
	quotas := make(map[string]int64) // by bucket: the largest quota among the plugins of live hosts
	for _, p := range serving {
		if p.Grants == nil {
			continue
		}
		for _, bucket := range p.Grants.KV {
			quotas[bucket.Bucket] = max(quotas[bucket.Bucket], bucket.Quota)
		}
	}
	all := make([]Bucket, len(buckets))
	for i, b := range buckets {
		all[i] = Bucket{t.Tenant(), b.Name, b.Keys, b.Bytes, quotas[b.Name]}
	}
	return all, errors.Join(err, unknown)
}

// nodeFields names the published fields of a listener from which a Node is made.
var nodeFields = []string{
	"version", "slots", "slots_in_use", "running", "name", "started", "clock", "address", "memory", "memory_reserved",
	"waits_for_memory", "databases_away", "destinations_off", "webhook_secrets", "queues",
}

// Nodes lists the listeners of the tenant, sorted by ID.
func (t *Direct) Nodes(ctx context.Context) ([]Node, error) {
	nodes, err := t.Fleet.Nodes(ctx, nodeFields...)
	if err != nil {
		return nil, err
	}
	return t.nodes(ctx, nodes)
}

// Leased lists at most limit listeners that have a lease. The listener that renewed its lease most recently comes
// first. Each Node has the queues that the listener publishes, but not the tasks that the listener holds.
func (t *Direct) Leased(ctx context.Context, limit int) ([]Node, error) {
	nodes, err := t.Fleet.Leased(ctx, limit, nodeFields...)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		_ = json.Unmarshal([]byte(nodes[i].About["queues"]), &nodes[i].Queues) // invalid JSON counts as no queues
	}
	return t.nodes(ctx, nodes)
}

func (t *Direct) nodes(ctx context.Context, nodes []listen.NodeInfo) ([]Node, error) {
	now, err := t.Clock(ctx)
	shapes := make([]Node, len(nodes))
	for i, n := range nodes {
		number := func(name string) *int {
			if value, err := strconv.Atoi(n.About[name]); err == nil {
				return &value
			}
			return nil
		}
		shapes[i] = Node{
			Listener: n.ID, Tenant: t.Tenant(), Kind: n.Kind, Version: n.About["version"], LeaseEnds: Seconds(n.LeaseEnd),
			Alive: n.LeaseEnd.After(now) || n.Kind == listen.KindPython, Draining: n.Draining,
			Slots: number("slots"), SlotsInUse: number("slots_in_use"), Queues: append([]string{}, n.Queues...), Holds: n.Holds,
			Name: n.About["name"], Uptime: uptime(n), Address: n.About["address"],
			Memory: asInt(n.About["memory"]), Reserved: asInt(n.About["memory_reserved"]),
		}
		// The fields stay empty if the listener does not publish them.
		_ = json.Unmarshal([]byte(n.About["waits_for_memory"]), &shapes[i].WaitsFor)
		_ = json.Unmarshal([]byte(n.About["running"]), &shapes[i].Running)
		if shapes[i].Alive {
			_ = json.Unmarshal([]byte(n.About["databases_away"]), &shapes[i].Away)
			// only listeners that deliver webhooks publish these fields
			_ = json.Unmarshal([]byte(n.About["destinations_off"]), &shapes[i].Off)
			_ = json.Unmarshal([]byte(n.About["webhook_secrets"]), &shapes[i].Secrets)
		}
	}
	return shapes, err
}

// asInt parses a number that a host published. It returns 0 if the text is not a number.
func asInt(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// uptime returns how many seconds a host has run, by the host's own clock. It returns 0 if that is unknown.
func uptime(n listen.NodeInfo) float64 {
	started, err := strconv.ParseFloat(n.About["started"], 64)
	clock, missing := strconv.ParseFloat(n.About["clock"], 64)
	if err != nil || missing != nil {
		return 0
	}
	return math.Round(clock - started)
}

// maxOfAnswer bounds the result of a delivery that is read, in bytes. A result with an answer of full length is
// several times smaller.
const maxOfAnswer = 256 << 10

// Deliveries lists at most limit deliveries of a subscription that has a webhook, newest first. If status is empty, it
// lists deliveries of every status.
func (t *Direct) Deliveries(ctx context.Context, id string, status queue.Status, limit int) ([]Delivery, error) {
	s, err := t.Subscription(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.Webhook == nil {
		return nil, fmt.Errorf("%w: subscription %s has no webhook: list the tasks of its queue %q", queue.ErrInvalid, id,
			s.Queue)
	}
	list := []Delivery{}
	for offset := 0; len(list) < limit; {
		page, err := t.Manager.Queue(s.Queue).Page(ctx, manage.ListOptions{
			Status: status, Offset: offset,
			Limit: limit - len(list), Bytes: pageBytes,
		})
		if err != nil {
			return nil, err
		}
		if list, err = t.deliveries(ctx, list, page.Tasks); err != nil || page.End {
			return list, err
		}
		offset = page.Next
	}
	return list, nil
}

// deliveries converts tasks to deliveries, and appends these to list.
func (t *Direct) deliveries(ctx context.Context, list []Delivery, tasks []*queue.Task) ([]Delivery, error) {
	for _, task := range tasks {
		var answer struct{ Status int }
		if task.Status == queue.Complete {
			result, err := t.Result(ctx, task.ID, maxOfAnswer)
			if err != nil && !errors.Is(err, queue.ErrNoTask) && !errors.Is(err, queue.ErrInvalid) &&
				!errors.Is(err, seal.ErrKey) && !errors.Is(err, seal.ErrDamaged) {
				return nil, err
			}
			_ = json.Unmarshal(result, &answer) // the result may have no status
		}
		one := Delivery{
			ID: task.ID, Status: task.Status, Attempts: task.Attempts, Answer: answer.Status,
			Created: Seconds(task.Created), ETA: Seconds(task.ETA),
		}
		shape := NewTask("", task, nil)
		if one.failure = cmp.Or(shape.Error, shape.LastError); one.failure != nil && task.Status != queue.Complete {
			one.Error, one.Answer = one.failure.Headline(), webhook.RefusedWith(one.failure.Message)
		}
		list = append(list, one)
	}
	return list, nil
}

// Topics lists the topics without their subscriptions. The topic that was published to most recently comes first.
func (t *Direct) Topics(ctx context.Context) ([]Topic, error) {
	topics, err := t.Manager.Topics(ctx)
	shapes := make([]Topic, len(topics))
	for i, one := range topics {
		shapes[i] = NewTopic(t.Tenant(), one)
	}
	return shapes, err
}

// Topic reads a topic with its subscriptions.
func (t *Direct) Topic(ctx context.Context, name string) (Topic, error) {
	topic, err := t.Manager.Topic(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	all, err := t.Subscriptions(ctx)
	if all == nil {
		return Topic{}, err // none was read; otherwise damaged subscriptions must not hide the others
	}
	shape := NewTopic(t.Tenant(), topic)
	for i, size := 0, 0; i < len(all) && size < pageBytes; i++ {
		if all[i].OfTopic(name) {
			one, bytes := NewSubscription(&all[i])
			shape.List, size = append(shape.List, one), size+bytes
		}
	}
	return shape, nil
}

// Publications reads a page of the publications of a topic, newest first.
func (t *Direct) Publications(ctx context.Context, topic string, offset, limit int64) ([]Publication, error) {
	all, err := t.Manager.Publications(ctx, topic, offset, limit)
	shapes := make([]Publication, len(all))
	for i, p := range all {
		shapes[i] = NewPublication(t.Tenant(), p)
	}
	return shapes, err
}

// Publication reads a publication with its payload and the states of its tasks.
func (t *Direct) Publication(ctx context.Context, id string) (Publication, error) {
	return t.PublicationUpTo(ctx, id, math.MaxInt64)
}

// PublicationUpTo is like Publication, but leaves out the payload if it has more than limit bytes.
func (t *Direct) PublicationUpTo(ctx context.Context, id string, limit int64) (Publication, error) {
	size, err := t.Fleet.PublicationSize(ctx, id)
	if err != nil {
		return Publication{}, err
	}
	read := t.Manager.PublicationSummary
	if size <= limit {
		read = func(ctx context.Context, id string) (*queue.Publication, error) {
			return t.PublicationWithin(ctx, id, size)
		}
	}
	p, err := read(ctx, id)
	if err != nil {
		return Publication{}, err
	}
	tasks, err := t.Manager.PublicationTasks(ctx, id, 0, queue.MaxSubscriptions)
	shape := NewPublication(t.Tenant(), p)
	if shape.PayloadSize = int(size); size <= limit {
		shape.Payload, shape.PayloadBase64 = Payload(p.Payload)
	}
	shape.Summary = make(map[string]int)
	for i, task := range tasks {
		status := string(task.Status)
		if task.Queue == "" {
			status = "gone"
		}
		if shape.Summary[status]++; i < 1000 {
			shape.List = append(shape.List, PublishedTask{task.Subscription, task.ID, task.Queue, status, string(task.Reason)})
		}
	}
	return shape, err
}

// Queue returns the queue with the given name.
func (t *Direct) Queue(name string) QueueHandle { return t.Manager.Queue(name) }

// Task reads a task with its history.
func (t *Direct) Task(ctx context.Context, id string) (*Task, error) {
	shape, err := t.read(ctx, id, t.Client.Task)
	if err == nil {
		t.Explain(ctx, shape)
	}
	return shape, err
}

// Summary reads a task with its history, without its parameters and result.
func (t *Direct) Summary(ctx context.Context, id string) (*Task, error) {
	return t.read(ctx, id, t.Client.Summary)
}

func (t *Direct) read(ctx context.Context, id string,
	read func(context.Context, string) (*queue.Task, error),
) (*Task, error) {
	task, err := read(ctx, id)
	if err != nil {
		return nil, err
	}
	return ReadTask(ctx, t.Manager, t.Tenant(), task)
}

// Wait blocks until the task is finished and returns it, without its history.
func (t *Direct) Wait(ctx context.Context, id string) (*Task, error) {
	return t.shown(t.Client.Wait(ctx, id))
}

// Retry makes a failed task, or the failed task behind a dead letter, wait in its queue again, and returns that task.
func (t *Direct) Retry(ctx context.Context, id string) (*Task, error) {
	return t.shown(t.Client.Retry(ctx, id))
}

// shown converts a task to the form that operators see, without its history. It returns nil if task is nil.
func (t *Direct) shown(task *queue.Task, err error) (*Task, error) {
	if task == nil {
		return nil, err
	}
	return NewTask(t.Tenant(), task, nil), err
}

// Tree reads a task with the tasks that it enqueued and the tasks that depend on it, and the same for each of these
// tasks.
func (t *Direct) Tree(ctx context.Context, id string, options manage.TreeOptions) (*TreeNode, error) {
	root, err := t.Manager.Tree(ctx, id, options)
	if err != nil {
		return nil, err
	}
	return newTree(t.Tenant(), root), nil
}

// List reads the tasks that pass the filter. The newest task comes first; of scheduled tasks, the one that is due next.
// List skips the first offset tasks and returns at most limit tasks, or all if limit is 0.
func (t *Direct) List(ctx context.Context, f *Filter, offset, limit int) ([]Task, error) {
	tasks, err := t.list(ctx, f, offset, limit)
	return showAll(tasks, func(task *queue.Task) Task { return *NewTask(t.Tenant(), task, nil) }), err
}

func (t *Direct) list(ctx context.Context, f *Filter, offset, limit int) ([]*queue.Task, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	o := manage.ListOptions{Status: queue.Status(f.Status), Key: f.Key, Offset: offset, Limit: limit}
	if limit > 0 && !f.Narrows() {
		return t.Manager.Queue(f.Queue).List(ctx, o)
	}
	var found []*queue.Task
	seen := make(map[string]bool) // other clients change the list meanwhile, so pages can overlap
	for from := (&Place{}); from != nil && (limit == 0 || len(found) < offset+limit); {
		next, _, err := t.Search(ctx, f, *from, nil, func(task *queue.Task) bool {
			if !seen[task.ID] {
				seen[task.ID] = true
				found = append(found, task)
			}
			return limit == 0 || len(found) < offset+limit
		})
		if err != nil {
			return nil, err
		}
		from = next
	}
	found = found[min(offset, len(found)):]
	if limit > 0 {
		found = found[:min(limit, len(found))]
	}
	return found, nil
}

// Schedules lists the schedules, sorted by ID.
func (t *Direct) Schedules(ctx context.Context) ([]Schedule, error) {
	all, err := t.Manager.Schedules(ctx)
	return showAll(all, func(s *queue.Schedule) Schedule { return NewSchedule(t.Tenant(), s) }), err
}

// Schedule reads a schedule. The error is queue.ErrNoSchedule if there is none with that ID.
func (t *Direct) Schedule(ctx context.Context, id string) (Schedule, error) {
	s, err := t.Client.Schedule(ctx, id)
	if err != nil {
		return Schedule{}, err
	}
	return NewSchedule(t.Tenant(), s), nil
}

// Findings returns what the doctor finds in tenants of the same Redis.
func (t *Direct) Findings(ctx context.Context, tenants ...string) ([]doctor.Finding, error) {
	clients := make([]*queue.Client, len(tenants))
	for i, tenant := range tenants {
		c, err := t.In(tenant)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		clients[i] = c
	}
	return doctor.Examine(ctx, clients...)
}

// AuditEntries reads the newest entries of the audit log, at most limit.
func (t *Direct) AuditEntries(ctx context.Context, limit int64) ([]AuditEntry, error) {
	entries, err := t.Manager.AuditLog(ctx, "", limit)
	return showAll(entries, NewAuditEntry), err
}

// Log reads the stored lines of a task's log whose numbers are greater than after.
func (t *Direct) Log(ctx context.Context, id string, after int64) ([]LogLine, error) {
	lines, err := t.Manager.Log(ctx, id, after)
	return showAll(lines, NewLogLine), err
}

// Record reads the record of a run of a task. The error is manage.ErrNoRecord if there is none.
func (t *Direct) Record(ctx context.Context, id string) ([]byte, error) {
	return t.Manager.Record(ctx, id)
}

// Quarantines lists the quarantined versions of plugins, which no host runs.
func (t *Direct) Quarantines(ctx context.Context) ([]Quarantine, error) {
	list, err := t.Fleet.Quarantines(ctx)
	return showAll(list, NewQuarantine), err
}

// ReclaimNode takes all tasks from a dead listener. The error is queue.ErrStatus if the listener is alive. A task fails
// once maxCrashes hosts have died while they ran it.
func (t *Direct) ReclaimNode(ctx context.Context, listener string, maxCrashes int) (Reclaimed, error) {
	got, err := t.Manager.ReclaimNode(ctx, listener, maxCrashes)
	return NewReclaimed(listener, got), err
}

// showAll converts a list of values to the form that operators see.
func showAll[T, S any](list []T, show func(T) S) []S {
	shapes := make([]S, len(list))
	for i, one := range list {
		shapes[i] = show(one)
	}
	return shapes
}

// Keys lists at most limit keys of a bucket. The keys begin with prefix and are greater than the key in after.
func (t *Direct) Keys(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	return t.KV.List(ctx, bucket, prefix, after, limit)
}

// Value reads a value of a bucket.
func (t *Direct) Value(ctx context.Context, bucket, key string) ([]byte, error) {
	return t.KV.Get(ctx, bucket, key)
}
