package plugins

// What becomes of a plugin: it is swapped in, refused, or removed. All of this runs in the keeper's
// goroutine.

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// settle applies the result of a load.
func (k *keeper) settle(r result) {
	k.running--
	i, _ := k.find(r.key) // it is there: no plugin is forgotten while it is busy
	p := k.plugins[i]
	p.busy = false
	if !p.seen.module.exists {
		// Removed while it was loading: the next look forgets it.
		if r.version != nil {
			r.version.Release()
		}
		k.lookIn(0)
		return
	}
	if !r.stamp.same(p.seen.module.stamp) || r.manifestDigest != p.manifest.digest ||
		!slices.EqualFunc(r.granted.stamps, p.granted.files, func(read stamp, f file) bool { return read.same(f.stamp) }) {
		k.lookIn(quietTime)
	}
	switch {
	case r.known:
		k.confirm(p, r)
	case errors.Is(r.err, errUnstable) || errors.Is(r.err, fs.ErrNotExist):
		k.unstable(p, r)
	case r.err != nil:
		k.reject(p, r)
	default:
		k.accept(p, r)
	}
}

// judge notes that the content has its verdict.
func (k *keeper) judge(p *plugin, r result) {
	p.judged.note(r)
	p.fresh, p.doubted = false, time.Time{}
}

// confirm is for content that needs no load, because it serves, or was refused for what it is.
func (k *keeper) confirm(p *plugin, r result) {
	serves := p.current != nil && p.current.identity() == r.found
	refused := p.refusal != nil && p.refusal.final && p.refusal.found == r.found
	if !serves && !refused {
		p.due, p.fresh = true, true // removed and put back since the load began
		return
	}
	k.judge(p, r)
	if serves && p.refusal != nil && p.viable() {
		p.refusal, k.dirty = nil, true
		k.logger.Info("plugin file is again the one that serves", "plugin", p.name, "tenant", p.tenant, "digest", r.found.module)
	}
}

// unstable is for a file that could not be read in one state.
func (k *keeper) unstable(p *plugin, r result) {
	p.judged = judgement{}
	k.lookIn(quietTime)
	if p.doubted.IsZero() {
		p.doubted = time.Now()
	}
	if time.Since(p.doubted) >= doubtTime {
		p.fresh = false
		k.refuse(p, identity{}, stamp{}, k.about(p, r.err))
	}
}

func (k *keeper) reject(p *plugin, r result) {
	k.judge(p, r)
	if !r.final {
		p.retryAt = time.Now().Add(retryPause)
	}
	if !k.refuse(p, r.found, r.stamp, k.about(p, r.err)) {
		p.judged, p.fresh = judgement{}, true
		return
	}
	p.refusal.final = r.final
}

// about says which file the error of a load is about, unless it says so itself.
func (k *keeper) about(p *plugin, err error) error {
	if errors.Is(err, ErrManifest) {
		return err
	}
	return fmt.Errorf("%s: %w", p.path(k.cfg.Dir, moduleSuffix), err)
}

// accept swaps the version in, unless another plugin has got one of its queues, or the last that there may be, meanwhile.
func (k *keeper) accept(p *plugin, r result) {
	v := r.version
	rights := newClaims(k.plugins, k.mostQueues)
	if owner, _ := rights.blocker(p, v.Manifest.Queues); owner != nil || rights.excess(p, v.Manifest.Queues) != nil {
		v.Release()
		p.due, p.fresh = true, true // the next step refuses it
		return
	}
	k.judge(p, r)
	if p.viable() {
		p.refusal = nil
	}
	old := p.current
	p.current, k.swapped = v, true
	fields := []any{
		"plugin", p.name, "tenant", p.tenant, "version", v.Version, "digest", v.Digest,
		"queues", v.Manifest.Queues, "kind", v.Info().Kind, "reset_mode", v.Info().ResetMode,
	}
	if v.FilesDigest != "" {
		fields = append(fields, "files", v.FilesDigest)
	}
	if old != nil {
		fields = append(fields, "replaces", old.Digest)
		k.retired = append(k.retired, old)
	}
	k.logger.Info("plugin loaded", fields...)
	k.warnOfLimits(p, v)
	k.warnOfGrants(p, v)
	k.cfg.Observer.PluginLoaded(p.tenant, p.name, resultOK)
	k.tellServing(p, v, true)
	if old != nil && (old.Version != v.Version || old.Digest != v.Digest) {
		k.tellServing(p, old, false)
	}
}

