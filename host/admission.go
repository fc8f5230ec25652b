package host

import (
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/plugins"
)

// admission bounds the sum of the memory that running tasks may take and of what the cache holds beside them. A queue whose
// task does not fit waits for others to end. Meanwhile other queues go on, but the tasks that they begin must leave room for
// the waiting one: small tasks cannot starve it, and it does not stop them while a long task runs.
//
// Where only idle memory of the cache stands in the way, the evictor is asked. What is left then is in use. A task that
// waits for no older one is admitted in spite of it: its own plugin may be what the cache holds.
type admission struct {
	total  int64 // 0: not bounded
	logger hclog.Logger
	wake   func() // called when a task may fit now
	// evict has a token when the evictor should measure; never closed.
	evict chan struct{}

	mu   sync.Mutex // guards the fields below; under it only the locks of plugins and runtime are taken, by PendingSnapshot
	used int64
	// waiting is the queue whose task does not fit (zero: none), need what that task takes.
	waiting place
	need    int64
	// admitted is the memory of the tasks that began since waiting was set; epoch tells which tasks those are.
	admitted int64
	epoch    uint64

	held int64 // by the cache, when that was last measured
	// returned is what tasks have given back since then: the cache may hold as much more.
	returned int64
	// shortfall is how much the cache has to evict for one of the tasks that the last pick refused; 0 if eviction would help none.
	shortfall int64
	// exhausted means that nothing is idle: the last eviction gave too little, and no task has ended since.
	exhausted bool
	// exceeded is by how much a task that waited for no older one exceeded the bound; warned that the log has it.
	exceeded int64
	warned   bool
	ends     uint64 // tasks that have ended so far
	// snapshots are the shares with a part for a snapshot that is not there yet.
	snapshots map[*share]snapshotOf
}

// snapshotOf names the snapshot from which a version's tasks of a tenant start.
type snapshotOf struct {
	version *plugins.Version
	tenant  string
}

func newAdmission(total int64, logger hclog.Logger, wake func()) *admission {
	return &admission{
		total: total, logger: logger, wake: wake, evict: make(chan struct{}, 1), snapshots: make(map[*share]snapshotOf),
	}
}

// begin begins a pick, and returns which queue waits.
func (m *admission) begin() (waiting place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shortfall = 0
	return m.waiting
}

// picked ends a pick. It has the cache measured if that refused somebody whom eviction may help, or if the cache may have
// grown and hold much.
func (m *admission) picked() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shortfall > 0 && !m.exhausted || m.returned > 0 && m.used+m.held+m.returned > m.total/2 {
		poke(m.evict)
	}
	if m.exceeded > 0 && !m.warned {
		m.warned = true
		m.logger.Warn("memory is too small for a task and what its plugin needs beside it: such tasks run all the same; give the host more by --memory",
			"memory", m.total, "held", m.held, "over", m.exceeded)
	}
}

// take gives a share to a task of the queue, if it fits.
func (m *admission) take(at place, bytes int64) (*share, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total > 0 && !m.admits(at, bytes) {
		return nil, false
	}
	m.used += bytes
	return &share{bytes: bytes, epoch: m.epoch}, true
}

// admits tells whether a task fits, and notes who waits.
func (m *admission) admits(at place, bytes int64) bool {
	sum := m.used + bytes
	fits := sum+m.held <= m.total
	if m.waiting == (place{}) && !fits {
		m.waiting, m.admitted = at, 0
		m.epoch++
	}
	switch {
	case m.waiting == (place{}):
		return true
	case m.waiting == at && fits:
		m.waiting = place{}
		return true
	case m.waiting == at && m.exhausted && m.used == m.admitted && sum <= m.total:
		m.waiting, m.exceeded = place{}, sum+m.held-m.total
		return true
	case m.waiting == at:
		m.need = bytes // its plugin may have changed
	case fits && m.admitted+bytes+m.need+m.held <= m.total:
		m.admitted += bytes
		return true
	default:
		sum = max(sum, m.admitted+bytes+m.need)
	}
	if shortfall := sum + m.held - m.total; sum <= m.total && (m.shortfall == 0 || shortfall < m.shortfall) {
		m.shortfall = shortfall
	}
	return false
}

