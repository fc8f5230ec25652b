package plugins

import (
	"slices"
	"time"
)

// plugin is what the keeper knows of one name in the directory. Only the keeper touches it.
type plugin struct {
	key
	seen     sighting     // by the last look
	manifest manifestFile // as of the last look that could read it
	granted  grants       // the files that the manifest names, by the last look
	judged   judgement    // of the last load
	current  *Version     // the last good one; nil if there was none
	refusal  *refusal     // of what the directory has now; nil if that serves

	due     bool // something is to be loaded or read again
	fresh   bool // nothing is known yet of what is in the directory
	busy    bool // a load is under way
	first   bool // found by the first look
	blocker *plugin

	doubted time.Time // since when refusals are held back, as the file is so young; zero if none is
	retryAt time.Time // when to try again after an error that was not the file's; zero for never
}

// manifestFile is the manifest as it was read last.
type manifestFile struct {
	trust    trust
	digest   string // "" if there is no file
	manifest Manifest
	err      error
}

// judgement is what the last load found in the module's file.
type judgement struct {
	trust trust
	files []trust // of those that the manifest names
	found identity
}

// note takes what a load has found.
func (j *judgement) note(r result) {
	j.trust.note(r.stamp, r.readAt)
	if stamps := r.granted.stamps; len(j.files) != len(stamps) {
		j.files = make([]trust, len(stamps))
	}
	for i, s := range r.granted.stamps {
		j.files[i].note(s, r.readAt)
	}
	j.found = r.found
}

// covers reports whether the files that the manifest names have the stamps that were read, and whether they are settled.
func (j *judgement) covers(files []file) (covered, settled bool) {
	covered = slices.EqualFunc(j.files, files, func(t trust, f file) bool { return t.covers(f.stamp) })
	return covered, !slices.ContainsFunc(j.files, func(t trust) bool { return !t.settled })
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

// trust says how far a stamp can be relied on to tell that a file is as it was read.
type trust struct {
	stamp   stamp
	since   time.Time // when the stamp was first read
	settled bool
}

// note takes the stamp of a file that was read at a time. It is settled if no later change can leave
// the stamp as it is: by the file's own dates or, should those be of another clock, because we have
// known it for so long.
func (t *trust) note(s stamp, at time.Time) {
	if t.since.IsZero() || !t.stamp.same(s) {
		t.since = at
	}
	t.stamp = s
	t.settled = !s.young(at, settle) || at.Sub(t.since) >= settle
}

// covers reports whether the stamp is the one that was read.
func (t *trust) covers(s stamp) bool { return !t.since.IsZero() && t.stamp.same(s) }

// viable reports whether the files could be served, as far as a look tells.
func (p *plugin) viable() bool {
	return p.seen.module.exists && p.seen.module.problem == nil && p.manifest.err == nil && p.granted.err == nil && checkWord(p.name) == nil
}

// order is the load that the plugin is due for.
func (p *plugin) order(root string) order {
	o := order{
		key: p.key, root: root, file: p.seen.module,
		manifest: p.manifest.manifest, manifestDigest: p.manifest.digest, files: p.granted.files,
	}
	if p.judged.trust.settled && p.judged.trust.covers(p.seen.module.stamp) {
		o.digest = p.judged.found.module
	}
	if covered, settled := p.judged.covers(o.files); covered && settled {
		o.filesDigest = p.judged.found.files
	}
	if p.current != nil {
		o.serving = p.current.identity()
	}
	if p.refusal != nil && p.refusal.final {
		o.refused = p.refusal.found
	}
	return o
}

// assess decides whether the plugin is due, after a look.
func (p *plugin) assess(now time.Time) {
	covered, settled := p.judged.covers(p.granted.files)
	known := p.judged.trust.covers(p.seen.module.stamp) && p.judged.found.manifest == p.manifest.digest && covered
	p.fresh = !known
	p.due = !known || !p.judged.trust.settled || !settled || !p.retryAt.IsZero() && !now.Before(p.retryAt)
}

// dismiss says that there is nothing to load.
func (p *plugin) dismiss() {
	p.due, p.fresh, p.blocker, p.judged, p.retryAt = false, false, nil, judgement{}, time.Time{}
}

// decided reports whether nothing that is under way can change the plugin's state.
func (p *plugin) decided() bool {
	return !p.busy && (p.blocker == nil || !p.blocker.busy)
}

// queues are those that the plugin wants, or wanted when it could last be asked.
func (p *plugin) queues() []string {
	if p.manifest.err != nil || p.manifest.manifest.Queues == nil {
		return []string{p.shown()}
	}
	return p.manifest.manifest.Queues
}

func (p *plugin) statuses() []Status {
	var statuses []Status
	if v := p.current; v != nil {
		statuses = append(statuses, Status{
			Tenant: p.tenant, Plugin: p.shown(), Version: v.Version, Digest: v.Digest,
			Queues: v.Manifest.Queues, State: StateServing, ResetMode: string(v.Info().ResetMode), terms: v.terms,
		})
	}
	if r := p.refusal; r != nil {
		statuses = append(statuses, Status{
			Tenant: p.tenant, Plugin: p.shown(), Version: r.version, Digest: r.found.module,
			Queues: r.queues, State: StateRefused, Error: r.err.Error(),
		})
	}
	return statuses
}
