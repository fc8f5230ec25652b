package upkeep

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Declaration is a schedule, a subscription or a queue's concurrency of a plugin's manifest.
type Declaration struct {
	Kind, ID, Plugin, Queue string
	// Behind is true if hosts are to serve another release of the plugin than this host does. The declaration is then
	// stored only if there is none.
	Behind bool

	schedule     *queue.Schedule // exactly one of schedule, subscription and concurrency is set
	subscription *queue.Subscription
	concurrency  string // the rule of the queue
}

// The kinds of declarations.
const (
	KindSchedule     = "schedule"
	KindSubscription = "subscription"
	KindConcurrency  = "concurrency"
)

// DeclaredSchedule returns the declaration of a schedule that a plugin owns.
func DeclaredSchedule(s queue.Schedule) Declaration {
	return Declaration{Kind: KindSchedule, ID: s.ID, Plugin: s.PluginOwner(), Queue: s.Queue, schedule: &s}
}

// DeclaredSubscription returns the declaration of a plugin's subscription.
func DeclaredSubscription(s queue.Subscription) Declaration {
	return Declaration{Kind: KindSubscription, ID: s.ID, Plugin: s.Plugin, Queue: s.Queue, subscription: &s}
}

// DeclaredConcurrency returns the declaration of the concurrency of a plugin's queue. Its ID is the queue.
func DeclaredConcurrency(plugin, name, rule string) Declaration {
	return Declaration{Kind: KindConcurrency, ID: name, Plugin: plugin, Queue: name, concurrency: rule}
}

// Name returns the kind and the ID.
func (d Declaration) Name() string { return d.Kind + " " + d.ID }

func (d Declaration) sameName(other Declaration) bool {
	return d.Kind == other.Kind && d.ID == other.ID
}

// same reports whether two declarations have the same name and definition.
func (d Declaration) same(other Declaration) bool {
	return d.sameName(other) && d.definition() == other.definition()
}

// definition returns a digest of what the manifest defines.
func (d Declaration) definition() string {
	switch {
	case d.schedule != nil:
		return d.schedule.Definition()
	case d.concurrency != "":
		return d.concurrency
	}
	return d.subscription.Definition()
}

// read reads the present state of the declaration from Redis.
func (d Declaration) read(ctx context.Context, client *queue.Client) (Declaration, error) {
	if d.schedule != nil {
		s, err := client.Schedule(ctx, d.ID)
		if err != nil {
			return Declaration{}, err
		}
		return DeclaredSchedule(*s), nil
	}
	if d.concurrency != "" {
		rule, err := listen.NewRules(client).Of(ctx, d.Queue)
		return DeclaredConcurrency(d.Plugin, d.Queue, rule), err
	}
	s, err := client.Subscription(ctx, d.ID)
	return DeclaredSubscription(s), err
}

// put stores the declaration. If missing is true, it stores it only if Redis has none of this name.
func (d Declaration) put(ctx context.Context, client *queue.Client, missing bool) (queue.Put, error) {
	if d.schedule != nil {
		return client.PutSchedule(ctx, *d.schedule, missing)
	}
	if d.concurrency != "" {
		return listen.NewRules(client).Declare(ctx, d.Queue, d.concurrency, missing)
	}
	return listen.NewFleet(client).DeclareSubscription(ctx, *d.subscription, missing)
}

// mark records whether a live host has the declaration. If no live host has had it for longer than limit (0: no limit),
// mark deletes the declaration; gone reports that.
func (d Declaration) mark(ctx context.Context, client *queue.Client, declared bool,
	limit time.Duration,
) (gone bool, err error) {
	if d.schedule != nil {
		return listen.NewFleet(client).NoteSchedule(ctx, d.schedule, declared, limit)
	}
	if d.Kind == KindConcurrency {
		return listen.NewRules(client).Note(ctx, d.Queue, declared, limit)
	}
	return listen.NewFleet(client).NoteSubscription(ctx, *d.subscription, declared, limit)
}

// storedDeclarations lists the declarations in Redis; schedules come without their parameters, and concurrencies
// without their plugin.
func storedDeclarations(ctx context.Context, client *queue.Client) (all []Declaration, err error) {
	schedules, err := client.ScheduleHeads(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range schedules {
		if s.PluginOwner() != "" {
			all = append(all, DeclaredSchedule(*s))
		}
	}
	rules, err := listen.NewRules(client).All(ctx)
	if err != nil {
		return nil, err
	}
	for name, rule := range rules {
		all = append(all, DeclaredConcurrency("", name, rule))
	}
	subscriptions, err := client.Subscriptions(ctx)
	if subscriptions == nil {
		return nil, err // with subscriptions, an error is about damaged ones, which do not hide the others
	}
	for _, s := range subscriptions {
		if s.Plugin != "" {
			all = append(all, DeclaredSubscription(s))
		}
	}
	return all, nil
}

// Definitions maps the names of declarations to their definitions, in the form in which a host publishes them.
func Definitions(all []Declaration) map[string]string {
	definitions := make(map[string]string, len(all))
	for _, one := range all {
		definitions[one.Name()] = one.definition()
	}
	return definitions
}

// liveDefinitions maps the names of declarations to the definitions that live hosts publish. whole is false if a live
// host publishes none that can be read, such as a host of an older version.
func liveDefinitions(ctx context.Context, client *queue.Client) (all map[string][]string, whole bool, err error) {
	nodes, err := LiveNodes(ctx, client)
	if err != nil {
		return nil, false, err
	}
	nodes = slices.DeleteFunc(nodes, func(node listen.NodeInfo) bool { return node.Kind != listen.KindQuern })
	all = make(map[string][]string)
	readable := 0
	err = listen.NewFleet(client).Published(ctx, nodes, "definitions", func(_ *listen.NodeInfo, text string) {
		var published map[string]string
		if json.Unmarshal([]byte(text), &published) == nil {
			readable++
		}
		for name, definition := range published {
			if !slices.Contains(all[name], definition) {
				all[name] = append(all[name], definition)
			}
		}
	})
	return all, readable == len(nodes), err
}

// ScheduleOf converts a schedule of a manifest, or of a file of schedules, to one of package queue.
func ScheduleOf(s manifest.Schedule) queue.Schedule {
	return queue.Schedule{
		ID: s.Name, Queue: s.Queue, Cron: s.Cron, Timezone: s.Timezone, Parameters: s.Parameters,
		Options: queue.Options{
			Priority: s.Priority, Timeout: s.Timeout,
			Retry:   queue.Retry{MaxAttempts: s.MaxAttempts, MaxAge: s.MaxAge},
			FairKey: s.FairKey, FairWeight: s.FairWeight, ConcurrencyKey: s.ConcurrencyKey, MaxConcurrent: s.MaxConcurrent,
		},
		Missed: queue.Missed(s.Missed), MaxMissed: s.MaxMissed, Window: s.Window, Overlap: queue.Overlap(s.Overlap),
	}
}

// LiveNodes lists the listeners whose lease has not expired.
func LiveNodes(ctx context.Context, client *queue.Client) ([]listen.NodeInfo, error) {
	nodes, err := listen.NewFleet(client).Nodes(ctx, "kind")
	if err != nil {
		return nil, err
	}
	now, err := client.Clock(ctx)
	return slices.DeleteFunc(nodes, func(node listen.NodeInfo) bool { return node.LeaseEnd.Before(now) }), err
}
