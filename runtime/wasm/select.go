package wasm

import (
	"fmt"
	"slices"
)

// selection reads a select, and writes one that wazero's compiler gets right. For amd64 (1.12.0, its issue 2534) it may
// evict the value that a select of floats or vectors falls back to, and return what another value has left in the register.
// So floats are selected as the integers of their bits, and vectors by a mask. The types come from the decoder's record of
// the operands. What is written is valid for that type only: if the record is wrong, the compiler refuses the module.
func (b *body) selection(op byte) {
	r, declared, types := b.r, Type(0), 0
	if op == opSelectTyped {
		types = r.count("types of a select", r.left())
		for range types {
			declared = r.valueType()
		}
	}
	t := b.top(1)
	if t == 0 {
		t = b.top(2) // of the others nothing is known behind a branch
	}
	if types == 1 && t != 0 && t != declared && r.err == nil {
		r.fail(fmt.Errorf("a select of %s has operands of %s", declared, t))
	}
	if t == 0 {
		t = declared
	}
	b.pop(3)
	b.push(t)
	if op == opSelectTyped && (types != 1 || !t.Number() && t != V128) {
		b.count(1)
		b.code = appendUnsigned(append(b.code, op), uint32(types))
		for range types {
			b.code = append(b.code, byte(declared))
		}
		return
	}
	switch t {
	case I32:
		b.selectIntegers(bits32)
	case I64:
		b.selectIntegers(bits64)
	case F32:
		b.selectFloats(opF32ToI32, bits32, opI32ToF32)
	case F64:
		b.selectFloats(opF64ToI64, bits64, opI64ToF64)
	case V128:
		b.count(5)
		// All bits of the mask are set unless the condition is 0: (condition == 0) - 1.
		b.code = append(b.code, opI32Eqz, opI32Const, 1, opI32Sub, opVector, vectorSplat, opVector, vectorSelect)
	default: // not reached, or not valid
		b.count(1)
		b.code = append(b.code, opSelect)
	}
}

// selectIntegers leaves the select as it is. The tee makes the compiler check that it is one of integers.
func (b *body) selectIntegers(result temporary) {
	b.count(2)
	b.code = append(b.code, opSelect)
	b.temporary(opLocalTee, result)
}

// selectFloats selects floats by their bits.
func (b *body) selectFloats(toBits byte, bits temporary, toFloat byte) {
	b.count(8)
	b.temporary(opLocalSet, chosenBy)
	b.code = append(b.code, toBits)
	b.temporary(opLocalSet, bits)
	b.code = append(b.code, toBits)
	b.temporary(opLocalGet, bits)
	b.temporary(opLocalGet, chosenBy)
	b.code = append(b.code, opSelect, toFloat)
}

// temporary is a local of ours. It holds nothing for longer than a select.
type temporary byte

const (
	chosenBy temporary = iota
	bits32
	bits64
)

func (t temporary) of() Type {
	if t == bits64 {
		return I64
	}
	return I32
}

// temporary writes a get, a set or a tee of a local of ours, behind those of the function.
func (b *body) temporary(op byte, t temporary) {
	at := slices.Index(b.temporaries, t)
	if at < 0 {
		at = len(b.temporaries)
		b.temporaries = append(b.temporaries, t)
	}
	b.code = appendUnsigned(append(b.code, op), uint32(len(b.locals)+at))
}
