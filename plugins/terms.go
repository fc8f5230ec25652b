package plugins

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/quern-project/quern/runtime/service"
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

	asked Capabilities
	place string // of the ceiling, for messages
}

// NewTerms are the terms of a manifest for a tenant.
func NewTerms(m *Manifest, hosts *HostGrants, tenant string) *Terms {
	t := &Terms{Capabilities: m.Capabilities, Config: m.Config, asked: m.Capabilities}
	own := hosts.Of(tenant)
	if own == nil {
		return t
	}
	t.Ceiling, t.Secrets, t.place = own.Ceiling, own.Secrets, fmt.Sprintf("%q in %s", own.name, hosts.file)
	t.Capabilities = m.Capabilities.Under(t.Ceiling)
	t.Config = maps.Clone(m.Config)
	for name, value := range own.Config {
		if _, asked := m.Config[name]; asked {
			t.Config[name] = value
		}
	}
	return t
}

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

func (t *Terms) deny(allows func(c Capabilities) bool, line string) error {
	if t.Ceiling == nil || !allows(t.asked) || allows(t.Capabilities) {
		return nil
	}
	return fmt.Errorf("%w: the manifest grants it and the host does not: %s would have to say: capabilities: {%s}", service.ErrDenied, t.place, line)
}
