package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime/units"
)

// Granted shows people what a plugin is allowed to use in addition to its tasks. It leaves out the values of variables,
// configuration and secrets.
type Granted struct {
	HTTP    []GrantedHost   `json:"http,omitempty"`
	KV      []GrantedBucket `json:"kv,omitempty"`
	Secrets []string        `json:"secrets,omitempty"`
	SQL     []SQLGrant      `json:"sql,omitempty"`
	Enqueue *EnqueueGrant   `json:"enqueue,omitempty"`
	Publish *PublishGrant   `json:"publish,omitempty"`
	// Env and Config are the names of variables and of configuration values. Files are the paths at which tasks find the
	// granted files.
	Env    []string `json:"env,omitempty"`
	Files  []string `json:"files,omitempty"`
	Config []string `json:"config,omitempty"`
}

// GrantedHost is a host, or all names below a host, with the granted methods in alphabetical order.
type GrantedHost struct {
	Host    string   `json:"host"`
	Methods []string `json:"methods"`
}

// GrantedBucket is a bucket that a plugin is allowed to use. Access is "r" or "rw". Quota is in bytes; it is left out
// if the access is "r".
type GrantedBucket struct {
	Bucket string `json:"bucket"`
	Access string `json:"access"`
	Quota  int64  `json:"quota,omitempty"`
}

// Granted returns the capabilities, and the names in a configuration, for people; nil if there are none.
func (c Capabilities) Granted(config map[string]string) *Granted {
	if g := c.granted(config); len(g.Lines()) > 0 {
		return g
	}
	return nil
}

func (c Capabilities) granted(config map[string]string) *Granted {
	g := &Granted{
		Secrets: c.Secrets, SQL: c.SQL, Enqueue: c.Enqueue, Publish: c.Publish, Env: slices.Sorted(maps.Keys(c.Env)),
		Config: slices.Sorted(maps.Keys(config)),
	}
	for _, grant := range c.HTTP {
		methods := grant.Methods()
		slices.Sort(methods)
		g.HTTP = append(g.HTTP, GrantedHost{grant.Host(), methods})
	}
	for _, grant := range c.KV {
		bucket := GrantedBucket{Bucket: grant.Bucket, Access: accessRead}
		if grant.Write {
			bucket.Access, bucket.Quota = accessWrite, grant.Quota
		}
		g.KV = append(g.KV, bucket)
	}
	for _, file := range c.Files {
		g.Files = append(g.Files, file.To)
	}
	return g
}

// Lines returns the grants as text, one grant a line.
func (g *Granted) Lines() (lines []string) {
	if g == nil {
		return nil
	}
	for _, h := range g.HTTP {
		lines = append(lines, "http "+h.Host+" "+strings.Join(h.Methods, ", "))
	}
	for _, b := range g.KV {
		line := "kv " + b.Bucket + " " + b.Access
		if b.Quota > 0 {
			line += ", quota " + units.FormatSize(b.Quota)
		}
		lines = append(lines, line)
	}
	for i := range g.SQL {
		lines = append(lines, g.SQL[i].describe())
	}
	if q := g.Enqueue; q != nil {
		lines = append(lines, fmt.Sprintf("enqueue %s, after %s, depth %d, tasks %d of %s",
			strings.Join(q.Queues, ", "), q.After, q.Depth, q.Tasks, units.FormatSize(q.Bytes)))
	}
	if p := g.Publish; p != nil {
		lines = append(lines, fmt.Sprintf("publish %s, after %s", strings.Join(p.Topics, ", "), p.After))
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"secrets", g.Secrets}, {"env", g.Env}, {"files", g.Files}, {"config", g.Config}} {
		if len(list.names) > 0 {
			lines = append(lines, list.key+" "+strings.Join(list.names, ", "))
		}
	}
	return lines
}
