package plugins

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// maxPending bounds the bytes of modules that were read and are not compiled yet.
const maxPending = 256 << 20

// drainNotice is how long closing the modules may take before it is said that tasks hold it up.
const drainNotice = 100 * time.Millisecond

// readAttempts is how often a file that changes under the reader is read again at once.
const readAttempts = 3

// loader makes versions out of files, aside from what serves. Any number of loads may run at once;
// it bounds what they take.
type loader struct {
	dir        string
	maxMemory  int64
	maxTimeout time.Duration

	pool    *pool
	readers chan struct{}       // bounds the files that are open at once
	pending *semaphore.Weighted // bounds the bytes that wait to be compiled
	open    sync.WaitGroup      // the versions whose module is not released yet
}

func newLoader(engine *runtime.Engine, cfg Config) *loader {
	// Two at least, so that one slow module never holds up all others.
	slots := max(2, goruntime.GOMAXPROCS(0))
	return &loader{
		dir: cfg.Dir, maxMemory: cfg.MaxMemory, maxTimeout: cfg.MaxTimeout,
		pool:    newPool(engine, cfg.Logger.Named("modules"), slots),
		readers: make(chan struct{}, 2*slots),
		pending: semaphore.NewWeighted(maxPending),
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
	serving        identity
	refused        identity // what needs no second look; zero if there is nothing
}

// result is what became of an order.
type result struct {
	order
	readAt  time.Time
	stamp   stamp
	found   identity
	known   bool     // found is what serves or was refused before: nothing was loaded
	version *Version // held once for the receiver; nil if known, or on an error
	err     error
	final   bool // err lies in the content: only other content can change it
}

// load reads, compiles and checks.
func (l *loader) load(ctx context.Context, o order) result {
	r := result{order: o, readAt: time.Now(), stamp: o.file.stamp, found: identity{manifest: o.manifestDigest}}
	if o.digest != "" {
		if r.decide(o.digest); r.known {
			return r
		}
		if r.err = l.afford(o); r.err != nil {
			r.final = true
			return r
		}
		if m := l.pool.share(ctx, o.digest); m != nil {
			l.finish(&r, m)
			return r
		}
	}
	weight := min(o.file.stamp.info.Size(), maxPending)
	if r.err = l.pending.Acquire(ctx, weight); r.err != nil {
		return r
	}
	defer l.pending.Release(weight)
	r.readAt = time.Now()
	read, err := l.read(ctx, o)
	if err != nil {
		r.err = err
		return r
	}
	r.stamp = read.stamp
	if r.decide(digestOf(read.data)); r.known {
		return r
	}
	if r.err = l.afford(o); r.err != nil {
		r.final = true
		return r
	}
	m, err := l.pool.acquire(ctx, r.found.module, read.data)
	if err != nil {
		var refused *runtime.RefusedError
		r.err, r.final = err, errors.As(err, &refused)
		return r
	}
	l.finish(&r, m)
	return r
}

// decide notes which content was found, and whether that is known already.
func (r *result) decide(digest string) {
	r.found = identity{digest, r.manifestDigest}
	r.known = r.found == r.serving || r.found == r.refused
}

func (l *loader) read(ctx context.Context, o order) (read content, err error) {
	select {
	case l.readers <- struct{}{}:
	case <-ctx.Done():
		return content{}, context.Cause(ctx)
	}
	defer func() { <-l.readers }()
	for range readAttempts {
		if read, err = readStable(o.root, o.file.path, maxModule); !errors.Is(err, errUnstable) {
			return read, err
		}
	}
	return read, err
}

// finish checks the module against the manifest, and makes the version. It takes over the caller's
// hold of the module.
func (l *loader) finish(r *result, m *module) {
	limits := r.manifest.limits(l.maxTimeout)
	if r.err = m.Admits(limits); r.err != nil {
		r.final = true
		l.pool.release(m)
		return
	}
	r.version = l.newVersion(r.order, m, limits)
}

// afford refuses a plugin whose tasks could never be given the memory that they may take.
func (l *loader) afford(o order) error {
	limits := o.manifest.limits(l.maxTimeout)
	need := footprint(limits)
	if l.maxMemory == 0 || need <= l.maxMemory {
		return nil
	}
	return fmt.Errorf("one task may take %s (memory %s, input %s, output %s), more than the %s that this host gives to all: "+
		"write lower limits into %s, or give the host more memory",
		units.FormatSize(need), units.FormatSize(limits.Memory), units.FormatSize(limits.Input),
		units.FormatSize(limits.Output), units.FormatSize(l.maxMemory), o.path(l.dir, manifestSuffix))
}

func (l *loader) newVersion(o order, m *module, limits runtime.Limits) *Version {
	l.open.Add(1)
	v := &Version{
		Tenant: o.tenant, Name: o.name,
		Version: o.manifest.Version, Digest: m.digest, ManifestDigest: o.manifestDigest,
		Manifest: o.manifest, Limits: limits,
		ceiling: l.maxTimeout, module: m,
		release: func(m *module) {
			l.pool.release(m)
			l.open.Done()
		},
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
