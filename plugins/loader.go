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
	ceilings  Ceilings
	tenants   []string
	grants    *HostGrants

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

// order is what a load needs to know.
type order struct {
	key
	root           string // the plugin directory, all links followed
	file           file
	manifest       Manifest
	manifestDigest string
	digest         string // of the module, if it is known not to have changed
	files          []file // that the manifest names
	filesDigest    string // of these, if they are known not to have changed
	serving        identity
	refused        identity // what needs no second look; zero if there is nothing
}

// result is what became of an order.
type result struct {
	order
	readAt  time.Time
	stamp   stamp
	granted contents // of these files, with the stamps of the look until they are read
	found   identity
	known   bool     // found is what serves or was refused before: nothing was loaded
	version *Version // held once for the receiver; nil if known, or on an error
	err     error
	final   bool // err lies in the content: only other content can change it
}

// load reads, compiles and checks. It takes a turn at reading, and gives it back before it waits for another.
func (l *loader) load(ctx context.Context, o order) result {
	r := result{
		order: o, readAt: time.Now(), stamp: o.file.stamp, granted: contents{stamps: stampsOf(o.files)},
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
	read, err := l.read(o.root, o.file, maxModule)
	if err != nil {
		r.err = err
		return r
	}
	r.stamp = read.stamp
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
func (r *result) decide(digest string) {
	r.found.module = digest
	r.known = r.found == r.serving || r.found == r.refused
}

// weight is how many bytes the load may have to read, as far as the bound of them all goes.
func (o *order) weight() int64 {
	weight := o.file.stamp.info.Size()
	for _, f := range o.files {
		weight += f.stamp.info.Size()
	}
	return weight
}

// share ends the load without reading the module, if its digest is known and somebody holds it.
func (l *loader) share(r *result) (done bool) {
	if r.digest == "" {
		return false
	}
	if r.decide(r.digest); r.known {
		return true
	}
	if r.err = l.afford(&r.order, 0); r.err != nil {
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
func (l *loader) readFiles(r *result) error {
	granted, err := readGranted(r.path(l.dir, manifestSuffix), r.manifest, r.files, func(f file, most int64) (content, error) {
		return l.read(r.root, f, most)
	})
	if err != nil {
		r.found.files = ""
		return err
	}
	r.granted, r.found.files = granted, granted.digest
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
func (l *loader) finish(r *result, m *module) {
	terms := l.terms(&r.order)
	if r.err = widest(terms, func(t *Terms) int64 { return t.Limits.Memory }).admits(m); r.err == nil {
		r.err = r.manifest.Suits(r.path(l.dir, manifestSuffix), m.Info())
	}
	if r.err == nil {
		r.err = l.afford(&r.order, m.Overhead())
	}
	if r.err == nil && r.tenant != "" { // else it is one tenant's alone that is left with nothing, and the plugin serves the others
		r.err = manifestError(r.path(l.dir, manifestSuffix), terms[r.tenant].lacks(m.Info()))
	}
	if r.err != nil {
		r.final = true
		l.pool.release(m)
		return
	}
	r.version = l.newVersion(r, m, terms)
}

// terms are those of a plugin for each tenant that it serves.
func (l *loader) terms(o *order) map[string]*Terms {
	terms := map[string]*Terms{}
	for _, tenant := range l.tenants {
		if o.tenant == "" || o.tenant == tenant {
			terms[tenant] = newTerms(&o.manifest, l.grants, tenant, l.ceilings)
		}
	}
	return terms
}

// afford refuses a plugin whose tasks could never be given the memory that they may take: their tables among it, of which
// nothing is known before the module is loaded.
func (l *loader) afford(o *order, tables int64) error {
	take := func(t *Terms) int64 { return footprint(&o.manifest, t.Limits) + tables }
	terms := widest(l.terms(o), take)
	limits, need := terms.Limits, take(terms)
	if l.maxMemory == 0 || need <= l.maxMemory {
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
		units.FormatSize(limits.Output), beside, units.FormatSize(l.maxMemory), o.path(l.dir, manifestSuffix))
}

// widest are the terms of which something is the most.
func widest(terms map[string]*Terms, of func(t *Terms) int64) *Terms {
	return slices.MaxFunc(slices.Collect(maps.Values(terms)), func(a, b *Terms) int { return cmp.Compare(of(a), of(b)) })
}

func (l *loader) newVersion(r *result, m *module, terms map[string]*Terms) *Version {
	l.open.Add(1)
	v := &Version{
		Tenant: r.tenant, Name: r.name,
		Version: r.manifest.Version, Digest: m.digest, ManifestDigest: r.manifestDigest, FilesDigest: r.granted.digest,
		Manifest: r.manifest,
		files:    r.granted.files, warm: r.granted.warm, module: m,
		grants: l.grants, ceilings: l.ceilings, terms: terms,
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
