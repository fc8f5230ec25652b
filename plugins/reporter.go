package plugins

import (
	"fmt"

	"github.com/quern-project/quern/plugins/manifest"
)

// reporter logs and counts loads, refusals and removals of plugins, and logs problems of the directory.
type reporter struct {
	Config
	latest map[string]string // the last text that was logged about each subject
}

// news stores a text about a subject, and reports whether it differs from the last one.
func (r *reporter) news(subject, text string) bool {
	if r.latest[subject] == text {
		return false
	}
	r.latest[subject] = text
	return true
}

func (r *reporter) loaded(p id, v, old *Version) {
	fields := []any{
		"plugin", p.name, "tenant", p.tenant, "version", v.Manifest.Version, "digest", v.Digest,
		"queues", v.Manifest.Queues, "kind", v.Info().Kind, "reset_mode", v.Info().ResetMode,
	}
	if p.beside > 0 {
		fields = append(fields, "beside", p.beside)
	}
	if v.content.files != "" {
		fields = append(fields, "files", v.content.files)
	}
	if old != nil {
		fields = append(fields, "replaces", old.Digest)
	}
	r.Logger.Info("plugin loaded", fields...)
	r.warn(p, v)
	r.Observer.PluginLoaded(p.tenant, p.name, "ok")
	r.serving(p, v, true)
	if old != nil && (old.Manifest.Version != v.Manifest.Version || old.Digest != v.Digest) {
		r.serving(p, old, false)
	}
}

func (r *reporter) removed(p id, old *Version) {
	r.Logger.Info("plugin removed", "plugin", p.name, "tenant", p.tenant, "version", old.Manifest.Version,
		"digest", old.Digest, "queues", old.Manifest.Queues)
	r.Observer.PluginLoaded(p.tenant, p.name, "gone")
	r.serving(p, old, false)
}

func (r *reporter) refused(p id, why error, found identity, serving *Version) {
	fields := []any{"plugin", p.shown(), "tenant", p.tenant, "error", why}
	if found.module != "" {
		fields = append(fields, "digest", found.module)
	}
	if serving != nil {
		fields = append(fields, "serving", serving.Digest)
	}
	r.Logger.Error("plugin refused", fields...)
	r.Observer.PluginLoaded(p.tenant, p.shown(), "refused")
}

func (r *reporter) serving(p id, v *Version, serving bool) {
	if p.beside > 0 {
		return // another plugin serves
	}
	r.Observer.PluginServing(p.tenant, p.name, v.Manifest.Version, v.Digest, string(v.Info().ResetMode), serving)
}

// warn logs where the host gives a plugin less than its manifest asks for. A limit is logged once for all tenants
// with the same ceiling.
func (r *reporter) warn(p id, v *Version) {
	warned := map[manifest.Lowered]bool{}
	for _, tenant := range r.Tenants {
		served := v.tenants[tenant]
		if served == nil {
			continue
		}
		permissions := served.Permissions
		for _, less := range permissions.Lowered {
			if !warned[less] {
				warned[less] = true
				r.Logger.Warn("the host gives a plugin less than its manifest asks for", "plugin", p.name, "tenant", p.tenant,
					"key", less.Key, "manifest", less.Manifest, "host", less.Host, "see", less.Where)
			}
		}
		// Only a common plugin gets here: a tenant's own plugin would have been refused.
		if why := permissions.Undeclared(p.path(r.Dir, manifest.Suffix)); why != nil {
			r.Logger.Warn("a plugin serves a tenant without its schedules and subscriptions", "plugin", p.name, "tenant", tenant,
				"error", why)
		}
		if reduced := permissions.Reduced(); len(reduced) > 0 {
			r.Logger.Warn("the host's grants leave a plugin less than its manifest asks for",
				"plugin", p.name, "tenant", tenant, "capabilities", reduced, "grants", permissions.Where)
		}
	}
}

// unreadable logs, once, that the directory cannot be listed.
func (r *reporter) unreadable(err error) {
	if r.news("directory", err.Error()) {
		r.Logger.Error("cannot read the plugin directory, what was loaded keeps serving",
			"dir", r.Dir, "error", fmt.Errorf("%w: make it a folder that the user of this host may read", err))
	}
}

// scanned logs, once, that the directory is missing or back, and which of its folders are ignored or cannot be read.
func (r *reporter) scanned(s *scan) {
	state := "there"
	if s.root == "" {
		state = "missing"
	}
	if before := r.latest["directory"]; r.news("directory", state) {
		switch {
		case r.Dir == NoDir:
		case state == "missing":
			r.Logger.Warn("the plugin directory does not exist, waiting for it", "dir", r.Dir)
		case before != "":
			r.Logger.Info("the plugin directory is back", "dir", r.Dir)
		}
	}
	for _, name := range s.others {
		if r.news("folder "+name, "ignored") {
			r.Logger.Debug("sub-folder ignored, it is no tenant that this host serves", "folder", name)
		}
	}
	for _, tenant := range r.Tenants {
		err := s.closed[tenant]
		if r.news("tenant "+tenant, fmt.Sprint(err)) && err != nil {
			r.Logger.Error("cannot read a tenant's folder, what was loaded keeps serving", "tenant", tenant, "error", err)
		}
	}
}
