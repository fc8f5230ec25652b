package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/turns"
	"github.com/quern-project/quern/runtime/units"
)

// maxReading bounds the bytes of files that are read and decoded at once.
const maxReading = 256 << 20

// drainNotice is how long closing the modules may take before it is said that tasks hold it up.
const drainNotice = 100 * time.Millisecond

// readAttempts is how often a file that changes under the reader is read again at once.
const readAttempts = 3

// loader makes versions out of files, aside from what serves. Any number of loads may run at once;
// it bounds what they take.
type loader struct {
	dir       string
	maxMemory int64
	ceilings  manifest.Ceilings
	tenants   []string
	grants    *manifest.Grants

	pool    *pool
	readers *turns.Turns   // at reading and decoding files, by tenant; weighs bytes
	open    sync.WaitGroup // the versions whose module is not released yet
}

func newLoader(engine *runtime.Engine, cfg Config) *loader {
	return &loader{
		dir: cfg.Dir, maxMemory: cfg.MaxMemory, ceilings: cfg.ceilings(), tenants: cfg.Tenants, grants: cfg.Grants,
		pool:    newPool(engine, cfg.Logger.Named("modules")),
		readers: turns.New(turns.Config{Places: max(2, goruntime.GOMAXPROCS(0)), Room: maxReading}),
	}
}

// loadRequest is what a load needs to know.
type loadRequest struct {
	id
	root           string // the plugin directory, all links followed
	file           file
	manifest       manifest.Manifest
	manifestDigest string
	digest         string // of the module, if it is known not to have changed
	files          []file // that the manifest names
	filesDigest    string // of these, if they are known not to have changed
	serving        identity
	refused        identity // what needs no second look; zero if there is nothing
}

// loadResult is what became of it.
type loadResult struct {
	loadRequest
	readAt      time.Time
	fingerprint fingerprint
	named       contents // of these files, with the fingerprints of the scan until they are read
	found       identity
	known       bool     // found is what serves or was refused before: nothing was loaded
	version     *Version // held once for the receiver; nil if known, or on an error
	err         error
	final       bool // err lies in the content: only other content can change it
}

// load reads, compiles and checks. It takes a turn at reading, and gives it back before it waits for another.
func (l *loader) load(ctx context.Context, o loadRequest) loadResult {
	r := loadResult{
		loadRequest: o, readAt: time.Now(), fingerprint: o.file.fingerprint, named: contents{fingerprints: fingerprintsOf(o.files)},
		found: identity{manifest: o.manifestDigest, files: o.filesDigest},
	}
	if o.digest != "" && (len(o.files) == 0 || o.filesDigest != "") {
		if r.decide(o.digest); r.known {
			return r
		}
	}
	if len(o.files) == 0 && l.share(&r) {
		return r
	}
	leave, err := l.readers.Take(ctx, o.tenant, o.weight())
	if err != nil {
		r.err = err
		return r
	}
	defer leave()
	r.readAt = time.Now()
	if len(o.files) > 0 {
		if r.err = l.readFiles(&r); r.err != nil || l.share(&r) {
			return r
		}
	}
	read, err := l.read(o.root, o.file, runtime.MaxModule)
	if err != nil {
		r.err = err
		return r
	}
	r.fingerprint = read.fingerprint
	if r.decide(digestOf(read.data)); r.known {
		return r
	}
	if r.err = l.afford(&o, 0); r.err != nil {
		r.final = true
		return r
	}
	m, err := l.pool.acquire(ctx, o.tenant, r.found.module, read.data, leave)
	if err != nil {
		var refused *runtime.RefusedError
		r.err, r.final = err, errors.As(err, &refused)
		return r
	}
	l.finish(&r, m)
	return r
}

// decide notes which module was found, and whether all of the content is known already.
func (r *loadResult) decide(digest string) {
	r.found.module = digest
	r.known = r.found == r.serving || r.found == r.refused
}

// weight is how many bytes the load may have to read, as far as the bound of them all goes.
func (o *loadRequest) weight() int64 {
	weight := o.file.fingerprint.info.Size()
	for _, f := range o.files {
		weight += f.fingerprint.info.Size()
	}
	return weight
}

// share ends the load without reading the module, if its digest is known and somebody holds it.
func (l *loader) share(r *loadResult) (done bool) {
	if r.digest == "" {
		return false
	}
	if r.decide(r.digest); r.known {
		return true
	}
	if r.err = l.afford(&r.loadRequest, 0); r.err != nil {
		r.final = true
		return true
	}
	m := l.pool.share(r.digest)
	if m == nil {
		return false
	}
	l.finish(r, m)
	return true
}

