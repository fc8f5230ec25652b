package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// subscribeInterval is how often what manifests subscribe to is compared with Redis.
const subscribeInterval = time.Minute

// subscriber keeps the subscriptions in Redis that the manifests of the tenant's plugins have. A subscription comes with the
// first host that has it, and a host that gets another version of the plugin changes or deletes it. Between these a host
// stores only what is missing, so that two versions do not take turns while hosts are restarted one after the other. One host
// of the fleet deletes what no live host has had for a while, by Redis's clock, and not as soon as it begins: so a fleet that
// was away as a whole loses none. While no host has the plugin the tasks wait in its queue.
type subscriber struct {
	duty
	access   *tenantAccess
	declared func() map[string]queue.Subscription // now, by ID
	serves   func(plugin string) bool
	since    time.Time                     // when the session began
	stored   map[string]queue.Subscription // what this session has stored; only the run under way uses it
}

func (s *subscriber) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if err = s.store(ctx); err == nil {
		err = s.sweep(ctx)
	}
	return 0, subscribeInterval, err
}

// store stores what has changed since this session stored it, and of the rest what is missing.
func (s *subscriber) store(ctx context.Context) error {
	now := s.declared()
	if len(now)+len(s.stored) == 0 {
		return nil
	}
	all, err := s.access.client.Subscriptions(ctx)
	if all == nil && err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		wanted := now[id]
		i := slices.IndexFunc(all, func(is queue.Subscription) bool { return is.ID == id })
		before, stored := s.stored[id]
		switch {
		case i < 0:
			_, err = s.access.client.Subscribe(ctx, wanted)
		case all[i].Plugin != wanted.Plugin || stored && sameDeclaration(before, wanted) || sameDeclaration(all[i], wanted):
			continue // somebody else's, or as it is to be, or as another version has it by now
		default:
			_, err = s.access.client.ChangeSubscription(ctx, id, func(is *queue.Subscription) error {
				is.Topic, is.Queue, is.Filter = wanted.Topic, wanted.Queue, wanted.Filter
				return nil
			})
		}
		if err := s.note(ctx, "stored a subscription of a plugin", wanted, err); err != nil {
			return err
		}
	}
	for id, before := range s.stored {
		if _, is := now[id]; is || !s.serves(before.Plugin) {
			continue
		}
		if err := s.note(ctx, "deleted a subscription that its plugin has no more", before, s.access.client.Unsubscribe(ctx, id)); err != nil {
			return err
		}
	}
	s.stored = now
	return nil
}

// note tells of a change; an error is one that concerns all others as well.
func (s *subscriber) note(ctx context.Context, what string, of queue.Subscription, err error) error {
	switch {
	case ctx.Err() != nil || queue.IsUnavailable(err):
		return err
	case err == nil:
		s.health.succeeded(opDeclareSubscription, of.Queue)
		s.access.logger.Info(what, "subscription", of.ID, "plugin", of.Plugin, "topic", of.Topic, "queue", of.Queue)
	case !errors.Is(err, queue.ErrNoSubscription) && !errors.Is(err, queue.ErrExists):
		s.health.failed(opDeclareSubscription, of.Queue, err)
	}
	return nil
}

// sweep notes, on one host of the fleet, which subscriptions no live host's plugin has, and deletes those that were so for long.
func (s *subscriber) sweep(ctx context.Context) error {
	mine, err := s.access.node.TakeDuty(ctx, "subscribed", subscribeInterval)
	if err != nil || !mine {
		return err
	}
	all, err := s.access.client.Subscriptions(ctx)
	if all == nil || !slices.ContainsFunc(all, func(is queue.Subscription) bool { return is.Plugin != "" }) {
		return err
	}
	live, err := Plugins(ctx, s.access.client)
	if err != nil {
		return err
	}
	now, err := s.access.client.Clock(ctx)
	if err != nil {
		return err
	}
	for _, is := range all {
		err = nil
		served := slices.ContainsFunc(live, func(p Plugin) bool {
			return p.State != plugins.StateRefused && p.Plugin == is.Plugin && slices.Contains(p.Subscriptions, is.ID)
		})
		switch {
		case is.Plugin == "":
		case served != is.UnservedSince.IsZero(): // it has come back, or is missing from now on
			_, err = s.access.client.ChangeSubscription(ctx, is.ID, func(is *queue.Subscription) error {
				is.UnservedSince = time.Time{}
				if !served {
					is.UnservedSince = now
				}
				return nil
			})
		case !served && now.Sub(is.UnservedSince) > keptFor(live, is.Plugin) && time.Since(s.since) > undeclaredTime:
			err = s.note(ctx, "deleted a subscription: no host has had its plugin for a while", is, s.access.client.Unsubscribe(ctx, is.ID))
		}
		if err != nil && !errors.Is(err, queue.ErrNoSubscription) {
			return err
		}
	}
	return nil
}

// sameDeclaration tells whether two subscriptions say the same, as far as a manifest says it.
func sameDeclaration(a, b queue.Subscription) bool {
	return a.Topic == b.Topic && a.Queue == b.Queue && jsonText(a.Filter) == jsonText(b.Filter) // of which one may be read from Redis
}

// subscriptions are those of the plugins that serve the tenant's queues here, by ID.
func (c *catalog) subscriptions(tenant string) map[string]queue.Subscription {
	all := make(map[string]queue.Subscription)
	for _, binding := range c.directory.BindingsOf(tenant) {
		version := c.directory.Acquire(tenant, binding.Queue)
		if version == nil {
			continue
		}
		for _, s := range version.Manifest.Subscribe {
			if s.Queue == binding.Queue && c.config.serves(s.Queue) {
				declared := declaredSubscription(version.Name, s)
				all[declared.ID] = declared
			}
		}
		version.Release()
	}
	return all
}

func declaredSubscription(plugin string, s manifest.Subscription) queue.Subscription {
	return queue.Subscription{
		ID: queue.PluginSubscriptionID(plugin, s.Topic), Plugin: plugin, Topic: s.Topic, Queue: s.Queue,
		Filter: queue.Filter{Attributes: s.Attributes, Data: s.Data},
	}
}
