package runtime

import (
	goruntime "runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/crash"
)

const (
	// quantum is the fuel that a guest gets at once. It lasts some 5 µs; then the guest calls tick. The cost of these
	// calls is too low to be measured. With a quantum of 100,000, a guest whose every instruction touches a new page
	// could not be stopped for 50 ms.
	quantum = 10_000
	// slice is the time for which a guest computes before other guests get a turn. With a slice of a millisecond, a short
	// task takes twice as long if guests keep all processors busy: the task waits at each step, in Redis, in this host,
	// and in its producer.
	slice = 250 * time.Microsecond
	// short is the time after which a slice is measured by the thread's clock instead of the wall clock.
	short = slice / 5
	// waitPrice is the fuel for a wait, in addition to hostPrice and however short the wait: it pays for a timer and for
	// another turn.
	waitPrice = 10_000
	// linePrice is the fuel for a line of the log: it pays for sending the line to the host's log and to Redis.
	linePrice = 5_000
	// progressPrice is the fuel for a report of progress. It is low, since only the last report is sent.
	progressPrice = 500
	// secretPrice is the fuel for each byte that a guest logs after it has read a secret. It pays for searching invalid
	// UTF-8 for secrets. Plain text takes a tenth of that time. Text that resembles a repetitive secret at each byte
	// takes four times as long.
	secretPrice = 100
	// revealPrice is the fuel for each byte of a secret that a guest reads. It pays for preparing the search for a secret
	// of many short lines. A secret of one long line takes an eighth of that time.
	revealPrice = 400
	// hostPrice is the fuel for a host call. Each byte that the call moves costs one unit more.
	hostPrice = 200
)

// meter counts the fuel and the time of a guest. It belongs to the goroutine of its call. The guest's own code
// decrements the counter: see runtime/wasm.
type meter struct {
	counter api.MutableGlobal // the fuel counter of the instance; nil before there is an instance
	crash   *crash.Entry      // the instance's entry in the crash table; nil when counter is nil
	set     int32             // the value to which counter was set last
	burned  int64             // fuel burned before counter was set last
	limit   int64             // fuel limit; 0 for none
	until   int64             // fuel after which a replay ends the guest; 0 for none

	gate  *gate
	began time.Time     // when the slice began
	clock time.Duration // the thread's clock when it was first read in the slice; 0 if it was not read
	cpu   time.Duration // processor time until clock was read, or until the slice began
}

// stop ends the last slice, and returns the current time. The guest must have ended.
func (m *meter) stop() (now time.Time) {
	now = m.end()
	if m.counter != nil {
		m.burned = m.spent()
		m.counter, m.crash = nil, nil
	}
	return now
}

// spent returns the fuel that was burned until now.
func (m *meter) spent() int64 { return m.burned + int64(m.set) - int64(int32(m.counter.Get())) }

// pause ends a slice for a wait, gives up the place at the gate, and returns the current time.
func (m *meter) pause() (now time.Time) {
	now = m.end()
	m.gate.leave()
	return now
}

// resume gets a place at the gate after a wait, begins a slice, and returns the current time.
func (m *meter) resume() (now time.Time) {
	m.gate.enter(&m.gate.others)
	now = time.Now()
	m.begin(now)
	return now
}

// begin begins a slice. It locks the goroutine to its thread, so that the thread's clock measures only the guest.
func (m *meter) begin(now time.Time) {
	goruntime.LockOSThread()
	m.began, m.clock = now, 0
	m.crash.Computes(true)
}

// read makes the meter measure the rest of a long slice by the thread's clock. Short slices are measured by the wall
// clock alone: reading the thread's clock twice takes a large part of a short task.
func (m *meter) read(now time.Time) {
	if m.clock > 0 {
		return
	}
	if m.clock = threadClock(); m.clock > 0 {
		m.cpu += now.Sub(m.began)
	}
}

// end ends a slice, and returns the current time.
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

// yield gives others a turn: other guests, the host's goroutines, and, if guests wait, other processes.
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

// count adds the fuel that was burned since the counter was set last, and reports whether the sum is within the limit.
// counter is its current value.
func (m *meter) count(counter int32) bool {
	m.burned += int64(m.set) - int64(counter)
	m.set = counter
	return m.limit == 0 || m.burned <= m.limit
}

// refill returns the counter's next value: a quantum, or the rest of the limit if that is less. So the guest calls tick
// at the first unit above its limit.
func (m *meter) refill() int32 {
	m.set = quantum
	if m.limit > 0 {
		m.set = int32(max(0, min(m.limit-m.burned, quantum)))
	}
	if m.until > 0 {
		m.set = int32(max(0, min(m.until-m.burned, int64(m.set))))
	}
	return m.set
}
