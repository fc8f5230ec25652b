package upkeep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// declareInterval is how often the plugins' declarations are compared with Redis.
	declareInterval = time.Minute
	// removedTime is how long an active subscription is kept after no manifest has it any more, while hosts serve its
	// plugin. It is not deleted at once because hosts get a new version one after the other. A session younger than this
	// deletes nothing, because a fleet that was away looks the same.
	removedTime = 10 * time.Minute
	// absentTime is how long a schedule or an inactive subscription is kept after no manifest has it any more; it makes
	// no tasks meanwhile. Active subscriptions are also kept that long while no host serves their plugin. So counts and
	// settings that people made survive an outage over a long weekend, or the rollback of a version.
	absentTime = 7 * 24 * time.Hour
)

// Declarer keeps in Redis the schedules, subscriptions and concurrencies of queues that the manifests of the tenant's
// plugins declare.
//
// The first host with a declaration stores it, and a host that gets another version of the plugin changes it. In
// between, a host stores only the declarations that are missing in Redis. So two versions do not overwrite each other
// in turn while hosts are restarted one after the other. But a host does replace a definition that no live host has any
// more.
//
// If the plugin has releases, its declarations are those of the release to serve: a host with another version of the
// plugin stores only what is missing, whenever it starts.
//
// If no live host has a declaration at all, its schedule stops; its subscription still fills its queue, and its
// concurrency still counts. The declaration
// is deleted after removedTime or absentTime. Until then it keeps what people have set.
type Declarer struct {
	periodic.Duty
	*Config

	// Only the run under way uses the fields below.
	since   time.Time       // when the session began
	shown   []Declaration   // the declarations when the host last published its state
	stored  []Declaration   // the declarations that this session has stored
	foreign map[string]bool // declarations that were logged as owned by somebody else, by kind and ID
}

// RunOnce implements periodic.Worker.
func (d *Declarer) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if d.since.IsZero() {
		d.since = time.Now()
	}
	if err = d.store(ctx); err == nil {
		err = d.Sweep(ctx, time.Since(d.since))
	}
	return 0, periodic.Jitter(declareInterval), err
}

// store stores the declarations that are new or have changed since this session stored them. Of the other declarations,
// it stores those that are missing in Redis, and those whose definition in Redis no live host has. A declaration whose
// ID somebody else owns is refused; that does not stop the rest.
func (d *Declarer) store(ctx context.Context) error {
	var stored, others []Declaration
	now := d.Declared()
	if !slices.EqualFunc(now, d.shown, Declaration.same) { // publish first, or another host marks the new ones as absent
		if err := d.Publish(ctx); err != nil {
			return err
		}
		d.shown = now
	}
	for _, one := range now {
		known := slices.ContainsFunc(d.stored, func(other Declaration) bool { return other.same(one) })
		put, err := one.put(ctx, d.Client, known || one.Behind)
		if err == nil {
			stored = append(stored, one)
		}
		if put == queue.PutKept && !one.Behind {
			others = append(others, one)
		}
		if err := d.note(ctx, one, putWords[put], err); err != nil {
			return err
		}
	}
	gone := slices.DeleteFunc(slices.Clone(d.stored), func(one Declaration) bool {
		return slices.ContainsFunc(now, one.sameName) || !d.Serves(one.Plugin)
	})
	if err := d.replace(ctx, others, gone); err != nil {
		return err
	}
	d.stored = stored
	return nil
}

// replace compares declarations with those of all live hosts. The declarations in others have another definition in
// Redis than on this host. If no live host has the definition in Redis, replace stores that of this host. The
// declarations in gone are those that this host no longer has. If no live host has one of them, replace marks it as
// absent.
func (d *Declarer) replace(ctx context.Context, others, gone []Declaration) error {
	if len(others)+len(gone) == 0 {
		return nil
	}
	client := d.Client
	stored := make(map[string]string) // the definitions of others in Redis, by name, as far as they can be read
	for _, one := range others {      // read these first: a host publishes a definition before it stores it
		current, err := one.read(ctx, client)
		if err == nil {
			stored[one.Name()] = current.definition()
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
		if definition, ok := stored[one.Name()]; !ok || slices.Contains(live[one.Name()], definition) {
			continue
		}
		put, err := one.put(ctx, client, false)
		if err := d.note(ctx, one, putWords[put], err); err != nil {
			return err
		}
	}
	for _, one := range gone {
		if live[one.Name()] != nil || !whole {
			continue
		}
		current, err := one.read(ctx, client)
		if err == nil && current.Plugin != one.Plugin {
			continue // somebody else has since made a declaration with this ID
		}
		if err == nil {
			_, err = current.mark(ctx, client, false, 0)
		}
		if err := d.note(ctx, one, "marked as absent, because no running version has it any more:", err); err != nil {
			return err
		}
	}
	return nil
}

// putWords maps a Put to the word for it in the log. A Put without a word changed nothing.
var putWords = map[queue.Put]string{queue.PutNew: "stored", queue.PutChanged: "changed"}

// note logs a change to a declaration ("": no change), or records the error of a call for it. It returns the error only
// if the error would concern the other declarations as well.
func (d *Declarer) note(ctx context.Context, of Declaration, change string, err error) error {
	op := opDeclare
	if of.subscription != nil {
		op = opDeclareSubscription
	}
	switch {
	case ctx.Err() != nil || queue.IsUnavailable(err):
		return err
	case errors.Is(err, queue.ErrNoSchedule) || errors.Is(err, queue.ErrNoSubscription): // deleted meanwhile
	case errors.Is(err, queue.ErrOwned):
		if !d.foreign[of.Name()] {
			d.foreign[of.Name()] = true
			d.Logger.Warn("a plugin's "+of.Kind+" was not stored: somebody else owns its ID", "id", of.ID, "plugin", of.Plugin,
				"error", err)
		}
	case err != nil:
		d.Health.Failed(op, of.Queue, err)
	default:
		d.Health.Succeeded(op, of.Queue)
		if change != "" {
			d.Logger.Info(change+" a "+of.Kind+" of a plugin", "id", of.ID, "plugin", of.Plugin, "queue", of.Queue)
		}
	}
	return nil
}

// Sweep marks as absent the declarations that no plugin of a live host has any more, and deletes those that were absent
// for long enough. Only one host of the fleet does it. age is the age of the session.
func (d *Declarer) Sweep(ctx context.Context, age time.Duration) error {
	mine, err := d.Node.TakeDuty(ctx, "declared", declareInterval)
	if err != nil || !mine {
		return err
	}
	client := d.Client
	all, err := storedDeclarations(ctx, client)
	if err != nil || len(all) == 0 {
		return err
	}
	live, whole, err := liveDefinitions(ctx, client)
	if err != nil {
		return err
	}
	running, err := d.Running(ctx, client)
	if err != nil {
		return err
	}
	listeners, err := client.Queues(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		declared := live[one.Name()] != nil
		if !declared && !whole {
			continue
		}
		most, change := absentTime, ""
		if running[one.Plugin] && listeners[one.Queue] > 0 && one.subscription != nil && one.subscription.Active {
			most = removedTime
		}
		if one.Kind == KindConcurrency && listeners[one.Queue] > 0 {
			most = removedTime
		}
		if age < removedTime {
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
