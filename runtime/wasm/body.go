package wasm

import (
	"errors"
	"fmt"
	"slices"
)

// body reads and rewrites one function. Its code is first rewritten without charges. The charge points are kept
// separately, because the amount of each point is known only at the end of its straight line.
type body struct {
	operandStack
	meter

	d *decoder
	r *reader

	locals  []Type   // types of the function's locals, parameters first
	groups  int      // number of declarations of locals; parameters are not declared
	work    uint64   // effort in this function so far: see Caps.Work
	targets uint64   // number of labels of br_tables in all functions: see Caps.AllTargets
	labels  []uint32 // labels of the current br_table

	temporaries []temporary
	declared    []byte // the rewritten declarations of locals

	inner int // index of the innermost loop's frame; 0 if there is no loop
}

// frame is an open block.
type frame struct {
	loop   loopPoints
	of     *Signature
	join   path  // joins the branches to the end of the block
	start  path  // the path at the beginning of an if
	height int32 // number of operands below the block
	op     byte  // opBlock, opLoop, opIf, opElse; 0 for the function itself
}

// moves returns how many values a branch to the frame carries.
func (f *frame) moves() int {
	if f.op == opLoop {
		return len(f.of.Params)
	}
	return len(f.of.Results)
}

func (d *decoder) codeSection(r *reader) {
	d.out.Code = r.left()
	n := r.count("function bodies", d.options.Caps.Functions)
	if n != d.out.Functions && r.err == nil {
		r.fail(fmt.Errorf("%d functions have %d bodies", d.out.Functions, n))
		return
	}
	part, begin := &d.parts[sectionCode], r.at
	part.count, part.bytes = n, make([]byte, 0, r.left()+r.left()/4)
	d.body = body{d: d, meter: meter{every: int32(d.options.Every)}}
	for i := range n {
		d.function = d.imported + i
		contents := r.part(r.u32(), errShort)
		r.bound("bytes in the code of a function", uint64(contents.left()), d.options.Caps.Body)
		if r.err != nil {
			return
		}
		d.body.read(&contents, &d.types[d.functions[d.function]], part)
		contents.bound("bytes of code as rewritten", uint64(len(part.bytes)), d.options.Caps.Code*(r.at-begin)+freeCode)
		d.boundRewritten(&contents)
		if contents.err != nil {
			r.at = contents.at
			r.fail(contents.err)
			return
		}
	}
	d.function = outside
}

// freeCode is the number of bytes by which code can grow in addition to Caps.Code.
const freeCode = 1 << 20

// outside is the value of decoder.function while no body is being read.
const outside = -1

// read rewrites a function of type t, and appends it to the code section.
func (b *body) read(r *reader, t *Signature, out *vector) {
	b.r, b.work, b.inner = r, 0, 0
	b.locals, b.operands, b.temporaries = append(b.locals[:0], t.Params...), b.operands[:0], b.temporaries[:0]
	b.declared, b.code, b.frames, b.points = b.declared[:0], b.code[:0], append(b.frames[:0], frame{of: t}), b.points[:0]
	b.declarations()
	b.open, b.path = b.place(0), begun
	caps, most := b.d.options.Caps, b.d.options.Caps.Code*r.left()+freeCode
	for len(b.frames) > 0 && r.err == nil {
		b.instruction()
		r.bound("operands of a function at once", uint64(len(b.operands)), caps.Operands)
		r.bound("bytes of code as rewritten", uint64(len(b.code)), most)
	}
	r.ended()
	if r.err == nil {
		b.emit(out)
	}
}

// declarations reads the locals that are not parameters.
func (b *body) declarations() {
	r, total, caps := b.r, uint64(len(b.locals)), b.d.options.Caps
	b.groups = r.count("groups of locals", r.left())
	for range b.groups {
		n := r.u32()
		t := r.valueType()
		total += uint64(n)
		r.bound("locals", total, caps.Locals)
		if r.err != nil {
			return
		}
		b.declared = append(appendUnsigned(b.declared, n), byte(t))
		b.locals = slices.Grow(b.locals, int(n))
		for range n {
			b.locals = append(b.locals, t)
		}
	}
	b.d.out.Locals += len(b.locals)
	r.bound("locals of all functions", uint64(b.d.out.Locals), caps.AllLocals)
}

