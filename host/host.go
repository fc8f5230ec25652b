package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/release"
)

// Host is one node that serves the queues of one or several tenants.
type Host struct {
	common
	tenants map[string]*tenant // by name
	started time.Time
	address atomic.Value // the string that Listening sets
}

// Listening sets the address of the web server, which the host publishes.
func (h *Host) Listening(address string) { h.address.Store(address) }

// New makes a host that serves the tenant of each client with the plugins of the directory. The caller closes the
// clients and the directory's engine. Run also runs the directory.
func New(clients []*queue.Client, directory *plugins.Directory, m *metrics.Metrics, config Config) (*Host, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if len(clients) == 0 {
		return nil, errors.New("no tenant to serve: name at least one")
	}
	dispatcher := newDispatcher(config, directory, m.SlotsInUse)
	h := &Host{
		started: time.Now(),
		common: common{
			config: config, metrics: m, catalog: catalog{directory: directory, config: &config},
			scheduler: dispatcher.scheduler, dispatcher: dispatcher,
			workers: &workers{next: make(chan func())}, services: guest.New(config.Services),
			calls: config.Account.Open(account.Calls, max(minCalls, config.Account.Part(16)), len(clients)),
			results: config.Account.Open(account.Calls, max(resultCopies*service.MaxBody, config.Account.Part(16)),
				len(clients)),
			releases: rollout.NewCache(config.Releases),
		},
		tenants: make(map[string]*tenant, len(clients)),
	}
	for _, client := range clients {
		t := &tenant{name: client.Tenant(), draining: make(chan struct{})}
		t.drain = sync.OnceFunc(func() { close(t.draining) })
		t.releases = rollout.New(rollout.Config{
			Client: client, Cache: h.releases, Directory: directory, Interval: config.Poll,
			Logger: config.Logger.With("tenant", client.Tenant()), ReportOnly: config.KeepBadReleases,
			Artifacts: config.Artifacts,
			Verify:    func(r *release.Release) error { return config.Verify(client.Tenant(), r) },
		})
		t.open = func() *session {
			return newSession(client, &h.common, t, func() map[string]string { return h.about(t) })
		}
		t.session.Store(t.open())
		h.tenants[t.name] = t
		m.TenantServed(t.name)
	}
	m.Slots(config.Concurrency)
	m.CollectTenants(h.up)
	m.CollectShares(h.shares)
	m.CollectTopics(h.topicSamples)
	m.CollectQueues(h.samples)
	m.CollectRefused(h.refusedPlugins)
	m.CollectStopped(h.stoppedReleases)
	m.CollectMemory(h.memory)
	return h, nil
}

// Run serves until ctx ends, or every tenant is drained. Then it reserves no more tasks, and lets running tasks go on
// for the grace period. It gives the rest back to the front of their queues, leaves the tenants, and returns nil. When
// hurry ends, it stops waiting, and has a second to give tasks back. When only one tenant is drained, that tenant ends
// in the same way, and the host goes on to serve the others. Run returns an error if no tenant lets it join, or if it
// could not leave one.
func (h *Host) Run(ctx, hurry context.Context) error {
	// Settling and renewing go on after ctx until all tasks have ended. The end of ctx does not cancel tasks: they are
	// stopped one by one.
	tasks := context.WithoutCancel(ctx)
	living, end := context.WithCancel(tasks)
	defer end()
	defer context.AfterFunc(ctx, h.drain)()
	group, living := errgroup.WithContext(living)
	group.Go(func() error { return h.catalog.directory.Run(living) })
	group.Go(func() error { h.followPlugins(living); return nil })
	if h.config.Cache != nil && h.config.Memory > 0 {
		evictor := schedule.NewEvictor(h.scheduler, h.config.Cache)
		group.Go(func() error { evictor.Run(living); return nil })
	}
	taking, stop := context.WithCancel(tasks)
	scheduling := make(chan struct{})
	go func() { defer close(scheduling); h.dispatcher.Run(taking) }()
	group.Go(func() error {
		defer end()
		var serving errgroup.Group
		for _, t := range h.tenants {
			serving.Go(func() error { return h.serve(living, hurry, t) })
		}
		err := serving.Wait()
		stop()
		<-scheduling
		h.workers.wait()
		return err
	})
	return errors.Join(group.Wait(), h.releases.Close())
}

