package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// declareInterval is how often what plugins declare is compared with Redis.
	declareInterval = time.Minute
	// removedTime is how long no manifest may have an active subscription before it is deleted while hosts serve its plugin: hosts get
	// a new version one after the other. A session deletes nothing before it is as old, because a fleet that was away begins likewise.
	removedTime = 10 * time.Minute
	// absentTime is the same while no host serves the plugin, and for what makes no tasks meanwhile: what people set by hand, what was
	// counted and what is published outlives an outage over a long weekend, and a version that is rolled back.
	absentTime = 7 * 24 * time.Hour
)

// declaration is a schedule or a subscription of a plugin's manifest.
type declaration struct {
	kind, id, plugin, queue string
	schedule                *queue.Schedule // one of these is not nil
	subscription            *queue.Subscription
}

// declarer keeps the schedules and subscriptions in Redis that the manifests of the tenant's plugins have. One comes with the
// first host that has it, and a host that gets another version of the plugin changes it. Between these a host stores only what is
// missing, so that two versions do not take turns while hosts are restarted one after the other; but what no live host says any
// more, it replaces. What no live host has at all stands still, if it is a schedule, or goes on to fill its queue, if it is a
// subscription, and is deleted after a while: until then it keeps what people set of it.
type declarer struct {
	duty
	access   *tenantAccess
	publish  func(context.Context) error // returns when what the host has now is published
	declared func() []declaration        // now
	serves   func(plugin string) bool
	since    time.Time       // when the session began
	shown    []declaration   // what was declared when the host was last published; only the run under way uses it
	stored   []declaration   // what this session has stored; likewise
	told     map[string]bool // of declarations that somebody else owns, by kind and ID; only the run under way uses it
}

func (d *declarer) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if d.since.IsZero() {
		d.since, d.told = time.Now(), make(map[string]bool)
	}
	if err = d.store(ctx); err == nil {
		err = d.sweep(ctx)
	}
	return 0, around(declareInterval), err
}

// store stores what has changed since this session stored it, and of the rest what is missing or what nobody says any more. What is
// refused, because somebody else has one of that ID, keeps nothing else from being stored.
func (d *declarer) store(ctx context.Context) error {
	var stored, others []declaration
	now := d.declared()
	if !slices.EqualFunc(now, d.shown, declaration.same) { // it is published first, or another host takes it for absent
		if err := d.publish(ctx); err != nil {
			return err
		}
		d.shown = now
	}
	for _, one := range now {
		known := slices.ContainsFunc(d.stored, func(other declaration) bool { return other.same(one) })
		put, err := one.put(ctx, d.access.client, known)
		if err == nil {
			stored = append(stored, one)
		}
		if put == queue.PutKept {
			others = append(others, one)
		}
		if err := d.note(ctx, one, putWords[put], err); err != nil {
			return err
		}
	}
	gone := slices.DeleteFunc(slices.Clone(d.stored), func(one declaration) bool {
		return slices.ContainsFunc(now, one.names) || !d.serves(one.plugin)
	})
	if err := d.replace(ctx, others, gone); err != nil {
		return err
	}
	d.stored = stored
	return nil
}

// replace looks at two kinds of declarations. Of others, Redis has another definition: if no live host has that one, this host's takes
// its place. gone are those that this host has no more: if no live host has them, they are noted as absent.
func (d *declarer) replace(ctx context.Context, others, gone []declaration) error {
	if len(others)+len(gone) == 0 {
		return nil
	}
	client := d.access.client
	stored := make(map[string]string) // the definitions that Redis has of the others, by their names, as far as they can be read
	for _, one := range others {      // before the hosts: who stores a definition has published it
		is, err := one.read(ctx, client)
		if err == nil {
			stored[one.name()] = is.definition()
		}
		if err := d.note(ctx, one, "", err); err != nil {
			return err
		}
	}
	live, whole, err := liveDefinitions(ctx, client)
	if err != nil {
		return err
	}
	for _, one := range others {
		if definition, is := stored[one.name()]; !is || slices.Contains(live[one.name()], definition) {
			continue
		}
		put, err := one.put(ctx, client, false)
		if err := d.note(ctx, one, putWords[put], err); err != nil {
			return err
		}
	}
	for _, one := range gone {
		if live[one.name()] != nil || !whole {
			continue
		}
		is, err := one.read(ctx, client)
		if err == nil && is.plugin != one.plugin {
			continue // somebody else has made another one since
		}
		if err == nil {
			_, err = is.mark(ctx, client, false, 0)
		}
		if err := d.note(ctx, one, "no version that runs has it any more:", err); err != nil {
			return err
		}
	}
	return nil
}

