package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Relays counts what the relays of a process do. Its methods are safe for concurrent use. A source is the name of a
// database whose outbox is relayed.
type Relays struct{ vecs map[*family]vec }

// NewRelays registers the families of relays with reg: for a process without a host, because New does so too.
func NewRelays(reg prometheus.Registerer) (*Relays, error) {
	r := &Relays{make(map[*family]vec)}
	var failed error
	for _, f := range ofRelays {
		r.vecs[f] = newVec(f, false)
		if err := reg.Register(r.vecs[f].MetricVec); err != nil {
			failed = errors.Join(failed, fmt.Errorf("register %q: %w", f.name, err))
		}
	}
	return r, failed
}

// Relay begins the series of a source.
func (r *Relays) Relay(source string) {
	r.RelayLeads(source, false, false)
	r.RelayLag(source, 0)
	for _, result := range []string{"relayed", "refused", "ended"} {
		r.RelayRows(source, result, 0)
	}
	r.vecs[relayErrors].counter.WithLabelValues(text(source))
}

// RelayLeads sets whether the relay in this process leads a source, and whether notifications reach it.
func (r *Relays) RelayLeads(source string, leads, notified bool) {
	for f, is := range map[*family]bool{relayLeads: leads, relayNotified: notified} {
		value := 0.0
		if is {
			value = 1
		}
		r.vecs[f].gauge.WithLabelValues(text(source)).Set(value)
	}
}

// RelayRows counts n rows. result is relayed, refused or ended.
func (r *Relays) RelayRows(source, result string, n int) {
	r.vecs[relayRows].counter.WithLabelValues(text(source), result).Add(float64(n))
}

// RelayLag sets the age of the oldest row that waits, 0 for none.
func (r *Relays) RelayLag(source string, age time.Duration) {
	r.vecs[relayLag].gauge.WithLabelValues(text(source)).Set(max(0, age).Seconds())
}

// RelayFailed counts a failure of a relay.
func (r *Relays) RelayFailed(source string) {
	r.vecs[relayErrors].counter.WithLabelValues(text(source)).Inc()
}
