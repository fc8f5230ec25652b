package sql

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

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
	Database string `json:"database"` // the secret with its URL
	Error    string `json:"error"`
}

// maxAwayError is the maximum number of bytes of Away.Error.
const maxAwayError = 512

// Away lists the databases of a tenant that do not serve, sorted by name.
func (d *Databases) Away(tenant string) (list []Away) {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, p := range d.pools {
		if why := p.why(); key.tenant == tenant && why != nil {
			text := why.Error()
			list = append(list, Away{key.source, strings.ToValidUTF8(text[:min(len(text), maxAwayError)], "")})
		}
	}
	slices.SortFunc(list, func(a, b Away) int { return cmp.Compare(a.Database, b.Database) })
	return list
}

// Waiting returns how many tasks wait for a free connection.
func (d *Databases) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiters)
}
