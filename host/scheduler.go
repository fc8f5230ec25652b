package host

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// maxBatch is the most tasks of one queue that one grant covers.
const maxBatch = queue.MaxReserve

// place names a queue of a tenant.
type place struct{ tenant, queue string }

// plugin names a plugin; tenant is "" for one that serves every tenant.
type plugin struct{ tenant, name string }

func pluginOf(v *plugins.Version) plugin { return plugin{v.Tenant, v.Name} }

// served is a queue that this host serves, as the scheduler sees it; guarded by the scheduler's mu.
type served struct {
	place
	session *session
	// ready says that there may be work: a message came, the poll saw some, or the last reserve
	// brought as much as was asked.
	ready bool
	// woken is the scheduler's count of wakes when ready was last set from outside. An answer of Redis
	// to an older question knows nothing of it.
	woken uint64
	// suspect says that the reserved list may hold tasks that the host does not know.
	suspect bool
	// left says that the session serves the queue no more: it is forgotten when it is not suspect any more.
	left bool
	// stalled says that what became of the queue's tasks cannot be written: no more are taken until it
	// can.
	stalled bool
	// refused is the pause after Redis refused to reserve from this queue, but not from others.
	refused   backoff
	running   int    // slots that run its tasks, or are granted to it
	unsettled int    // its tasks that have ended but are not settled in Redis
	turn      uint64 // when it was last granted a slot
}

// scheduler decides which queue gets the next free slot. Its methods are safe for concurrent use.
type scheduler struct {
	directory *plugins.Directory
	logger    hclog.Logger
	slots     int
	gauge     func(running int)

	mu      sync.Mutex
	queues  map[place]*served
	plugins map[plugin]int // slots that run a plugin's tasks, or are granted to it
	inUse   int            // slots that run a task, or are granted
	running int            // slots that run a task
	ends    uint64         // tasks that have ended so far
	memory  memory
	forming map[*share]imageOf // shares with a part for an image that is not there yet
	turns   uint64
	wakes   uint64

	// tight says that it was logged that the memory is too small.
	tight bool

	// poke has a token when there may be something to grant; never closed.
	poke chan struct{}
	// doubts has a token when what is held beside the tasks should be measured; never closed.
	doubts chan struct{}
}

func newScheduler(directory *plugins.Directory, config Config, gauge func(running int)) *scheduler {
	return &scheduler{
		directory: directory, logger: config.Logger, slots: config.Concurrency, gauge: gauge,
		queues: make(map[place]*served), plugins: make(map[plugin]int),
		memory: memory{total: config.Memory}, forming: make(map[*share]imageOf), poke: make(chan struct{}, 1), doubts: make(chan struct{}, 1),
	}
}

// imageOf names what the tasks of a version begin with, for a tenant.
type imageOf struct {
	version *plugins.Version
	tenant  string
}

// grant is leave to reserve for one queue: len(shares) tasks on this version of its plugin. The
// version is retained for the grant, and once more for each task that comes of it. That of a suspect queue
// may have no shares, and then no version perhaps: what its reserved list holds unknown is given back.
type grant struct {
	served  *served
	session *session
	version *plugins.Version
	shares  []*share
	suspect bool
	wakes   uint64 // the scheduler's count when it was granted
}

// release gives back the grant's own hold of its version.
func (g *grant) release() {
	if g.version != nil {
		g.version.Release()
	}
}

// want asks for what is granted, to be run at once.
func (g *grant) want() queue.ReserveRequest {
	plugin, permissions := &g.version.Manifest, g.version.Permissions(g.served.tenant)
	maxAge, _ := g.session.host.expiry(g.served.tenant, g.served.queue)
	return queue.ReserveRequest{
		Queue: g.served.queue, Count: len(g.shares), Start: true, Plugin: g.version.Name, Digest: g.version.Digest,
		MaxAge: maxAge, MaxRunning: plugin.MaxRunning, Fleet: plugin.Queues,
		FailurePolicy: queue.FailurePolicy{
			NoRerun: plugin.OnCrash == manifest.CrashFail, MaxCrashes: permissions.MaxCrashes, Dead: permissions.Dead,
		},
	}
}

