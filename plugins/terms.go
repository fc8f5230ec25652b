package plugins

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
)

// Terms are those on which tasks of one tenant run a version: what its manifest says, under the host's grants. They do
// not change.
type Terms struct {
	// Capabilities are what both grant.
	Capabilities Capabilities
	// Config is the manifest's, with the host's value where it has one of the same name.
	Config map[string]string
	// Secrets are those that the host's grants say where to find, by name, granted or not.
	Secrets map[string]Secret
	// Ceiling is the host's; nil for none.
	Ceiling *Capabilities
	// Limits are those of a task, with defaults.
	Limits runtime.Limits
	// MaxCrashes and Dead are the manifest's, as far as the host gives them.
	MaxCrashes int
	Dead       string
	// MostRetry bounds the policy of a task, whoever sets it: MaxAttempts, MaxAge and MaxReschedules from above, Min from
	// below. What is zero is not bounded.
	MostRetry Retry
	// Lowered are the limits of which the host gives less than the manifest asks for.
	Lowered []Lowered

	asked    Capabilities
	own      runtime.Limits // what the manifest says
	ceilings Ceilings
	place    string // of the ceiling, for messages
}

// NewTerms are the terms of a manifest for a tenant, on a host that has no bounds but its grants.
func NewTerms(m *Manifest, hosts *HostGrants, tenant string) *Terms {
	return newTerms(m, hosts, tenant, nil)
}

func newTerms(m *Manifest, hosts *HostGrants, tenant string, ceilings Ceilings) *Terms {
	t := &Terms{Capabilities: m.Capabilities, Config: m.Config, Dead: m.Dead, asked: m.Capabilities}
	own := hosts.Of(tenant)
	if own == nil {
		t.bound(m, ceilings)
		return t
	}
	t.Ceiling, t.Secrets, t.place = own.Ceiling, own.Secrets, hosts.place(own)
	t.Capabilities = m.Capabilities.Under(t.Ceiling)
	t.bound(m, ceilings.with(own.Ceilings))
	if t.Ceiling != nil && !m.buriesAtHome() && !t.Ceiling.Enqueue.Allows(m.Dead) {
		t.Dead = ""
		t.Lowered = append(t.Lowered, Lowered{"dead", m.Dead, "none", t.place})
	}
	t.Config = maps.Clone(m.Config)
	for name, value := range own.Config {
		if _, asked := m.Config[name]; asked {
			t.Config[name] = value
		}
	}
	return t
}

// bound is for the limits.
func (t *Terms) bound(m *Manifest, ceilings Ceilings) {
	under, lowered := m.under(ceilings)
	t.Limits, t.MaxCrashes = under.Limits.WithDefaults(), under.MaxCrashes
	t.MostRetry, t.Lowered = ceilings.manifest().Retry, lowered
	t.own, t.ceilings = m.Limits, ceilings
}

// Explain says of a limit that a task has reached who set it, if that was the host: raising it in the manifest is in vain.
func (t *Terms) Explain(outcome runtime.Outcome) runtime.Outcome {
	// The remedy for a timeout of the task's own is another one.
	if remedy := t.remedy(outcome.Limit.Name); remedy != "" && strings.Contains(outcome.Message, "limits."+outcome.Limit.Name) {
		outcome.Message = outcome.Message[:strings.LastIndex(outcome.Message, ": ")+2] + remedy
	}
	return outcome
}

// remedy is what to do where a task has reached a limit, by its name, that the host has set lower than the manifest; "" if
// it is the manifest's own.
func (t *Terms) remedy(name string) string {
	for _, l := range limits {
		most, bound := t.ceilings[l.path]
		if own := l.at(&Manifest{Limits: t.own}).get(); bound && l.path == "limits."+name && (own == 0 || l.beyond(own, most.value)) &&
			l.at(&Manifest{Limits: t.Limits}).get() == most.value {
			return "the host allows no more, see " + most.place
		}
	}
	return ""
}

// admits tells whether the module's memory fits into what tasks have from their start.
func (t *Terms) admits(m *module) error {
	err := m.Admits(t.Limits)
	var refused *runtime.RefusedError
	if remedy := t.remedy("memory"); remedy != "" && errors.As(err, &refused) {
		for i := range refused.Refusals {
			refused.Refusals[i].Remedy = remedy
		}
	}
	return err
}

// buriesAtHome tells whether dead letters, if there are any, go to the queue that is named for them after the plugin or
// one of its own: NAME.dead.
func (m *Manifest) buriesAtHome() bool {
	name, found := strings.CutSuffix(m.Dead, deadSuffix)
	return m.Dead == "" || found && (name == m.Name || slices.Contains(m.Queues, name))
}