// putWords are what became of a declaration that was to be stored, if anything did.
var putWords = map[queue.Put]string{queue.PutNew: "stored", queue.PutChanged: "changed"}

// note tells of a change, "" for none; an error is one that concerns all others as well.
func (d *declarer) note(ctx context.Context, of declaration, change string, err error) error {
	op := opDeclare
	if of.subscription != nil {
		op = opDeclareSubscription
	}
	switch {
	case ctx.Err() != nil || queue.IsUnavailable(err):
		return err
	case errors.Is(err, queue.ErrNoSchedule) || errors.Is(err, queue.ErrNoSubscription): // deleted meanwhile
	case errors.Is(err, queue.ErrOwned):
		if name := of.kind + " " + of.id; !d.told[name] {
			d.told[name] = true
			d.access.logger.Warn("a plugin's "+of.kind+" stays as somebody else made it", "id", of.id, "plugin", of.plugin, "error", err)
		}
	case err != nil:
		d.health.failed(op, of.queue, err)
	default:
		d.health.succeeded(op, of.queue)
		if change != "" {
			d.access.logger.Info(change+" a "+of.kind+" of a plugin", "id", of.id, "plugin", of.plugin, "queue", of.queue)
		}
	}
	return nil
}

// sweep notes, on one host of the fleet, what no live host's plugin declares any more, and deletes what was so for long.
func (d *declarer) sweep(ctx context.Context) error {
	mine, err := d.access.node.TakeDuty(ctx, "declared", declareInterval)
	if err != nil || !mine {
		return err
	}
	client := d.access.client
	all, err := declarations(ctx, client)
	if err != nil || len(all) == 0 {
		return err
	}
	live, whole, err := liveDefinitions(ctx, client)
	if err != nil {
		return err
	}
	running, err := Plugins(ctx, client)
	if err != nil {
		return err
	}
	listeners, err := client.Queues(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		served := listeners[one.queue] > 0 && slices.ContainsFunc(running, func(p Plugin) bool { return p.State != plugins.StateRefused && p.Plugin == one.plugin })
		declared := live[one.name()] != nil
		if !declared && !whole {
			continue
		}
		most, change := absentTime, ""
		if served && one.subscription != nil && one.subscription.Active {
			most = removedTime
		}
		if time.Since(d.since) < removedTime {
			most = 0
		}
		gone, err := one.mark(ctx, client, declared, most)
		if gone {
			change = "deleted, because no host has had it for a while:"
		}
		if err := d.note(ctx, one, change, err); err != nil {
			return err
		}
	}
	return nil
}

