package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
)

// The delays for half-written files and for errors.
const (
	youth      = 500 * time.Millisecond // a file younger than this may be half written: its refusal is held back
	doubtTime  = 3 * time.Second        // the longest time for which refusals are held back
	retryPause = 10 * time.Second       // from an error that the content did not cause to the next attempt
)

// reconciler decides which versions serve. It runs in one goroutine: loads send it their results, and all other
// goroutines read the tables that it publishes.
type reconciler struct {
	cfg    Config
	loader *loader
	public *publication
	watch  *watcher
	report reporter

	plugins    []*plugin          // sorted by tenant and name
	first      []*plugin          // the plugins of the first scan; nil once ready is true
	last       *scan              // the last scan that could list the directory
	reading    map[string]bool    // the folders, by tenant, whose manifests are being read
	read       chan manifestsRead // the results of reading manifests
	results    chan loadResult
	running    int              // number of loads whose result has not arrived yet
	ready      bool             // public.ready is closed
	nextScan   <-chan time.Time // fires for a scan that scanIn requested; nil for none
	nextScanAt time.Time        // when nextScan fires; zero for never

	dirty   bool       // something that List returns has changed since the last table
	swapped bool       // something that Acquire returns has changed since the last table
	retired []*Version // the versions to release once the next table is published
}

func newReconciler(cfg Config, loader *loader, public *publication, watch *watcher) *reconciler {
	return &reconciler{
		cfg: cfg, loader: loader, public: public, watch: watch, report: reporter{cfg, map[string]string{}},
		results: make(chan loadResult),
		reading: map[string]bool{}, read: make(chan manifestsRead),
	}
}

