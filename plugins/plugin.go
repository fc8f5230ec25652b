package plugins

import (
	"slices"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
)

// state is how far the reconciler has processed the files that the directory has now of a plugin. See the picture in
// doc.go.
type state int

const (
	// the files are known, or there is no module to load: only different files change the state
	stateIdle      state = iota
	stateStale           // known, and to be read again: they may have changed unnoticed, or an error may have passed
	stateRereading       // known, and being read again
	stateChanged         // new, and to be loaded as soon as the plugin can have its queues
	stateBlocked         // new, and refused, since the plugin cannot have its queues now
	stateLoading         // new, and being loaded
	// new, and not usable yet, since a file keeps changing or may be half written: the next scan decides
	stateDoubtful
)

// claims reports whether the files are new, so that the plugin wants queues that it does not serve yet.
func (s state) claims() bool { return s >= stateChanged }

// due reports whether the plugin waits for a load to start.
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
	current  *Version // the version that serves, the last good one; nil if none
	refusal  *refusal // why the files that the directory has now do not serve; nil if they do
	viable   bool     // the files could be served, as far as the last scan tells

	blocker *plugin   // the plugin that has a queue which this one wants; nil if blocked for another reason
	doubted time.Time // since when refusals are held back because files may be half written; zero if none is
	retryAt time.Time // when to try again after an error that the content did not cause; zero for never
}

// manifestFile is the manifest as it was read last. Its zero value is a manifest that was never read.
type manifestFile struct {
	trust    trust
	digest   string // "" if there is no file, or it could not be read
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
	files  []trust // of the files that the manifest names
	found  identity
}

// covers reports whether the files that the manifest names have the fingerprints of the last load, and whether all
// these fingerprints are settled.
func (l *lastLoad) covers(files []file) (covered, settled bool) {
	covered = slices.EqualFunc(l.files, files, func(t trust, f file) bool { return t.covers(f.fingerprint) })
	return covered, !slices.ContainsFunc(l.files, func(t trust) bool { return !t.settled })
}

// trust records whether an equal fingerprint proves that a file has not changed since it was read: if it is settled.
type trust struct {
	fingerprint fingerprint
	since       time.Time // when the fingerprint was first read
	settled     bool
}

// note records the fingerprint of a file that was read at the time at. The fingerprint is settled if every later
// change must alter it: the file's dates are old enough or, since they may be of another clock, the fingerprint has
// been known long enough.
func (t *trust) note(f fingerprint, at time.Time) {
	if t.since.IsZero() || !t.fingerprint.same(f) {
		t.since = at
	}
	t.fingerprint = f
	t.settled = !f.young(at, settleTime) || at.Sub(t.since) >= settleTime
}

// covers reports whether the fingerprint equals the recorded one.
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

// start sets the state when a load starts, and returns what it is to load.
func (p *plugin) start() loadRequest {
	if p.state == stateStale {
		p.state = stateRereading
	} else {
		p.state = stateLoading
	}
	p.blocker, p.retryAt = nil, time.Time{}
	return p.request()
}

// learn records the files after a load that identified their content, and sets the state.
func (p *plugin) learn(r loadResult) {
	p.last.found = r.found
	p.last.module.note(r.file.fingerprint, r.readAt)
	if len(p.last.files) != len(r.files) {
		p.last.files = make([]trust, len(r.files))
	}
	for i, f := range r.files {
		p.last.files[i].note(f.fingerprint, r.readAt)
	}
	p.state, p.doubted = stateIdle, time.Time{}
}

// doubt forgets the files of the last load, and sets the state, after a load whose result may be of half-written
// files.
func (p *plugin) doubt() { p.state, p.last = stateDoubtful, lastLoad{} }

// undecided reports whether a running load, of the plugin or its blocker, can still change whether the plugin serves.
func (p *plugin) undecided() bool {
	return p.state.busy() || p.blocker != nil && p.blocker.state.busy()
}

func (p *plugin) request() loadRequest {
	r := loadRequest{
		id: p.id, file: p.seen.module, files: p.named.files,
		manifest: p.manifest.manifest, trusted: identity{manifest: p.manifest.digest},
	}
	if p.last.module.settled && p.last.module.covers(p.seen.module.fingerprint) {
		r.trusted.module = p.last.found.module
	}
	if covered, settled := p.last.covers(r.files); covered && settled {
		r.trusted.files = p.last.found.files
	}
	if p.current != nil {
		r.serving = p.current.content
	}
	if p.refusal != nil && p.refusal.final {
		r.refused = p.refusal.found
	}
	return r
}

// queues returns the queues of the plugin's manifest, or the plugin's name if the manifest was not read or is wrong.
func (p *plugin) queues() []string {
	if p.manifest.err != nil || p.manifest.manifest.Queues == nil {
		return []string{p.shown()}
	}
	return p.manifest.manifest.Queues
}
