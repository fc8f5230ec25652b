package schedule

import "time"

// After each short task a slot would be idle for a round trip to Redis. So tasks of a queue with short tasks are
// reserved ahead of free slots. They wait here, already marked as started in Redis, and get the next slots of their
// queue. A task that gets no slot in time goes back to the front of its queue. Then no task of the queue is reserved
// ahead until its tasks are short again, so that nothing waits behind a long task.
const (
	// aheadTime is how long all slots together need, at most, for the tasks that wait here. It is longer than Redis can
	// have to wait for a processor that it shares with this host, so that no slot is idle during that wait.
	aheadTime = 4 * time.Millisecond
	// maxAhead bounds how many tasks of a queue wait here, as a multiple of Config.MaxReserve. More tasks are reserved
	// when half of the waiting tasks have got slots, so that Redis and the slots work at the same time.
	maxAhead = 3
	// aheadWait is how long tasks of a queue wait here at most, since one of them last got a slot or tasks last arrived.
	// If the queue's tasks are not short any more, it counts from the arrival of the oldest one.
	aheadWait = 20 * time.Millisecond
	// shortTask is the maximum average run time of tasks that count as short.
	shortTask = time.Millisecond

	// Unknown is the duration of a task that was stopped before its guest began.
	Unknown time.Duration = -1
)

// pace has moving averages of how long a queue's tasks run and wait. The zero value means unknown.
type pace struct {
	lasts time.Duration // run time of a task, at most aheadWait; 0 if unknown
	waits time.Duration // the part of lasts in which a task sleeps or waits for a service
	cost  float64       // what a task costs; rate is that divided by the seconds for which it has its slot
	rate  float64
}

// short reports whether the tasks are known to be short.
func (p pace) short() bool { return p.lasts > 0 && p.lasts <= shortTask }

// computes returns how long a task keeps a processor busy.
func (p pace) computes() time.Duration { return max(p.lasts-p.waits, 1) }

// record adds the run time of a task, and the part of that time in which the task waited. It ignores a task whose run
// time is Unknown. After one task of aheadWait or more, the queue's tasks are not short any more. A delay of some
// milliseconds, by the operating system or Go's garbage collector, does not have that effect.
func (p *pace) record(took, waited time.Duration) {
	if took == Unknown {
		return
	}
	took, waited = min(took, aheadWait), min(waited, took, aheadWait)
	if p.lasts == 0 {
		p.lasts, p.waits = took, waited
	}
	p.lasts = max(p.lasts+(took-p.lasts)/8, 1)
	p.waits = min(p.waits+(waited-p.waits)/8, p.lasts)
}

// recordCost adds what a task has cost, and for how long it had its slot.
func (p *pace) recordCost(cost float64, held time.Duration) {
	rate := min(cost/max(held.Seconds(), cost), 1)
	if p.rate == 0 {
		p.cost, p.rate = cost, rate
	}
	p.cost += (cost - p.cost) / 8
	p.rate += (rate - p.rate) / 8
}

// endTurn ends the turn of a queue and puts the queue behind the others. The next turn of a queue of short tasks has as
// many tasks as one slot runs in aheadTime. These tasks are reserved together and settled together, however many queues
// have work. The caller holds mu.
func (s *Scheduler) endTurn(q *queue) {
	s.turns++
	q.turn, q.tenant.turn, q.inTurn = s.turns, s.turns, 1
	q.taking = false
	q.pay()
	if q.pace.short() {
		q.inTurn = min(int(aheadTime/q.pace.lasts), s.config.MaxReserve)
	}
}

// lookAhead makes the queues whose turn is next reserve tasks ahead, unless enough of their tasks wait already.
func (p *plan) lookAhead(candidates []*queue) {
	busy := aheadTime * time.Duration(p.load.places)
	room, short := busy, false
	for _, q := range candidates {
		room -= time.Duration(len(q.ahead)) * q.pace.computes()
		short = short || q.pace.short()
	}
	if !short {
		return
	}
	for _, q := range p.next(candidates, 2*p.config.Slots) { // later queues would get no slot soon
		if !q.pace.short() || q.unsure || !q.ready() || !p.mayReserve(q) {
			continue
		}
		parallel := p.config.Slots
		if q.bound > 0 {
			parallel = min(parallel, q.bound)
		}
		most := min(int(aheadTime*time.Duration(parallel)/q.pace.lasts), int(busy/q.pace.computes()),
			maxAhead*p.config.MaxReserve)
		if len(candidates) > 1 {
			most = min(most, q.inTurn)
		}
		p.last.refillAt = max(p.last.refillAt, most/2)
		more := most - len(q.ahead)
		if more <= most/2 || time.Duration(more)*q.pace.computes() > room {
			continue
		}
		a := p.allocation(q)
		if a == nil || a.Reconcile || !q.mayWait {
			continue
		}
		a.ahead = max(0, min(more, p.config.MaxReserve-len(a.shares)))
		room -= time.Duration(a.ahead) * q.pace.computes()
	}
}

// keepAhead adds tasks that were reserved ahead to those of the queue that wait for a slot. The caller holds mu.
func (s *Scheduler) keepAhead(q *queue, tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	q.ahead, q.lastStart = append(q.ahead, tasks...), tasks[0].slot().arrived
	s.countAhead(q, len(tasks))
	if s.queues[q.Queue] != q {
		s.returnAhead(q) // the session left the queue meanwhile
	}
}

func (s *Scheduler) countAhead(q *queue, more int) {
	s.ahead += more
	q.source.AddAhead(more)
}

// startAhead gives a slot to the queue's oldest waiting task and returns that task. It returns nil if the task cannot
// have a slot now. The caller holds mu.
func (s *Scheduler) startAhead(q *queue, now time.Time) Task {
	t := q.ahead[0]
	slot := t.slot()
	if slot.share = s.occupy(q, slot.version, now); slot.share == nil {
		return nil
	}
	slot.share.begun = now
	q.ahead, q.lastStart = q.ahead[1:], now
	s.countAhead(q, -1)
	s.started(1, now)
	return t
}

// returnLate gives back tasks that have waited too long for a slot, and plans when the next task may be late. It gives
// no task of a source back while a reserve of that source is on its way. The reserve can bring later tasks of the same
// queue, and all of them must return to the front of the queue together.
func (p *plan) returnLate() {
	if p.ahead == 0 {
		return
	}
	for _, q := range p.active {
		if len(q.ahead) == 0 || p.source(q).reserving {
			continue // the end of the reserve causes another plan
		}
		late := p.now.Sub(q.lastStart) >= aheadWait
		if late {
			q.pace.record(aheadWait, 0)
		}
		late = late || !q.pace.short() && p.now.Sub(q.ahead[0].slot().arrived) >= aheadWait
		if late || q.leaving || q.blocked {
			p.returnAhead(q)
		} else {
			p.replan(aheadWait - p.now.Sub(q.lastStart))
		}
	}
}

// returnAhead takes the tasks of a queue that wait for a slot, and gives them back with the next round. The caller
// holds mu.
func (s *Scheduler) returnAhead(q *queue) {
	for _, t := range q.ahead {
		slot := t.slot()
		slot.share, slot.returns = &share{}, true
	}
	q.unsettled += len(q.ahead)
	q.returning += len(q.ahead)
	s.countAhead(q, -len(q.ahead))
	s.late, q.ahead = append(s.late, q.ahead...), nil
}
