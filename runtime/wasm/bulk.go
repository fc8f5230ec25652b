package wasm

import "fmt"

// A bulk instruction cannot be interrupted, however long it takes: filling 64 MiB took 33 ms. So each bulk instruction
// becomes a call of a helper that charges by length. Above 1 MiB the helper works in pieces, with a charge before each
// piece.
const (
	// pieceBytes and pieceEntries are the size of a piece of a memory and of a table: 1 MiB. An entry of a table has 8
	// bytes.
	pieceBytes   = 1 << 20
	pieceEntries = 1 << 17
	// One unit of fuel is charged for 64 bytes, or for 8 entries.
	shiftBytes   = 6
	shiftEntries = 3
)

// bulkShape describes a bulk instruction for which a helper is written.
type bulkShape struct {
	name   string
	op     byte
	first  uint32 // the immediates, in the order of the binary format
	second uint32
	few    bool // true if there is only one immediate
	middle Type // type of the second parameter: source address, or value to fill with
	table  int  // the target: a table, or inMemory
	from   int  // the source: a table, inMemory, fromNothing or fromSegment
}

const (
	inMemory    = -1
	fromNothing = -2 // the source is a value, as in fill
	fromSegment = -3
)

// bulk reads and rewrites an instruction with the prefix opBulk.
func (b *body) bulk() {
	d, r := b.d, b.r
	op := r.u32()
	if int(op) < len(bulkEffects) {
		b.apply(bulkEffects[op])
	}
	switch {
	case op <= 7: // saturating conversions
		b.count(1)
		b.code = appendUnsigned(append(b.code, opBulk), op)
	case op == bulkDataDrop:
		b.count(1)
		b.code = appendUnsigned(append(b.code, opBulk, byte(op)), b.dataIndex())
		d.lasting("data.drop")
	case op == bulkElemDrop:
		b.count(1)
		b.code = appendUnsigned(append(b.code, opBulk, byte(op)), r.index("element segment", d.parts[sectionElement].count))
		d.lasting("elem.drop")
	case op == bulkTableSize:
		b.count(1)
		b.code = appendUnsigned(append(b.code, opBulk, byte(op)), r.index("table", len(d.tables)))
	case op == bulkTableGrow:
		b.count(growPrice)
		table := r.index("table", len(d.tables))
		d.lasting("table.grow")
		if r.err == nil {
			b.callHelper(d.helpers.grow(d, table))
		}
	case op <= bulkTableFill:
		b.count(1)
		shape := b.bulkShape(byte(op))
		if r.err == nil {
			b.callHelper(d.helpers.bulk(d, shape))
		}
	default:
		r.fail(fmt.Errorf("instruction 0xfc %d is unknown", op))
	}
}

func (b *body) callHelper(index uint32) {
	b.r.bound("kinds of bulk instructions", uint64(len(b.d.helpers.list)), b.d.options.Caps.Helpers)
	b.code = appendUnsigned(append(b.code, opCall), index)
}

// dataIndex reads the index of a data segment. Code can use data segments only if the module has a data count section.
func (b *body) dataIndex() uint32 {
	if !b.d.hasDataCount {
		b.r.fail(fmt.Errorf("a data segment is named without a data count section"))
	}
	return b.r.index("data segment", int(b.d.dataCount))
}

// bulkShape reads the immediates of an instruction that copies or fills.
func (b *body) bulkShape(op byte) bulkShape {
	d, r := b.d, b.r
	s := bulkShape{op: op, middle: I32, table: inMemory}
	switch op {
	case bulkMemoryInit:
		s.name, s.from, s.first = "memory.init", fromSegment, b.dataIndex()
		b.zeroMemory()
	case bulkMemoryCopy:
		s.name, s.from = "memory.copy", inMemory
		b.zeroMemory()
		b.zeroMemory()
	case bulkMemoryFill:
		s.name, s.from, s.few = "memory.fill", fromNothing, true
		b.zeroMemory()
	case bulkTableInit:
		s.name, s.from, s.first = "table.init", fromSegment, r.index("element segment", d.parts[sectionElement].count)
		s.second = r.index("table", len(d.tables))
		s.table = int(s.second)
	case bulkTableCopy:
		s.name, s.first = "table.copy", r.index("table", len(d.tables))
		s.second = r.index("table", len(d.tables))
		s.table, s.from = int(s.first), int(s.second)
	default:
		s.name, s.from, s.few, s.first = "table.fill", fromNothing, true, r.index("table", len(d.tables))
		s.table = int(s.first)
		if r.err == nil {
			s.middle = d.tables[s.first]
		}
	}
	if s.table != inMemory {
		d.lasting(s.name)
	}
	return s
}

func (b *body) zeroMemory() {
	if b.r.byte() != 0 {
		b.r.fail(unsupported("more than one memory"))
	}
	b.needMemory()
}

// grow returns the function index of the helper for table.grow on a table. The helper charges by length. It needs no
// pieces: see Caps.Growth.
func (h *helpers) grow(d *decoder, table uint32) uint32 {
	return h.get(d, helperKey{op: bulkTableGrow, first: table}, func() helper {
		const value, n = 0, 1
		a := assembler{counter: d.counter(), refuel: h.refuel(d)}
		a.charge(n, shiftEntries)
		a.get(value, n)
		a.code = appendUnsigned(append(a.code, opBulk, bulkTableGrow), table)
		return helper{
			name: "table.grow", code: a.function(),
			signature: Signature{Params: []Type{d.tables[table], I32}, Results: []Type{I32}},
		}
	})
}

// bulk returns the function index of the helper for an instruction that copies or fills. The helper charges by length,
// in pieces:
//
//	if n <= piece { charge(n); op(to, from, n); return }
//	if out of bounds { op(to, from, n) }           // traps before it writes
//	if from < to { for n > 0 { n -= m; charge(m); op(to+n, from+n, m) }; return }   // from the end, for copies
//	for n > 0 { charge(m); op(to, from, m); to += m; from += m; n -= m }            // where m = min(n, piece)
func (h *helpers) bulk(d *decoder, s bulkShape) uint32 {
	return h.get(d, helperKey{op: int(s.op), first: s.first, second: s.second}, func() helper {
		a := assembler{counter: d.counter(), refuel: h.refuel(d), shape: s}
		a.bulk()
		return helper{name: s.name, code: a.function(), signature: Signature{Params: []Type{I32, s.middle, I32}}}
	})
}