// refill returns the code of this function that gets fuel.
func (b *body) refill() []byte {
	d := b.d
	defined := d.function - d.imported
	if !d.places || !d.types[d.functions[d.function]].noted() || defined >= 1<<16 {
		return appendUnsigned([]byte{opCall}, d.helpers.refuel(d))
	}
	code := appendSigned([]byte{opLocalGet, 0, opI32Const}, int64(int32(uint32(defined)<<16))) //nolint:gosec // the bits count
	return appendUnsigned(append(code, opI32Or, opCall), d.helpers.refuelAt(d))
}

// emit appends the function with its charges to the code section.
func (b *body) emit(out *vector) {
	if b.every > 1 {
		b.points[0].amount = max(b.points[0].amount, 1) // a call is never free
	}
	b.points = slices.DeleteFunc(b.points, func(p point) bool { return p.amount == 0 })
	counter, refill := b.d.counter(), []byte(nil)
	if len(b.points) > 0 {
		refill = b.refill()
	}
	b.d.out.Charges += len(b.points)
	var charge [48]byte
	for _, t := range b.temporaries {
		b.declared = append(b.declared, 1, byte(t.of()))
	}
	var first [5]byte
	groups := appendUnsigned(first[:0], uint32(b.groups+len(b.temporaries)))
	size := len(groups) + len(b.declared) + len(b.code)
	for _, p := range b.points {
		size += len(appendCharge(charge[:0], counter, refill, p.amount))
	}
	out.u32(uint32(size))
	out.raw(groups)
	out.raw(b.declared)
	from := 0
	for _, p := range b.points {
		out.raw(b.code[from:p.at])
		out.bytes = appendCharge(out.bytes, counter, refill, p.amount)
		from = int(p.at)
	}
	out.raw(b.code[from:])
}

// instruction reads one instruction and rewrites it.
func (b *body) instruction() {
	r := b.r
	op := r.byte()
	kind := immediates[op]
	if kind == special {
		b.specialInstruction(op)
		return
	}
	if r.err != nil {
		return
	}
	b.count(1)
	b.apply(effects[op])
	switch kind {
	case nothing:
		b.code = append(b.code, op)
	case localIndex:
		if i := b.indexed(op, "local", len(b.locals)); r.err == nil {
			b.access(op-opLocalGet, b.locals[i])
		}
	case globalIndex:
		if i := b.indexed(op, "global", len(b.d.globals)); r.err == nil {
			b.access(op-opGlobalGet, b.d.globals[i].of)
		}
	case memoryArgument:
		b.code = append(b.code, op)
		b.memoryArgument()
	case memoryIndex:
		b.code = append(b.code, op)
		b.memoryIndex()
	case number32:
		b.code = appendSigned(append(b.code, op), r.signed(32))
	case number64:
		b.code = appendSigned(append(b.code, op), r.signed(64))
	case float32Bytes:
		b.code = append(append(b.code, op), r.bytes(4)...)
	case float64Bytes:
		b.code = append(append(b.code, op), r.bytes(8)...)
	default:
		r.fail(unknownInstruction(op))
	}
}

// indexed copies an instruction whose immediate is an index, and returns the index. The index must be below space.
func (b *body) indexed(op byte, what string, space int) (index int) {
	r := b.r
	if r.at < r.end { // fast path: an index of one byte
		if i := r.file[r.at]; i < 0x80 && int(i) < space {
			r.at++
			b.code = append(b.code, op, i)
			return int(i)
		}
	}
	i := r.index(what, space)
	b.code = appendUnsigned(append(b.code, op), i)
	return int(i)
}

// maxAlignment is the binary logarithm of the largest alignment, the 16 bytes of a vector.
const maxAlignment = 4

// memoryFlag is set in an alignment that is followed by the index of a memory, in the proposal multi-memory.
const memoryFlag = 1 << 6

func (b *body) memoryArgument() {
	r := b.r
	if r.end-r.at >= 2 && b.d.memories > 0 { // fast path: two numbers of one byte
		if align, offset := r.file[r.at], r.file[r.at+1]; align <= maxAlignment && offset < 0x80 {
			r.at += 2
			b.code = append(b.code, align, offset)
			return
		}
	}
	align, offset := r.u32(), r.u32()
	if align&^(memoryFlag-1) == memoryFlag {
		b.r.fail(unsupported("more than one memory"))
	} else if align > maxAlignment {
		b.r.fail(fmt.Errorf("an alignment of 2 to the power of %d", align))
	}
	b.needMemory()
	b.code = appendUnsigned(appendUnsigned(b.code, align), offset)
}