// pick grants the free slots: one at a time to the queue with the fewest running tasks, among equals
// to the one that was served longest ago.
func (s *scheduler) pick() []*grant {
	granted, idle := s.grant()
	for _, version := range idle {
		version.Release() // not under the lock: it may close a module
	}
	return granted
}

// grant does what pick says; idle are versions that it acquired for nothing.
func (s *scheduler) grant() (granted []*grant, idle []*plugins.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room, open, suspects := s.free(time.Now())
	s.memory.lacks = 0
	grants := make(map[*served]*grant)
	for room.free > 0 && len(open) > 0 {
		best := 0
		for i, q := range open {
			if b := open[best]; q.running < b.running || q.running == b.running && q.turn < b.turn {
				best = i
			}
		}
		if q := open[best]; room.has(q.session) && s.grantOne(q, grants) {
			room.take(q.session)
		} else {
			open[best] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	for _, q := range suspects {
		if grants[q] == nil {
			grants[q] = &grant{served: q, session: q.session, suspect: true, wakes: s.wakes}
		}
	}
	for _, g := range grants {
		if len(g.shares) == 0 && !g.suspect {
			idle = append(idle, g.version)
			continue
		}
		g.served.suspect = false // until the comparison has failed, or somebody suspects it anew
		granted = append(granted, g)
	}
	if s.memory.uncertain() {
		poke(s.doubts)
	}
	if s.memory.over > 0 && !s.tight {
		s.tight = true
		s.logger.Warn("memory is too small for a task and what its plugin needs beside it: such tasks run all the same; give the host more by --memory",
			"memory", s.memory.total, "held", s.memory.held, "over", s.memory.over)
	}
	return granted, idle
}

// free counts the slots that may be granted, and lists the queues that may have work and those that are suspect. A queue
// that cannot be granted anything now makes nobody wait for the memory that its task needs.
func (s *scheduler) free(now time.Time) (room rooms, open, suspects []*served) {
	room = newRooms(s.slots, s.slots-s.inUse)
	for _, q := range s.queues {
		room.add(q)
		if q.stalled || !(q.ready || q.suspect) || !q.refused.over(now) || !q.session.available(now) {
			s.memory.forget(q)
			continue
		}
		if q.session.underway.busy() {
			continue
		}
		if !q.left {
			open = append(open, q)
		}
		if q.suspect {
			suspects = append(suspects, q)
		}
	}
	return room, open, suspects
}

// rooms are how many slots are free, and how many of them each session may be granted at once. Where several are served
// it is half of all slots, for one whose Redis hangs must not hold them all; and less for one with more tasks that wait
// to be settled than there are slots.
type rooms struct {
	slots, free int
	unsettled   map[*session]int
	granted     map[*session]int
}

func newRooms(slots, free int) rooms {
	return rooms{slots: slots, free: free, unsettled: make(map[*session]int), granted: make(map[*session]int)}
}

// add counts the tasks of a queue that wait to be settled; those of stalled queues do not count.
func (r *rooms) add(q *served) {
	unsettled := q.unsettled
	if q.stalled {
		unsettled = 0
	}
	r.unsettled[q.session] += unsettled
}

// has tells whether there is a slot for one more task of a session.
func (r *rooms) has(s *session) bool {
	most := r.slots
	if len(r.unsettled) > 1 {
		most = (r.slots + 1) / 2
	}
	return r.free > 0 && r.granted[s] < min(most, r.free+r.granted[s]-max(0, r.unsettled[s]-r.slots))
}

func (r *rooms) take(s *session) {
	r.free--
	r.granted[s]++
}

// grantOne gives the queue one slot more, if its plugin, its bound and the memory allow it.
func (s *scheduler) grantOne(q *served, grants map[*served]*grant) bool {
	g := grants[q]
	if g == nil {
		version := s.directory.Acquire(q.tenant, q.queue)
		if version == nil {
			return false // its plugin has just gone
		}
		g = &grant{served: q, session: q.session, version: version, suspect: q.suspect, wakes: s.wakes}
		grants[q] = g
	}
	bound := g.version.Concurrency()
	if bound > 0 && s.plugins[pluginOf(g.version)] >= bound || len(g.shares) >= maxBatch {
		return false
	}
	part, ok := s.memory.take(q, g.version.Footprint(q.tenant))
	if !ok {
		return false
	}
	s.expect(imageOf{g.version, q.tenant}, part)
	g.shares = append(g.shares, part)
	s.inUse++
	s.plugins[pluginOf(g.version)]++
	q.running++
	s.turns++
	q.turn = s.turns
	return true
}

// expect books room for the image that comes with a task, if it is the first one of its version.
func (s *scheduler) expect(of imageOf, part *share) {
	if s.memory.total == 0 {
		return
	}
	for _, other := range s.forming {
		if other == of {
			return
		}
	}
	if coming := of.version.PendingSnapshot(of.tenant); coming > 0 {
		s.memory.extend(part, coming)
		s.forming[part] = of
	}
}

// keep shrinks the share of a task that runs no more.
func (s *scheduler) keep(part *share, bytes int64) {
	delete(s.forming, part)
	s.memory.keep(part, bytes)
}

// settleGrant takes back what a reserve did not use: it asked for all shares of the grant and got
// tasks for the first used ones.
func (s *scheduler) settleGrant(g *grant, used int, batch queue.ReserveReply) {
	s.mu.Lock()
	q := g.served
	for i := range g.shares[used:] {
		s.keep(g.shares[used+i], 0)
		s.freeSlot(q, g.version)
	}
	switch {
	case batch.Err != nil:
		q.suspect, q.ready = true, true
		s.memory.forget(q)
		if !queue.IsUnavailable(batch.Err) {
			time.AfterFunc(q.refused.failed(time.Now()), s.wakeIntake)
		}
	case g.suspect && q.left && !q.suspect:
		s.forget(q)
	case g.suspect:
		q.ready = true
	default:
		// Less than was asked means that there is no more, but for what was announced meanwhile, and
		// for what lies behind IDs that were dropped.
		if used == len(g.shares) {
			s.wakes++
			q.woken = s.wakes // a poll that was asked before knows nothing of what lies behind
		}
		q.ready = q.woken > g.wakes || batch.Dropped > 0 || batch.Passed > 0
		q.refused.succeeded()
	}
	if !q.ready {
		s.memory.forget(q)
	}
	s.running += used
	s.gauge(s.running)
	s.mu.Unlock()
	g.release()
	s.wakeIntake()
}

// putBack takes back a grant that was not tried.
func (s *scheduler) putBack(g *grant) {
	s.mu.Lock()
	for i := range g.shares {
		s.keep(g.shares[i], 0)
		s.freeSlot(g.served, g.version)
	}
	g.served.suspect = g.served.suspect || g.suspect
	s.mu.Unlock()
	g.release()
	s.wakeIntake()
}

// end frees the slot of a task that has run, and its memory but for what its result still takes;
// settled ends what it began. The task holds its version still.
func (s *scheduler) end(t *task, result int) {
	s.mu.Lock()
	s.keep(t.share, int64(result))
	s.memory.dry = false // what it used is idle now
	s.ends++
	s.freeSlot(t.served, t.version)
	t.served.unsettled++
	s.running--
	s.gauge(s.running)
	s.mu.Unlock()
	s.wakeIntake()
}

func (s *scheduler) freeSlot(q *served, v *plugins.Version) {
	s.inUse--
	q.running--
	if s.plugins[pluginOf(v)]--; s.plugins[pluginOf(v)] == 0 {
		delete(s.plugins, pluginOf(v))
	}
}

// settled says that an ended task is done with.
func (s *scheduler) settled(t *task) {
	s.mu.Lock()
	s.keep(t.share, 0)
	t.served.unsettled--
	s.mu.Unlock()
	s.wakeIntake()
}

// wake says that there may be work in a queue.
func (s *scheduler) wake(at place) {
	s.mu.Lock()
	s.wakes++
	if q := s.queues[at]; q != nil {
		q.ready, q.woken = true, s.wakes
	}
	s.mu.Unlock()
	s.wakeIntake()
}

// awoken counts the wakes so far: an answer to a question that is asked now knows of no later one.
func (s *scheduler) awoken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wakes
}

// empty says that the poll, asked after so many wakes, saw nothing in a queue: it does not wait for
// memory any more.
func (s *scheduler) empty(at place, wakes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[at]; q != nil && q.woken <= wakes {
		q.ready = false
		s.memory.forget(q)
	}
}

// suspect makes the intake compare a queue's reserved list with what runs, also if the session has left it.
func (s *scheduler) suspect(at place, session *session) {
	s.mu.Lock()
	if s.queues[at] == nil {
		s.queues[at] = &served{place: at, session: session, left: true}
	}
	s.queues[at].suspect = true
	s.mu.Unlock()
	s.wakeIntake()
}

// stall says whether what became of a queue's tasks can be written.
func (s *scheduler) stall(at place, stalled bool) {
	s.mu.Lock()
	if q := s.queues[at]; q != nil {
		q.stalled = stalled
		if stalled {
			s.memory.forget(q)
		}
	}
	s.mu.Unlock()
	s.wakeIntake()
}

// serve adds a queue, for a session that is registered as its listener.
func (s *scheduler) serve(at place, session *session) {
	s.mu.Lock()
	before := s.queues[at]
	s.queues[at] = &served{place: at, session: session, ready: true, suspect: before != nil && before.suspect}
	s.mu.Unlock()
	s.wakeIntake()
}

// leave takes nothing more from a queue. Its running tasks go on, and what was reserved from it unknown is given back.
func (s *scheduler) leave(at place) {
	s.mu.Lock()
	if q := s.queues[at]; q != nil {
		s.memory.forget(q)
		q.left, q.suspect = true, true
	}
	s.mu.Unlock()
	s.wakeIntake()
}

// abandon drops all queues of a session whose lease is lost.
func (s *scheduler) abandon(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if q.session == session {
			s.forget(q)
		}
	}
}

