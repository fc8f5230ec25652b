package plugins

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/plugins/manifest"
)

// Config says where plugins are, and bounds what they use. The zero value works.
type Config struct {
	// Dir is the plugin directory. It need not exist yet. NoDir stands for none. Default ./handlers.
	Dir string
	// Tenants are the tenants that the host serves. Default: only blueque.
	Tenants []string
	// MaxMemory bounds the memory, input and output of one task together, in bytes. A plugin that wants more is
	// refused. Default 0, which is no bound.
	MaxMemory int64
	// MaxQueues bounds the queues that all plugins in one folder serve together. A plugin that would exceed it is
	// refused. Default 0, which is no bound.
	MaxQueues int
	// Hold reserves bytes of memory that a tenant's plugins keep as long as they serve; for common plugins, tenant is "".
	// The function give returns the memory. If give is nil, there is no room, and the plugin is refused until there is.
	// Default: there is always room.
	Hold func(tenant string, bytes int64) (give func())
	// Ceilings bound the limits of every plugin's tasks, including limits that the manifest leaves out. Default: no
	// bounds.
	Ceilings manifest.Ceilings
	// Grants are what the host grants each tenant. Default nil: manifests alone decide.
	Grants *manifest.Grants
	// Logger logs loads, refusals and removals of plugins. Default: nothing is logged.
	Logger hclog.Logger
	// Observer counts loads and serving versions. Default: none.
	Observer Observer
}

// Observer counts loads and serving versions. Its methods are called one at a time, and must not block. The tenant of
// a plugin that serves every tenant is "".
type Observer interface {
	// PluginLoaded counts a result for a plugin's files: ok (they serve), refused, or gone (removed).
	PluginLoaded(tenant, plugin, result string)
	// PluginServing is called when a version begins or ceases to serve. Tasks in flight may still run on a version
	// that has ceased to serve. resetMode is how the version's instances are reset between tasks.
	PluginServing(tenant, plugin, version, digest, resetMode string, serving bool)
}

type noObserver struct{}

func (noObserver) PluginLoaded(_, _, _ string)                {}
func (noObserver) PluginServing(_, _, _, _, _ string, _ bool) {}

// DefaultDir is the plugin directory if Config.Dir is "".
const DefaultDir = "./handlers"

// NoDir is the plugin directory of a host that serves only releases. A folder of this name is ./none.
const NoDir = "none"

func (c Config) withDefaults() Config {
	if c.Dir == "" {
		c.Dir = DefaultDir
	}
	if len(c.Tenants) == 0 {
		c.Tenants = []string{"blueque"}
	}
	c.Tenants = slices.Clone(c.Tenants)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Hold == nil {
		c.Hold = func(string, int64) func() { return func() {} }
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return c
}

func (c Config) validate() error {
	for i, tenant := range c.Tenants {
		if !manifest.IsTenant(tenant) {
			return fmt.Errorf("config: Tenants[%d] is %s: it may be 1 to 32 of a-z, 0-9 and -, or such a word in braces", i,
				manifest.Quote(tenant))
		}
		if slices.Index(c.Tenants, tenant) < i {
			return fmt.Errorf("config: Tenants names %s twice: name it once", manifest.Quote(tenant))
		}
	}
	return errors.Join(notNegative("MaxMemory", c.MaxMemory), notNegative("MaxQueues", c.MaxQueues))
}

func notNegative[T int | int64](field string, value T) error {
	if value < 0 {
		return fmt.Errorf("config: %s is %v: it may be 0, for no bound, or more", field, value)
	}
	return nil
}
