package plugins

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/service"
)

// Version is a plugin's module and manifest, which do not change. It lives as long as somebody holds it. Any goroutine
// that holds it can use its fields and methods.
type Version struct {
	// Tenant is the plugin's tenant; "" if the plugin serves every tenant. It is not the tenant of a TenantVersion's
	// tasks.
	Tenant string
	// Name is the plugin's name.
	Name string
	// Digest identifies the module: "sha256:" and the 64 hex digits of the SHA-256 of the file.
	Digest string
	// Manifest is the manifest as it was written. If the manifest names no queues, Queues has the plugin's name.
	Manifest manifest.Manifest

	content identity
	contents
	pools *tenantPools // the pools of instances, which versions with equal content share
	// permissions and tenants have every tenant that the plugin serves. They do not change.
	permissions map[string]*manifest.Permissions
	tenants     map[string]*TenantVersion
	module      *module
	holders     atomic.Int64 // number of holds; at 0, the module is released for good
	release     func(*module)
}

// TenantVersion is a Version for the tasks of one tenant. What these tasks are allowed to do was decided when the
// version was loaded. The caller of Acquire must Release it once.
type TenantVersion struct {
	*Version
	// Permissions are what the tenant's tasks are allowed to do on the version.
	Permissions *manifest.Permissions
	// Footprint is the maximum memory of one task, in bytes: memory, tables, input, output, and what the host keeps for
	// the task's calls.
	Footprint int64

	tasksOf string // the tenant
}

// serve makes the version serve the tenants that have permissions. kept is the maximum number of bytes that the host
// keeps for a task in addition to its limits.
func (v *Version) serve(permissions map[string]*manifest.Permissions, kept int64) {
	v.permissions, v.tenants = permissions, make(map[string]*TenantVersion, len(permissions))
	for tenant, p := range permissions {
		record := int64(0)
		if v.Manifest.Records() {
			record = replay.Memory(p.Limits.Record)
		}
		v.tenants[tenant] = &TenantVersion{
			Version: v, Permissions: p, Footprint: footprint(p.Limits) + kept + record, tasksOf: tenant,
		}
	}
}

// ManifestDigest returns the SHA-256 of the manifest's file as "sha256:" and hex digits; "" if there is none.
func (v *Version) ManifestDigest() string { return v.content.manifest }

// Warm returns the input of the warm call; nil if there is none.
func (v *Version) Warm() []byte { return v.warm }

// Run runs one task of the tenant, and sets the call's Plugin. The call's own Timeout replaces the manifest's, but
// cannot exceed the host's ceiling.
func (v *TenantVersion) Run(ctx context.Context, call runtime.Call) runtime.Outcome {
	call.Plugin = v.Name
	return v.pool().Run(ctx, call)
}

// PendingSnapshot returns the maximum number of bytes of snapshots that the tenant's next task builds; 0 if it builds
// none.
func (v *TenantVersion) PendingSnapshot() int64 { return v.pool().PendingSnapshot() }

// pool returns the pool that the tenant's tasks on all versions of this content share.
func (v *TenantVersion) pool() *runtime.Pool {
	return v.pools.of(v.tasksOf, func() runtime.Profile {
		var tape func() *replay.Tape
		if v.Manifest.Records() {
			tape = func() *replay.Tape { return replay.NewTape(replay.MaxStart) }
		}
		return runtime.Profile{
			Tape:   tape,
			Tenant: v.tasksOf, Env: v.Manifest.Capabilities.Env, Files: v.files, Limits: v.Permissions.Limits,
			MaxTimeout: v.Permissions.MaxTimeout,
			Config:     v.Permissions.Config, Entry: v.Manifest.Entry, Warm: v.warm,
		}
	})
}

// Info describes the module.
func (v *Version) Info() runtime.Info { return v.module.Info() }

// Retain holds the version once more. The caller must hold it already.
func (v *Version) Retain() {
	if !v.tryRetain() {
		panic("plugins: Retain of a version that was released")
	}
}

// Release gives back one hold. When the last one is given back, the version releases its module.
func (v *Version) Release() {
	switch left := v.holders.Add(-1); {
	case left == 0:
		v.release(v.module)
	case left < 0:
		panic("plugins: Release of a version that was released")
	}
}

// tryRetain holds the version once more. It returns false once the last hold was given back: the version is then gone
// for good.
func (v *Version) tryRetain() bool {
	for {
		count := v.holders.Load()
		if count <= 0 {
			return false
		}
		if v.holders.CompareAndSwap(count, count+1) {
			return true
		}
	}
}

// identity identifies the content of a version: the digests of its module, its manifest, and the files that the
// manifest names.
type identity struct{ module, manifest, files string }

// footprint returns the maximum number of bytes that a task takes within the limits.
func footprint(l runtime.Limits) int64 { return l.Memory + l.Input + l.Output }

// large are the host functions that take or return texts of up to 1 MiB whose size no capability bounds: checkpoints,
// variables, and values of kv. textsKept is the maximum number of bytes that the host keeps for the texts of a task's
// calls.
var large = [...]string{
	"quern_v1.checkpoint_load", "quern_v1.checkpoint_save", "quern_v1.kv_get", "quern_v1.kv_set", "quern_v1.kv_swap",
	"extism:host/env.var_get", "extism:host/env.var_set",
}

const textsKept = 2 << 20

// kept returns the maximum number of bytes that the host keeps for a task in addition to its limits: the tables of its
// instance, tasks and publications that wait for its completion, and texts of its calls, which are in memory twice
// while they are assembled. m is nil before the module is loaded.
func kept(c *manifest.Capabilities, m *module) (bytes int64) {
	if len(c.HTTP) > 0 {
		bytes += 3 * service.MaxBody
	}
	switch grant := c.Enqueue; {
	case grant.AfterCall():
		bytes += min(grant.Bytes, service.MaxBody)
	case grant != nil:
		bytes += grant.Bytes
	}
	if c.Publish != nil {
		bytes += manifest.MaxPublicationBytes
	}
	if m == nil {
		return bytes
	}
	if slices.ContainsFunc(m.Info().Imports, func(name string) bool { return slices.Contains(large[:], name) }) {
		bytes += textsKept
	}
	return bytes + m.Overhead()
}
