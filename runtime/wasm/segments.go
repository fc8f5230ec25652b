package wasm

import (
	"errors"
	"fmt"
)

// expression copies a constant expression: the value of a global, the offset of a segment, or an element. It returns
// the value if the expression is an i32.const; constant is then true.
func (d *decoder) expression(r *reader, out *vector) (value uint32, constant bool) {
	op := r.byte()
	out.byte(op)
	switch op {
	case opI32Const:
		n := r.signed(32)
		value, constant = uint32(n), true
		out.signed(n)
	case opI64Const:
		out.signed(r.signed(64))
	case opF32Const:
		out.raw(r.bytes(4))
	case opF64Const:
		out.raw(r.bytes(8))
	case opGlobalGet:
		index := r.index("global", d.importedGlobals)
		if r.err == nil && d.globals[index].mutable {
			r.fail(fmt.Errorf("global %d of a constant expression is mutable", index))
		}
		out.u32(index)
	case opRefNull:
		out.byte(byte(r.referenceType()))
	case opRefFunc:
		index := r.index("function", len(d.functions))
		d.declare(index)
		out.u32(d.moved(index))
	case opVector:
		if n := r.u32(); n != vectorConst && r.err == nil {
			r.fail(fmt.Errorf("vector instruction %d is not constant", n))
		}
		out.u32(vectorConst)
		out.raw(r.bytes(16))
	default:
		r.fail(fmt.Errorf("instruction 0x%02x is not constant", op)) // no effect if the reader has failed already
	}
	if op := r.byte(); op != opEnd && r.err == nil {
		r.fail(fmt.Errorf("a constant expression goes on with 0x%02x; extended ones: %w", op, ErrUnsupported))
	}
	out.byte(opEnd)
	return value, constant
}

// Flags of an element segment. Source: core specification 2.0, section 5.5.12.
const (
	elementNotActive   = 1
	elementHasIndex    = 2 // if the segment is active; otherwise the segment is declarative
	elementExpressions = 4
)

func (d *decoder) elementSection(r *reader) {
	for range r.count("element segments", d.options.Caps.Elements) {
		d.elementSegment(r, &d.parts[sectionElement])
		if r.err != nil {
			return
		}
	}
	d.out.InstancePrice += entryPrice * int64(d.parts[sectionElement].count+d.references)
}

func (d *decoder) elementSegment(r *reader, part *vector) {
	flags := r.u32()
	if flags > 7 {
		r.fail(fmt.Errorf("an element segment has the unknown flags %d", flags))
	}
	part.count++
	part.u32(flags)
	var place uint32 // first entry of an active segment, if it is constant
	constant := false
	table := uint32(0)
	if flags&elementNotActive == 0 {
		if flags&elementHasIndex != 0 {
			table = r.index("table", len(d.tables))
			part.u32(table)
		} else if len(d.tables) == 0 {
			r.fail(errors.New("table 0 does not exist"))
		}
		place, constant = d.expression(r, part)
	}
	expressions := flags&elementExpressions != 0
	if flags&(elementNotActive|elementHasIndex) != 0 {
		kind := byte(0) // functions
		if expressions {
			kind = byte(r.referenceType())
		} else if r.byte() != 0 {
			r.fail(errors.New("an element segment is of an unknown kind"))
		}
		part.byte(kind)
	}
	n := r.count("elements", r.left())
	d.references += n
	r.bound("elements in all segments", uint64(d.references), d.options.Caps.References)
	part.u32(uint32(n))
	if defined := int(table) - (len(d.tables) - len(d.out.Tables)); constant && r.err == nil && defined >= 0 {
		// wazero silently skips a segment that exceeds its table, and all segments after it.
		if end, size := uint64(place)+uint64(n), d.out.Tables[defined].Min; end > uint64(size) && d.out.Overflow == "" {
			d.out.Overflow = fmt.Sprintf("element segment %d ends at entry %d of table %d, which has %d", part.count-1, end,
				table, size)
		}
	}
	for range n {
		if expressions {
			d.expression(r, part)
		} else {
			index := r.index("function", len(d.functions))
			d.declare(index)
			part.u32(d.moved(index))
		}
		if r.err != nil {
			return
		}
	}
}

func (d *decoder) dataSection(r *reader) {
	part := &d.parts[sectionData]
	n := r.count("data segments", d.options.Caps.Data)
	part.bytes = make([]byte, 0, r.left())
	for range n {
		flags := r.u32()
		if flags > 2 {
			r.fail(fmt.Errorf("a data segment has the unknown flags %d", flags))
		}
		part.count++
		part.u32(flags)
		if flags == 2 {
			part.u32(r.index("memory", d.memories))
		}
		if flags != 1 {
			if d.memories == 0 {
				r.fail(errors.New("memory 0 does not exist"))
			}
			d.expression(r, part)
		}
		size := r.u32()
		bytes := r.bytes(uint64(size))
		if r.err != nil {
			return
		}
		part.u32(size)
		part.raw(bytes)
		if flags != 1 {
			d.out.InstancePrice += int64(size)
		}
	}
	d.out.InstancePrice += entryPrice * int64(n)
}
