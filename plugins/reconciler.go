package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

// The patience with files and errors.
const (
	youth      = 500 * time.Millisecond // a refusal of a file younger than this may be one of half a file
	doubtTime  = 3 * time.Second        // how long such refusals are held back at most
	retryPause = 10 * time.Second       // after an error that is not the file's
)

// reconciler is the one goroutine that decides what serves. Loads send it their results, all others read its tables.
type reconciler struct {
	cfg    Config
	loader *loader
	public *publication
	watch  *watcher
	report reporter

	plugins []*plugin // sorted by tenant and name
	first   []*plugin // of the first scan
	root    string    // of the last scan; "" if the directory did not exist
	results chan loadResult
	running int // loads whose result has not come yet
	ready   bool
	again   <-chan time.Time // for a scan that somebody asked for; nil for none
	againAt time.Time        // when that is; zero for never

	dirty   bool       // something that List shows has changed
	swapped bool       // something that Acquire returns has changed
	retired []*Version // to be released once the next table is published
}

func newReconciler(cfg Config, loader *loader, public *publication, watch *watcher) *reconciler {
	return &reconciler{
		cfg: cfg, loader: loader, public: public, watch: watch, report: reporter{cfg, map[string]string{}}, results: make(chan loadResult),
	}
}

// run scans the directory whenever there is a reason to, until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	r.scan()
	r.first = slices.Clone(r.plugins)
	for {
		r.step(ctx)
		select {
		case <-ctx.Done():
			r.stop()
			return
		case <-ticker.C:
			r.scan()
		case <-r.again:
			r.again, r.againAt = nil, time.Time{}
			r.scan()
		case <-r.watch.wake:
			r.scan()
		case result := <-r.results:
			r.apply(result)
			for waiting := true; waiting; { // so that many loads share one table
				select {
				case result := <-r.results:
					r.apply(result)
				default:
					waiting = false
				}
			}
		}
	}
}

// stop serves nothing any more, and waits for the loads.
func (r *reconciler) stop() {
	r.public.table.Store(newTable(r.cfg.Tenants, nil))
	poke(r.public.changed)
	for _, p := range r.plugins {
		if p.current != nil {
			p.current.Release()
		}
	}
	for ; r.running > 0; r.running-- {
		if result := <-r.results; result.version != nil {
			result.version.Release()
		}
	}
}

// scanIn asks for a scan after a while, at the latest.
func (r *reconciler) scanIn(after time.Duration) {
	at := time.Now().Add(after)
	if r.againAt.IsZero() || at.Before(r.againAt) {
		r.again, r.againAt = time.After(after), at
	}
}

// scan compares the directory with what is known. Nothing big is read here.
func (r *reconciler) scan() {
	s, err := scanDirectory(r.cfg.Dir, r.cfg.Tenants)
	if err != nil {
		r.report.unreadable(err)
		return
	}
	r.report.scanned(s)
	r.root = s.root
	r.compare(s)
	if r.watch.follow(s) {
		// What changed between the scan and the watch went unseen by both.
		r.scanIn(quietTime)
	}
}

func (r *reconciler) compare(s *scan) {
	for id := range s.seen {
		if i, known := r.find(id); !known {
			r.plugins = slices.Insert(r.plugins, i, &plugin{id: id})
		}
	}
	r.plugins = slices.DeleteFunc(r.plugins, func(p *plugin) bool {
		if s.closed[p.tenant] != nil {
			return false // nothing is known of its files
		}
		p.seen = s.seen[p.id]
		r.consider(p, s)
		return !p.state.busy() && !p.seen.module.exists && !p.seen.manifest.exists
	})
}

