package host

// memory bounds the sum of what running tasks may take. A queue whose task does not fit waits for
// others to end. While it waits the others go on, but what they begin must leave room for it: so it
// is neither starved by small tasks, nor does it stop them while a long one runs.
type memory struct {
	total int64 // 0: not bounded
	used  int64
	// waiting is the queue whose task does not fit, need what it takes; nil if there is none.
	waiting *served
	need    int64
	// newer is what tasks take that began since waiting was set; epoch tells which those are.
	newer int64
	epoch uint64
}

// share is what one task may take, and when it was granted.
type share struct {
	bytes int64
	epoch uint64
}

// take grants a share to a task of the queue, if it fits.
func (m *memory) take(q *served, bytes int64) (share, bool) {
	if m.total > 0 && !m.admits(q, bytes) {
		return share{}, false
	}
	m.used += bytes
	return share{bytes: bytes, epoch: m.epoch}, true
}

// admits tells whether a task fits, and books who waits.
func (m *memory) admits(q *served, bytes int64) bool {
	fits := m.used+bytes <= m.total
	switch {
	case m.waiting == q && fits:
		m.waiting = nil
	case m.waiting == q:
		m.need = bytes // its plugin may have changed
	case m.waiting == nil && !fits:
		m.waiting, m.need, m.newer = q, bytes, 0
		m.epoch++
	case m.waiting != nil && m.newer+bytes > m.total-m.need:
		return false
	case m.waiting != nil && fits:
		m.newer += bytes
	}
	return fits
}

// keep shrinks a share to what is still held of it.
func (m *memory) keep(s *share, bytes int64) {
	over := max(0, s.bytes-bytes)
	s.bytes -= over
	m.used -= over
	if m.waiting != nil && s.epoch == m.epoch {
		m.newer -= over
	}
}

// give takes a share back.
func (m *memory) give(s *share) { m.keep(s, 0) }

// forget ends the waiting of a queue that has no work any more, or cannot take it.
func (m *memory) forget(q *served) {
	if m.waiting == q {
		m.waiting = nil
	}
}
