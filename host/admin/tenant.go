package admin

import (
	"context"
	"time"

	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Tenant acts on a tenant, through its Redis (Direct) or through the API of a server (client.Client). Both return the
// errors of sdk/queue.
type Tenant interface {
	Tenant() string
	Address() string // of Redis or the server, for people
	Tenants(context.Context) ([]string, error)
	Clock(context.Context) (time.Time, error)
	Close() error

	Tasks
	Flows
	Queues
	Topics
	Subscriptions
	Schedules
	Fleet
	Buckets
}

// Tasks are the tasks of a tenant.
type Tasks interface {
	// Task reads a task with its history.
	Task(ctx context.Context, id string) (*Task, error)
	// Summary is Task without parameters and result.
	Summary(ctx context.Context, id string) (*Task, error)
	Wait(ctx context.Context, id string) (*Task, error)
	Log(ctx context.Context, id string, after int64) ([]LogLine, error)
	// FindTasks lists the IDs of tasks that begin with a text.
	FindTasks(ctx context.Context, prefix string, most int) ([]string, error)
	// List reads the tasks that pass the filter. It skips offset tasks and returns at most limit; 0: all.
	List(ctx context.Context, f *Filter, offset, limit int) ([]Task, error)
	// Retry retries a failed task, or the failed task behind a dead letter, and returns the retried task.
	Retry(ctx context.Context, id string) (*Task, error)
}

// Flows are tasks that wait for others.
type Flows interface {
	Tree(ctx context.Context, id string, options manage.TreeOptions) (*TreeNode, error)
	Dependencies(ctx context.Context, id string, from, limit int) ([]listen.Dependency, error)
	CancelFlow(ctx context.Context, id string, whole bool) (manage.FlowCancelled, error)
}

// Queues are the queues of a tenant.
type Queues interface {
	Queue(name string) QueueHandle
	// Queues maps the names to the number of listeners.
	Queues(context.Context) (map[string]int64, error)
	// BusiestQueues counts the queues with the most pending tasks or listeners, and returns how many the tenant has.
	BusiestQueues(ctx context.Context, most int) (queues []Queue, all int64, err error)
	// QueueCounts counts queues, in the order given. A queue that nobody has used has counts of 0; a queue that cannot
	// be counted has an error.
	QueueCounts(ctx context.Context, names []string) ([]Queue, error)
}

// QueueHandle is one queue.
type QueueHandle interface {
	QueueSettings
	QueueTasks
	DeadLetters(context.Context) (waiting, failed int64, err error)
	HasListener(context.Context) (bool, error)
}

// QueueSettings are what operators set of a queue.
type QueueSettings interface {
	Pause(context.Context) error
	Resume(context.Context) error
	Limit(context.Context) (int64, error)
	SetLimit(ctx context.Context, limit int64) error
}

// QueueTasks change the tasks of a queue.
type QueueTasks interface {
	EnqueueMany(ctx context.Context, specs []queue.Spec) ([]queue.Receipt, error)
	Await(ctx context.Context, id string, after ...string) error
	Close(ctx context.Context, id string) error
	Cancel(ctx context.Context, id string) (done bool, err error)
	Delete(ctx context.Context, id string) error
	Purge(ctx context.Context, o listen.PurgeOptions) (int, error)
}

// Topics are the topics of a tenant, and what was published to them.
type Topics interface {
	Topics(context.Context) ([]Topic, error)
	Topic(ctx context.Context, name string) (Topic, error)
	Publish(ctx context.Context, topic string, payload []byte, o queue.PublishOptions) (queue.Published, error)
	Publication(ctx context.Context, id string) (Publication, error)
	Publications(ctx context.Context, topic string, offset, limit int64) ([]Publication, error)
}

// Subscriptions are the subscriptions of a tenant.
type Subscriptions interface {
	Subscriptions(context.Context) ([]queue.Subscription, error)
	Subscription(ctx context.Context, id string) (queue.Subscription, error)
	Subscribe(ctx context.Context, s queue.Subscription) (queue.Subscription, error)
	ChangeSubscription(ctx context.Context, id string, change func(*queue.Subscription) error) (queue.Subscription, error)
	Unsubscribe(ctx context.Context, id string) error
	Deliveries(ctx context.Context, subscription string, status queue.Status, limit int) ([]Delivery, error)
	Replay(ctx context.Context, subscription string, since time.Time, dry bool) (manage.Replayed, error)
}

// Schedules are the recurring tasks of a tenant.
type Schedules interface {
	Schedules(context.Context) ([]Schedule, error)
	Schedule(ctx context.Context, id string) (Schedule, error)
	PutSchedule(ctx context.Context, s queue.Schedule, missing bool) (queue.Put, error)
	PauseSchedule(ctx context.Context, id string) error
	ResumeSchedule(ctx context.Context, id string) error
	DeleteSchedule(ctx context.Context, id, owner string) error
	RunSchedule(ctx context.Context, id string) (string, error)
	SyncSchedules(ctx context.Context, owner string, all []queue.Schedule, dry bool) (queue.ScheduleSync, error)
}

// Fleet are the listeners of a tenant, and what they run.
type Fleet interface {
	Nodes(context.Context) ([]Node, error)
	// Leased lists the listeners that renewed their lease last, with the queues that they publish.
	Leased(ctx context.Context, most int) ([]Node, error)
	Drain(ctx context.Context, listener string) error
	ReclaimNode(ctx context.Context, listener string, maxCrashes int) (Reclaimed, error)
	Plugins(context.Context) ([]Plugin, error)
	Quarantines(context.Context) ([]Quarantine, error)
	EndQuarantine(ctx context.Context, plugin, digest string) error
	// Findings returns what the doctor finds in tenants of the same Redis or server.
	Findings(ctx context.Context, tenants ...string) ([]doctor.Finding, error)
	AuditEntries(ctx context.Context, limit int64) ([]AuditEntry, error)
}

// Buckets are what handlers store.
type Buckets interface {
	Buckets(context.Context) ([]Bucket, error)
	Keys(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error)
	Value(ctx context.Context, bucket, key string) ([]byte, error)
}
