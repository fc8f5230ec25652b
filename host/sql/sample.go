package sql

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/service"
)

// counts count what tasks do.
type counts struct {
	waited                               atomic.Int64 // nanoseconds
	ok, refused, overLimit, unavailable  atomic.Int64
	committed, commitRefused, commitLost atomic.Int64
}

// statement counts a statement of a handler.
func (c *counts) statement(answer []byte, err error) {
	switch {
	case errors.Is(err, service.ErrUnavailable):
		c.unavailable.Add(1)
	case errors.Is(err, service.ErrLimit):
		c.overLimit.Add(1)
	case err == nil && int32(binary.LittleEndian.Uint32(answer)) < 0: //nolint:gosec // -1 begins an error
		c.refused.Add(1)
	case err == nil:
		c.ok.Add(1)
	}
}

// Sample is what the metrics show.
type Sample struct {
	Used, Idle, Max, Away                    int           // connections, their maximum, and databases that do not serve
	Waited                                   time.Duration // time for which tasks have waited for a connection
	OK, Refused, OverLimit, Unavailable      int64         // statements by result
	Committed, CommitRefused, CommitsUnknown int64         // commits by result
}

// Sample returns what the metrics show.
func (d *Databases) Sample() Sample {
	c := &d.counts
	s := Sample{
		Max: d.config.MaxConnections, Waited: time.Duration(c.waited.Load()),
		OK: c.ok.Load(), Refused: c.refused.Load(), OverLimit: c.overLimit.Load(), Unavailable: c.unavailable.Load(),
		Committed: c.committed.Load(), CommitRefused: c.commitRefused.Load(), CommitsUnknown: c.commitLost.Load(),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Used, s.Idle = d.inUse, d.open-d.inUse
	for _, p := range d.pools {
		if len(p.failed) > 0 {
			s.Away++
		}
	}
	return s
}

// Away is a database that does not serve.
type Away struct {
	Secret string // with its URL
	Why    string
	Remedy string
}

// maxAway is how many databases Away lists at most.
const maxAway = 10

// Away lists the databases of a tenant that do not serve, sorted by the names of their secrets: the first ten. What the
// tenant's users may see does not say where a database is; the log does.
func (d *Databases) Away(tenant string) (list []Away) {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	for key, p := range d.pools {
		for _, what := range []need{correctURL, connecting, configuring, runsTable} {
			if err := p.failed[what]; key.tenant == tenant && err != nil {
				one := Away{Secret: key.source, Why: what.failed(err), Remedy: remedy(key.source, what, err)}
				list = append(list, one)
				break
			}
		}
	}
	d.mu.Unlock()
	slices.SortFunc(list, func(a, b Away) int { return cmp.Compare(a.Secret, b.Secret) })
	return list[:min(len(list), maxAway)]
}

// failed says that a need was not met.
func (n need) failed(err error) string {
	text := map[need]string{
		correctURL: "its URL is wrong", connecting: "it cannot be reached", configuring: "a transaction cannot begin",
		runsTable: "quern.runs cannot be used",
	}[n]
	if state := postgres.State(err); state != "" {
		text += " (SQLSTATE " + state + ")"
	}
	return text
}

// Waiting returns how many tasks wait for a free connection.
func (d *Databases) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiters)
}
