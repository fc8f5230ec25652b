package wasm

// How fuel is charged. Each instruction is one unit, but block, loop, else and end, which are no machine
// code, and calls and branches that move many values. A charge point takes an amount from the counter and looks whether it is below zero; it costs as
// much as five instructions, so there should be few, and none in the middle of a straight line.
//
//   - At the entry of a function, and behind each call that something follows: for what is unpaid, and the
//     straight line. Without those behind calls, who returns from a million calls would pass no point.
//   - In a loop to whose head one branch leads back: at the head, for one turn. Where several do: before
//     each of them, for what is unpaid.
//   - Before a loop, and where a function is left if that is much: for what is unpaid.
//   - Wherever Options.Every instructions have gathered since the last point on some path: for what is
//     unpaid, and the straight line that follows.
//
// What is unpaid where a function is left is forgiven if it is little.

// path is what is known of all ways on which a place in a function is reached, with the greatest of each
// number: a charge that only some ways pass counts for none. Counting in the order of the text would let a
// stretch of code hide behind an arm that is skipped.
type path struct {
	// run counts the instructions since the last point whose straight line does not cover them.
	run int32
	// unpaid counts those that no point pays for.
	unpaid int32
	live   bool // some way leads here
	// returned tells that a call has just returned, on some way.
	returned bool
}

// begun is the path behind a charge point.
var begun = path{live: true}

// join is the path of a place where two meet.
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

// point is a charge point. One whose amount is 0 in the end is left out.
type point struct {
	at     int32 // in the code of its function as written without charges
	amount int32
}

// priceOf is what a call or a branch costs that moves so many values.
func priceOf(values int) int32 { return 1 + int32(values)/valuesPerUnit }

const (
	// valuesPerUnit is how many values a call or a branch moves for one unit, beyond its own.
	valuesPerUnit = 8
	// growPrice is what memory.grow and table.grow cost, for they leave the guest.
	growPrice = 64
	// forgiven is the least that is paid where a function is left: a point costs about as much.
	forgiven = 32
	// What making an instance costs for each global, segment and element of one, and for each export. A byte of data costs
	// one, and so does an entry of a table.
	entryPrice  = 500
	exportPrice = 150
	// closed stands for no point.
	closed = -1
)

// place adds a point here, and returns its number.
func (b *body) place(amount int32) int {
	b.points = append(b.points, point{at: int32(len(b.code)), amount: amount})
	return len(b.points) - 1
}

// charge places a point for what is unpaid and the straight line that follows.
func (b *body) charge() {
	b.open = b.place(b.path.unpaid)
	b.path = begun
}

// count takes an instruction of a price into account. It is called before the instruction is written.
func (b *body) count(price int32) {
	if !b.path.live {
		return
	}
	if b.path.returned || b.open == closed && b.path.run+price >= b.every {
		b.charge()
	}
	if b.open == closed {
		b.path.run += price
		b.path.unpaid += price
	} else {
		b.points[b.open].amount += price
	}
}

// pay places a point for what is unpaid.
func (b *body) pay() {
	b.place(b.path.unpaid)
	b.path, b.open = begun, closed
}

// leave is where the function may be left.
func (b *body) leave() {
	if b.path.live && b.path.unpaid >= forgiven {
		b.pay()
	}
}

// loopPoints is what a loop knows of its points while its end is not reached.
type loopPoints struct {
	head  int // the point at its head, of no amount so far
	edge  int // that before the first branch back
	edges int // how many branches lead back
	outer int // the frame of the loop around it
	depth int // of loops in each other, with this one
}

// back is before a branch to the head of a loop. The point there is left out in the end if the head pays,
// so it counts for nothing but the price. The head pays only for what is in no other loop.
func (b *body) back(t *loopPoints, innermost bool) {
	if !b.path.live {
		return
	}
	edge := b.place(b.path.unpaid)
	b.path.unpaid = 0
	if t.edges == 0 && innermost {
		t.edge = edge
		t.edges = 1
		return
	}
	t.edges = many
}

// many is the number of branches back with which the head of a loop cannot pay.
const many = 2

// leaveLoop is at the end of a loop: now it is known who pays.
func (b *body) leaveLoop(t loopPoints) {
	if t.edges == 1 {
		head, edge := &b.points[t.head], &b.points[t.edge]
		head.amount, edge.amount = edge.amount, 0
	}
}

// appendCharge appends what is done at a charge point:
//
//	counter -= amount
//	if counter < 0 { refuel() }
func appendCharge(code []byte, counter, refuel uint32, amount int32) []byte {
	code = appendUnsigned(append(code, opGlobalGet), counter)
	code = appendSigned(append(code, opI32Const), int64(amount))
	code = append(code, opI32Sub)
	return appendCheck(code, counter, refuel)
}

// appendCheck stores the counter that is on the stack, and refuels if it is below zero.
func appendCheck(code []byte, counter, refuel uint32) []byte {
	code = appendUnsigned(append(code, opGlobalSet), counter)
	code = appendUnsigned(append(code, opGlobalGet), counter)
	code = append(code, opI32Const, 0, opI32LtS, opIf, noResult)
	code = appendUnsigned(append(code, opCall), refuel)
	return append(code, opEnd)
}

// noResult is the type of a block without parameters and results.
const noResult = 0x40
