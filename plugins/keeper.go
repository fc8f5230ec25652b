package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// keeper is the one goroutine that decides what serves. Loads run beside it and tell it their results;
// everybody else only reads the tables that it publishes.
type keeper struct {
	*Directory
	watch  *watcher
	logger hclog.Logger

	plugins []*plugin // sorted by tenant and name
	root    string    // of the last look; "" if the directory did not exist
	results chan result
	running int         // loads whose result has not come yet
	again   *time.Timer // for a look that somebody asked for
	againAt time.Time   // when that is; zero for never
	told    map[string]string

	dirty   bool       // something that List shows has changed
	swapped bool       // something that Acquire returns has changed
	retired []*Version // to be released once the next table is published
}

func newKeeper(d *Directory, watch *watcher) *keeper {
	again := time.NewTimer(time.Hour)
	again.Stop()
	return &keeper{
		Directory: d, watch: watch, logger: d.cfg.Logger,
		results: make(chan result), again: again, told: map[string]string{},
	}
}

// run looks at the directory whenever there is a reason to, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	defer k.again.Stop()
	k.look()
	for _, p := range k.plugins {
		p.first = true
	}
	for {
		k.step(ctx)
		select {
		case <-ctx.Done():
			k.stop()
			return
		case <-ticker.C:
			k.look()
		case <-k.again.C:
			k.againAt = time.Time{}
			k.look()
		case <-k.watch.wake:
			k.look()
		case r := <-k.results:
			k.settle(r)
			k.settleOthers()
		}
	}
}

// stop serves nothing any more, and waits for the loads.
func (k *keeper) stop() {
	k.publish(newTable(k.cfg.Tenants, nil))
	k.announce()
	for _, p := range k.plugins {
		if p.current != nil {
			p.current.Release()
		}
	}
	for ; k.running > 0; k.running-- {
		if r := <-k.results; r.version != nil {
			r.version.Release()
		}
	}
}

// lookIn asks for a look after a while, at the latest.
func (k *keeper) lookIn(after time.Duration) {
	at := time.Now().Add(after)
	if k.againAt.IsZero() || at.Before(k.againAt) {
		k.againAt = at
		k.again.Reset(after)
	}
}

// look looks at the directory. Nothing big is read here.
func (k *keeper) look() {
	s, err := look(k.cfg.Dir, k.cfg.Tenants)
	if err != nil {
		if k.tell("directory", err.Error()) {
			k.logger.Error("cannot read the plugin directory, what was loaded keeps serving",
				"dir", k.cfg.Dir, "error", fmt.Errorf("make it a folder that this user may read: %w", err))
		}
		return
	}
	k.remark(s)
	k.root = s.root
	k.compare(s)
	if k.watch.follow(s) {
		// What changed between the survey and the watch went unseen by both.
		k.lookIn(quietTime)
	}
}

// compare brings the plugins in step with what a look has found.
func (k *keeper) compare(s *survey) {
	for key := range s.seen {
		if _, known := k.find(key); !known {
			k.insert(&plugin{key: key})
		}
	}
	k.plugins = slices.DeleteFunc(k.plugins, func(p *plugin) bool {
		if s.closed[p.tenant] != nil {
			return false // nothing is known of its files
		}
		p.seen = s.seen[p.key]
		k.consider(p, s)
		return !p.busy && !p.seen.module.exists && !p.seen.manifest.exists
	})
}

// consider decides what a look means for one plugin.
func (k *keeper) consider(p *plugin, s *survey) {
	if !p.seen.module.exists {
		k.remove(p)
		p.dismiss()
		if p.seen.manifest.exists {
			k.refuse(p, identity{}, stamp{}, fmt.Errorf("%s has no module beside it: add %s, or remove the manifest",
				p.path(k.cfg.Dir, manifestSuffix), p.path(k.cfg.Dir, moduleSuffix)))
		} else if p.refusal != nil {
			p.refusal, k.dirty = nil, true
		}
		return
	}
	if err := checkWord(p.name); err != nil {
		p.dismiss()
		k.refuse(p, identity{}, stamp{}, fmt.Errorf("%s: the name %w, and it is to be the name of a queue: rename the file to %s",
			p.path(k.cfg.Dir, moduleSuffix), err, wordRule))
		return
	}
	if err := p.seen.module.problem; err != nil {
		p.dismiss()
		k.refuse(p, identity{}, stamp{}, fmt.Errorf("%s: %w", p.path(k.cfg.Dir, moduleSuffix), err))
		return
	}
	if k.readManifest(p); p.manifest.err != nil {
		p.dismiss()
		k.refuse(p, identity{manifest: p.manifest.digest}, p.seen.manifest.stamp, p.manifest.err)
		return
	}
	p.granted = s.granted(s.places[p.tenant], p.path(k.cfg.Dir, manifestSuffix), p.manifest.manifest)
	if p.granted.err != nil {
		p.dismiss()
		k.refuse(p, identity{manifest: p.manifest.digest}, p.seen.manifest.stamp, p.granted.err)
		return
	}
	p.assess(time.Now())
}

