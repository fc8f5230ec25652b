package wasm

// How fuel is charged. An instruction costs one unit, with these exceptions: block, loop, else and end are free,
// because they produce no machine code. Calls and branches that move many values cost more, and so does growing a
// memory or table. A charge point subtracts an amount from the counter and checks whether the counter is below zero. A
// point takes as long as five instructions, so there should be few points, and none within a straight line. The list
// names the places of points, and what a point charges for at each place:
//
//   - At the entry of a function, and after each call that other instructions follow: for unpaid instructions, and for
//     the straight line that follows. Without points after calls, returning from a million calls would pass no point.
//   - In a loop with one branch back to its head: at the head, for one iteration. In a loop with several branches back:
//     before each branch, for unpaid instructions.
//   - Before a loop, and where a function is left while many instructions are unpaid: for unpaid instructions.
//   - Where the arms of a large br_table meet, as in the main loop of an interpreter: before a branch that ends an arm
//     while many instructions are unpaid, for unpaid instructions. Otherwise each arm would pay as much as the longest
//     arm.
//   - Where Options.Every instructions have gathered since the last point on some path: for unpaid instructions, and
//     for the straight line that follows.
//
// Small unpaid amounts are forgiven where a function is left.

// path summarizes all paths to a place in a function. Each number is the maximum over these paths: a charge that only
// some of them pass does not lower it. If instructions were counted in the order of the code instead, a charge in an
// arm would also count for paths that skip the arm.
type path struct {
	// run counts instructions since the last point that are not in the point's straight line.
	run int32
	// unpaid counts instructions that no point pays for.
	unpaid int32
	live   bool // whether the place is reachable
	// returned is set if, on some path, a call has just returned.
	returned bool
}

// begun is the path after a charge point.
var begun = path{live: true}

// join merges two paths that meet.
func (p path) join(q path) path {
	switch {
	case !p.live:
		return q
	case !q.live:
		return p
	default:
		return path{
			live: true, run: max(p.run, q.run), unpaid: max(p.unpaid, q.unpaid), returned: p.returned || q.returned,
		}
	}
}

// point is a charge point. It is left out if its amount stays 0.
type point struct {
	at     int32 // offset in the rewritten code without charges
	amount int32
}

// priceOf returns the price of a call or branch that moves the given number of values.
func priceOf(values int) int32 { return 1 + int32(values)/valuesPerUnit }

const (
	// valuesPerUnit is the number of values that are moved for one unit.
	valuesPerUnit = 8
	// growPrice is the price of memory.grow and table.grow, which leave the guest.
	growPrice = 64
	// forgiven is the minimum unpaid amount for which a point is placed where a function is left. A smaller amount is not
	// worth a point.
	forgiven = 32
	// manyArms is the minimum number of labels of a large br_table. armEnd is the minimum unpaid amount for which a point
	// is placed where an arm of a large br_table ends. An amount that one arm leaves unpaid counts for all arms.
	manyArms = 64
	armEnd   = 8
	// Making an instance costs entryPrice for each global, segment and element, and exportPrice for each export. A byte
	// of data and an entry of a table cost one unit each.
	entryPrice  = 500
	exportPrice = 150
	// closed is the value of meter.open if no point is open.
	closed = -1
)

// meter places the charge points of a function.
type meter struct {
	code   []byte
	points []point
	path   path
	open   int // index of the point whose straight line continues, or closed
	every  int32
	arms   int // the arms of a large br_table meet at the ends of frames whose index is below this one
}

// place adds a point at the end of the code, and returns the point's index.
func (m *meter) place(amount int32) int {
	m.points = append(m.points, point{at: int32(len(m.code)), amount: amount})
	return len(m.points) - 1
}

// count accounts for an instruction before it is written.
func (m *meter) count(price int32) {
	if !m.path.live {
		return
	}
	if m.path.returned || m.open == closed && m.path.run+price >= m.every {
		m.open = m.place(m.path.unpaid)
		m.path = begun
	}
	if m.open == closed {
		m.path.run += price
		m.path.unpaid += price
	} else {
		m.points[m.open].amount += price
	}
}

// pay places a point for the instructions that no point has charged yet.
func (m *meter) pay() {
	m.place(m.path.unpaid)
	m.path, m.open = begun, closed
}

// leave is called where the function can be left. It places a point if the unpaid amount is at least forgiven.
func (m *meter) leave() {
	if m.path.live && m.path.unpaid >= forgiven {
		m.pay()
	}
}

// meet is called before a branch to the end of a frame. It places a point if arms of a large br_table meet at that end
// and the unpaid amount is at least armEnd. An arm that ends without a branch continues in the next arm, which then
// pays for both. Most arms in programs in Go do that: Go compiles functions to large br_tables.
func (m *meter) meet(frame int) {
	if frame > 0 && frame < m.arms && m.path.live && m.path.unpaid >= armEnd {
		m.pay()
	}
}

// loopPoints are the points of an open loop.
type loopPoints struct {
	head  int // index of the point at the loop's head, whose amount is 0 so far
	edge  int // index of the point before the first branch back
	edges int // number of branches back, at most many
	outer int // index of the frame of the enclosing loop; 0 if there is none
	depth int // number of nested loops, including this one
}

// back is called before a branch to the head of a loop. It places a point, which is left out later if the head pays. So
// back resets only what is unpaid: everything else goes on as if there were no point. The head can pay only if the
// branch is not in an inner loop.
func (m *meter) back(t *loopPoints, innermost bool) {
	if !m.path.live {
		return
	}
	edge := m.place(m.path.unpaid)
	m.path.unpaid = 0
	if t.edges == 0 && innermost {
		t.edge = edge
		t.edges = 1
		return
	}
	t.edges = many
}

// many means that the head of a loop cannot pay: it has several branches back.
const many = 2

// appendCharge appends a charge:
//
//	counter -= amount
//	if counter < 0 { refill }
func appendCharge(code []byte, counter uint32, refill []byte, amount int32) []byte {
	code = appendUnsigned(append(code, opGlobalGet), counter)
	code = appendSigned(append(code, opI32Const), int64(amount))
	code = append(code, opI32Sub)
	return appendCheck(code, counter, refill)
}

// appendCheck appends code that pops the counter into its global, and the code refill for a counter below zero.
func appendCheck(code []byte, counter uint32, refill []byte) []byte {
	code = appendUnsigned(append(code, opGlobalSet), counter)
	code = appendUnsigned(append(code, opGlobalGet), counter)
	code = append(code, opI32Const, 0, opI32LtS, opIf, noResult)
	return append(append(code, refill...), opEnd)
}

// noResult is the type of a block without parameters and results.
const noResult = 0x40
