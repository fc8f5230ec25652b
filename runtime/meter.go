package runtime

import (
	goruntime "runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/crash"
)

const (
	// quantum is the fuel that a guest gets at once: some 5 µs, after which it calls tick. That costs less
	// than can be measured. It is not larger because an instruction that touches a new page of memory takes
	// 1 µs and more: with 100,000, nothing could stop a guest that does little else for 50 ms.
	quantum = 10_000
	// slice is how long a guest computes before others have their turn. With a millisecond, a short task takes twice as long
	// beside guests on all processors: it waits at each step, in Redis, in this host, and in its producer.
	slice = 250 * time.Microsecond
	// short is how much of a slice is measured by the wall clock at most.
	short = slice / 5
	// waitPrice is what a wait costs beside that, however short it is: a timer, and another turn.
	waitPrice = 10_000
	// linePrice is what a line of the log costs: the time of sending it to the host's log and to Redis.
	linePrice = 5_000
	// progressPrice is what a report of progress costs; only the last one is sent.
	progressPrice = 500
	// secretPrice is what looking for secrets costs, for each byte that a guest logs after it was given one: the time for
	// invalid UTF-8. Plain text takes a tenth of it. Text that resembles a repetitive secret at each byte takes four times it.
	secretPrice = 100
	// revealPrice is what preparing the search for a secret costs, for each byte of it: the time for many short lines. A
	// single long one takes an eighth of it.
	revealPrice = 400
	// hostPrice is what a call of any function of the host costs, in fuel; each byte that it moves costs one
	// more.
	hostPrice = 200
)

// meter counts what a guest burns, and how long it takes. It belongs to the goroutine of its call.
//
// A guest counts down by itself: see runtime/wasm. What the counter was set to last and what it is now
// differ by the fuel that was burned since.
type meter struct {
	counter api.MutableGlobal // of the instance; nil before there is one
	crash   *crash.Entry      // of the instance, the same
	set     int32             // what the counter was set to last
	burned  int64             // before that
	limit   int64             // 0 is none

	gate  *gate
	began time.Time     // the slice
	clock time.Duration // of the thread when it was first read in the slice, 0 if it was not
	cpu   time.Duration // until then, or until the slice began
}

// start begins to measure now, or when there is a place at the gate.
func (m *meter) start(now time.Time) {
	if m.gate.enter() {
		now = time.Now()
	}
	m.begin(now)
}

// stop ends the last slice, gives the place back, and tells the time. The guest does not run any more.
func (m *meter) stop() (now time.Time) {
	now = m.pause()
	if m.counter != nil {
		m.burned = m.spent()
		m.counter, m.crash = nil, nil
	}
	return now
}

// attach makes the counter that of the instance which is about to run.
func (m *meter) attach(counter api.MutableGlobal, entry *crash.Entry) {
	m.counter, m.crash = counter, entry
	entry.Computes(true)
	counter.Set(uint64(uint32(m.refill())))
}

// spent is what was burned until now.
func (m *meter) spent() int64 { return m.burned + int64(m.set) - int64(int32(m.counter.Get())) }

// pause ends a slice for a wait.
func (m *meter) pause() (now time.Time) {
	now = m.end()
	m.gate.leave()
	return now
}

// resume begins a slice after a wait, and tells the time.
func (m *meter) resume() (now time.Time) {
	m.gate.again()
	now = time.Now()
	m.begin(now)
	return now
}

// begin begins a slice on a thread of its own, for only so the thread's clock is the guest's.
func (m *meter) begin(now time.Time) {
	goruntime.LockOSThread()
	m.began, m.clock = now, 0
	m.crash.Computes(true)
}

// read begins to measure by the thread's clock, in a slice that lasts. Until then the wall clock does: reading the
// other one twice takes a large part of a short task.
func (m *meter) read(now time.Time) {
	if m.clock > 0 {
		return
	}
	if m.clock = threadClock(); m.clock > 0 {
		m.cpu += now.Sub(m.began)
	}
}

// end ends a slice, and tells the time.
func (m *meter) end() (now time.Time) {
	m.crash.Computes(false)
	now = time.Now()
	if m.clock > 0 {
		m.cpu += threadClock() - m.clock
	} else {
		m.cpu += now.Sub(m.began)
	}
	goruntime.UnlockOSThread()
	return now
}

// yield lets others have their turn: other guests, what else the host does, and other processes where guests wait for
// each other.
func (m *meter) yield() {
	m.end()
	if m.gate.wanted() {
		yieldThread()
		m.gate.leave()
		m.gate.again()
	} else {
		goruntime.Gosched()
	}
	m.begin(time.Now())
}

// count takes what the counter has come down to into account, and returns whether that is within the
// limit.
func (m *meter) count(counter int32) bool {
	m.burned += int64(m.set) - int64(counter)
	m.set = counter
	return m.limit == 0 || m.burned <= m.limit
}

// refill is what the counter is set to next: so much that the guest comes back at the first unit above its
// limit.
func (m *meter) refill() int32 {
	m.set = quantum
	if m.limit > 0 {
		m.set = int32(max(0, min(m.limit-m.burned, quantum)))
	}
	return m.set
}
