package plugins

import (
	"slices"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
)

// state says how far the reconciler has processed the files that a plugin has in the directory now. doc.go shows the
// transitions.
type state int

const (
	// The files are known, or there is no module to load. Only a scan changes the state: if the files differ, or if they
	// must be read again.
	stateIdle state = iota
	// The files are known. They must be read again, since they may have changed unnoticed, or an error may have passed.
	stateStale
	// The files are known, and are being read again.
	stateRereading
	// The files are new. They are loaded as soon as the plugin can have its queues.
	stateChanged
	// The files are new. They are refused, since the plugin cannot have its queues now.
	stateBlocked
	// The files are new, and are being loaded.
	stateLoading
	// The files are new. They cannot be used yet, since a file keeps changing or may be half written. The next scan
	// decides.
	stateDoubtful
)

// claims reports whether the files are new, so that the plugin wants queues that it does not serve yet.
func (s state) claims() bool { return s >= stateChanged }

// due reports whether the plugin waits for a load to start.
func (s state) due() bool { return s == stateStale || s == stateChanged || s == stateBlocked }

// busy reports whether a load is under way.
func (s state) busy() bool { return s == stateRereading || s == stateLoading }

// plugin holds what the reconciler knows about the plugin with one name in one folder. Only the reconciler uses it.
type plugin struct {
	id
	state    state
	seen     listed       // the module and the manifest as the last scan found them
	manifest manifestFile // the manifest as it was last read
	named    namedFiles   // the files that the manifest names, as the last scan found them
	last     lastLoad
	current  *Version // the version that serves, the last good one; nil if none
	serves   int      // the number of the release from which current is; 0 if it is from the plugin directory
	refusal  *refusal // why the present files are refused; nil if they are not
	viable   bool     // the last scan found a module, and no reason to refuse the files

	// The plugin that has a queue that this plugin claims; nil if it is not blocked, or blocked for another reason.
	blocker *plugin
	// Since when a refusal is held back because files may be half written; zero if no refusal is held back.
	doubted time.Time
	// When to retry after an error that the content did not cause; zero for never.
	retryAt time.Time
}

// manifestFile is a plugin's manifest as it was last read. The zero value means that the manifest was never read.
type manifestFile struct {
	trust    trust
	digest   string // of the file's content; "" if there is no file, or it could not be read
	manifest manifest.Manifest
	err      error
}

// refusal records why a plugin's files do not serve.
type refusal struct {
	found   identity
	err     error
	queues  []string
	version string
	release int // as in listed
	// final is true if the same content would be refused again.
	final bool
}

// lastLoad records the files that the last load read, and the digests of their content.
type lastLoad struct {
	module trust
	files  []trust // one for each file that the manifest names
	found  identity
}

// covers reports whether the files that the manifest names have the fingerprints of the last load, and whether all
// these fingerprints are settled.
func (l *lastLoad) covers(files []file) (covered, settled bool) {
	covered = slices.EqualFunc(l.files, files, func(t trust, f file) bool { return t.covers(f.fingerprint) })
	return covered, !slices.ContainsFunc(l.files, func(t trust) bool { return !t.settled })
}

// trust is the fingerprint of a file when it was last read. While the fingerprint is settled, an equal fingerprint
// proves that the file has not changed since then.
type trust struct {
	fingerprint fingerprint
	since       time.Time // when the fingerprint was first read
	settled     bool
}

// note records the fingerprint of a file that was read at the time at. The fingerprint is settled if every later change
// must alter it: if the file's dates are older than settleTime or, since another clock may have set them, if the
// fingerprint has been known for settleTime.
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

// start sets the state for a load that starts, and returns the request for that load.
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

// doubt sets the state, and forgets the files of the last load, if that load may have read half-written files.
func (p *plugin) doubt() { p.state, p.last = stateDoubtful, lastLoad{} }

// undecided reports whether a running load, of the plugin or its blocker, can still change whether the plugin serves.
func (p *plugin) undecided() bool {
	return p.state.busy() || p.blocker != nil && p.blocker.state.busy()
}

func (p *plugin) request() loadRequest {
	r := loadRequest{
		id: p.id, release: p.seen.release, file: p.seen.module, files: p.named.files,
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