// declarations are those of plugins that Redis has, of schedules without what their tasks get.
func declarations(ctx context.Context, client *queue.Client) (all []declaration, err error) {
	schedules, err := client.ScheduleHeads(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range schedules {
		if s.PluginOwner() != "" {
			all = append(all, ofSchedule(*s))
		}
	}
	subscriptions, err := client.Subscriptions(ctx)
	if subscriptions == nil {
		return nil, err // else damaged ones do not hide the others
	}
	for _, s := range subscriptions {
		if s.Plugin != "" {
			all = append(all, ofSubscription(s))
		}
	}
	return all, nil
}

func ofSchedule(s queue.Schedule) declaration {
	return declaration{kind: "schedule", id: s.ID, plugin: s.PluginOwner(), queue: s.Queue, schedule: &s}
}

func ofSubscription(s queue.Subscription) declaration {
	return declaration{kind: "subscription", id: s.ID, plugin: s.Plugin, queue: s.Queue, subscription: &s}
}

func (d declaration) names(other declaration) bool { return d.kind == other.kind && d.id == other.id }

// same tells whether two declarations say the same.
func (d declaration) same(other declaration) bool {
	return d.names(other) && d.definition() == other.definition()
}

// name is the kind and the ID.
func (d declaration) name() string { return d.kind + " " + d.id }

// definition is what it says, as a digest.
func (d declaration) definition() string {
	if d.schedule != nil {
		return d.schedule.Definition()
	}
	return d.subscription.Definition()
}

// definitions are what declarations say, by their names, as a host publishes it.
func definitions(all []declaration) map[string]string {
	list := make(map[string]string, len(all))
	for _, one := range all {
		list[one.name()] = one.definition()
	}
	return list
}

// liveDefinitions are those that live hosts publish, by their names; whole is false if a host of an older version publishes none.
func liveDefinitions(ctx context.Context, client *queue.Client) (all map[string][]string, whole bool, err error) {
	nodes, err := liveNodes(ctx, client)
	if err != nil {
		return nil, false, err
	}
	nodes = slices.DeleteFunc(nodes, func(node listen.NodeInfo) bool { return node.Kind != listen.KindQuern })
	all = make(map[string][]string)
	telling := 0
	err = listen.NewFleet(client).Published(ctx, nodes, "definitions", func(_ *listen.NodeInfo, text string) {
		var published map[string]string
		if json.Unmarshal([]byte(text), &published) == nil {
			telling++
		}
		for name, definition := range published {
			if !slices.Contains(all[name], definition) {
				all[name] = append(all[name], definition)
			}
		}
	})
	return all, telling == len(nodes), err
}

// read is the declaration as Redis has it.
func (d declaration) read(ctx context.Context, client *queue.Client) (declaration, error) {
	if d.schedule != nil {
		s, err := client.Schedule(ctx, d.id)
		if err != nil {
			return declaration{}, err
		}
		return ofSchedule(*s), nil
	}
	s, err := client.Subscription(ctx, d.id)
	return ofSubscription(s), err
}

func (d declaration) put(ctx context.Context, client *queue.Client, missing bool) (queue.Put, error) {
	if d.schedule != nil {
		return client.PutSchedule(ctx, *d.schedule, missing)
	}
	return listen.NewFleet(client).DeclareSubscription(ctx, *d.subscription, missing)
}

func (d declaration) mark(ctx context.Context, client *queue.Client, declared bool, most time.Duration) (gone bool, err error) {
	if d.schedule != nil {
		return listen.NewFleet(client).NoteSchedule(ctx, d.schedule, declared, most)
	}
	return listen.NewFleet(client).NoteSubscription(ctx, *d.subscription, declared, most)
}

// declarations are those of the plugins that serve the tenant's queues here.
func (c *catalog) declarations(tenant string) (all []declaration) {
	add := func(one declaration) {
		if c.config.serves(one.queue) && !slices.ContainsFunc(all, one.names) {
			all = append(all, one)
		}
	}
	for _, binding := range c.directory.BindingsOf(tenant) {
		version := c.directory.Acquire(tenant, binding.Queue)
		if version == nil {
			continue
		}
		if version.Permissions(tenant).Undeclared("") != nil { // of a common plugin; a tenant's own would not be served
			version.Release()
			continue
		}
		for _, s := range version.Manifest.Schedule {
			declared := ScheduleOf(s)
			declared.ID, declared.Owner = s.ID(version.Name), queue.OwnedByPlugin(version.Name)
			add(ofSchedule(declared))
		}
		for _, s := range version.Manifest.Subscribe {
			add(ofSubscription(queue.Subscription{
				ID: queue.PluginSubscriptionID(version.Name, s.Topic), Plugin: version.Name, Topic: s.Topic, Queue: s.Queue,
				Filter: queue.Filter{Attributes: s.Attributes, Data: s.Data},
			}))
		}
		version.Release()
	}
	return all
}

// runs tells whether a plugin serves a queue of the tenant here.
func (c *catalog) runs(tenant, plugin string) bool {
	return slices.ContainsFunc(c.directory.BindingsOf(tenant), func(b plugins.Binding) bool { return b.Plugin == plugin })
}

// ScheduleOf is a schedule of a file.
func ScheduleOf(s manifest.Schedule) queue.Schedule {
	return queue.Schedule{
		ID: s.Name, Queue: s.Queue, Cron: s.Cron, Timezone: s.Timezone, Parameters: s.Parameters,
		Options: queue.Options{Priority: s.Priority, Timeout: s.Timeout, Retry: queue.Retry{MaxAttempts: s.MaxAttempts, MaxAge: s.MaxAge}},
		Missed:  queue.Missed(s.Missed), MaxMissed: s.MaxMissed, Window: s.Window, Overlap: queue.Overlap(s.Overlap),
	}
}