// expect adds room for the snapshot to the share of the task that will bring it about: the first one of its version.
func (m *admission) expect(of snapshotOf, part *share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total == 0 {
		return
	}
	for _, other := range m.snapshots {
		if other == of {
			return
		}
	}
	if coming := of.version.PendingSnapshot(of.tenant); coming > 0 {
		m.extend(part, coming)
		m.snapshots[part] = of
	}
}

// extend adds to a share that was just taken room for a snapshot of most bytes: as much as is free and nobody waits for. No
// task waits for that room, for there may never be as much; the tasks admitted after it find less room instead.
func (m *admission) extend(s *share, most int64) {
	waits := m.waiting != (place{})
	free := m.total - m.held - m.used
	if waits {
		free = min(free, m.total-m.held-m.admitted-m.need)
	}
	s.snapshot = max(0, min(most, free))
	s.bytes += s.snapshot
	m.used += s.snapshot
	if waits {
		m.admitted += s.snapshot
	}
}

// ended shrinks the share of a task that has run to what its result still takes.
func (m *admission) ended(s *share, result int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shrink(s, result)
	m.exhausted = false // what the task used is idle now
	m.ends++
}

// release gives a share back.
func (m *admission) release(s *share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shrink(s, 0)
}

func (m *admission) shrink(s *share, bytes int64) {
	over := max(0, s.bytes-bytes)
	s.bytes -= over
	s.snapshot = 0
	m.used -= over
	m.returned += over
	if m.waiting != (place{}) && s.epoch == m.epoch {
		m.admitted -= over
	}
	delete(m.snapshots, s)
}

// forget ends the waiting of a queue that has no work any more, or cannot take it.
func (m *admission) forget(at place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting == at {
		m.waiting = place{}
	}
}

// arrived lists the shares with a part for a snapshot that is there now: a measurement after this includes it.
func (m *admission) arrived() (parts []*share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for part, of := range m.snapshots {
		if of.version.PendingSnapshot(of.tenant) == 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// measured notes what the cache holds, with the snapshots that arrived listed before. It returns how much the cache has to
// evict, 0 if nothing in it is idle, and how many tasks have ended so far.
func (m *admission) measured(held int64, arrived []*share) (shortfall int64, ends uint64) {
	m.mu.Lock()
	for _, part := range arrived {
		if _, runs := m.snapshots[part]; runs {
			m.shrink(part, part.bytes-part.snapshot)
		}
	}
	asked := m.shortfall > 0
	shortfall = m.setHeld(held)
	if m.exhausted {
		shortfall = 0
	}
	ends = m.ends
	fits := asked && m.shortfall == 0 || len(arrived) > 0 && m.waiting != (place{})
	m.mu.Unlock()
	if fits {
		m.wake()
	}
	return shortfall, ends
}

// setHeld returns how much less the cache would have to hold.
func (m *admission) setHeld(held int64) (shortfall int64) {
	if m.shortfall > 0 {
		m.shortfall = max(0, m.shortfall+held-m.held)
	}
	m.held, m.returned = held, 0
	return max(m.shortfall, m.used+held-m.total)
}

// evicted notes what the cache holds after an eviction that began when ends tasks had ended; exhausted means that it gave too
// little.
func (m *admission) evicted(held int64, ends uint64, exhausted bool) {
	m.mu.Lock()
	m.exhausted = (exhausted || held >= m.held) && ends == m.ends
	m.setHeld(held)
	m.mu.Unlock()
	m.wake()
}

// retryEviction is called now and then: something may have become idle without a task.
func (m *admission) retryEviction() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exhausted = false
}
