package wasm

// assembler writes the code of a helper.
type assembler struct {
	counter, refuel uint32
	shape           bulkShape
	code            []byte
}

// Locals of a helper for bulk instructions: its parameters, and the length of a piece.
const (
	to = iota
	from
	length
	piece
)

// function returns the code as an element of the code section, with one local of type i32 after the parameters.
func (a *assembler) function() []byte {
	return append(append([]byte{1, 1, byte(I32)}, a.code...), opEnd)
}

func (a *assembler) op(code ...byte) { a.code = append(a.code, code...) }

func (a *assembler) get(locals ...byte) {
	for _, local := range locals {
		a.op(opLocalGet, local)
	}
}

func (a *assembler) set(local byte) { a.op(opLocalSet, local) }

func (a *assembler) i32(n int64) { a.code = appendSigned(append(a.code, opI32Const), n) }
func (a *assembler) i64(n int64) { a.code = appendSigned(append(a.code, opI64Const), n) }

// charge writes a charge of one unit for each 2^shift of the length that a local holds.
func (a *assembler) charge(local byte, shift int64) {
	a.code = appendUnsigned(append(a.code, opGlobalGet), a.counter)
	a.get(local)
	a.i32(shift)
	a.op(opI32ShrU, opI32Sub)
	a.code = appendCheck(a.code, a.counter, appendUnsigned([]byte{opCall}, a.refuel))
}

// bulk writes the whole helper: see helpers.bulk.
func (a *assembler) bulk() {
	most, shift := int64(pieceBytes), int64(shiftBytes)
	if a.shape.table != inMemory {
		most, shift = pieceEntries, shiftEntries
	}
	a.get(length)
	a.i32(most)
	a.op(opI32LtU, opIf, noResult)
	a.charge(length, shift)
	a.get(to, from, length)
	a.instruction()
	a.op(opReturn, opEnd)

	a.outOfBounds(to, a.shape.table)
	switch a.shape.from {
	case fromNothing:
	case fromSegment:
		a.probe()
	default:
		a.outOfBounds(from, a.shape.from)
		a.backwards(most, shift)
	}
	a.forwards(most, shift)
}

func (a *assembler) instruction() {
	a.op(opBulk, a.shape.op)
	a.code = appendUnsigned(a.code, a.shape.first)
	if !a.shape.few {
		a.code = appendUnsigned(a.code, a.shape.second)
	}
}

// outOfBounds writes code that runs the instruction, which then traps, if a local plus the length is outside a memory
// or table.
func (a *assembler) outOfBounds(local byte, table int) {
	a.end(local)
	if table == inMemory {
		a.op(opMemorySize, 0, opI64ExtendU)
		a.i64(16)
		a.op(opI64Shl)
	} else {
		a.op(opBulk, bulkTableSize)
		a.code = appendUnsigned(a.code, uint32(table))
		a.op(opI64ExtendU)
	}
	a.op(opI64GtU, opIf, noResult)
	a.get(to, from, length)
	a.instruction()
	a.op(opEnd)
}

// end writes code that pushes a local plus the length, as an i64.
func (a *assembler) end(local byte) {
	a.get(local)
	a.op(opI64ExtendU)
	a.get(length)
	a.op(opI64ExtendU, opI64Add)
}

// probe writes code that traps if the instruction would read outside a segment. No instruction returns the length of a
// segment, so the code moves only the last element, which is within the target's bounds. If the addresses do not fit
// into 32 bits, it runs the instruction for everything.
func (a *assembler) probe() {
	a.end(from)
	a.i64(1 << 32)
	a.op(opI64GtU, opIf, noResult)
	a.get(to, from, length)
	a.instruction()
	a.op(opEnd)
	for _, local := range []byte{to, from} {
		a.get(local, length)
		a.op(opI32Add)
		a.i32(1)
		a.op(opI32Sub)
	}
	a.i32(1)
	a.instruction()
}

// nextPiece writes code that sets piece to the length of the next piece, and charges for that piece.
func (a *assembler) nextPiece(most, shift int64) {
	a.i32(most)
	a.get(length)
	a.i32(most)
	a.get(length)
	a.op(opI32LtU, opSelect)
	a.set(piece)
	a.charge(piece, shift)
}

// backwards writes code that copies from the end and returns if the target begins after the source: the two can
// overlap.
func (a *assembler) backwards(most, shift int64) {
	a.get(from, to)
	a.op(opI32LtU, opIf, noResult, opLoop, noResult)
	a.nextPiece(most, shift)
	a.get(length, piece)
	a.op(opI32Sub)
	a.set(length)
	for _, local := range []byte{to, from} {
		a.get(local, length)
		a.op(opI32Add)
	}
	a.get(piece)
	a.instruction()
	a.get(length)
	a.op(opBranchIf, 0, opEnd, opReturn, opEnd)
}

func (a *assembler) forwards(most, shift int64) {
	a.op(opLoop, noResult)
	a.nextPiece(most, shift)
	a.get(to, from, piece)
	a.instruction()
	moved := []byte{to, from}
	if a.shape.from == fromNothing {
		moved = moved[:1]
	}
	for _, local := range moved {
		a.get(local, piece)
		a.op(opI32Add)
		a.set(local)
	}
	a.get(length, piece)
	a.op(opI32Sub)
	a.set(length)
	a.get(length)
	a.op(opBranchIf, 0, opEnd)
}
