package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
)

// Permissions are what a tenant's tasks are allowed to do on a version: what its manifest asks for, bounded by the
// host. They do not change.
type Permissions struct {
	// Capabilities are what the manifest and the host both grant.
	Capabilities Capabilities
	// Config is the manifest's configuration. A value of the host replaces the manifest's value of the same name.
	Config map[string]string
	// Secrets are all secrets of the tenant in the host's grants, including those that Capabilities does not have.
	Secrets map[string]Secret
	// Databases are the tenant's databases in the host's grants, by name.
	Databases map[string]Database
	// Recipients are the keys to which records of runs are encrypted; none: they are not.
	Recipients []replay.Recipient
	// Ceiling is the host's bound on the capabilities; nil means no bound.
	Ceiling *Capabilities
	// Limits are the limits of a task, with defaults.
	Limits runtime.Limits
	// MaxTimeout is the host's ceiling for the timeout that a task sets itself; 0 means no ceiling.
	MaxTimeout time.Duration
	// MaxCrashes and Dead are the values of the manifest, as far as the host allows them.
	MaxCrashes int
	Dead       string
	// MostRetry bounds the retry policies of tasks, which producers, manifests and the host set. Min is a minimum. The
	// other fields are maximums. A zero field is no bound.
	MostRetry Retry
	// Lowered are the limits that the host lowers below the manifest's.
	Lowered []Lowered
	// Where names the tenant's entry in the host's grants, for messages: the tenant's name or "*", and the file.
	Where string

	asked Capabilities

	undeclared []Problem // why the host keeps none of the manifest's schedules and subscriptions; empty if it keeps them
}

// NewPermissions returns the permissions of a manifest for a tenant, on a host with these grants. The ceilings apply to
// all tenants.
func NewPermissions(m *Manifest, grants *Grants, tenant string, ceilings Ceilings) *Permissions {
	own := grants.Of(tenant)
	p := &Permissions{
		Capabilities: m.Capabilities.LimitTo(own.Ceiling), Config: maps.Clone(m.Config), Secrets: own.Secrets,
		Databases: own.Databases, Recipients: own.Recipients,
		Ceiling: own.Ceiling,
		asked:   m.Capabilities, Where: own.Where,
	}
	for name, value := range own.Config {
		if _, asked := m.Config[name]; asked {
			p.Config[name] = value
		}
	}
	ceilings = ceilings.with(own.Ceilings)
	p.undeclared = append(m.entries(Declared{}, own, ceilings), m.eachSchedule(ceilings)...)
	limited, lowered, hosts := m.limitTo(ceilings)
	p.Limits, p.MaxCrashes, p.Dead = limited.Limits.WithDefaults(), limited.MaxCrashes, m.Dead
	p.Limits.Timeout = cmp.Or(p.Limits.Timeout, taskTimeout)
	var most Manifest
	most.eachLimit(func(path string, l key) { l.set(ceilings[path].value) })
	p.MostRetry, p.MaxTimeout, p.Lowered = most.Retry, most.Limits.Timeout, lowered
	p.Limits.Remedies = runtime.Remedies{}
	if bound, ok := ceilings["limits.timeout"]; ok {
		p.Limits.Remedies[runtime.MaxTimeout] = "the host allows no more, see " + bound.where
	}
	for path, where := range hosts {
		if name, ok := strings.CutPrefix(path, "limits."); ok {
			p.Limits.Remedies[name] = "the host allows no more, see " + where
		}
	}
	if p.Ceiling != nil && !m.ownsDead() && !p.Ceiling.Enqueue.Allows(m.Dead) {
		p.Dead = ""
		p.Lowered = append(p.Lowered, Lowered{"dead", m.Dead, "none", p.Where})
	}
	return p
}

// Granted returns the capabilities and the configuration's names for people; nil if there are none.
func (p *Permissions) Granted() *Granted { return p.Capabilities.Granted(p.Config) }

// Reduced returns the keys of the capabilities that the host does not grant in full.
func (p *Permissions) Reduced() (keys []string) {
	if p.Ceiling == nil {
		return nil
	}
	asked, got := p.asked.LimitTo(&p.asked).granted(nil), p.Capabilities.granted(nil)
	for _, key := range []struct {
		name       string
		asked, got any
	}{
		{"http", asked.HTTP, got.HTTP},
		{"kv", asked.KV, got.KV},
		{"secrets", asked.Secrets, got.Secrets},
		{"sql", asked.SQL, got.SQL},
		{"enqueue", asked.Enqueue, got.Enqueue},
		{"publish", asked.Publish, got.Publish},
	} {
		if !reflect.DeepEqual(key.asked, key.got) {
			keys = append(keys, key.name)
		}
	}
	return keys
}

// denial returns a denial by the host. line is the line to add to the host's grants.
func (p *Permissions) denial(line string) *service.Denial {
	return &service.Denial{By: service.ByHost, Where: p.Where, Add: line}
}