// forget drops a queue, unless the session serves it again by now.
func (s *scheduler) forget(q *served) {
	s.memory.forget(q)
	if s.queues[q.place] == q {
		delete(s.queues, q.place)
	}
}

// used is how many slots run a task.
func (s *scheduler) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// formed lists the shares with a part for an image that is there now: what is held, measured after this, has it.
func (s *scheduler) formed() (parts []*share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for part, of := range s.forming {
		if of.version.PendingSnapshot(of.tenant) == 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// measured books what is held beside the tasks, with the images that formed has listed before, and returns how much
// less it would have to be, unless nothing of it is idle; and how many tasks have ended until now.
func (s *scheduler) measured(held int64, formed []*share) (lacks int64, ends uint64) {
	s.mu.Lock()
	for _, part := range formed {
		if _, runs := s.forming[part]; runs {
			delete(s.forming, part)
			s.memory.formed(part)
		}
	}
	asked := s.memory.lacks > 0
	lacks = s.memory.measured(held)
	if s.memory.dry {
		lacks = 0
	}
	ends = s.ends
	fits := asked && s.memory.lacks == 0 || len(formed) > 0 && s.memory.waiting != nil
	s.mu.Unlock()
	if fits {
		s.wakeIntake()
	}
	return lacks, ends
}

// relieved books what is held after a relief that began when so many tasks had ended; dry says that it
// gave too little.
func (s *scheduler) relieved(held int64, ends uint64, dry bool) {
	s.mu.Lock()
	s.memory.dry = (dry || held >= s.memory.held) && ends == s.ends
	s.memory.measured(held)
	s.mu.Unlock()
	s.wakeIntake()
}

// retryRelief says that something may have become idle without a task.
func (s *scheduler) retryRelief() {
	s.mu.Lock()
	s.memory.dry = false
	s.mu.Unlock()
}

func (s *scheduler) wakeIntake() { poke(s.poke) }
