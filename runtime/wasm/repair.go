package wasm

import (
	"fmt"
	"math"
	"slices"
)

// wazero's compiler for amd64 (1.12.0) gets a few instructions wrong in functions with more live floats or vectors than
// the processor has registers. This file replaces these instructions by others, or gives them safe operands. A test
// runs programs with these instructions.
//
//	instruction                     fault                                              replaced by
//	select of f32, f64, v128        the value that it falls back to is evicted         a select of their bits; a mask
//	                                (wazero's issue 2534)
//	v128.bitselect                  a register that the code has changed is evicted,   v128.and, andnot, or
//	f32.copysign, f64.copysign      for the next operand, and comes back as it was     integer operations on bits
//	min and max of f32x4 and f64x2  before: the allocator does not know that most      itself, on fresh operands
//	i64x2.mul, i8x16.popcnt,        instructions change their second operand           itself, on fresh operands
//	f32x4.convert_i32x4_u
//	f64x2.convert_low_i32x4_u       a constant, loaded twice into one register, is     itself, on a fresh operand
//	                                evicted, and comes back as the other one
//	f32.convert_i64_u, and of f64   the operand is loaded again on one of two paths    itself, on a fresh operand
//	f64x2.replace_lane 0            the other lane gets another register's value       i64x2.replace_lane
//
// An operand that is used again later can be evicted at once. The next block expects it in a certain register;
// restoring it there evicts that register's value. A fresh operand is a value that no other instruction uses. It stays
// in its register until the instruction is done, and no block expects it.

// selection reads a select and rewrites it for the operand types that the decoder recorded. The output is valid only
// for these types: if the record is wrong, the compiler refuses the module.
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
		t = b.top(2) // after a branch, the type of the other operand can be unknown
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
	if b.d.options.unrepaired {
		t = 0
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
		b.count(11)
		// All bits of the mask are set unless the condition is 0: (condition == 0) - 1.
		b.code = append(b.code, opI32Eqz, opI32Const, 1, opI32Sub, opVector, vectorSplat)
		b.blend()
	default: // unreachable, invalid, or not to be repaired
		b.count(1)
		b.code = append(b.code, opSelect)
	}
}

// selectIntegers keeps the select. It adds a local.tee, which makes the compiler check that the select returns an
// integer.
func (b *body) selectIntegers(result temporary) {
	b.count(2)
	b.code = append(b.code, opSelect)
	b.temporary(opLocalTee, result)
}

// selectFloats replaces a select of floats by a select of their bits as integers.
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

// blend selects the bits of two vectors by a third vector, like v128.bitselect.
func (b *body) blend() {
	b.temporary(opLocalTee, vector1)
	b.vectors(vectorAndNot)
	b.temporary(opLocalSet, vector2)
	b.temporary(opLocalGet, vector1)
	b.vectors(vectorAnd)
	b.temporary(opLocalGet, vector2)
	b.vectors(vectorOr)
}

// repair rewrites an instruction without immediates if the instruction is in the table above.
func (b *body) repair(op byte) (done bool) {
	switch {
	case b.d.options.unrepaired:
		return false
	case op == opF32CopySign || op == opF64CopySign:
		b.copysign(op)
	case op == opF32ConvertU || op == opF64ConvertU:
		b.convert(op)
	default:
		return false
	}
	return true
}

// copysign writes integer operations that give a float the sign of another float.
func (b *body) copysign(op byte) {
	b.count(10)
	b.apply(effects[op])
	toBits, toFloat := byte(opF64ToI64), byte(opI64ToF64)
	constant, and, or := byte(opI64Const), byte(opI64And), byte(opI64Or)
	sign, rest, bits := int64(math.MinInt64), int64(math.MaxInt64), bits64
	if op == opF32CopySign {
		toBits, constant, and, or, toFloat = opF32ToI32, opI32Const, opI32And, opI32Or, opI32ToF32
		sign, rest, bits = math.MinInt32, math.MaxInt32, bits32
	}
	masked := func(mask int64) {
		b.code = append(appendSigned(append(b.code, toBits, constant), mask), and)
	}
	masked(sign)
	b.temporary(opLocalSet, bits)
	masked(rest)
	b.temporary(opLocalGet, bits)
	b.code = append(b.code, or, toFloat)
}

// convert writes the conversion of an unsigned integer to a float, with a fresh operand.
func (b *body) convert(op byte) {
	b.count(4)
	b.apply(effects[op])
	b.temporary(opLocalTee, bits64)
	b.temporary(opLocalGet, bits64)
	b.code = append(b.code, opI64Or, op)
}

// repairVector rewrites a vector instruction if the instruction is in the table above. It reads the lane of
// replace_lane; the other instructions have no immediates.
func (b *body) repairVector(n uint32) (done bool) {
	if b.d.options.unrepaired {
		return false
	}
	switch n {
	case vectorSelect:
		b.count(7)
		b.blend()
	case vectorReplaceF64:
		b.count(2)
		b.code = append(b.code, opF64ToI64, opVector, vectorReplaceI64, b.r.byte())
	case vectorConvertF32, vectorConvertF64, vectorPopcnt:
		b.count(4)
		b.fresh()
		b.vectors(n)
	case vectorMinF32, vectorMaxF32, vectorMinF64, vectorMaxF64, vectorMulI64:
		b.count(9)
		b.fresh()
		b.temporary(opLocalSet, vector2)
		b.fresh()
		b.temporary(opLocalGet, vector2)
		b.vectors(n)
	default:
		return false
	}
	return true
}

// fresh replaces the top operand, a vector, by a fresh operand of the same value.
func (b *body) fresh() {
	b.temporary(opLocalTee, vector1)
	b.temporary(opLocalGet, vector1)
	b.vectors(vectorOr)
}

// vectors writes a vector instruction without an immediate.
func (b *body) vectors(n uint32) { b.code = appendUnsigned(append(b.code, opVector), n) }

// temporary is a local that we add to a function. Its value is used only within one instruction of the module.
type temporary byte

const (
	chosenBy temporary = iota
	bits32
	bits64
	vector1
	vector2
)

func (t temporary) of() Type {
	switch t {
	case bits64:
		return I64
	case vector1, vector2:
		return V128
	default:
		return I32
	}
}

// temporary writes a get, set or tee of a temporary. Its index follows the indices of the function's own locals.
func (b *body) temporary(op byte, t temporary) {
	at := slices.Index(b.temporaries, t)
	if at < 0 {
		at = len(b.temporaries)
		b.temporaries = append(b.temporaries, t)
	}
	b.code = appendUnsigned(append(b.code, op), uint32(len(b.locals)+at))
}
