package doctor

import (
	"cmp"
	"time"

	"github.com/quern-project/quern/runtime/units"
)

// maxLag is how long the oldest row of a database may wait.
const maxLag = time.Minute

var relayChecks = []check{
	{"relay-silent", func(p *patient) {
		for _, r := range p.relays {
			if !r.Alive {
				p.found(Error, "start `quern relay`, or a host with --sources; its log says why it cannot lead; if the database is gone, `quern database forget NAME`",
					"no relay leads %s of the database %s since %s: its rows wait", r.Table, r.Name, utc(seconds(r.Told))).
					by("database", "ls").named(r.Name).since(seconds(r.Told))
			}
		}
	}},
	{"relay-lag", func(p *patient) {
		for _, r := range p.relays {
			lag := time.Duration(r.Lag * float64(time.Second)).Round(time.Second)
			if r.Alive && lag > maxLag {
				p.found(Error, "mend what the relay's log names: a full queue, Redis, or the database; `quern database check` looks at the database",
					"%s in the database %s, the oldest for %s: %s", units.Count(r.Waiting, "row waits", "rows wait"), r.Name, lag,
					cmp.Or(r.Error, "the relay is behind")).
					by("database", "ls").named(r.Name).hurts(r.Waiting)
			}
		}
	}},
	{"relay-refused", func(p *patient) {
		for _, r := range p.relays {
			if r.Refused > 0 {
				remedy := "see why with `quern outbox ls --postgres URL`, and retry or delete them"
				what := "could not become tasks"
				if r.Table != "outbox" {
					remedy = "the relay's log names each, and why: mend the rows, or the rule of the table that refuses them"
					if what = "were refused or cannot be changed"; r.Parked != "" {
						what += ": " + r.Parked
					}
				}
				p.found(Warning, remedy,
					"%s of the database %s %s", units.Count(r.Refused, "row", "rows"), r.Name, what).
					by("database", "ls").named(r.Name).hurts(r.Refused)
			}
		}
	}},
	{"relay-unnotified", func(p *patient) {
		for _, r := range p.relays {
			if r.Alive && !r.Notified {
				p.found(Warning, "give the relay the URL without the pooler: --direct, or direct in the file of --sources",
					"notifications of new rows of the database %s do not arrive, so rows wait for up to a second", r.Name).
					by("database", "ls").named(r.Name)
			}
		}
	}},
}

// seconds returns a time that was written as seconds since 1970.
func seconds(at float64) time.Time { return time.UnixMilli(int64(at * 1000)) }