// readFiles reads the files that the manifest names.
func (l *loader) readFiles(r *loadResult) error {
	named, err := readNamed(r.path(l.dir, manifest.Suffix), &r.manifest, r.files, func(f file, most int64) (content, error) {
		return l.read(r.root, f, most)
	})
	if err != nil {
		r.found.files = ""
		return err
	}
	r.named, r.found.files = named, named.digest
	return nil
}

func (l *loader) read(root string, f file, most int64) (read content, err error) {
	for range readAttempts {
		if read, err = readStable(root, f.path, most); !errors.Is(err, errUnstable) {
			return read, err
		}
	}
	return read, err
}

// finish checks the module against the manifest, and makes the version. It takes over the caller's
// hold of the module.
func (l *loader) finish(r *loadResult, m *module) {
	path, permissions := r.path(l.dir, manifest.Suffix), l.permissions(&r.loadRequest)
	largest := widest(permissions, func(p *manifest.Permissions) int64 { return p.Limits.Memory })
	if r.err = largest.ExplainMemory(m.Admits(largest.Limits)); r.err == nil {
		r.err = r.manifest.CheckModule(path, m.Info())
	}
	if r.err == nil {
		r.err = l.afford(&r.loadRequest, m.Overhead())
	}
	if r.err == nil && r.tenant != "" { // a plugin of all tenants serves the others
		r.err = permissions[r.tenant].CheckModule(path, m.Info())
	}
	if r.err != nil {
		r.final = true
		l.pool.release(m)
		return
	}
	r.version = l.newVersion(r, m, permissions)
}

// permissions are those of a plugin for each tenant that it serves.
func (l *loader) permissions(o *loadRequest) map[string]*manifest.Permissions {
	permissions := map[string]*manifest.Permissions{}
	for _, tenant := range l.tenants {
		if o.tenant == "" || o.tenant == tenant {
			permissions[tenant] = manifest.NewPermissions(&o.manifest, l.grants, tenant, l.ceilings)
		}
	}
	return permissions
}

// afford refuses a plugin whose tasks could never get the memory that they may take. tables are part of it, and unknown
// before the module is loaded.
func (l *loader) afford(o *loadRequest, tables int64) error {
	if l.maxMemory == 0 {
		return nil
	}
	take := func(p *manifest.Permissions) int64 { return footprint(&o.manifest, p.Limits) + tables }
	largest := widest(l.permissions(o), take)
	limits, need := largest.Limits, take(largest)
	if need <= l.maxMemory {
		return nil
	}
	beside := ""
	if tables > 0 {
		beside = ", tables " + units.FormatSize(tables)
	}
	if sends := need - limits.Memory - limits.Input - limits.Output - tables; sends > 0 {
		beside += ", HTTP " + units.FormatSize(sends)
	}
	return fmt.Errorf("one task may take %s (memory %s, input %s, output %s%s), more than the %s that this host gives to all: "+
		"write lower limits into %s, or give the host more memory",
		units.FormatSize(need), units.FormatSize(limits.Memory), units.FormatSize(limits.Input),
		units.FormatSize(limits.Output), beside, units.FormatSize(l.maxMemory), o.path(l.dir, manifest.Suffix))
}

// widest are the permissions with the most of something.
func widest(permissions map[string]*manifest.Permissions, of func(p *manifest.Permissions) int64) *manifest.Permissions {
	return slices.MaxFunc(slices.Collect(maps.Values(permissions)), func(a, b *manifest.Permissions) int { return cmp.Compare(of(a), of(b)) })
}

func (l *loader) newVersion(r *loadResult, m *module, permissions map[string]*manifest.Permissions) *Version {
	l.open.Add(1)
	v := &Version{
		Tenant: r.tenant, Name: r.name,
		Version: r.manifest.Version, Digest: m.digest, ManifestDigest: r.manifestDigest, FilesDigest: r.named.digest,
		Manifest: r.manifest,
		files:    r.named.files, warm: r.named.warm, module: m,
		grants: l.grants, ceilings: l.ceilings, permissions: permissions,
	}
	v.pools = l.pool.sharePools(m, v.identity())
	v.release = func(m *module) {
		l.pool.releasePools(m, v.identity())
		l.pool.release(m)
		l.open.Done()
	}
	v.holders.Store(1)
	return v
}

// drain waits until every version is released and its module closed.
func (l *loader) drain(logger hclog.Logger) {
	done := make(chan struct{})
	go func() {
		l.open.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainNotice):
		logger.Info("waiting for the tasks that still run on a plugin")
		<-done
	}
}