// readManifest brings the plugin's manifest up to date.
func (k *keeper) readManifest(p *plugin) {
	have, seen := &p.manifest, p.seen.manifest
	if have.trust.settled && have.trust.covers(seen.stamp) && seen.problem == nil {
		return
	}
	path := p.path(k.cfg.Dir, manifestSuffix)
	switch {
	case !seen.exists:
		*have = manifestFile{manifest: DefaultManifest(p.name)}
		have.trust.note(stamp{}, time.Now())
		return
	case seen.problem != nil:
		*have = manifestFile{err: fmt.Errorf("%s: %w", path, seen.problem)}
		return
	}
	now := time.Now()
	read, err := readStable(k.root, seen.path, maxManifest)
	if errors.Is(err, errUnstable) || errors.Is(err, fs.ErrNotExist) {
		k.lookIn(quietTime)
	}
	if err != nil {
		*have = manifestFile{err: fmt.Errorf("%s: %w", path, err)}
		return
	}
	have.trust.note(read.stamp, now)
	have.digest = digestOf(read.data)
	have.manifest, have.err = ParseManifest(path, read.data)
}

// mostQueues bounds the queues that the plugins in a tenant's folder may serve, "" for those of every tenant.
func (k *keeper) mostQueues(tenant string) queueBound {
	bound := queueBound{k.cfg.MaxQueues, "raise --max-queues"}
	if own := k.cfg.Grants.Of(tenant); tenant != "" && own != nil && own.MaxQueues > 0 && (bound.queues == 0 || own.MaxQueues < bound.queues) {
		bound = queueBound{own.MaxQueues, "raise max_queues of " + k.cfg.Grants.place(own)}
	}
	return bound
}

// step starts what is due, and publishes what has changed.
func (k *keeper) step(ctx context.Context) {
	rights := newClaims(k.plugins, k.mostQueues)
	for _, p := range k.plugins {
		if !p.due || p.busy {
			continue
		}
		var queue string
		if p.blocker, queue = rights.blocker(p, p.queues()); p.blocker != nil && p.fresh {
			k.refuse(p, identity{manifest: p.manifest.digest}, stamp{}, conflict(k.cfg.Dir, queue, p.blocker))
			continue
		}
		if err := rights.excess(p, p.queues()); err != nil && p.fresh {
			suffix := manifestSuffix
			if p.manifest.digest == "" {
				suffix = moduleSuffix
			}
			k.refuse(p, identity{manifest: p.manifest.digest}, stamp{}, fmt.Errorf("%s: %w", p.path(k.cfg.Dir, suffix), err))
			continue
		}
		k.start(ctx, p)
	}
	k.release()
	k.checkReady()
}

func (k *keeper) start(ctx context.Context, p *plugin) {
	p.busy, p.due, p.blocker, p.retryAt = true, false, nil, time.Time{}
	k.running++
	o := p.order(k.root)
	go func() { k.results <- k.loader.load(ctx, o) }()
}

// release publishes a new table if there is something new, and lets go of what the old one served.
func (k *keeper) release() {
	if k.dirty || k.swapped {
		k.publish(newTable(k.cfg.Tenants, k.plugins))
	}
	for _, v := range k.retired {
		v.Release()
	}
	if k.swapped {
		k.announce()
	}
	k.dirty, k.swapped, k.retired = false, false, nil
}

func (k *keeper) checkReady() {
	if k.isReady() {
		return
	}
	for _, p := range k.plugins {
		if p.first && !p.decided() {
			return
		}
	}
	close(k.ready)
}

func (k *keeper) isReady() bool {
	select {
	case <-k.ready:
		return true
	default:
		return false
	}
}

// settleOthers takes the results that are there already, so that many loads share one table.
func (k *keeper) settleOthers() {
	for {
		select {
		case r := <-k.results:
			k.settle(r)
		default:
			return
		}
	}
}

func (k *keeper) find(want key) (int, bool) {
	return slices.BinarySearchFunc(k.plugins, want, func(p *plugin, want key) int {
		return cmp.Or(cmp.Compare(p.tenant, want.tenant), cmp.Compare(p.name, want.name))
	})
}

func (k *keeper) insert(p *plugin) {
	i, _ := k.find(p.key)
	k.plugins = slices.Insert(k.plugins, i, p)
}