// consider decides what a scan means for one plugin.
func (r *reconciler) consider(p *plugin, s *scan) {
	if old := p.current; old != nil && !p.seen.module.exists {
		p.current, r.swapped = nil, true
		r.retired = append(r.retired, old)
		r.report.removed(p.id, old)
	}
	found, fingerprint, err := identity{}, fingerprint{}, r.objection(p)
	if !p.seen.module.exists {
		fingerprint = p.seen.manifest.fingerprint // who copies both may copy the manifest first
	}
	if err == nil && p.seen.module.exists {
		if r.readManifest(p); p.manifest.err == nil {
			p.named = s.named(s.places[p.tenant], p.path(r.cfg.Dir, manifest.Suffix), &p.manifest.manifest)
		}
		found, fingerprint, err = identity{manifest: p.manifest.digest}, p.seen.manifest.fingerprint, cmp.Or(p.manifest.err, p.named.err)
	}
	p.viable = err == nil && p.seen.module.exists
	switch {
	case err != nil:
		p.dismiss()
		r.refuse(p, found, fingerprint, err)
	case p.viable:
		p.assess(time.Now())
	default:
		p.dismiss()
		r.forgive(p)
	}
}

// objection is what the name and the kind of a plugin's files tell against it.
func (r *reconciler) objection(p *plugin) error {
	module := p.path(r.cfg.Dir, manifest.ModuleSuffix)
	switch word := manifest.CheckWord(p.name); {
	case !p.seen.module.exists && p.seen.manifest.exists:
		return fmt.Errorf("%s has no module beside it: add %s, or remove the manifest", p.path(r.cfg.Dir, manifest.Suffix), module)
	case !p.seen.module.exists:
		return nil
	case word != nil:
		return fmt.Errorf("%s: the name %w, and it is to be the name of a queue: rename the file to %s", module, word, manifest.WordRule)
	case p.seen.module.problem != nil:
		return fmt.Errorf("%s: %w", module, p.seen.module.problem)
	}
	return nil
}

// readManifest brings the plugin's manifest up to date.
func (r *reconciler) readManifest(p *plugin) {
	have, seen := &p.manifest, p.seen.manifest
	if have.trust.settled && have.trust.covers(seen.fingerprint) && seen.problem == nil {
		return
	}
	path := p.path(r.cfg.Dir, manifest.Suffix)
	switch {
	case !seen.exists:
		*have = manifestFile{manifest: manifest.Default(p.name)}
		have.trust.note(fingerprint{}, time.Now())
		return
	case seen.problem != nil:
		*have = manifestFile{err: fmt.Errorf("%s: %w", path, seen.problem)}
		return
	}
	now := time.Now()
	read, err := readStable(r.root, seen.path, manifest.MaxSize, nil)
	if isUnstable(err) {
		r.scanIn(quietTime)
	}
	if err != nil {
		*have = manifestFile{err: fmt.Errorf("%s: %w", path, err)}
		return
	}
	have.trust.note(read.fingerprint, now)
	have.digest = runtime.DigestOf(read.data)
	have.manifest, have.err = manifest.Parse(path, read.data)
}

// step starts the loads that are due, and publishes what has changed.
func (r *reconciler) step(ctx context.Context) {
	owners := assignQueues(r.cfg, r.plugins)
	for _, p := range r.plugins {
		if !p.state.due() {
			continue
		}
		if p.state.claims() {
			if owner, why := owners.refuse(p, p.queues()); why != nil {
				p.state, p.blocker = stateBlocked, owner
				r.refuse(p, identity{manifest: p.manifest.digest}, fingerprint{}, why)
				continue
			}
		}
		r.running++
		request := p.start(r.root)
		go func() { r.results <- r.loader.load(ctx, request) }()
	}
	if r.dirty || r.swapped {
		r.public.table.Store(newTable(r.cfg.Tenants, r.plugins))
	}
	for _, v := range r.retired { // which the table does not have any more
		v.Release()
	}
	if r.swapped {
		poke(r.public.changed)
	}
	r.dirty, r.swapped, r.retired = false, false, nil
	if !r.ready && !slices.ContainsFunc(r.first, (*plugin).undecided) {
		r.ready, r.first = true, nil
		close(r.public.ready)
	}
}

func (r *reconciler) find(want id) (int, bool) {
	return slices.BinarySearchFunc(r.plugins, want, func(p *plugin, want id) int {
		return cmp.Or(cmp.Compare(p.tenant, want.tenant), cmp.Compare(p.name, want.name))
	})
}