func (k *keeper) tellServing(p *plugin, v *Version, serving bool) {
	k.cfg.Observer.PluginServing(p.tenant, p.name, v.Version, v.Digest, string(v.Info().ResetMode), serving)
}

// warnOfLimits says where the host gives a plugin less than its manifest asks for: once for all tenants of which the same
// place says so.
func (k *keeper) warnOfLimits(p *plugin, v *Version) {
	told := map[Lowered]bool{}
	for _, tenant := range k.cfg.Tenants {
		terms := v.terms[tenant]
		if terms == nil {
			continue
		}
		for _, less := range terms.Lowered {
			if !told[less] {
				told[less] = true
				k.logger.Warn("the host gives a plugin less than its manifest asks for", "plugin", p.name, "tenant", p.tenant,
					"key", less.Key, "manifest", less.Manifest, "host", less.Host, "see", less.Place)
			}
		}
	}
}

// warnOfGrants says where the host's grants leave a tenant's tasks less than the manifest asks for.
func (k *keeper) warnOfGrants(p *plugin, v *Version) {
	for _, tenant := range k.cfg.Tenants {
		if terms := v.terms[tenant]; terms != nil {
			if taken := terms.Taken(); len(taken) > 0 {
				k.logger.Warn("the host's grants leave a plugin less than its manifest asks for",
					"plugin", p.name, "tenant", tenant, "capabilities", taken, "grants", terms.Place())
			}
		}
	}
}

// remove stops serving a plugin whose file is gone.
func (k *keeper) remove(p *plugin) {
	old := p.current
	if old == nil {
		return
	}
	p.current, k.swapped = nil, true
	k.retired = append(k.retired, old)
	k.logger.Info("plugin removed", "plugin", p.name, "tenant", p.tenant, "version", old.Version,
		"digest", old.Digest, "queues", old.Manifest.Queues)
	k.cfg.Observer.PluginLoaded(p.tenant, p.name, resultGone)
	k.tellServing(p, old, false)
}

// refuse says why what is in the directory does not serve, once for each content and reason. What
// served before keeps serving. It returns false if it holds the verdict back: a file that has changed
// this very moment, with the given stamp, may be half of a file.
func (k *keeper) refuse(p *plugin, found identity, s stamp, why error) bool {
	now := time.Now()
	if k.isReady() && s.young(now, youth) {
		if p.doubted.IsZero() {
			p.doubted = now
		}
		if now.Sub(p.doubted) < doubtTime {
			k.lookIn(youth)
			return false
		}
	}
	p.doubted = time.Time{}
	if r := p.refusal; r != nil && r.found == found && r.err.Error() == why.Error() {
		return true
	}
	p.refusal = &refusal{found: found, err: why, queues: p.queues()}
	if p.manifest.err == nil {
		p.refusal.version = p.manifest.manifest.Version
	}
	k.dirty = true
	fields := []any{"plugin", p.shown(), "tenant", p.tenant, "error", why}
	if found.module != "" {
		fields = append(fields, "digest", found.module)
	}
	if p.current != nil {
		fields = append(fields, "serving", p.current.Digest)
	}
	k.logger.Error("plugin refused", fields...)
	k.cfg.Observer.PluginLoaded(p.tenant, p.shown(), resultRefused)
	return true
}

// tell reports whether a text about a subject is news.
func (k *keeper) tell(subject, text string) bool {
	if k.told[subject] == text {
		return false
	}
	k.told[subject] = text
	return true
}

// remark says what is noteworthy about the directory itself, once.
func (k *keeper) remark(s *survey) {
	state := "there"
	if s.root == "" {
		state = "missing"
	}
	if before := k.told["directory"]; k.tell("directory", state) {
		switch {
		case state == "missing":
			k.logger.Warn("the plugin directory does not exist, waiting for it", "dir", k.cfg.Dir)
		case before != "":
			k.logger.Info("the plugin directory is back", "dir", k.cfg.Dir)
		}
	}
	for _, name := range s.others {
		if k.tell("folder "+name, "ignored") {
			k.logger.Debug("sub-folder ignored, it is no tenant that this host serves", "folder", name)
		}
	}
	for _, tenant := range k.cfg.Tenants {
		text := ""
		if err := s.closed[tenant]; err != nil {
			text = err.Error()
		}
		if k.tell("tenant "+tenant, text) && text != "" {
			k.logger.Error("cannot read a tenant's folder, what was loaded keeps serving", "tenant", tenant, "error", s.closed[tenant])
		}
	}
}