// run scans the directory whenever there is a reason to, until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	r.scan(ctx)
	r.first = slices.Clone(r.plugins)
	for {
		r.step(ctx)
		select {
		case <-ctx.Done():
			r.stop()
			return
		case <-ticker.C:
			r.scan(ctx)
		case <-r.nextScan:
			r.nextScan, r.nextScanAt = nil, time.Time{}
			r.scan(ctx)
		case <-r.watch.wake:
			r.scan(ctx)
		case <-r.public.released:
			r.scan(ctx)
		case read := <-r.read:
			r.learn(read)
		case result := <-r.results:
			r.apply(result)
			for waiting := true; waiting; { // so that one table publishes the results of many loads
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

// stop ends serving, and waits for the reads and loads that still run.
func (r *reconciler) stop() {
	r.public.table.Store(newTable(r.cfg.Tenants, nil))
	poke(r.public.changed)
	for _, p := range r.plugins {
		if p.current != nil {
			p.current.Release()
		}
	}
	for range r.reading {
		<-r.read
	}
	for ; r.running > 0; r.running-- {
		if result := <-r.results; result.version != nil {
			result.version.Release()
		}
	}
}

// scanIn requests a scan after a delay, unless an earlier scan is requested already.
func (r *reconciler) scanIn(delay time.Duration) {
	at := time.Now().Add(delay)
	if r.nextScanAt.IsZero() || at.Before(r.nextScanAt) {
		r.nextScan, r.nextScanAt = time.After(delay), at
	}
}

// scan lists the directory and compares it with the known plugins. It reads no files.
func (r *reconciler) scan(ctx context.Context) {
	s, err := scanDirectory(r.cfg.Dir, r.cfg.Tenants)
	if err != nil {
		r.report.unreadable(err)
		return
	}
	r.report.scanned(s)
	s.addReleases(r.public.current(), r.cfg.Tenants, func(name string) bool {
		i, known := r.find(id{name: name})
		return known && r.plugins[i].current != nil
	})
	r.last = s
	for id := range s.seen {
		if i, known := r.find(id); !known {
			r.plugins = slices.Insert(r.plugins, i, &plugin{id: id})
		}
	}
	for _, tenant := range append([]string{""}, r.cfg.Tenants...) {
		r.look(ctx, tenant)
	}
	r.follow()
}

// follow makes the watcher watch the folders that the last scan found.
func (r *reconciler) follow() {
	if r.watch.follow(r.last) {
		// The folder may have changed after the scan and before the watch, which neither noticed.
		r.scanIn(quietTime)
	}
}

// look compares a tenant's folder with the known plugins. If manifests may have changed, it starts to read them in
// another goroutine, and learn compares the folder later. Other folders do not wait.
func (r *reconciler) look(ctx context.Context, tenant string) {
	if r.last.closed[tenant] != nil || r.reading[tenant] {
		return // the folder could not be listed, or its manifests are being read
	}
	var requests []manifestRequest
	for _, p := range r.plugins {
		if p.tenant == tenant && r.mustRead(p) {
			seen := r.last.seen[p.id]
			requests = append(requests, manifestRequest{p.id, seen.dir(r.cfg.Dir), seen.manifest, p.manifest})
		}
	}
	if len(requests) == 0 {
		r.compare(tenant)
		return
	}
	r.reading[tenant] = true
	go func() { r.read <- r.loader.readManifests(ctx, tenant, requests) }()
}

// learn stores manifests that were read, and then compares their folder. The next scan finds what has changed
// meanwhile.
func (r *reconciler) learn(read manifestsRead) {
	delete(r.reading, read.tenant)
	for _, p := range r.plugins {
		have, ok := read.files[p.id]
		if !ok || p.tenant != read.tenant {
			continue
		}
		if isUnstable(have.err) {
			r.scanIn(quietTime)
		}
		// If the manifest is gone since the scan, the one known before is kept.
		if !errors.Is(have.err, fs.ErrNotExist) {
			p.manifest = have
		}
	}
	if r.last.closed[read.tenant] == nil {
		r.compare(read.tenant)
		r.follow()
	}
}

// compare considers the plugins of a tenant's folder whose manifests are known.
func (r *reconciler) compare(tenant string) {
	awaited := make(map[*plugin]bool)
	for _, p := range r.plugins {
		if p.tenant == tenant && r.isAwaited(p) {
			awaited[p] = true
			r.scanIn(youth)
		}
	}
	r.plugins = slices.DeleteFunc(r.plugins, func(p *plugin) bool {
		if p.tenant != tenant || awaited[p] {
			return false
		}
		if r.mustRead(p) && p.manifest.trust.since.IsZero() && p.manifest.err == nil {
			r.scanIn(quietTime) // the plugin appeared while manifests of other plugins were read
			return false
		}
		p.seen = r.last.seen[p.id]
		r.consider(p, r.last)
		return !p.state.busy() && !p.seen.module.exists && !p.seen.manifest.exists
	})
}

// isAwaited reports whether a release that ran beside another one is to serve, and does not yet. It goes on meanwhile,
// so that its module is not compiled again.
func (r *reconciler) isAwaited(p *plugin) bool {
	if p.beside == 0 || p.current == nil || r.last.seen[p.id].module.exists {
		return false
	}
	main := r.main(p)
	return main != nil && r.last.seen[main.id].release == p.beside && main.serves != p.beside && main.refusal == nil
}

// main returns the plugin that serves under the name of a release beside it; nil if there is none.
func (r *reconciler) main(p *plugin) *plugin {
	i, known := r.find(id{tenant: p.tenant, name: p.name})
	if !known {
		return nil
	}
	return r.plugins[i]
}

// refusal returns why a plugin cannot exchange its queues for those of a manifest.
func (r *reconciler) refusal(owners *queueOwners, p *plugin, m *manifest.Manifest) (owner *plugin, why error) {
	if p.beside > 0 {
		return nil, owners.refuseBeside(p, r.main(p), m)
	}
	return owners.refuse(p, m)
}

// consider applies a scan to one plugin: it sets the plugin's state, and removes or refuses the plugin if necessary.
func (r *reconciler) consider(p *plugin, s *scan) {
	if old := p.current; old != nil && !p.seen.module.exists {
		p.current, p.serves, r.swapped = nil, 0, true
		r.retired = append(r.retired, old)
		r.report.removed(p.id, old)
	}
	found, fingerprint, err := identity{}, fingerprint{}, r.objection(p.id, p.seen)
	if !p.seen.module.exists {
		fingerprint = p.seen.manifest.fingerprint // whoever copies both files may copy the manifest first
	}
	if err == nil && p.seen.module.exists {
		if p.manifest.err == nil && p.seen.folder != nil {
			p.named = p.seen.folder.named("", p.path(p.seen.dir(r.cfg.Dir), manifest.Suffix), &p.manifest.manifest)
		} else if p.manifest.err == nil {
			p.named = s.named(p.tenant, p.path(p.seen.dir(r.cfg.Dir), manifest.Suffix), &p.manifest.manifest)
		}
		found, fingerprint, err = identity{manifest: p.manifest.digest}, p.seen.manifest.fingerprint, cmp.Or(p.manifest.err,
			p.named.err)
	}
	p.viable = err == nil && p.seen.module.exists
	switch {
	case err != nil:
		p.dismiss()
		r.refuse(p, found, fingerprint, err)
	case p.viable:
		p.assess(time.Now())
		if p.state == stateIdle && p.current != nil && p.current.content == p.last.found && p.serves != p.seen.release {
			p.serves, r.swapped = p.seen.release, true // another release with the same content
		}
	default:
		p.dismiss()
		r.forgive(p)
	}
}

// objection returns why a plugin is refused before its files are read: its module is missing, has a wrong name or has
// a problem. It returns nil if there is no objection.
func (r *reconciler) objection(p id, seen listed) error {
	dir := seen.dir(r.cfg.Dir)
	module := p.path(dir, manifest.ModuleSuffix)
	switch word := manifest.CheckWord(p.name); {
	case !seen.module.exists && seen.manifest.exists:
		return fmt.Errorf("%s has no module beside it: add %s, or remove the manifest", p.path(dir, manifest.Suffix),
			module)
	case !seen.module.exists:
		return nil
	case word != nil:
		return fmt.Errorf("%s: the name %w, and it is to be the name of a queue: rename the file to %s", module, word,
			manifest.WordRule)
	case manifest.IsReserved(p.name):
		return fmt.Errorf("%s: the queue %q is for the deliveries of webhooks, which hosts send: rename the file", module,
			p.name)
	case seen.module.problem != nil:
		return fmt.Errorf("%s: %w", module, seen.module.problem)
	}
	return nil
}

// mustRead reports whether the plugin's manifest must be read. If the file has a problem or is missing, it stores the
// error or the default manifest instead.
func (r *reconciler) mustRead(p *plugin) bool {
	seen, have := r.last.seen[p.id], &p.manifest
	switch {
	case !seen.module.exists || r.objection(p.id, seen) != nil:
		return false
	case seen.manifest.problem != nil:
		*have = manifestFile{err: fmt.Errorf("%s: %w", p.path(seen.dir(r.cfg.Dir), manifest.Suffix), seen.manifest.problem)}
		return false
	case have.trust.settled && have.trust.covers(seen.manifest.fingerprint):
		return false
	case !seen.manifest.exists:
		*have = manifestFile{manifest: manifest.Default(p.name)}
		have.trust.note(fingerprint{}, time.Now())
		return false
	}
	return true
}

// step starts the loads that are due, and publishes what has changed.
func (r *reconciler) step(ctx context.Context) {
	owners := assignQueues(r.cfg, r.plugins)
	for _, p := range r.plugins {
		if !p.state.due() || r.reading[p.tenant] { // while manifests are read, the files may differ from those considered
			continue
		}
		if p.state.claims() {
			if owner, why := r.refusal(owners, p, &p.manifest.manifest); why != nil {
				p.state, p.blocker = stateBlocked, owner
				r.refuse(p, identity{manifest: p.manifest.digest}, fingerprint{}, why)
				continue
			}
		}
		r.running++
		request := p.start()
		request.dir = p.seen.dir(r.cfg.Dir)
		go func() { r.results <- r.loader.load(ctx, request) }()
	}
	if r.dirty || r.swapped {
		r.public.table.Store(newTable(r.cfg.Tenants, r.plugins))
	}
	for _, v := range r.retired { // the new table no longer has them
		v.Release()
	}
	if r.swapped {
		poke(r.public.changed)
	}
	r.dirty, r.swapped, r.retired = false, false, nil
	if !r.ready && !slices.ContainsFunc(r.first, func(p *plugin) bool { return r.reading[p.tenant] || p.undecided() }) {
		r.ready, r.first = true, nil
		close(r.public.ready)
	}
}

func (r *reconciler) find(want id) (int, bool) {
	return slices.BinarySearchFunc(r.plugins, want, func(p *plugin, want id) int {
		return cmp.Or(cmp.Compare(p.tenant, want.tenant), cmp.Compare(p.name, want.name), cmp.Compare(p.beside, want.beside))
	})
}

// apply updates a plugin with the result of its load.
func (r *reconciler) apply(result loadResult) {
	r.running--
	i, _ := r.find(result.id) // always found: no plugin is forgotten while it is busy
	p := r.plugins[i]
	if !p.seen.module.exists {
		// The module was removed during the load: the next scan forgets the plugin.
		p.state = stateIdle
		if result.version != nil {
			result.version.Release()
		}
		r.scanIn(0)
		return
	}
	if !result.file.fingerprint.same(p.seen.module.fingerprint) || result.found.manifest != p.manifest.digest ||
		!slices.EqualFunc(result.files, p.named.files, func(read, seen file) bool {
			return read.fingerprint.same(seen.fingerprint)
		}) {
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

// confirm applies the result of a load that found known content: content that serves, or that was refused for good.
func (r *reconciler) confirm(p *plugin, result loadResult) {
	serves := p.current != nil && p.current.content == result.found
	refused := p.refusal != nil && p.refusal.final && p.refusal.found == result.found
	if !serves && !refused {
		p.state = stateChanged // the plugin was removed and put back since the load began
		return
	}
	p.learn(result)
	if serves && p.refusal != nil && p.viable {
		r.forgive(p)
		r.cfg.Logger.Info("plugin file is again the one that serves", "plugin", p.name, "tenant", p.tenant,
			"digest", result.found.module)
	}
}

// unstable applies the result of a load whose files changed while they were read: scans try again for doubtTime, then
// the plugin is refused.
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

// about adds the module's path to the error of a load, unless it is a *manifest.Error, which names its file.
func (r *reconciler) about(p *plugin, err error) error {
	if errors.Is(err, manifest.ErrRefused) {
		return err
	}
	return fmt.Errorf("%s: %w", p.path(p.seen.dir(r.cfg.Dir), manifest.ModuleSuffix), err)
}

// accept makes the loaded version serve. It drops the version instead if the plugin can no longer have its queues:
// another plugin has got one of them meanwhile, or the folder's bounds no longer allow them.
func (r *reconciler) accept(p *plugin, result loadResult) {
	v, old := result.version, p.current
	if _, why := r.refusal(assignQueues(r.cfg, r.plugins), p, &v.Manifest); why != nil {
		v.Release()
		p.state = stateChanged // the next step refuses it
		return
	}
	p.learn(result)
	if p.viable {
		p.refusal = nil
	}
	p.current, p.serves, r.swapped = v, result.release, true
	if old != nil {
		r.retired = append(r.retired, old)
	}
	if p.tenant == "" && len(r.public.current()) > 0 {
		r.scanIn(0) // releases of this name serve no longer
	}
	r.report.loaded(p.id, v, old)
}

// forgive withdraws a refusal.
func (r *reconciler) forgive(p *plugin) {
	if p.refusal != nil {
		p.refusal, r.dirty = nil, true
	}
}

// refuse records and reports why a plugin's present files do not serve, once for each content and reason. It returns
// false if it holds the refusal back, since the file with the fingerprint f is so young that it may be half written.
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
	p.refusal, r.dirty = &refusal{found: found, err: why, queues: p.queues(), release: p.seen.release}, true
	if p.manifest.err == nil {
		p.refusal.version = p.manifest.manifest.Version
	}
	r.report.refused(p.id, why, found, p.current)
	return true
}