// apply takes the result of a load.
func (r *reconciler) apply(result loadResult) {
	r.running--
	i, _ := r.find(result.id) // it is there: no plugin is forgotten while it is busy
	p := r.plugins[i]
	if !p.seen.module.exists {
		// Removed while it was loading: the next scan forgets it.
		p.state = stateIdle
		if result.version != nil {
			result.version.Release()
		}
		r.scanIn(0)
		return
	}
	if !result.file.fingerprint.same(p.seen.module.fingerprint) || result.found.manifest != p.manifest.digest ||
		!slices.EqualFunc(result.files, p.named.files, func(read, seen file) bool { return read.fingerprint.same(seen.fingerprint) }) {
		r.scanIn(quietTime)
	}
	switch {
	case result.known:
		r.confirm(p, result)
	case isUnstable(result.err):
		r.unstable(p, result)
	case result.err != nil:
		r.reject(p, result)
	default:
		r.accept(p, result)
	}
}

// confirm is for content that needs no load, because it serves, or was refused for what it is.
func (r *reconciler) confirm(p *plugin, result loadResult) {
	serves := p.current != nil && p.current.content == result.found
	refused := p.refusal != nil && p.refusal.final && p.refusal.found == result.found
	if !serves && !refused {
		p.state = stateChanged // removed and put back since the load began
		return
	}
	p.learn(result)
	if serves && p.refusal != nil && p.viable {
		r.forgive(p)
		r.cfg.Logger.Info("plugin file is again the one that serves", "plugin", p.name, "tenant", p.tenant, "digest", result.found.module)
	}
}

// unstable is for a file that could not be read in one state.
func (r *reconciler) unstable(p *plugin, result loadResult) {
	p.doubt()
	r.scanIn(quietTime)
	if p.doubted.IsZero() {
		p.doubted = time.Now()
	}
	if time.Since(p.doubted) >= doubtTime {
		p.state = stateIdle
		r.refuse(p, identity{}, fingerprint{}, r.about(p, result.err))
	}
}

func (r *reconciler) reject(p *plugin, result loadResult) {
	p.learn(result)
	if !result.final {
		p.retryAt = time.Now().Add(retryPause)
	}
	if !r.refuse(p, result.found, result.file.fingerprint, r.about(p, result.err)) {
		p.doubt()
		return
	}
	p.refusal.final = result.final
}

// about names the file that the error of a load is about, unless the error does.
func (r *reconciler) about(p *plugin, err error) error {
	if errors.Is(err, manifest.ErrRefused) {
		return err
	}
	return fmt.Errorf("%s: %w", p.path(r.cfg.Dir, manifest.ModuleSuffix), err)
}

// accept swaps the version in, unless another plugin has got one of its queues, or the last that there may be, meanwhile.
func (r *reconciler) accept(p *plugin, result loadResult) {
	v, old := result.version, p.current
	if _, why := assignQueues(r.cfg, r.plugins).refuse(p, v.Manifest.Queues); why != nil {
		v.Release()
		p.state = stateChanged // the next step refuses it
		return
	}
	p.learn(result)
	if p.viable {
		p.refusal = nil
	}
	p.current, r.swapped = v, true
	if old != nil {
		r.retired = append(r.retired, old)
	}
	r.report.loaded(p.id, v, old)
}

// forgive takes back a refusal.
func (r *reconciler) forgive(p *plugin) {
	if p.refusal != nil {
		p.refusal, r.dirty = nil, true
	}
}

// refuse reports why what is in the directory does not serve, once for each content and reason. It returns false if it holds
// the refusal back, since a file that has changed this very moment, with the given fingerprint, may be half of a file.
func (r *reconciler) refuse(p *plugin, found identity, f fingerprint, why error) bool {
	now := time.Now()
	if r.ready && f.young(now, youth) {
		if p.doubted.IsZero() {
			p.doubted = now
		}
		if now.Sub(p.doubted) < doubtTime {
			r.scanIn(youth)
			return false
		}
	}
	p.doubted = time.Time{}
	if old := p.refusal; old != nil && old.found == found && old.err.Error() == why.Error() {
		return true
	}
	p.refusal, r.dirty = &refusal{found: found, err: why, queues: p.queues()}, true
	if p.manifest.err == nil {
		p.refusal.version = p.manifest.manifest.Version
	}
	r.report.refused(p.id, why, found, p.current)
	return true
}
