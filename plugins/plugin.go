package plugins

import (
	"slices"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
)

// state is how far the reconciler is with what the directory has now of a plugin. See the picture in doc.go.
type state int

const (
	// stateIdle: the files are known, or there is no module to load. Only other files change that.
	stateIdle state = iota
	// stateStale: known, and to be read again: a file is so young that it may change and keep its fingerprint, or an error passes.
	stateStale
	// stateRereading: known, and being read again.
	stateRereading
	// stateChanged: the files are new, and to be loaded as soon as the plugin can have its queues.
	stateChanged
	// stateBlocked: changed, and refused, since it cannot have its queues now.
	stateBlocked
	// stateLoading: new, and being loaded.
	stateLoading
	// stateDoubtful: new, and read in vain, since a file changes or may be half written. The next scan decides.
	stateDoubtful
)

// claims reports whether the files are new, so that the plugin wants queues that it does not serve yet.
func (s state) claims() bool { return s >= stateChanged }

// due reports whether something is to be read.
func (s state) due() bool { return s == stateStale || s == stateChanged || s == stateBlocked }

// busy reports whether a load is under way.
func (s state) busy() bool { return s == stateRereading || s == stateLoading }

// plugin is what the reconciler knows of one name in the directory. Only the reconciler touches it.
type plugin struct {
	id
	state    state
	seen     listed       // by the last scan
	manifest manifestFile // as of the last scan that could read it
	named    namedFiles   // by the last scan
	last     lastLoad
	current  *Version // the last good one; nil if there was none
	refusal  *refusal // of what the directory has now; nil if that serves

	first   bool      // found by the first scan
	blocker *plugin   // has a queue that this one wants; nil if blocked otherwise
	doubted time.Time // since when refusals are held back, as the file is so young; zero if none is
	retryAt time.Time // when to try again after an error that was not the file's; zero for never
}

// manifestFile is the manifest as it was read last.
type manifestFile struct {
	trust    trust
	digest   string // "" if there is no file
	manifest manifest.Manifest
	err      error
}

// refusal is why the plugin's files are not served.
type refusal struct {
	found   identity
	err     error
	queues  []string
	version string
	// final: the same content would be refused again.
	final bool
}

// lastLoad is what the last load found.
type lastLoad struct {
	module trust
	files  []trust // of those that the manifest names
	found  identity
}

// note takes what a load has found.
func (l *lastLoad) note(r loadResult) {
	l.module.note(r.fingerprint, r.readAt)
	if prints := r.named.fingerprints; len(l.files) != len(prints) {
		l.files = make([]trust, len(prints))
	}
	for i, f := range r.named.fingerprints {
		l.files[i].note(f, r.readAt)
	}
	l.found = r.found
}

// covers reports whether the files that the manifest names are as they were read, and whether that is settled.
func (l *lastLoad) covers(files []file) (covered, settled bool) {
	covered = slices.EqualFunc(l.files, files, func(t trust, f file) bool { return t.covers(f.fingerprint) })
	return covered, !slices.ContainsFunc(l.files, func(t trust) bool { return !t.settled })
}

// trust is how far a fingerprint can be relied on to tell that a file is as it was read.
type trust struct {
	fingerprint fingerprint
	since       time.Time // when the fingerprint was first read
	settled     bool
}

// note takes the fingerprint of a file that was read at a time. It is settled if no later change can leave it as it is: by
// the file's own dates or, should those be of another clock, because it has been known for so long.
func (t *trust) note(f fingerprint, at time.Time) {
	if t.since.IsZero() || !t.fingerprint.same(f) {
		t.since = at
	}
	t.fingerprint = f
	t.settled = !f.young(at, settleTime) || at.Sub(t.since) >= settleTime
}

// covers reports whether the fingerprint is the one that was read.
func (t *trust) covers(f fingerprint) bool { return !t.since.IsZero() && t.fingerprint.same(f) }

// assess sets the state after a scan that found a module and everything that it needs.
func (p *plugin) assess(now time.Time) {
	covered, settled := p.last.covers(p.named.files)
	known := p.last.module.covers(p.seen.module.fingerprint) && p.last.found.manifest == p.manifest.digest && covered
	retry := !p.retryAt.IsZero() && !now.Before(p.retryAt)
	switch busy := p.state.busy(); {
	case !known && busy:
		p.state = stateLoading
	case !known:
		p.state = stateChanged
	case busy:
		p.state = stateRereading
	case retry || !settled || !p.last.module.settled:
		p.state = stateStale
	default:
		p.state = stateIdle
	}
}

// dismiss sets the state after a scan that found nothing to load.
func (p *plugin) dismiss() {
	if p.state.busy() {
		p.state = stateRereading
	} else {
		p.state = stateIdle
	}
	p.blocker, p.last, p.retryAt = nil, lastLoad{}, time.Time{}
}

// start sets the state when a load starts, and returns what it is to load. root is that of the last scan.
func (p *plugin) start(root string) loadRequest {
	if p.state == stateStale {
		p.state = stateRereading
	} else {
		p.state = stateLoading
	}
	p.blocker, p.retryAt = nil, time.Time{}
	return p.request(root)
}

// block sets the state when the plugin cannot have its queues; owner is the plugin that has one of them, nil if none does.
func (p *plugin) block(owner *plugin) { p.state, p.blocker = stateBlocked, owner }

// learn sets the state after a load that has told what the files are.
func (p *plugin) learn(r loadResult) {
	p.last.note(r)
	p.state, p.doubted = stateIdle, time.Time{}
}

// doubt sets the state after a load that has told nothing.
func (p *plugin) doubt() { p.state, p.last = stateDoubtful, lastLoad{} }

// decided reports whether nothing that is under way can change what becomes of the plugin.
func (p *plugin) decided() bool {
	return !p.state.busy() && (p.blocker == nil || !p.blocker.state.busy())
}

// viable reports whether the files could be served, as far as a scan tells.
func (p *plugin) viable() bool {
	return p.seen.module.exists && p.seen.module.problem == nil && p.manifest.err == nil && p.named.err == nil && manifest.CheckWord(p.name) == nil
}

func (p *plugin) request(root string) loadRequest {
	r := loadRequest{
		id: p.id, root: root, file: p.seen.module,
		manifest: p.manifest.manifest, manifestDigest: p.manifest.digest, files: p.named.files,
	}
	if p.last.module.settled && p.last.module.covers(p.seen.module.fingerprint) {
		r.digest = p.last.found.module
	}
	if covered, settled := p.last.covers(r.files); covered && settled {
		r.filesDigest = p.last.found.files
	}
	if p.current != nil {
		r.serving = p.current.identity()
	}
	if p.refusal != nil && p.refusal.final {
		r.refused = p.refusal.found
	}
	return r
}

// queues are those that the plugin wants, or wanted when it could last be asked.
func (p *plugin) queues() []string {
	if p.manifest.err != nil || p.manifest.manifest.Queues == nil {
		return []string{p.shown()}
	}
	return p.manifest.manifest.Queues
}
