package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
)

// backend is what client commands do in a tenant, by its Redis (direct) or by the API of a server (served). The methods are those
// of sdk/queue, host and host/api, with their errors, so that a command says and does the same over both.
type backend interface {
	Close() error
	Tenant() string
	Address() string // of Redis or the server, for people
	Tenants(context.Context) ([]string, error)
	Clock(context.Context) (time.Time, error)

	Queue(name string) queueBackend
	Queues(context.Context) (map[string]int64, error)
	BusiestQueues(ctx context.Context, most int) (queues []admin.Queue, all int64, err error)
	Stats(ctx context.Context, queues ...string) ([]queue.Stats, error)

	Task(ctx context.Context, id string) (*queue.Task, error)
	Summary(ctx context.Context, id string) (*queue.Task, error)
	Wait(ctx context.Context, id string) (*queue.Task, error)
	History(ctx context.Context, task *queue.Task) ([]queue.Attempt, error)
	Log(ctx context.Context, id string, after int64) ([]queue.LogLine, error)
	FindTasks(ctx context.Context, prefix string, most int) ([]string, error)
	// List reads the tasks of the filter's queue that pass it: limit of them from an offset, 0 for all.
	List(ctx context.Context, f *admin.Filter, offset, limit int) ([]*queue.Task, error)
	Retry(ctx context.Context, id string) (*queue.Task, error)
	Tree(ctx context.Context, id string, options queue.TreeOptions) (*queue.TreeNode, error)
	Dependencies(ctx context.Context, id string, from, limit int) ([]queue.Dependency, error)
	CancelFlow(ctx context.Context, id string, whole bool) (queue.FlowCancelled, error)

	Topics(context.Context) ([]admin.Topic, error)
	Topic(ctx context.Context, name string) (admin.Topic, error)
	Publish(ctx context.Context, topic string, payload []byte, o queue.PublishOptions) (queue.Published, error)
	Publication(ctx context.Context, id string) (admin.Publication, error)
	Publications(ctx context.Context, topic string, offset, limit int64) ([]admin.Publication, error)
	Subscriptions(context.Context) ([]queue.Subscription, error)
	Subscription(ctx context.Context, id string) (queue.Subscription, error)
	Subscribe(ctx context.Context, s queue.Subscription) (queue.Subscription, error)
	ChangeSubscription(ctx context.Context, id string, change func(*queue.Subscription) error) (queue.Subscription, error)
	Unsubscribe(ctx context.Context, id string) error
	Deliveries(ctx context.Context, subscription string, status queue.Status, limit int) ([]admin.Delivery, error)
	Replay(ctx context.Context, subscription string, since time.Time, dry bool) (queue.Replayed, error)

	Schedules(context.Context) ([]*queue.Schedule, error)
	Schedule(ctx context.Context, id string) (*queue.Schedule, error)
	PutSchedule(ctx context.Context, s queue.Schedule, missing bool) (queue.Put, error)
	PauseSchedule(ctx context.Context, id string) error
	ResumeSchedule(ctx context.Context, id string) error
	DeleteSchedule(ctx context.Context, id, owner string) error
	RunSchedule(ctx context.Context, id string) (string, error)
	SyncSchedules(ctx context.Context, owner string, all []queue.Schedule, dry bool) (queue.ScheduleSync, error)

	Nodes(context.Context) ([]admin.Node, error)
	Leased(ctx context.Context, most int) ([]admin.Node, error)
	Drain(ctx context.Context, listener string) error
	ReclaimNode(ctx context.Context, listener string, maxCrashes int) (queue.Reclaimed, error)
	Plugins(context.Context) ([]host.Plugin, error)
	Quarantines(context.Context) ([]queue.Quarantine, error)
	EndQuarantine(ctx context.Context, plugin, digest string) error
	Findings(ctx context.Context, tenants ...string) ([]doctor.Finding, error)
	AuditLog(ctx context.Context, limit int64) ([]queue.AuditEntry, error)

	Buckets(context.Context) ([]admin.Bucket, error)
	Keys(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error)
	Value(ctx context.Context, bucket, key string) ([]byte, error)
}

// queueBackend is what they do in a queue of the tenant.
type queueBackend interface {
	Pause(context.Context) error
	Resume(context.Context) error
	Limit(context.Context) (int64, error)
	SetLimit(ctx context.Context, limit int64) error
	Stats(context.Context) (queue.Stats, error)
	DeadLetters(context.Context) (waiting, failed int64, err error)
	HasListener(context.Context) (bool, error)
	EnqueueMany(ctx context.Context, specs []queue.Spec) ([]queue.Receipt, error)
	Await(ctx context.Context, id string, after ...string) error
	Close(ctx context.Context, id string) error
	Cancel(ctx context.Context, id string) (done bool, err error)
	Delete(ctx context.Context, id string) error
	Purge(ctx context.Context, o queue.PurgeOptions) (int, error)
}

// direct is a tenant by its Redis.
type direct struct {
	*admin.Direct
	rdb   redis.UniversalClient
	owned bool // rdb is
}

func newDirect(rdb redis.UniversalClient, config queue.Config) (*direct, error) {
	c, err := queue.NewFromRedis(rdb, config)
	if err != nil {
		return nil, err
	}
	return &direct{Direct: admin.NewDirect(c, kv.New(rdb, c.Tenant())), rdb: rdb}, nil
}

func (d *direct) Close() error {
	err := d.Client.Close()
	if d.owned {
		_ = d.rdb.Close()
	}
	return err
}

func (d *direct) Queue(name string) queueBackend { return d.Client.Queue(name) }

