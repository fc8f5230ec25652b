package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

var pluginChecks = []check{
	{"plugin-refused", func(p *patient) {
		for _, one := range p.plugins {
			switch {
			case one.State == plugins.StateUnbuilt:
				p.found(Error, "mend its source",
					"the last build of the plugin %s on %s failed, so the version before it answers if there is one: %s", one.Plugin,
					one.Node, one.Error)
			case one.Unfetched:
				p.found(Error, "mend what the error names: the host tries again every 10 s",
					"the plugin %s is %s on %s: %s", one.Plugin, one.State, one.Node, one.Error)
			case one.Error != "":
				p.found(Error, "mend it, and try it with `quern plugin check FILE`", "the plugin %s is %s on %s: %s", one.Plugin,
					one.State, one.Node, one.Error)
			}
		}
	}},
	{"plugin-quarantined", func(p *patient) {
		for _, q := range p.quarantines {
			what := "is quarantined until " + q.Until.UTC().Format(time.RFC3339)
			if q.Cause == listen.CauseFailures {
				what = "waits for its circuit breaker"
			}
			p.found(Error, "replace it, or end the quarantine", "the plugin %s %s: %s", q.Plugin, what, q.Why()).
				by("plugin", "release", q.Plugin)
		}
	}},
	{"release-stopped", func(p *patient) {
		for _, name := range slices.Sorted(maps.Keys(p.stopped)) {
			s := p.stopped[name]
			p.found(Warning,
				"mend it, and push again; to run its failed tasks on the other: `quern plugin halt NAME --retry-failed`",
				"hosts stopped release %d of the plugin %s, so release %d serves: %s", s.Number, name, s.Serving, s.Reason).
				by("plugin", "releases", name)
		}
	}},
	{"version-failing", func(p *patient) {
		reported := make(map[string]bool)
		for _, one := range p.plugins {
			t, first := p.tally(one), slices.IndexFunc(one.Queues, p.failsNow)
			version := one.Digest + one.Version
			if reported[version] || t.Failed < fewFailures || 2*t.Failed < t.Complete || first < 0 {
				continue
			}
			reported[version] = true
			text := fmt.Sprintf("%d of %d runs of %s failed in this hour and the one before", t.Failed, t.Failed+t.Complete,
				one.named())
			if other := p.other(one); other.Plugin != "" {
				name := other.Version
				if name == one.Version {
					name = short(other.Digest)
				}
				text += fmt.Sprintf("; of another version (%s) %d of %d", name, other.Failed, other.Failed+other.Complete)
			}
			p.found(Error, "see the errors of its tasks; replace it by a version that works, or pause the queue", "%s", text).
				by("task", "ls", one.Queues[first], "--status", "failed").in(one.Queues[first]).hurts(t.Failed)
			for _, name := range one.Queues {
				p.told[name] = true
			}
		}
	}},
}

// named returns the plugin's name, its version and the beginning of its digest.
func (one *plugin) named() string {
	return strings.TrimSpace(one.Plugin+" "+one.Version) + " (" + short(one.Digest) + ")"
}

// failsNow reports whether many runs of a queue have failed lately, and still do.
func (p *patient) failsNow(name string) bool {
	_, fails := p.failures(slices.Index(p.queues, name))
	return fails
}

// short returns the beginning of a digest, by which people distinguish versions.
func short(digest string) string {
	digest = digest[strings.IndexByte(digest, ':')+1:]
	return digest[:min(len(digest), 8)]
}

// tally returns how the runs of the plugin's version have ended.
func (p *patient) tally(of plugin) (t manage.VersionTally) {
	for _, one := range p.versions {
		if of.is(one) {
			t = one
		}
	}
	return t
}

// is reports whether a tally counts the runs of the plugin's version.
func (one *plugin) is(t manage.VersionTally) bool {
	return t.Plugin == one.Plugin && t.Digest == one.Digest && t.Version == one.Version && t.Release == one.Release
}

// other returns the tally with the most runs among the plugin's other versions, or the zero value if there is none.
func (p *patient) other(of plugin) (most manage.VersionTally) {
	for _, one := range p.versions {
		if one.Plugin == of.Plugin && !of.is(one) && one.Complete+one.Failed > most.Complete+most.Failed {
			most = one
		}
	}
	return most
}

// failures returns the runs of the queue with index i in the last recentMinutes. fails reports whether many of them
// failed, and runs still fail: in the last latestMinutes one failed, or none was complete.
func (p *patient) failures(i int) (recent manage.Minute, fails bool) {
	if i < 0 || i >= len(p.recent) || p.recent[i].Failed < fewFailures {
		return recent, false
	}
	over := i < len(p.latest) && p.latest[i].Failed == 0 && p.latest[i].Complete > 0
	return p.recent[i], !over
}