// serve serves one tenant. If the host goes on for other tenants, an error is only logged.
func (h *Host) serve(living, hurry context.Context, t *tenant) error {
	err := t.serve(living, hurry, h.refused)
	if err != nil && !h.draining() {
		t.session.Load().access.logger.Error("tenant was drained, but its listener did not leave: another host takes its tasks when the lease ends", "error", err)
		return nil
	}
	return err
}

// refused checks whether every tenant that is not drained refuses the host. If so, it drains the host and returns the
// refusals. Otherwise it returns nil.
func (h *Host) refused() error {
	var refusals []error
	for _, t := range h.tenants {
		if t.isDraining() {
			continue
		}
		refusal := t.refusal.Load()
		if refusal == nil {
			return nil
		}
		refusals = append(refusals, *refusal)
	}
	h.drain()
	return errors.Join(refusals...)
}

// draining reports whether the host reserves for no tenant any more.
func (h *Host) draining() bool {
	for _, t := range h.tenants {
		if !t.isDraining() {
			return false
		}
	}
	return true
}

// drain drains all tenants: the host reserves no more tasks.
func (h *Host) drain() {
	for _, t := range h.tenants {
		t.drain()
	}
}

// followPlugins makes the sessions register for the served queues whenever the served queues change.
func (h *Host) followPlugins(ctx context.Context) {
	shown := make(map[schedule.Queue]bool) // the queues that have metric series
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.catalog.directory.Changed():
		}
		h.showQueues(shown)
		for _, t := range h.tenants {
			s := t.session.Load()
			s.listener.Follow()
			s.upkeep.Declarer.Ask()
		}
	}
}

// showQueues creates the metric series of the served queues. The series of queues that are no longer served stay,
// because counters should not go back. When there are more of these than Config.MaxQueues, showQueues deletes them: a
// tenant that keeps naming new queues must not fill the host's memory.
func (h *Host) showQueues(shown map[schedule.Queue]bool) {
	served := make(map[schedule.Queue]bool)
	for _, binding := range h.catalog.directory.Bindings() {
		if !h.config.serves(binding.Queue) {
			continue
		}
		at := schedule.Queue{Tenant: binding.Tenant, Name: binding.Queue}
		served[at], shown[at] = true, true
		h.metrics.QueueServed(binding.Tenant, binding.Queue, binding.Plugin)
	}
	if len(served) == 0 || len(shown)-len(served) <= h.config.MaxQueues {
		return
	}
	for at := range shown {
		if !served[at] {
			h.metrics.QueueForgotten(at.Tenant, at.Name)
			delete(shown, at)
		}
	}
}

// about returns the fields that the host publishes in its node hash of a tenant. They name no other tenant.
func (h *Host) about(t *tenant) map[string]string {
	catalog := h.catalog.of(t.name, t.releases)
	list, declared := []upkeep.PluginInfo{}, catalog.declarations()
	for _, s := range catalog.statuses() {
		if s.Tenant == "" || s.Tenant == t.name {
			info := upkeep.PluginInfo{
				Tenant: s.Tenant, Plugin: s.Plugin, Version: s.Version, Digest: s.Digest, Queues: s.Queues, State: s.State,
				Error: s.Error, ResetMode: s.ResetMode, Release: s.Release, Unfetched: s.Unfetched,
			}
			if !s.Since.IsZero() {
				info.Since = float64(s.Since.UnixMilli()) / 1000
			}
			info.LeftOut = slices.DeleteFunc(slices.Clone(s.Queues), h.config.serves)
			if s.State == plugins.StateServing && len(info.LeftOut) == len(s.Queues) {
				info.State = StateLeftOut
			}
			for _, one := range declared {
				switch {
				case one.Plugin != s.Plugin || s.State != plugins.StateServing:
				case one.Kind == upkeep.KindSchedule:
					info.Schedules = append(info.Schedules, one.ID)
				default:
					info.Subscriptions = append(info.Subscriptions, one.ID)
				}
			}
			if p := s.Permissions[t.name]; p != nil {
				info.Grants, info.Lowered = p.Granted(), p.Lowered
			}
			list = append(list, info)
		}
	}
	queues := append([]string{}, slices.Sorted(maps.Keys(catalog.queues()))...)
	address, _ := h.address.Load().(string)
	scheduled := h.scheduler.Status()
	return map[string]string{
		"name": h.config.Name, "address": address, "started": seconds(h.started), "clock": seconds(time.Now()),
		"memory": strconv.FormatInt(h.config.Memory, 10),
		"kind":   "quern", "version": h.config.Version, "queues": jsonText(queues), "plugins": jsonText(list),
		"definitions": jsonText(upkeep.Definitions(declared)),
		"draining":    strconv.FormatBool(t.isDraining()),
		"slots":       strconv.Itoa(h.config.Concurrency), "slots_in_use": strconv.Itoa(scheduled.Running),
		"running": jsonText(t.session.Load().listener.Tasks.ByQueue()), "began": seconds(scheduled.LastStart),
		"memory_reserved":  strconv.FormatInt(scheduled.Memory+h.config.Account.Reserved(), 10),
		"waits_for_memory": jsonText(h.scheduler.WaitsForMemory(t.name)),
		"databases_away":   jsonText(databasesAway(h.config.Services.Databases.Away(t.name))),
	}
}

