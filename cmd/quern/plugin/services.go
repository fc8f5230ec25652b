package plugin

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// local stands in for a host: the flags of commands that run handlers on this machine, and what plugins share after
// open. `quern serve` has most of the flags, too, so that an environment variable means the same to both.
type local struct {
	env        cli.Environment
	engine     *runtime.Config
	services   sandbox.Services
	grantsFile string
	tenant     string
	timeout    time.Duration // of a task at most; 0 for none
	engines    string        // of the builder
	noBuild    bool
	http       *egress.Client
	grants     *manifest.Grants
}

func newLocal(f *pflag.FlagSet, env cli.Environment) *local {
	l := &local{env: env, engine: sandbox.EngineFlags(f)}
	l.services.Flags(f)
	sandbox.TenantGrantsFlags(f, &l.grantsFile, &l.tenant)
	pluginfile.EnginesFlag(f, &l.engines)
	f.BoolVar(&l.noBuild, "no-build", false, "use the module as it is, even if its source is newer")
	return l
}

func (l *local) open(flags *pflag.FlagSet) error {
	config, err := l.services.Egress(flags)
	if err != nil {
		return err
	}
	if l.grants, err = sandbox.LoadTenantGrants(flags, l.grantsFile, l.tenant); err != nil {
		return err
	}
	l.http = egress.New(config)
	return nil
}

// openBuckets makes a store of buckets in an embedded Redis, which close ends.
func (l *loaded) openBuckets() *kv.Store {
	l.embedded = miniredis.NewMiniRedis()
	rdb := redis.NewClient(&redis.Options{ // without a port, which other users of this machine would reach
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return l.embedded.Dial() },
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	l.closers = append(l.closers, l.embedded.Close, func() { _ = rdb.Close() })
	return kv.New(rdb, l.local.tenant)
}

// localTask is the guest.Host of a task, and records what the task enqueues.
type localTask struct {
	children  *guest.Children
	atOnce    []listen.Child
	published []*queue.Publication // at once
	awaited   []dependency
}

// dependency is a task that the local task waited for.
type dependency struct {
	listen.Dependency
	result []byte
}

// readDependencies reads the results from files.
func readDependencies(named []manifest.Dependency, read func(path string) ([]byte, error)) ([]dependency, error) {
	all := make([]dependency, len(named))
	for i, one := range named {
		all[i].ID, all[i].End = one.ID, string(queue.Failed)
		if one.Result == "" {
			continue
		}
		var err error
		all[i].End = string(queue.Complete)
		if all[i].result, err = read(one.Result); err != nil {
			return nil, fmt.Errorf("the result %q of the dependency %s cannot be read: %w", one.Result, one.ID, cli.Bare(err))
		}
	}
	return all, nil
}

// enqueued are the task's children in their order.
func (t *localTask) enqueued() []listen.Child { return append(t.atOnce, t.children.Waiting()...) }

// publications are what the task publishes, in its order.
func (t *localTask) publications() []*queue.Publication {
	return append(t.published, t.children.Publications()...)
}

// numberedChildren numbers children and publications, so that their IDs are the same in every run.
type numberedChildren struct{ *localTask }

func (t numberedChildren) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if child.ID == "" {
		child.ID = fmt.Sprintf("%s-%d", pluginfile.LocalID, len(t.enqueued())+1)
	}
	return t.children.Enqueue(ctx, child)
}

func (t numberedChildren) Publish(ctx context.Context, p service.Publication) (string, error) {
	if p.ID == "" {
		p.ID = fmt.Sprintf("%s-publication-%d", pluginfile.LocalID, len(t.publications())+1)
	}
	return t.children.Publish(ctx, p)
}

// SaveCheckpoint implements guest.Host: no other run would load the value.
func (*localTask) SaveCheckpoint(context.Context, []byte) error { return nil }

// AdmitQueue implements guest.Host.
func (*localTask) AdmitQueue(context.Context, string) error { return nil }

// Enqueue implements guest.Host.
func (t *localTask) Enqueue(_ context.Context, child listen.Child) (string, error) {
	t.atOnce = append(t.atOnce, child)
	return child.ID, nil
}

// Warn implements guest.Host: the handler's error says it.
func (*localTask) Warn(string, ...any) {}

// Publish implements guest.Host.
func (t *localTask) Publish(_ context.Context, p *queue.Publication) error {
	t.published = append(t.published, p)
	return nil
}

// Dependencies implements guest.Host.
func (t *localTask) Dependencies(context.Context) (all []listen.Dependency, err error) {
	for _, one := range t.awaited {
		all = append(all, one.Dependency)
	}
	return all, nil
}

// Result implements guest.Host.
func (t *localTask) Result(_ context.Context, id string, _ int64) ([]byte, error) {
	for _, one := range t.awaited {
		if one.ID == id && one.End == string(queue.Complete) {
			return one.result, nil
		}
	}
	return nil, queue.ErrNoTask
}
