package runtime

import (
	goruntime "runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/crash"
)

const (
	// quantum is the fuel that a guest gets at once: some 5 µs, after which it calls tick. That costs less than can be
	// measured. With 100,000, a guest that touches a new page by each instruction could not be stopped for 50 ms.
	quantum = 10_000
	// slice is how long a guest computes before others have their turn. With a millisecond, a short task takes twice as long
	// if guests keep all processors busy: it waits at each step, in Redis, in this host, and in its producer.
	slice = 250 * time.Microsecond
	// short is how much of a slice is measured by the wall clock at most.
	short = slice / 5
	// waitPrice is what a wait costs beside a host call, however short it is: a timer, and another turn.
	waitPrice = 10_000
	// linePrice is what a line of the log costs: the time of sending it to the host's log and to Redis.
	linePrice = 5_000
	// progressPrice is what a report of progress costs; only the last one is sent.
	progressPrice = 500
	// secretPrice is what each byte that a guest logs costs after it has read a secret: the time of the search in invalid
	// UTF-8. Plain text takes a tenth of it, text that resembles a repetitive secret at each byte four times it.
	secretPrice = 100
	// revealPrice is what each byte of a secret costs: the time of preparing the search for many short lines. A single long
	// one takes an eighth of it.
	revealPrice = 400
	// hostPrice is what a host call costs; each byte that it moves costs one more.
	hostPrice = 200
)

// meter counts the fuel and the time of a guest. It belongs to the goroutine of its call. The guest counts down by itself: see
// runtime/wasm.
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

// stop ends the last slice, and returns the time. The guest does not run any more.
func (m *meter) stop() (now time.Time) {
	now = m.end()
	if m.counter != nil {
		m.burned = m.spent()
		m.counter, m.crash = nil, nil
	}
	return now
}

// spent is what was burned until now.
func (m *meter) spent() int64 { return m.burned + int64(m.set) - int64(int32(m.counter.Get())) }

// pause ends a slice for a wait.
func (m *meter) pause() (now time.Time) {
	now = m.end()
	m.gate.leave()
	return now
}

// resume begins a slice after a wait, and returns the time.
func (m *meter) resume() (now time.Time) {
	m.gate.enter(&m.gate.others)
	now = time.Now()
	m.begin(now)
	return now
}

// begin begins a slice on a thread of its own, so that the thread's clock is the guest's.
func (m *meter) begin(now time.Time) {
	goruntime.LockOSThread()
	m.began, m.clock = now, 0
	m.crash.Computes(true)
}

// read begins to measure a long slice by the thread's clock. Until then the wall clock does: reading the thread's clock twice
// takes a large part of a short task.
func (m *meter) read(now time.Time) {
	if m.clock > 0 {
		return
	}
	if m.clock = threadClock(); m.clock > 0 {
		m.cpu += now.Sub(m.began)
	}
}

// end ends a slice, and returns the time.
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

// yield lets others have their turn: other guests, the host's goroutines, and other processes if guests wait.
func (m *meter) yield() {
	m.end()
	if m.gate.wanted() {
		yieldThread()
		m.gate.leave()
		m.gate.enter(&m.gate.others)
	} else {
		goruntime.Gosched()
	}
	m.begin(time.Now())
}

// count accounts for the fuel that the counter has fallen by, and reports whether it is within the limit.
func (m *meter) count(counter int32) bool {
	m.burned += int64(m.set) - int64(counter)
	m.set = counter
	return m.limit == 0 || m.burned <= m.limit
}

// refill is the counter's next value. It makes the guest call tick at the first unit above its limit.
func (m *meter) refill() int32 {
	m.set = quantum
	if m.limit > 0 {
		m.set = int32(max(0, min(m.limit-m.burned, quantum)))
	}
	return m.set
}