// deny returns a denial unless grants is true for both the manifest and the host. what says what is not granted. add
// returns what to add to capabilities, and where, as in service.Denial.
func (p *Permissions) deny(grants func(c *Capabilities) bool, what string,
	add func(c *Capabilities) (entry, into string),
) error {
	switch {
	case grants(&p.Capabilities):
		return nil
	case grants(&p.asked):
		d := p.denial("")
		d.Add, d.Into = add(p.Ceiling)
		return d
	}
	d := &service.Denial{What: what}
	d.Add, d.Into = add(&p.asked)
	return d
}

// DenyBucket returns the denial of reading a bucket or, if write is true, of changing it; nil if that is granted.
func (p *Permissions) DenyBucket(bucket string, write bool) error {
	what, entry := fmt.Sprintf("bucket %q is not granted", bucket), fmt.Sprintf("{bucket: %q}", bucket)
	if write {
		entry = fmt.Sprintf("{bucket: %q, access: rw}", bucket)
		if p.Capabilities.allowsBucket(bucket, false) {
			what = fmt.Sprintf("bucket %q is granted for reading only", bucket)
		}
	}
	return p.deny(func(c *Capabilities) bool { return c.allowsBucket(bucket, write) }, what,
		func(c *Capabilities) (string, string) {
			switch {
			// A second entry of the bucket would be refused.
			case slices.ContainsFunc(c.KV, func(g KVGrant) bool { return g.Bucket == bucket }):
				return "access: rw", fmt.Sprintf("bucket %q in capabilities.kv", bucket)
			case len(c.KV) > 0:
				return entry, "capabilities.kv"
			}
			return "kv: [" + entry + "]", ""
		})
}

// DenySecret returns the denial of reading a secret; nil if that is granted.
func (p *Permissions) DenySecret(name string) error {
	return p.deny(func(c *Capabilities) bool { return slices.Contains(c.Secrets, name) },
		fmt.Sprintf("secret %q is not granted", name), func(c *Capabilities) (string, string) {
			if len(c.Secrets) > 0 {
				return strconv.Quote(name), "capabilities.secrets"
			}
			return fmt.Sprintf("secrets: [%q]", name), ""
		})
}

// DenyQueue returns the denial of enqueueing to a queue; nil if that is granted.
func (p *Permissions) DenyQueue(queue string) error {
	line := fmt.Sprintf("enqueue: {queues: [%q]}", queue)
	if p.asked.Enqueue.AfterCall() {
		line = fmt.Sprintf("enqueue: {queues: [%q], after: call}", queue)
	}
	return p.deny(func(c *Capabilities) bool { return c.Enqueue.Allows(queue) },
		fmt.Sprintf("queue %q is not granted", queue), func(c *Capabilities) (string, string) {
			switch {
			case c.Enqueue.Allows(queue): // but not at the call
				return "after: call", "capabilities.enqueue"
			case c.Enqueue != nil:
				return strconv.Quote(queue), "queues in capabilities.enqueue"
			}
			return line, ""
		})
}

// DenyTopic returns the denial of publishing to a topic; nil if that is granted.
func (p *Permissions) DenyTopic(topic string) error {
	line := fmt.Sprintf("publish: {topics: [%q]}", topic)
	if p.asked.Publish.AfterCall() {
		line = fmt.Sprintf("publish: {topics: [%q], after: call}", topic)
	}
	return p.deny(func(c *Capabilities) bool { return c.Publish.Allows(topic) },
		fmt.Sprintf("topic %q is not granted", topic), func(c *Capabilities) (string, string) {
			switch {
			case c.Publish.Allows(topic):
				return "after: call", "capabilities.publish"
			case c.Publish != nil:
				return strconv.Quote(topic), "topics in capabilities.publish"
			}
			return line, ""
		})
}

// DenyDepth returns the denial of enqueueing from a task that has depth parents above it, if the host forbids what the
// manifest asks for; else nil.
func (p *Permissions) DenyDepth(depth int) error {
	asked, granted := p.asked.Enqueue, p.Capabilities.Enqueue
	if asked == nil || granted == nil || depth < granted.Depth || depth >= asked.Depth {
		return nil
	}
	d := p.denial(fmt.Sprintf("enqueue: {depth: %d}", asked.Depth))
	d.Err, d.What = service.ErrLimit, fmt.Sprintf("the task has %d parents above it (a loop?), and the host allows %d",
		depth, granted.Depth)
	return d
}

// RaiseEnqueue returns the remedy for a task that has used up a bound of its enqueue grant. key is the bound's key,
// "tasks" or "bytes".
func (p *Permissions) RaiseEnqueue(key string) string {
	asked, granted := p.asked.Enqueue, p.Capabilities.Enqueue
	switch {
	case asked == nil || granted == nil:
	case key == "tasks" && granted.Tasks < asked.Tasks:
		return p.denial(fmt.Sprintf("enqueue: {tasks: %d}", asked.Tasks)).Remedy()
	case key == "bytes" && granted.Bytes < asked.Bytes:
		return p.denial(fmt.Sprintf("enqueue: {bytes: %s}", units.FormatSize(asked.Bytes))).Remedy()
	}
	return "raise capabilities.enqueue." + key
}
