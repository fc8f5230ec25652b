package wasm

import "fmt"

// Instructions that this package refers to. Source: core specification 2.0, section 5.4.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBranch       = 0x0c
	opBranchIf     = 0x0d
	opBranchTable  = 0x0e
	opReturn       = 0x0f
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opCall         = 0x10
	opCallIndirect = 0x11
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32Eqz       = 0x45
	opI32LtS       = 0x48
	opI32LtU       = 0x49
	opI64GtU       = 0x56
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32And       = 0x71
	opI32Or        = 0x72
	opI32ShrU      = 0x76
	opI64Add       = 0x7c
	opI64And       = 0x83
	opI64Or        = 0x84
	opI64Shl       = 0x86
	opF32CopySign  = 0x98
	opF64CopySign  = 0xa6
	opI64ExtendU   = 0xad
	opF32ConvertU  = 0xb5 // f32.convert_i64_u
	opF64ConvertU  = 0xba
	opF32ToI32     = 0xbc // i32.reinterpret_f32
	opF64ToI64     = 0xbd
	opI32ToF32     = 0xbe
	opI64ToF64     = 0xbf
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opBulk         = 0xfc // prefix
	opVector       = 0xfd // prefix
)

// Instructions after opBulk, and some after opVector.
const (
	bulkMemoryInit = 8
	bulkDataDrop   = 9
	bulkMemoryCopy = 10
	bulkMemoryFill = 11
	bulkTableInit  = 12
	bulkElemDrop   = 13
	bulkTableCopy  = 14
	bulkTableGrow  = 15
	bulkTableSize  = 16
	bulkTableFill  = 17

	vectorConst      = 12
	vectorSplat      = 17 // i32x4.splat
	vectorReplaceI64 = 30 // i64x2.replace_lane
	vectorReplaceF64 = 34 // f64x2.replace_lane
	vectorAnd        = 78
	vectorAndNot     = 79
	vectorOr         = 80
	vectorSelect     = 82  // v128.bitselect
	vectorPopcnt     = 98  // i8x16.popcnt
	vectorMulI64     = 213 // i64x2.mul
	vectorMinF32     = 232 // f32x4.min
	vectorMaxF32     = 233
	vectorMinF64     = 244 // f64x2.min
	vectorMaxF64     = 245
	vectorConvertF32 = 251 // f32x4.convert_i32x4_u
	vectorConvertF64 = 255 // f64x2.convert_low_i32x4_u
)

// immediate is the kind of immediate that follows an opcode of one byte.
type immediate byte

const (
	unknown immediate = iota
	nothing
	special // read by specialInstruction
	localIndex
	globalIndex
	memoryArgument
	memoryIndex
	number32
	number64
	float32Bytes
	float64Bytes
)

var immediates = func() (table [256]immediate) {
	fill(&table, 0x00, 0x05, special) // control
	fill(&table, 0x01, 0x01, nothing) // nop
	fill(&table, 0x0b, 0x11, special)
	fill(&table, 0x1a, 0x1a, nothing)        // drop
	fill(&table, 0x1b, 0x1c, special)        // select, and with types
	fill(&table, 0x20, 0x22, localIndex)     // local.get, local.set, local.tee
	fill(&table, 0x23, 0x24, globalIndex)    // global.get, global.set
	fill(&table, 0x25, 0x26, special)        // table.get, table.set
	fill(&table, 0x28, 0x3e, memoryArgument) // loads and stores
	fill(&table, 0x3f, 0x3f, memoryIndex)    // memory.size
	fill(&table, 0x40, 0x40, special)        // memory.grow
	fill(&table, 0x41, 0x41, number32)
	fill(&table, 0x42, 0x42, number64)
	fill(&table, 0x43, 0x43, float32Bytes)
	fill(&table, 0x44, 0x44, float64Bytes)
	fill(&table, 0x45, 0xc4, nothing) // numbers
	fill(&table, opF32CopySign, opF32CopySign, special)
	fill(&table, opF64CopySign, opF64CopySign, special)
	fill(&table, opF32ConvertU, opF32ConvertU, special)
	fill(&table, opF64ConvertU, opF64ConvertU, special)
	fill(&table, 0xd0, 0xd0, special) // ref.null
	fill(&table, 0xd1, 0xd1, nothing) // ref.is_null
	fill(&table, 0xd2, 0xd2, special) // ref.func
	fill(&table, 0xfc, 0xfd, special)
	return table
}()

// fill sets value for all opcodes between from and to, including both.
func fill[T any](table *[256]T, from, to int, value T) {
	for op := from; op <= to; op++ {
		table[op] = value
	}
}

// unknownInstruction returns the error for an opcode that is not in immediates. The error names the proposal that
// defines the opcode, if there is one.
func unknownInstruction(op byte) error {
	switch {
	case op == 0x12 || op == 0x13:
		return unsupported("tail calls")
	case op >= 0x06 && op <= 0x0a || op == 0x18 || op == 0x19 || op == 0x1f:
		return unsupported("exception handling")
	case op == 0x14 || op == 0x15 || op >= 0xd3 && op <= 0xd6:
		return unsupported("typed references")
	case op == 0xfb:
		return unsupported("garbage collection")
	case op == 0xfe:
		return unsupported("atomic instructions (threads)")
	}
	return fmt.Errorf("instruction 0x%02x is unknown", op)
}