// deadSuffix ends the names of queues that any plugin may have for its dead letters.
const deadSuffix = ".dead"

// Place is where the host's grants could be changed, for messages: the tenant's name or "*", and the file.
func (t *Terms) Place() string { return t.place }

// Granted is what they look like; nil for nothing.
func (t *Terms) Granted() *Granted { return t.Capabilities.Granted(t.Config) }

// Taken are the keys of the manifest's capabilities of which the ceiling has taken something away.
func (t *Terms) Taken() (keys []string) {
	if t.Ceiling == nil {
		return nil
	}
	nothing := &Granted{}
	asked, got := t.asked.Under(&t.asked).Granted(nil), t.Capabilities.Granted(nil)
	if asked == nil {
		asked = nothing
	}
	if got == nil {
		got = nothing
	}
	for _, key := range []struct {
		name       string
		asked, got any
	}{
		{"http", asked.HTTP, got.HTTP},
		{"kv", asked.KV, got.KV},
		{"secrets", asked.Secrets, got.Secrets},
		{"enqueue", asked.Enqueue, got.Enqueue},
	} {
		if !reflect.DeepEqual(key.asked, key.got) {
			keys = append(keys, key.name)
		}
	}
	return keys
}

// DenyBucket is the error of using a bucket, or of changing it, that the manifest grants and the host does not; else nil.
func (t *Terms) DenyBucket(bucket string, write bool) error {
	allows := func(c Capabilities) bool {
		for _, g := range c.KV {
			if g.Bucket == bucket && (g.Write || !write) {
				return true
			}
		}
		return false
	}
	line := fmt.Sprintf("kv: [{bucket: %q}]", bucket)
	if write {
		line = fmt.Sprintf("kv: [{bucket: %q, access: rw}]", bucket)
	}
	return t.deny(allows, line)
}

// DenySecret is the error of reading a secret that the manifest grants and the host does not; else nil.
func (t *Terms) DenySecret(name string) error {
	return t.deny(func(c Capabilities) bool {
		for _, secret := range c.Secrets {
			if secret == name {
				return true
			}
		}
		return false
	}, fmt.Sprintf("secrets: [%q]", name))
}

// DenyQueue is the error of enqueueing to a queue that the manifest grants and the host does not; else nil.
func (t *Terms) DenyQueue(queue string) error {
	line := fmt.Sprintf("enqueue: {queues: [%q]}", queue)
	if t.asked.Enqueue != nil && t.asked.Enqueue.AfterCall {
		line = fmt.Sprintf("enqueue: {queues: [%q], after: call}", queue)
	}
	return t.deny(func(c Capabilities) bool { return c.Enqueue.Allows(queue) }, line)
}

// DenyDepth is the error of a task with so many parents that enqueues one, where the manifest would allow a longer chain
// than the host; else nil.
func (t *Terms) DenyDepth(depth int) error {
	asked, granted := t.asked.Enqueue, t.Capabilities.Enqueue
	if asked == nil || granted == nil || depth < granted.Depth || depth >= asked.Depth {
		return nil
	}
	return fmt.Errorf("%w: the task has %d parents above it, and the host allows %d: if that is no circle, "+
		"%s would have to say: capabilities: {enqueue: {depth: %d}}", service.ErrLimit, depth, granted.Depth, t.place, asked.Depth)
}

// RaiseEnqueue is the remedy for a number of the enqueue grant, "tasks" or "bytes", that a task has used up.
func (t *Terms) RaiseEnqueue(key string) string {
	asked, granted := t.asked.Enqueue, t.Capabilities.Enqueue
	switch {
	case asked == nil || granted == nil:
	case key == "tasks" && granted.Tasks < asked.Tasks:
		return fmt.Sprintf("%s would have to say: capabilities: {enqueue: {tasks: %d}}", t.place, asked.Tasks)
	case key == "bytes" && granted.Bytes < asked.Bytes:
		return fmt.Sprintf("%s would have to say: capabilities: {enqueue: {bytes: %s}}", t.place, units.FormatSize(asked.Bytes))
	}
	return "raise capabilities.enqueue." + key
}

func (t *Terms) deny(allows func(c Capabilities) bool, line string) error {
	if t.Ceiling == nil || !allows(t.asked) || allows(t.Capabilities) {
		return nil
	}
	return fmt.Errorf("%w: the manifest grants it and the host does not: %s would have to say: capabilities: {%s}", service.ErrDenied, t.place, line)
}
