package plugins

import (
	"context"
	"sync/atomic"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
)

// Version is one state of a plugin: its module and its manifest, which do not change any more. It
// lives as long as somebody holds it, and its fields and methods may be used by any goroutine that
// does. A Version comes from Acquire, which holds it once for the caller.
type Version struct {
	// Tenant is that of the plugin, "" if it serves every tenant.
	Tenant string
	// Name is the plugin's.
	Name string
	// Version is what the manifest says, for people; "" if it says nothing.
	Version string
	// Digest identifies the module: "sha256:" and the 64 hex digits of the file's bytes.
	Digest string
	// ManifestDigest is the same of the manifest's bytes; "" without a manifest.
	ManifestDigest string
	// FilesDigest is that of the contents of the files that the manifest names; "" if it names none. A
	// version is another one if any of the three digests differs.
	FilesDigest string
	// Manifest is as it was written, with the plugin's name as the queue if it names none.
	Manifest manifest.Manifest

	files       *runtime.Files // what tasks may read; nil for nothing
	warm        []byte         // the input of the warm call; nil for no such call
	profile     string         // of its instances: see identity.profile
	grants      *manifest.Grants
	ceilings    manifest.Ceilings
	permissions map[string]*manifest.Permissions // by tenant, of those that the host serves; never changed
	module      *module
	holders     atomic.Int64 // 0: the module is released, for good
	release     func(*module)
}

// Run runs one task on this version. It fills in what the manifest decides: Plugin, Env, Files, Limits, Pool, Warm and
// the Config of Services. A Timeout that the task brings along replaces the manifest's, under the host's ceiling. A task whose
// Tenant is not said shares an instance with no other.
func (v *Version) Run(ctx context.Context, call runtime.Call) runtime.Outcome {
	permissions := v.Permissions(call.Tenant)
	call.Timeout = permissions.Timeout(call.Timeout)
	call.Plugin, call.Env, call.Files = v.Name, v.Manifest.Capabilities.Env, v.files
	call.Limits, call.Services.Config = permissions.Limits, permissions.Config // the same for all calls of a tenant: see runtime.Call.Pool
	call.Pool, call.Warm = "", nil
	if call.Tenant != "" {
		call.Pool, call.Warm = v.profile, v.warm
	}
	return permissions.Explain(v.module.Run(ctx, call))
}

// Permissions are what a tenant's tasks may do on it.
func (v *Version) Permissions(tenant string) *manifest.Permissions {
	if p := v.permissions[tenant]; p != nil {
		return p
	}
	return manifest.NewPermissions(&v.Manifest, v.grants, tenant, v.ceilings)
}

// Info says what the module is.
func (v *Version) Info() runtime.Info { return v.module.Info() }

// Retain holds the version once more. The caller must hold it already.
func (v *Version) Retain() {
	if !v.tryRetain() {
		panic("plugins: Retain of a version that was released")
	}
}

// Release gives back one hold. When the last one is given back, the module is closed.
func (v *Version) Release() {
	switch left := v.holders.Add(-1); {
	case left == 0:
		v.release(v.module)
	case left < 0:
		panic("plugins: Release of a version that was released")
	}
}

// tryRetain holds the version unless it has been given back by all, which cannot be undone.
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

// Footprint is what one running task of a tenant may take, in bytes: memory, tables, input and output, and what it may send and
// receive.
func (v *Version) Footprint(tenant string) int64 {
	return footprint(&v.Manifest, v.Permissions(tenant).Limits) + v.module.Overhead()
}

// Coming is how many bytes at most will be held for the version beside a tenant's tasks as soon as the first of them
// begins; 0 if they are held already, or none will be.
func (v *Version) Coming(tenant string) int64 {
	return v.module.Coming(v.profile, tenant, v.Permissions(tenant).Limits, v.warm != nil)
}

// Concurrency bounds the version's running tasks on this host; 0 is no bound of its own.
func (v *Version) Concurrency() int { return v.Manifest.Concurrency }

// identity is what makes a version another one.
func (v *Version) identity() identity { return identity{v.Digest, v.ManifestDigest, v.FilesDigest} }

// identity is the content of a plugin's two files, and of those that its manifest names.
type identity struct{ module, manifest, files string }

// profile names the instances of the module that versions of this identity share, whichever plugins they are of. The
// runtime keeps those of each tenant apart.
func (i identity) profile() string { return "manifest=" + i.manifest + " files=" + i.files }

// footprint is what a task may take. The answer of a request is there twice while it is put together for the guest.
func footprint(m *manifest.Manifest, l runtime.Limits) int64 {
	bytes := l.Memory + l.Input + l.Output
	if len(m.Capabilities.HTTP) > 0 {
		bytes += 3 * service.MaxBody
	}
	return bytes
}