// databasesAway returns what the host publishes of databases that do not serve.
func databasesAway(list []sql.Away) []listen.DatabaseAway {
	published := make([]listen.DatabaseAway, len(list))
	for i, a := range list {
		published[i] = listen.DatabaseAway(a)
	}
	return published
}

// seconds formats a time as it is written to Redis: in seconds since 1970, with three decimals.
func seconds(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1000) }

// jsonText encodes a value whose type cannot fail to encode.
func jsonText(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// refusedPlugins calls report, for the metrics, for each plugin that was refused or could not be fetched.
func (h *Host) refusedPlugins(report func(tenant, plugin string)) {
	h.catalog.refused(report)
	for _, t := range h.tenants {
		for _, s := range t.releases.Refused() {
			report(s.Tenant, s.Plugin)
		}
	}
}

// stoppedReleases calls report, for the metrics, for each plugin with a release that hosts stopped.
func (h *Host) stoppedReleases(report func(tenant, plugin string)) {
	for name, t := range h.tenants {
		for plugin := range t.releases.Stopped() {
			report(name, plugin)
		}
	}
}

// memory returns, for the metrics, how much memory is reserved for tasks and for each other kind of the account.
func (h *Host) memory() metrics.MemorySample {
	scheduled := h.scheduler.Status()
	reserved := map[string]int64{string(account.Tasks): scheduled.Memory}
	for kind, bytes := range h.config.Account.ByKind() {
		reserved[string(kind)] = bytes
	}
	return metrics.MemorySample{Limit: h.config.Memory, Reserved: reserved, Waited: scheduled.Waited}
}

// shares returns, for the metrics, the share of each tenant.
func (h *Host) shares() map[string]metrics.ShareSample {
	samples := make(map[string]metrics.ShareSample, len(h.tenants))
	for name := range h.tenants {
		samples[name] = metrics.ShareSample{Weight: schedule.DefaultWeight}
	}
	for name, share := range h.scheduler.Shares() {
		samples[name] = metrics.ShareSample(share)
	}
	return samples
}

// topicSamples lists the topics of all tenants, as their sessions last read them.
func (h *Host) topicSamples() (all []metrics.TopicSample) {
	for name, t := range h.tenants {
		for _, topic := range t.session.Load().upkeep.Publisher.Topics() {
			all = append(all, metrics.TopicSample{
				Tenant: name, Topic: topic.Name, Published: topic.Published,
				Dropped: topic.Dropped, Tasks: topic.Tasks,
			})
		}
	}
	return all
}

// up reports for each tenant that is not drained whether Redis lets the host serve it.
func (h *Host) up() map[string]bool {
	up := make(map[string]bool, len(h.tenants))
	for name, t := range h.tenants {
		if !t.isDraining() {
			up[name] = t.session.Load().reachable()
		}
	}
	return up
}

// Ready returns an error that says why the host cannot take tasks now, or nil if it can take tasks of at least one
// tenant. The text is then "ok", followed by the reasons why the host cannot serve other tenants.
func (h *Host) Ready() (text string, err error) {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(h.tenants)) {
		if problem := h.tenants[name].problem(); problem != "" {
			problems = append(problems, problem)
		}
	}
	if h.draining() {
		return "", errors.New("draining")
	}
	select {
	case <-h.catalog.directory.Ready():
	default:
		return "", errors.New("plugins are being loaded")
	}
	for name, t := range h.tenants {
		if t.session.Load().reachable() && !t.releases.Ready() {
			return "", fmt.Errorf("releases of tenant %s are being fetched", name)
		}
	}
	switch len(problems) {
	case 0:
		return "ok", nil
	case len(h.tenants):
		return "", errors.New(strings.Join(problems, "; "))
	}
	return "ok, but " + strings.Join(problems, "; "), nil
}
