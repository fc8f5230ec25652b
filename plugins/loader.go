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

const (
	// maxReading bounds the memory, in bytes, that all loads together take to read and decode files.
	maxReading = 256 << 20
	// decoding is about how much memory a module takes while it is decoded, as a multiple of its size: its sections are
	// read and rewritten.
	decoding = 4
)

// readAttempts is how often a load tries to read a file that changes meanwhile.
const readAttempts = 3

// loader makes versions from files. Any number of loads can run at once; the loader bounds the memory that they take.
type loader struct {
	cfg     Config
	modules *modules
	held    *holdings
	// readers limits how many bytes of modules, manifests and named files are read and decoded at once. Tenants take
	// turns.
	readers *turns.Turns
	// buffers has *[]byte: buffers into which a module was read that did not need to be compiled.
	buffers sync.Pool
	// open counts the versions whose module is not released yet.
	open sync.WaitGroup
}

func newLoader(engine *runtime.Engine, cfg Config) *loader {
	return &loader{
		cfg: cfg, modules: &modules{engine: engine, logger: cfg.Logger.Named("modules"), byDigest: map[string]*module{}},
		held:    newHoldings(cfg.Hold),
		readers: turns.New(turns.Config{Places: max(2, goruntime.GOMAXPROCS(0)), Room: maxReading}),
	}
}

// decodedSize is the maximum memory of a manifest while it is decoded, as a multiple of its size.
const decodedSize = 300

// manifestRequest asks for one manifest to be read.
type manifestRequest struct {
	id
	dir   string // the folder for messages
	file  file
	known manifestFile // the manifest as it was last read
}

// manifestsRead has the manifests that were read for one tenant.
type manifestsRead struct {
	tenant string
	files  map[id]manifestFile
}

// readManifests reads and decodes manifests of a tenant. It takes a new turn for each of them. When ctx ends, it
// returns the manifests read so far.
func (l *loader) readManifests(ctx context.Context, tenant string, requests []manifestRequest) manifestsRead {
	r := manifestsRead{tenant, make(map[id]manifestFile, len(requests))}
	for _, o := range requests {
		leave, err := l.readers.Acquire(ctx, tenant, o.file.fingerprint.info.Size()*decodedSize)
		if err != nil {
			return r
		}
		r.files[o.id] = l.readManifest(o)
		leave()
	}
	return r
}

func (l *loader) readManifest(o manifestRequest) manifestFile {
	path, now := o.path(o.dir, manifest.Suffix), time.Now()
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

// loadRequest says which files to load, and what is known about their content.
type loadRequest struct {
	id
	dir      string // the folder for messages
	release  int    // as in listed
	file     file
	manifest manifest.Manifest
	files    []file // the files that the manifest names
	// trusted has the digest of the manifest. It has the digests of the module and of the named files only if these are
	// known to be unchanged; a digest is "" if the load must read the files.
	trusted identity
	serving identity // the content that serves now; zero if none
	refused identity // the content that was refused for good, and is not loaded again; zero if none
}

// loadResult is the result of a load. The files of its request have the fingerprints from the scan until the load has
// read them.
type loadResult struct {
	loadRequest
	readAt      time.Time
	named       contents // the contents of the files that the manifest names, once they are read
	permissions map[string]*manifest.Permissions
	found       identity // the digests of the files, as far as the load has determined them
	// known is true if the content in found already serves or was already refused; the load then made no version.
	known bool
	// version is held once for the receiver of the result. It is nil if known is true, or on an error.
	version *Version
	err     error
	// final is true if the content causes err, so that a load of the same content fails again.
	final bool
	reads *loading
}

// load reads, compiles and checks a plugin's files. It ends its turn at reading before it waits for a turn at
// compiling.
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

// decide records the digest of the module that was found, and whether the whole content already serves or was already
// refused.
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
	r.named, err = readNamed(r.path(r.dir, manifest.Suffix), &r.manifest, files,
		func(f file, most int64) (content, error) {
			return l.read(f, most, nil)
		})
	r.found.files = r.named.digest
	if err == nil {
		r.files = files
	}
	return err
}

// read reads a file of at most limit bytes, into the buffer if that is large enough.
func (l *loader) read(f file, limit int64, buffer []byte) (read content, err error) {
	for range readAttempts {
		if read, err = readStable(f.root, f.path, limit, f.fingerprint.size(), buffer); !errors.Is(err, errUnstable) {
			return read, err
		}
	}
	return read, err
}

// finish checks the module against the manifest, and makes the version, which takes over the caller's hold of the
// module.
func (l *loader) finish(r *loadResult, m *module) {
	path := r.path(r.dir, manifest.Suffix)
	largest := widest(r.permissions, func(p *manifest.Permissions) int64 { return p.Limits.Memory })
	err := cmp.Or(m.Admits(largest.Limits), r.manifest.CheckModule(path, m.Info()), l.afford(r, m))
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
	r.reads.end() // from here on, the version reserves the memory for the files
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

// permissions returns the permissions of a plugin's tasks, for each tenant that it serves.
func (l *loader) permissions(o *loadRequest) map[string]*manifest.Permissions {
	permissions := map[string]*manifest.Permissions{}
	for _, tenant := range l.cfg.Tenants {
		if o.tenant == "" || o.tenant == tenant {
			permissions[tenant] = manifest.NewPermissions(&o.manifest, l.cfg.Grants, tenant, l.cfg.Ceilings)
		}
	}
	return permissions
}

// afford returns an error if one task of the plugin can take more memory than the host gives all tasks together. m is
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
		units.FormatSize(limits.Output), beside, units.FormatSize(l.cfg.MaxMemory), r.path(r.dir, manifest.Suffix))
}

// widest returns the permissions for which size returns the largest number.
func widest(permissions map[string]*manifest.Permissions,
	size func(p *manifest.Permissions) int64,
) *manifest.Permissions {
	return slices.MaxFunc(slices.Collect(maps.Values(permissions)),
		func(a, b *manifest.Permissions) int { return cmp.Compare(size(a), size(b)) })
}
