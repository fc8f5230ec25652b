package wasm

import "slices"

// address makes an i32 below a bound out of the operand on top, most times.
func (b *smithBody) address(mask int64) {
	b.need(I32)
	if !b.rarely(24) {
		b.i32(mask)
		b.op(opI32And)
	}
	if b.tall && b.pick(2) == 0 {
		b.i32(int64(int32([]uint32{0x7fff0000, 0x7fff0000, 0x7ffffff0, 0x80000000, 0xfffffff0}[b.pick(5)])))
		b.op(opI32Or)
	}
	b.push(I32)
}

// again makes the address on top a constant whose bounds were checked by an access before, after which ways have met or
// the memory may have grown: then the compiler leaves the check out.
func (b *smithBody) again() {
	local := slices.Index(b.locals, I32)
	if !b.tall || local < 0 || b.pick(2) == 0 {
		return
	}
	b.op(opDrop)
	b.i32(int64(int32([]uint32{64, 0x7fff0000, 0x7ffffff8, 0x7fffffff, 0x80000000, 0x80010000, 0xffffffff}[b.pick(7)])))
	b.indexed(opLocalSet, local)
	b.indexed(opLocalGet, local)
	b.op(0x29, 0, 0) // i64.load
	b.op(opDrop)
	switch b.pick(3) {
	case 0:
		b.i32(0)
		b.op(opMemoryGrow, 0, opDrop)
	case 1:
		b.op(opBlock, noResult)
		b.indexed(opGlobalGet, budgetGlobal)
		b.op(opBranchIf, 0, opEnd)
	}
	b.indexed(opLocalGet, local)
}

func (b *smithBody) memory() {
	type access struct {
		op    byte
		of    Type
		align int
	}
	loads := []access{
		{0x28, I32, 2},
		{0x29, I64, 3},
		{0x2a, F32, 2},
		{0x2b, F64, 3},
		{0x2c, I32, 0},
		{0x2d, I32, 0},
		{0x2e, I32, 1},
		{0x2f, I32, 1},
		{0x30, I64, 0},
		{0x31, I64, 0},
		{0x32, I64, 1},
		{0x33, I64, 1},
		{0x34, I64, 2},
		{0x35, I64, 2},
	}
	stores := []access{
		{0x36, I32, 2}, {0x37, I64, 3}, {0x38, F32, 2}, {0x39, F64, 3}, {0x3a, I32, 0}, {0x3b, I32, 1}, {0x3c, I64, 0}, {0x3d, I64, 1}, {0x3e, I64, 2},
	}
	offset := uint32(b.pick(256))
	if b.tall && b.rarely(4) {
		offset = []uint32{0x7fff0000, 0x7fffffff, 0x80000000, 0xffffffff}[b.pick(4)]
	}
	b.address(0xff80)
	b.again()
	if b.pick(2) == 0 {
		a := loads[b.pick(len(loads))]
		b.pop(1)
		b.op(a.op, byte(b.pick(a.align+1)))
		b.code = appendUnsigned(b.code, offset)
		b.push(a.of)
		return
	}
	a := stores[b.pick(len(stores))]
	b.value(a.of)
	b.pop(2)
	b.op(a.op, byte(b.pick(a.align+1)))
	b.code = appendUnsigned(b.code, offset)
}

// bulkMemory is what moves memory, and what grows it.
func (b *smithBody) bulkMemory() {
	three := func() {
		b.address(0x7fff)
		b.value(I32)
		if !b.rarely(24) {
			b.i32(0x7f)
			b.op(opI32And)
		}
		b.value(I32)
		if !b.rarely(24) {
			b.i32(0x1f)
			b.op(opI32And)
		}
		b.pop(3)
	}
	switch b.pick(6) {
	case 0:
		b.op(opMemorySize, 0)
		b.push(I32)
	case 1:
		b.address(1)
		b.pop(1)
		b.op(opMemoryGrow, 0)
		b.push(I32)
	case 2:
		three()
		b.bulkOp(bulkMemoryFill, 0)
	case 3:
		three()
		b.bulkOp(bulkMemoryCopy, 0, 0)
	case 4:
		three()
		b.bulkOp(bulkMemoryInit, b.pick(b.segments), 0)
	default:
		b.bulkOp(bulkDataDrop, b.pick(b.segments))
	}
}

