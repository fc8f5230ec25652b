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

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/turns"
	"github.com/quern-project/quern/runtime/units"
)

// maxReading bounds the memory, in bytes, that all loads together take to read and decode files. A module takes about
// decoding times its size, since its sections are read and rewritten.
const (
	maxReading = 256 << 20
	decoding   = 4
)

// readAttempts is how often a load reads a file that changes meanwhile before it gives up.
const readAttempts = 3

// loader makes versions out of files. Any number of loads may run at once; it bounds the memory that they take.
type loader struct {
	cfg     Config
	modules *modules
	held    *holdings
	readers *turns.Turns   // at reading and decoding modules, manifests and named files; by tenant, weighed in bytes
	buffers sync.Pool      // of *[]byte: the buffers of modules that turned out to be loaded already
	open    sync.WaitGroup // the versions whose module is not released yet
}

func newLoader(engine *runtime.Engine, cfg Config) *loader {
	return &loader{
		cfg: cfg, modules: &modules{engine: engine, logger: cfg.Logger.Named("modules"), byDigest: map[string]*module{}},
		held:    newHoldings(cfg.Hold),
		readers: turns.New(turns.Config{Places: max(2, goruntime.GOMAXPROCS(0)), Room: maxReading}),
	}
}

// decodedSize is how much memory a manifest may take while it is decoded, as a multiple of its size.
const decodedSize = 300

// manifestRequest is a manifest that is to be read.
type manifestRequest struct {
	id
	file  file
	known manifestFile
}

// manifestsRead are the manifests of one tenant that were read, by plugin name.
type manifestsRead struct {
	tenant string
	files  map[string]manifestFile
}

// readManifests reads and decodes manifests of a tenant, each in a turn of its own. When ctx ends, it returns the
// manifests read so far.
func (l *loader) readManifests(ctx context.Context, tenant string, requests []manifestRequest) manifestsRead {
	r := manifestsRead{tenant, make(map[string]manifestFile, len(requests))}
	for _, o := range requests {
		leave, err := l.readers.Acquire(ctx, tenant, o.file.fingerprint.info.Size()*decodedSize)
		if err != nil {
			return r
		}
		r.files[o.name] = l.readManifest(o)
		leave()
	}
	return r
}

func (l *loader) readManifest(o manifestRequest) manifestFile {
	path, now := o.path(l.cfg.Dir, manifest.Suffix), time.Now()
	read, err := readStable(o.file.root, o.file.path, manifest.MaxSize, o.file.fingerprint.size(), nil)
	if err != nil {
		return manifestFile{err: fmt.Errorf("%s: %w", path, err)}
	}
	have := o.known
	have.trust.note(read.fingerprint, now)
	if digest := runtime.DigestOf(read.data); have.digest != digest {
		have.digest = digest
		have.manifest, have.err = manifest.Parse(path, read.data)
	}
	return have
}

// loadRequest is what a load needs to know.
type loadRequest struct {
	id
	file     file
	manifest manifest.Manifest
	files    []file // the files that the manifest names
	// trusted has the digest of the manifest, and the digests of the module and the named files as far as these are
	// known to be unchanged; a digest is "" if the load must read the files.
	trusted identity
	serving identity
	refused identity // content that was refused for good, and is not loaded again; zero if none
}

// loadResult is the result of a load. Until the load has read the files, their fingerprints are from the scan.
type loadResult struct {
	loadRequest
	readAt      time.Time
	named       contents // the contents of the files that the manifest names, once they are read
	permissions map[string]*manifest.Permissions
	found       identity
	known       bool     // the content found serves or was refused already: nothing was loaded
	version     *Version // held once for the receiver of the result; nil if known is true, or on an error
	err         error
	final       bool // the content causes err: a load of the same content fails again
	reads       *loading
}

// load reads, compiles and checks a plugin's files. It takes a turn at reading, and ends it before it waits for a
// turn at compiling.
func (l *loader) load(ctx context.Context, o loadRequest) loadResult {
	r := loadResult{
		loadRequest: o, readAt: time.Now(), permissions: l.permissions(&o), found: o.trusted,
		reads: &loading{holdings: l.held, tenant: o.tenant},
	}
	defer r.reads.end()
	r.found.module = ""
	if l.share(&r) {
		return r
	}
	leave, err := l.readers.Acquire(ctx, o.tenant, o.weight())
	if err != nil {
		r.err = err
		return r
	}
	defer leave()
	r.readAt = time.Now()
	r.trusted.module = cmp.Or(r.trusted.module, l.modules.digest(o.file.fingerprint))
	if len(o.files) > 0 {
		if r.err = l.readFiles(&r); r.err != nil {
			return r
		}
	}
	if l.share(&r) {
		return r
	}
	buffer, pooled := l.buffers.Get().(*[]byte)
	if !pooled {
		buffer = new([]byte)
	}
	read, err := l.read(o.file, runtime.MaxModule, *buffer)
	if err != nil {
		r.err = err
		return r
	}
	*buffer, r.file.fingerprint = read.data, read.fingerprint
	if r.decide(runtime.DigestOf(read.data)); r.known || r.refuse(l.afford(&r, nil)) {
		l.buffers.Put(buffer)
		return r
	}
	finish := func(m *module) {
		l.modules.note(m, &r)
		l.finish(&r, m)
	}
	if m := l.modules.share(r.found.module); m != nil {
		l.buffers.Put(buffer)
		finish(m)
		return r
	}
	if err := l.modules.acquire(ctx, moduleRequest{
		owner: o.tenant, digest: r.found.module, binary: read.data, reserve: r.reads.reserve, leave: leave, use: finish,
	}); err != nil {
		_, r.final = errors.AsType[*runtime.RefusedError](err)
		if r.err = err; errors.Is(err, bundle.ErrNoRoom) {
			r.err = noRoom(o.tenant)
		}
	}
	return r
}

