package host

// memory bounds the sum of what running tasks may take and of what is held beside them. A queue whose
// task does not fit waits for others to end. While it waits the others go on, but what they begin must
// leave room for it: so it is neither starved by small tasks, nor does it stop them while a long one runs.
//
// Some of what is held is idle: where that alone stands in the way, relief is asked for. What is left
// then is in use, and a task that waits for no older one any more does not wait for it: its own plugin
// may be what holds it.
type memory struct {
	total int64 // 0: not bounded
	used  int64
	// waiting is the queue whose task does not fit, need what it takes; nil if there is none.
	waiting *served
	need    int64
	// newer is what tasks take that began since waiting was set; epoch tells which those are.
	newer int64
	epoch uint64

	held int64 // beside tasks, when that was last measured
	// returned is what tasks have given back since then: as much more may be held by now.
	returned int64
	// lacks is how much less has to be held for one of those that the last pick has refused; 0 if that
	// would help none.
	lacks int64
	// dry says that nothing is idle: the last relief gave too little, and no task has ended since.
	dry bool
	// over is by how much the bound was exceeded by a task that waited for nobody any more.
	over int64
}

// share is what one task may take, and when it was granted.
type share struct {
	bytes int64
	image int64 // the part that is for the image that comes with it
	epoch uint64
}

// take grants a share to a task of the queue, if it fits.
func (m *memory) take(q *served, bytes int64) (*share, bool) {
	if m.total > 0 && !m.admits(q, bytes) {
		return nil, false
	}
	m.used += bytes
	return &share{bytes: bytes, epoch: m.epoch}, true
}

// extend adds to a share that was just granted, for an image of so many bytes at most: as much as is free and nobody
// waits for. No task waits for the room of an image, for there may never be as much; those that are granted after it
// find less room instead.
func (m *memory) extend(s *share, most int64) {
	free := m.total - m.held - m.used
	if m.waiting != nil {
		free = min(free, m.total-m.held-m.newer-m.need)
	}
	s.image = max(0, min(most, free))
	s.bytes += s.image
	m.used += s.image
	if m.waiting != nil {
		m.newer += s.image
	}
}

// formed takes the part of a share back that was for an image: it is there, and held.
func (m *memory) formed(s *share) { m.keep(s, s.bytes-s.image) }

// admits tells whether a task fits, and books who waits.
func (m *memory) admits(q *served, bytes int64) bool {
	sum := m.used + bytes
	fits := sum+m.held <= m.total
	if m.waiting == nil && !fits {
		m.waiting, m.newer = q, 0
		m.epoch++
	}
	switch {
	case m.waiting == nil:
		return true
	case m.waiting == q && fits:
		m.waiting = nil
		return true
	case m.waiting == q && m.dry && m.used == m.newer && sum <= m.total:
		m.waiting, m.over = nil, sum+m.held-m.total
		return true
	case m.waiting == q:
		m.need = bytes // its plugin may have changed
	case fits && m.newer+bytes+m.need+m.held <= m.total:
		m.newer += bytes
		return true
	default:
		sum = max(sum, m.newer+bytes+m.need)
	}
	if lacks := sum + m.held - m.total; sum <= m.total && (m.lacks == 0 || lacks < m.lacks) {
		m.lacks = lacks
	}
	return false
}

// keep shrinks a share to what is still held of it.
func (m *memory) keep(s *share, bytes int64) {
	over := max(0, s.bytes-bytes)
	s.bytes -= over
	s.image = 0
	m.used -= over
	m.returned += over
	if m.waiting != nil && s.epoch == m.epoch {
		m.newer -= over
	}
}

// forget ends the waiting of a queue that has no work any more, or cannot take it.
func (m *memory) forget(q *served) {
	if m.waiting == q {
		m.waiting = nil
	}
}

// uncertain tells whether what is held should be measured: somebody was refused for it who may get
// relief, or it may have grown and be much.
func (m *memory) uncertain() bool {
	return m.lacks > 0 && !m.dry || m.returned > 0 && m.used+m.held+m.returned > m.total/2
}

// measured books what is held, and returns how much less it would have to be.
func (m *memory) measured(held int64) (lacks int64) {
	if m.lacks > 0 {
		m.lacks = max(0, m.lacks+held-m.held)
	}
	m.held, m.returned = held, 0
	return max(m.lacks, m.used+held-m.total)
}