func (d *direct) List(ctx context.Context, f *admin.Filter, offset, limit int) ([]*queue.Task, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	o := queue.ListOptions{Status: queue.Status(f.Status), Key: f.Key, Offset: offset, Limit: limit}
	if limit > 0 && !f.Narrows() {
		return d.Client.Queue(f.Queue).List(ctx, o)
	}
	var found []*queue.Task
	seen := make(map[string]bool) // other clients move the list meanwhile, so that pages overlap
	for o.Offset, o.Limit = 0, 1000; ; o.Offset += o.Limit {
		page, err := d.Client.Queue(f.Queue).Page(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, task := range page.Tasks {
			if f.Selects(task) && !seen[task.ID] {
				seen[task.ID] = true
				found = append(found, task)
			}
		}
		if page.End || limit > 0 && len(found) >= offset+limit {
			break
		}
	}
	found = found[min(offset, len(found)):]
	if limit > 0 {
		found = found[:min(limit, len(found))]
	}
	return found, nil
}

func (d *direct) Plugins(ctx context.Context) ([]host.Plugin, error) {
	return host.Plugins(ctx, d.Client)
}

func (d *direct) Findings(ctx context.Context, tenants ...string) ([]doctor.Finding, error) {
	clients := make([]*queue.Client, len(tenants))
	for i, tenant := range tenants {
		c, err := queue.NewFromRedis(d.rdb, queue.Config{Tenant: tenant})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		clients[i] = c
	}
	return doctor.Examine(ctx, clients...)
}

func (d *direct) AuditLog(ctx context.Context, limit int64) ([]queue.AuditEntry, error) {
	return d.Client.AuditLog(ctx, "", limit)
}

func (d *direct) Keys(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	return d.Store.List(ctx, bucket, prefix, after, limit)
}

func (d *direct) Value(ctx context.Context, bucket, key string) ([]byte, error) {
	return d.Store.Get(ctx, bucket, key)
}

// served is a tenant by the API of a server.
type served struct{ *client.Client }

func (s served) Queue(name string) queueBackend { return s.Client.Queue(name) }

// serverFlags adds what every client command takes that also works by the API of a server.
func serverFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	newText(f, new(string), "URL", "server", "`URL` of the API of `quern serve --admin` or `quern admin`, in the place of --redis: https://HOST:PORT, with ?ca=FILE&cert=FILE&key=FILE as needed")
	newText(f, new(string), "TOKEN", "token", "`TOKEN` for --server; others on this machine can see it here: better set QUERN_TOKEN, or use --token-file")
	f.String("token-file", "", "`FILE` with the token for --server")
}

// connect makes the backend of a client command, for the tenant of its flag.
func connect(cmd *cobra.Command, env environment, config queue.Config) (backend, error) {
	var err error
	if config.Tenant, err = tenantOf(cmd); err != nil {
		return nil, err
	}
	config.Headers = func(context.Context) map[string]string { return traceOf(env) }
	if flag := cmd.Flag("server"); flag != nil && (flag.Value.String() != "" || flag.Changed) {
		return connectServer(cmd, config)
	}
	rdb, err := connectRedis(cmd, env)
	if err != nil {
		return nil, err
	}
	d, err := newDirect(rdb, config)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	d.owned = true
	return d, nil
}

// connectServer makes the backend for --server.
func connectServer(cmd *cobra.Command, config queue.Config) (backend, error) {
	flag := cmd.Flag("server")
	for _, name := range redisFlags {
		if other := cmd.Flag(name); other.Value.String() != "" || other.Changed {
			return nil, usagef("both %s and %s are set: leave one of them out", origin(flag), origin(other))
		}
	}
	if config.Replicas > 0 {
		return nil, usagef("--replicas with %s: the API does not wait for replicas: use --redis, or leave --replicas out", origin(flag))
	}
	token, err := tokenOf(cmd)
	if err != nil {
		return nil, err
	}
	c, err := client.New(flag.Value.String(), token, config.Tenant)
	if err != nil {
		return nil, usagef("%s: %w", origin(flag), trimInvalid(err))
	}
	c.Trace = config.Headers(cmd.Context())
	c.Withheld = func(t *admin.Task) {
		note(cmd, "the token may not see what producers and handlers wrote of task %s: parameters of %d bytes, a result of %d bytes, headers, message and errors", t.ID, t.ParametersSize, t.ResultSize)
	}
	if u, err := url.Parse(c.Address()); err == nil && u.Scheme == "http" && token != "" && !isLoopback(u.Hostname()) {
		note(cmd, "the token crosses the network to %s unencrypted: use https://", u.Host)
	}
	return served{c}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tokenOf is the token of the settings, "" if there is none.
func tokenOf(cmd *cobra.Command) (string, error) {
	flag, file := cmd.Flag("token"), cmd.Flag("token-file")
	token, err := flag.Value.String(), error(nil)
	switch path := file.Value.String(); {
	case flag.Changed && token == "" || file.Changed && path == "":
		return "", usagef("--token or --token-file is empty: give it a value, or leave it out")
	case path != "" && token != "":
		return "", usagef("both %s and %s are set: leave one of them out", origin(flag), origin(file))
	case path != "":
		flag = file
		token, err = firstOfFile(origin(file), path, "the token")
	}
	if strings.ContainsAny(token, " \r\n\t") {
		err = usagef("%s: the token has a space or a line break in it: give the token alone", origin(flag))
	}
	return token, err
}

// firstOfFile reads what a setting names a file for.
func firstOfFile(from, path, what string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%s: %w: name a file with %s", from, err, what)
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return "", usagef("%s: %s is empty: write %s into it", from, path, what)
	}
	return text, nil
}