// decide records the digest of the module that was found, and whether the whole content serves or was refused
// already.
func (r *loadResult) decide(digest string) {
	r.found.module = digest
	r.known = r.found == r.serving || r.found == r.refused
}

// refuse records an error that the content causes, and reports whether there is one.
func (r *loadResult) refuse(err error) bool {
	r.err, r.final = err, err != nil
	return r.final
}

// weight returns about how much memory the load takes while it reads and decodes, in bytes.
func (o *loadRequest) weight() int64 {
	weight := decoding * o.file.fingerprint.info.Size()
	for _, f := range o.files {
		weight += f.fingerprint.info.Size()
	}
	return weight
}

// share finishes the load without reading the module, if the module's digest is known and either the whole content is
// known or the compiled module is in use. It reports whether the load is done.
func (l *loader) share(r *loadResult) (done bool) {
	unread := len(r.files) > 0 && r.named.digest == ""
	if r.trusted.module == "" || unread && r.found.files == "" {
		return false
	}
	if r.decide(r.trusted.module); r.known || unread {
		return r.known
	}
	if r.refuse(l.afford(r, nil)) {
		return true
	}
	m := l.modules.share(r.found.module)
	if m == nil {
		return false
	}
	l.finish(r, m)
	return true
}

// readFiles reads the files that the manifest names.
func (l *loader) readFiles(r *loadResult) (err error) {
	files := slices.Clone(r.files)
	for _, f := range files {
		if !r.reads.reserve(f.fingerprint.info.Size()) {
			return noRoom(r.tenant)
		}
	}
	r.named, err = readNamed(r.path(l.cfg.Dir, manifest.Suffix), &r.manifest, files,
		func(f file, most int64) (content, error) {
			return l.read(f, most, nil)
		})
	r.found.files = r.named.digest
	if err == nil {
		r.files = files
	}
	return err
}

// read reads a file, into the buffer if that is large enough.
func (l *loader) read(f file, most int64, buffer []byte) (read content, err error) {
	for range readAttempts {
		if read, err = readStable(f.root, f.path, most, f.fingerprint.size(), buffer); !errors.Is(err, errUnstable) {
			return read, err
		}
	}
	return read, err
}

// finish checks the module against the manifest, and makes the version, which takes over the caller's hold of the
// module.
func (l *loader) finish(r *loadResult, m *module) {
	path := r.path(l.cfg.Dir, manifest.Suffix)
	largest := widest(r.permissions, func(p *manifest.Permissions) int64 { return p.Limits.Memory })
	err := cmp.Or(largest.ExplainMemory(m.Admits(largest.Limits)), r.manifest.CheckModule(path, m.Info()), l.afford(r, m))
	if own := r.permissions[r.tenant]; own != nil {
		err = cmp.Or(err, own.Undeclared(path))
	}
	if r.refuse(err) {
		l.modules.release(m)
		return
	}
	version := &Version{
		Tenant: r.tenant, Name: r.name, Digest: m.digest, Manifest: r.manifest,
		content: r.found, contents: r.named, module: m,
	}
	version.serve(r.permissions, kept(&r.manifest.Capabilities, m))
	r.reads.end() // from here on the version accounts for what the load has read
	held, err := l.held.reserveVersion(r.tenant, m, &version.contents)
	if err != nil {
		l.modules.release(m)
		r.err = noRoom(r.tenant)
		return
	}
	l.open.Add(1)
	found := r.found
	version.pools = l.modules.sharePools(m, found)
	version.release = func(m *module) {
		l.modules.releasePools(m, found)
		l.modules.release(m)
		l.held.release(held) // only after the module is released
		l.open.Done()
	}
	version.holders.Store(1)
	r.version = version
}

// permissions returns what a plugin may do, for each tenant that it serves.
func (l *loader) permissions(o *loadRequest) map[string]*manifest.Permissions {
	permissions := map[string]*manifest.Permissions{}
	for _, tenant := range l.cfg.Tenants {
		if o.tenant == "" || o.tenant == tenant {
			permissions[tenant] = manifest.NewPermissions(&o.manifest, l.cfg.Grants, tenant, l.cfg.Ceilings)
		}
	}
	return permissions
}

// afford returns an error if one task of the plugin may take more memory than the host gives all tasks together. m is
// nil before the module is loaded.
func (l *loader) afford(r *loadResult, m *module) error {
	largest := widest(r.permissions, func(p *manifest.Permissions) int64 { return footprint(p.Limits) })
	limits, calls := largest.Limits, kept(&r.manifest.Capabilities, m)
	need := footprint(limits) + calls
	if l.cfg.MaxMemory == 0 || need <= l.cfg.MaxMemory {
		return nil
	}
	beside := ""
	if calls > 0 {
		beside = ", tables and calls of the host " + units.FormatSize(calls)
	}
	return fmt.Errorf("one task may take %s (memory %s, input %s, output %s%s), more than the %s that this host gives to all: "+
		"write lower limits into %s, or give the host more memory",
		units.FormatSize(need), units.FormatSize(limits.Memory), units.FormatSize(limits.Input),
		units.FormatSize(limits.Output), beside, units.FormatSize(l.cfg.MaxMemory), r.path(l.cfg.Dir, manifest.Suffix))
}

// widest returns the permissions for which of returns the most.
func widest(permissions map[string]*manifest.Permissions,
	of func(p *manifest.Permissions) int64,
) *manifest.Permissions {
	return slices.MaxFunc(slices.Collect(maps.Values(permissions)),
		func(a, b *manifest.Permissions) int { return cmp.Compare(of(a), of(b)) })
}