func (b *smithBody) tableOp() {
	table := b.pick(len(b.tables))
	of := b.tables[table]
	small := func() {
		b.value(I32)
		b.i32(3)
		b.op(opI32And)
	}
	switch b.pick(9) {
	case 0:
		b.address(tableSize - 1)
		b.pop(1)
		b.indexed(opTableGet, table)
		b.push(of)
	case 1:
		b.address(tableSize - 1)
		b.value(of)
		b.pop(2)
		b.indexed(opTableSet, table)
	case 2:
		b.bulkOp(bulkTableSize, table)
		b.push(I32)
	case 3:
		b.need(of)
		small()
		b.pop(1)
		b.bulkOp(bulkTableGrow, table)
		b.push(I32)
	case 4:
		b.address(3)
		b.value(of)
		small()
		b.pop(3)
		b.bulkOp(bulkTableFill, table)
	case 5:
		b.address(3)
		small()
		small()
		b.pop(3)
		from := []int{0, 2, 0}
		if of == ExternRef {
			from = []int{1, 1, 1}
		}
		b.bulkOp(bulkTableCopy, table, from[b.pick(3)])
	case 6:
		if of == FuncRef {
			b.address(3)
			small()
			small()
			b.pop(3)
			b.bulkOp(bulkTableInit, b.pick(len(b.elements)), table)
		}
	case 7:
		b.bulkOp(bulkElemDrop, b.pick(len(b.elements)))
	default:
		b.need(of)
		b.op(opRefIsNull)
		b.push(I32)
	}
}

func (b *smithBody) vector() {
	type vectorOp struct {
		op     uint32
		of     Signature
		lanes  int
		memory bool
	}
	v, i, vv := []Type{V128}, []Type{I32}, []Type{V128, V128}
	ops := []vectorOp{
		{0x0f, Signature{i, v}, 0, false},
		{0xae, Signature{vv, v}, 0, false},
		{0x4e, Signature{vv, v}, 0, false},
		{0x1b, Signature{v, i}, 4, false},
		{0x1c, Signature{[]Type{V128, I32}, v}, 4, false},
		{0x53, Signature{v, i}, 0, false},
		{0x52, Signature{[]Type{V128, V128, V128}, v}, 0, false},
		{0xd5, Signature{vv, v}, 0, false},
		{0xab, Signature{[]Type{V128, I32}, v}, 0, false},
		{0x6e, Signature{vv, v}, 0, false},
		{0x60, Signature{v, v}, 0, false},
		{0x0e, Signature{vv, v}, 0, false},
		{0x00, Signature{i, v}, 0, true},
		{0x09, Signature{i, v}, 0, true},
		{0x5c, Signature{i, v}, 0, true},
		{0x54, Signature{[]Type{I32, V128}, v}, 16, true},
		{0x0b, Signature{[]Type{I32, V128}, nil}, 0, true},
		{0x58, Signature{[]Type{I32, V128}, nil}, 16, true},
	}
	if b.rarely(12) {
		b.need(vv...)
		b.prefixed(opVector, 13)
		for range 16 {
			b.op(byte(b.pick(32)))
		}
		b.push(V128)
		return
	}
	o := ops[b.pick(len(ops))]
	if o.memory {
		b.address(0xff80)
		for _, t := range o.of.Params[1:] {
			b.value(t)
		}
		b.pop(len(o.of.Params))
	} else {
		b.need(o.of.Params...)
	}
	b.prefixed(opVector, o.op)
	if o.memory {
		b.op(0, byte(b.pick(64)))
	}
	if o.lanes > 0 {
		b.op(byte(b.pick(o.lanes)))
	}
	b.push(o.of.Results...)
}
