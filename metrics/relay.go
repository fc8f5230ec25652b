package metrics

import "time"

// Relay begins the series of a source.
func (m *Metrics) Relay(source string) {
	for _, f := range []*family{relayLeads, relayNotified, relayLag} {
		m.vecs[f].gauge.WithLabelValues(text(source)).Set(0)
	}
	for _, result := range []string{"relayed", "refused", "ended"} {
		m.RelayRows(source, result, 0)
	}
	m.count(relayErrors, 0, source)
}

// RelayLeads sets whether the relay in this process leads a source, and whether notifications reach it.
func (m *Metrics) RelayLeads(source string, leads, notified bool) {
	m.vecs[relayLeads].gauge.WithLabelValues(text(source)).Set(number(leads))
	m.vecs[relayNotified].gauge.WithLabelValues(text(source)).Set(number(notified))
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// RelayRows counts n rows. result is relayed, refused or ended.
func (m *Metrics) RelayRows(source, result string, n int) {
	m.count(relayRows, float64(n), source, result)
}

// RelayLag sets the age of the oldest row that waits, 0 for none.
func (m *Metrics) RelayLag(source string, age time.Duration) {
	m.vecs[relayLag].gauge.WithLabelValues(text(source)).Set(max(0, age).Seconds())
}

// RelayFailed counts a failure of a relay.
func (m *Metrics) RelayFailed(source string) { m.count(relayErrors, 1, source) }
