package admin

import (
	"context"
	"time"

	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

// Tenant acts on a tenant, through its Redis (Direct) or through the API of a server (client.Client). Both return the
// errors of sdk/queue.
type Tenant interface {
	Tenant() string
	Address() string // the address of Redis or of the server, to be shown to people
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
	Rollouts
	Databases
	Buckets
	Account

	Pauses() Pauses
	Quotas
}

// Tasks has the operations on single tasks, and the search for tasks.
type Tasks interface {
	// Task reads a task with its history.
	Task(ctx context.Context, id string) (*Task, error)
	// Summary is like Task, but leaves out the parameters and the result.
	Summary(ctx context.Context, id string) (*Task, error)
	Wait(ctx context.Context, id string) (*Task, error)
	Log(ctx context.Context, id string, after int64) ([]LogLine, error)
	// Record reads the record of a run of the task, with which the run can be replayed.
	Record(ctx context.Context, id string) ([]byte, error)
	// FindTasks lists at most limit IDs of tasks that begin with prefix.
	FindTasks(ctx context.Context, prefix string, limit int) ([]string, error)
	// List reads the tasks that pass the filter. It skips the first offset tasks and returns at most limit tasks, or all
	// if limit is 0.
	List(ctx context.Context, f *Filter, offset, limit int) ([]Task, error)
	// Retry retries a failed task, or the failed task behind a dead letter, and returns the retried task.
	Retry(ctx context.Context, id string) (*Task, error)
}

// Flows has the operations on tasks that wait for other tasks.
type Flows interface {
	Tree(ctx context.Context, id string, options manage.TreeOptions) (*TreeNode, error)
	Dependencies(ctx context.Context, id string, from, limit int) ([]listen.Dependency, error)
	CancelFlow(ctx context.Context, id string, whole bool) (manage.FlowCancelled, error)
}

// Queues has the operations on the queues of a tenant.
type Queues interface {
	Queue(name string) QueueHandle
	// Queues returns the number of listeners of each queue, by the queue's name.
	Queues(context.Context) (map[string]int64, error)
	// BusiestQueues counts the tasks of at most limit queues: those with the most pending tasks or listeners. all is the
	// number of the tenant's queues.
	BusiestQueues(ctx context.Context, limit int) (queues []Queue, all int64, err error)
	// QueueCounts counts the tasks of the named queues, in the order of names. If nobody has used a queue, its counts are
	// 0. If a queue cannot be counted, its Err is set.
	QueueCounts(ctx context.Context, names []string) ([]Queue, error)
}

// QueueHandle has the operations on one queue.
type QueueHandle interface {
	QueueSettings
	QueueTasks
	DeadLetters(context.Context) (waiting, failed int64, err error)
	HasListener(context.Context) (bool, error)
}

// QueueSettings reads and changes the settings that operators make for a queue.
type QueueSettings interface {
	Limit(context.Context) (int64, error)
	SetLimit(ctx context.Context, limit int64) error
	SetRollingLimit(ctx context.Context, limit int64) error
}

// QueueTasks changes the tasks of a queue.
type QueueTasks interface {
	EnqueueMany(ctx context.Context, specs []queue.Spec) ([]queue.Receipt, error)
	Await(ctx context.Context, id string, after ...string) error
	Close(ctx context.Context, id string) error
	Cancel(ctx context.Context, id string) (done bool, err error)
	CancelWaiting(ctx context.Context, id string) error
	Delete(ctx context.Context, id string) error
	Purge(ctx context.Context, o listen.PurgeOptions) (int, error)
}

// Topics has the operations on the topics of a tenant and on their publications.
type Topics interface {
	Topics(context.Context) ([]Topic, error)
	Topic(ctx context.Context, name string) (Topic, error)
	Publish(ctx context.Context, topic string, payload []byte, o queue.PublishOptions) (queue.Published, error)
	Publication(ctx context.Context, id string) (Publication, error)
	Publications(ctx context.Context, topic string, offset, limit int64) ([]Publication, error)
}

// Subscriptions has the operations on the subscriptions of a tenant and on their deliveries.
type Subscriptions interface {
	Subscriptions(context.Context) ([]queue.Subscription, error)
	Subscription(ctx context.Context, id string) (queue.Subscription, error)
	Subscribe(ctx context.Context, s queue.Subscription) (queue.Subscription, error)
	ChangeSubscription(ctx context.Context, id string, change func(*queue.Subscription) error) (queue.Subscription, error)
	Unsubscribe(ctx context.Context, id string) error
	Deliveries(ctx context.Context, subscription string, status queue.Status, limit int) ([]Delivery, error)
	Replay(ctx context.Context, subscription string, since time.Time, dry bool) (manage.Replayed, error)
}

// Schedules has the operations on the schedules of a tenant, which enqueue recurring tasks.
type Schedules interface {
	Schedules(context.Context) ([]Schedule, error)
	Schedule(ctx context.Context, id string) (Schedule, error)
	PutSchedule(ctx context.Context, s queue.Schedule, missing bool) (queue.Put, error)
	DeleteSchedule(ctx context.Context, id, owner string) error
	RunSchedule(ctx context.Context, id string) (string, error)
	SyncSchedules(ctx context.Context, owner string, all []queue.Schedule, dry bool) (queue.ScheduleSync, error)
}

// Fleet has the operations on the listeners of a tenant and on the plugins that they run. It also reads the doctor's
// findings and the audit log.
type Fleet interface {
	Nodes(context.Context) ([]Node, error)
	// Leased lists at most limit listeners that have a lease, with the queues that they publish. The listener that
	// renewed its lease most recently comes first.
	Leased(ctx context.Context, limit int) ([]Node, error)
	Drain(ctx context.Context, listener string) error
	ReclaimNode(ctx context.Context, listener string, maxCrashes int) (Reclaimed, error)
	Plugins(context.Context) ([]Plugin, error)
	Quarantines(context.Context) ([]Quarantine, error)
	EndQuarantine(ctx context.Context, plugin, digest string) error
	// Findings returns what the doctor finds in tenants that share one Redis or server.
	Findings(ctx context.Context, tenants ...string) ([]doctor.Finding, error)
	AuditEntries(ctx context.Context, limit int64) ([]AuditEntry, error)
}

// Rollouts has the operations on releases of plugins.
type Rollouts interface {
	Releases(plugin string) Releases
}

// Releases has the operations on the releases of one plugin.
type Releases interface {
	release.Target
	// Piece reads a piece of a file of a release, by its SHA-256 in hex.
	Piece(ctx context.Context, digest string) ([]byte, error)
	// List reads the releases, the newest first.
	List(context.Context) ([]release.Release, error)
	// Serve makes hosts serve another release. A number of 0 means the newest one before the one that serves, without
	// those that were rolled back.
	Serve(ctx context.Context, number int) (release.Release, error)
	// Promote makes the canary serve, and Halt ends it: it gets no more tasks. A number of 0 means whichever release is
	// the canary. The error is release.ErrNoCanary if it is not.
	Promote(ctx context.Context, number int) (release.Release, error)
	Halt(ctx context.Context, number int, reason string) (release.Release, error)
	// Trial reads how tasks of the release on trial ended, beside those of the release that serves.
	Trial(context.Context) (Trial, error)
	// Freeze makes pushes fail with release.ErrFrozen, or ends that.
	Freeze(ctx context.Context, frozen bool) error
	// Delete deletes a release that does not serve, or all releases if number is 0.
	Delete(ctx context.Context, number int) error
}

// Databases reads the state of the databases whose rows become tasks, and forgets those that are gone.
type Databases interface {
	Relays(context.Context) ([]listen.RelayState, error)
	ForgetRelay(ctx context.Context, name string) error
}

// Account reads what a tenant's tasks have used.
type Account interface {
	// Usage reads by day what hosts have counted, from one day to another as 2006-01-02 in UTC. Days without tasks are
	// left out. If from is "", it begins with the month of to; if to is "", it ends today.
	Usage(ctx context.Context, from, to string) ([]manage.Usage, error)
}

// Quotas bounds what a tenant uses.
type Quotas interface {
	// Quotas reads the quotas of the tenant, the limits of its queues and the quotas of its buckets, with what is used.
	Quotas(context.Context) ([]Quota, error)
	// SetQuotas changes quotas of the tenant; an empty value removes one.
	SetQuotas(context.Context, manage.Quotas) error
}

// Buckets reads the buckets, in which handlers store values by key.
type Buckets interface {
	Buckets(context.Context) ([]Bucket, error)
	Keys(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error)
	Value(ctx context.Context, bucket, key string) ([]byte, error)
}