func (b *body) memoryIndex() {
	b.zeroMemory()
	b.code = append(b.code, 0)
}

func (b *body) needMemory() {
	if b.d.memories == 0 {
		b.r.fail(errors.New("memory 0 does not exist"))
	}
}

// specialInstruction reads and rewrites an instruction that is more than an opcode and a plain immediate.
func (b *body) specialInstruction(op byte) {
	switch op {
	case opBlock, opLoop, opIf, opElse, opEnd, opUnreachable, opBranch, opBranchIf, opBranchTable, opReturn:
		b.control(op)
		return
	case opBulk:
		b.bulk()
		return
	case opVector:
		b.vector()
		return
	case opCall, opCallIndirect:
		b.call(op)
		return
	case opSelect, opSelectTyped:
		b.selection(op)
		return
	}
	if b.repair(op) {
		return
	}
	price := int32(1)
	if op == opMemoryGrow {
		price = growPrice
	}
	b.count(price)
	b.apply(effects[op])
	d, r := b.d, b.r
	switch op {
	case opMemoryGrow:
		b.code = append(b.code, op)
		b.memoryIndex()
	case opTableGet:
		if i := b.indexed(op, "table", len(d.tables)); r.err == nil {
			b.pop(1)
			b.push(d.tables[i])
		}
	case opTableSet:
		d.lasting("table.set")
		b.indexed(op, "table", len(d.tables))
		b.pop(2)
	case opRefNull:
		t := r.referenceType()
		b.code = append(b.code, op, byte(t))
		b.push(t)
	case opRefFunc:
		b.reference(r.index("function", len(d.functions)))
		b.push(FuncRef)
	default: // instructions that repair leaves alone: Options.unrepaired is set
		b.code = append(b.code, op)
	}
}

func (b *body) call(op byte) {
	d, r := b.d, b.r
	callee, of := uint32(0), uint32(0) // indices of the function and of its type
	if op == opCall {
		callee = r.index("function", len(d.functions))
		if r.err == nil {
			of = d.functions[callee]
		}
	} else {
		of = d.typeIndex(r)
	}
	if r.err != nil {
		return
	}
	t := &d.types[of]
	b.count(priceOf(len(t.Params) + len(t.Results)))
	if op == opCall {
		b.code = appendUnsigned(append(b.code, op), d.moved(callee))
	} else {
		b.code = appendUnsigned(append(b.code, op), of)
		b.code = appendUnsigned(b.code, r.index("table", len(d.tables)))
		b.pop(1)
	}
	b.pop(len(t.Params))
	b.push(t.Results...)
	b.path.returned = true
}

// reference replaces ref.func by a table.get on a table that we add. wazero allocates memory for each executed ref.func
// and frees it only with the instance: 10 million took 309 MB.
func (b *body) reference(function uint32) {
	if !b.d.declared[function] {
		b.r.fail(fmt.Errorf("function %d is referred to, but not declared in an element segment, global or export", function))
		return
	}
	b.code = appendSigned(append(b.code, opI32Const), int64(b.d.helpers.slot(function)))
	b.code = appendUnsigned(append(b.code, opTableGet), uint32(len(b.d.tables)))
}

// vector reads and rewrites a vector instruction. Its immediates are nothing, a memory argument, a lane, both, or 16
// bytes. Source: core specification 2.0, section 5.4.8.
func (b *body) vector() {
	n := b.r.u32()
	if n > 0xff {
		b.r.fail(unsupported("relaxed vector instructions"))
	}
	b.apply(vectorEffects[n&0xff])
	if b.repairVector(n) {
		return
	}
	b.count(1)
	b.vectors(n)
	switch {
	case n <= 11, n == 92, n == 93:
		b.memoryArgument()
	case n == vectorConst, n == 13:
		b.code = append(b.code, b.r.bytes(16)...)
	case n >= 21 && n <= 34:
		b.code = append(b.code, b.r.byte())
	case n >= 84 && n <= 91:
		b.memoryArgument()
		b.code = append(b.code, b.r.byte())
	}
}
