package wasm

import (
	"slices"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// smithBody makes one function. It knows the types of the operands at each place, takes those that are there, and
// pushes what is missing.
type smithBody struct {
	*smith
	of     Signature
	locals []Type // the parameters first
	code   []byte
	stack  []Type
	frames []smithFrame
}

type smithFrame struct {
	label  []Type // what a branch to it takes
	height int    // of the stack below it
	dead   bool   // nothing comes here: operands may be missing
}

// body is an element of the code section.
func (s *smith) body(of Signature) []byte {
	b := &smithBody{smith: s, of: of, locals: slices.Clone(of.Params)}
	for range s.pick(6) {
		b.locals = append(b.locals, s.valueType())
	}
	b.frames = []smithFrame{{label: of.Results}}
	if !s.endless {
		b.spend()
	}
	steps := s.pick(24)
	if s.rarely(6) {
		steps *= 12 // so that much gathers
	}
	b.steps(steps)
	b.settle(of.Results)
	b.op(opEnd)

	declared := b.locals[len(of.Params):]
	code := runtimetest.Number(uint32(len(declared)))
	for _, t := range declared {
		code = append(code, 1, byte(t))
	}
	code = append(code, b.code...)
	return append(runtimetest.Number(uint32(len(code))), code...)
}

func (b *smithBody) op(code ...byte) { b.code = append(b.code, code...) }
func (b *smithBody) indexed(op byte, index int) {
	b.code = appendUnsigned(append(b.code, op), uint32(index))
}

func (b *smithBody) bulkOp(op byte, immediates ...int) { b.prefixed(opBulk, uint32(op), immediates...) }

func (b *smithBody) prefixed(prefix byte, op uint32, immediates ...int) {
	b.code = appendUnsigned(append(b.code, prefix), op)
	for _, i := range immediates {
		b.code = appendUnsigned(b.code, uint32(i))
	}
}

func (b *smithBody) i32(n int64) { b.code = appendSigned(append(b.code, opI32Const), n) }

// spend takes one from the budget, and returns if nothing is left.
func (b *smithBody) spend() {
	b.indexed(opGlobalGet, budgetGlobal)
	b.i32(1)
	b.op(opI32Sub)
	b.indexed(opGlobalSet, budgetGlobal)
	b.indexed(opGlobalGet, budgetGlobal)
	b.i32(0)
	b.op(opI32LtS, opIf, noResult)
	for _, t := range b.of.Results {
		b.op(zeroOf(t)...)
	}
	b.op(opReturn, opEnd)
}

func zeroOf(t Type) []byte { return (&smith{choices: &choices{}}).constant(t) }

func (b *smithBody) frame() *smithFrame { return &b.frames[len(b.frames)-1] }
func (b *smithBody) push(types ...Type) { b.stack = append(b.stack, types...) }
func (b *smithBody) pop(n int)          { b.stack = b.stack[:max(b.frame().height, len(b.stack)-n)] }

// have are the operands of the innermost block.
func (b *smithBody) have() []Type { return b.stack[b.frame().height:] }

// value makes an operand of a type: a constant, a local or a global.
func (b *smithBody) value(t Type) {
	type variable struct {
		op    byte
		index int
	}
	var variables []variable
	for i, local := range b.locals {
		if local == t {
			variables = append(variables, variable{opLocalGet, i})
		}
	}
	for i, g := range b.globals {
		if g.of == t && i != budgetGlobal {
			variables = append(variables, variable{opGlobalGet, i})
		}
	}
	if n := b.pick(len(variables) + 2); n >= 2 {
		b.indexed(variables[n-2].op, variables[n-2].index)
	} else {
		b.op(b.constant(t)...)
	}
	b.push(t)
}

// need sees to it that the topmost operands are of these types, which it takes from the stack.
func (b *smithBody) need(types ...Type) {
	have := b.have()
	k := min(len(types), len(have))
	for k > 0 && !slices.Equal(have[len(have)-k:], types[:k]) {
		k--
	}
	if b.frame().dead && len(have) == 0 {
		k = b.pick(len(types) + 1) // any operands are there
	}
	for _, t := range types[k:] {
		b.value(t)
	}
	b.pop(len(types))
}

// settle leaves exactly these operands in the innermost block.
func (b *smithBody) settle(types []Type) {
	have := b.have()
	k := min(len(types), len(have))
	for k > 0 && !slices.Equal(have[:k], types[:k]) {
		k--
	}
	for range have[k:] {
		b.op(opDrop)
	}
	b.pop(len(have) - k)
	if k == 0 && b.frame().dead && b.pick(2) == 0 {
		b.push(types...)
		return
	}
	for _, t := range types[k:] {
		b.value(t)
	}
}

const opDrop = 0x1a

// die marks that what follows is not reached.
func (b *smithBody) die() {
	f := b.frame()
	f.dead = true
	b.stack = b.stack[:f.height]
}

func (b *smithBody) steps(n int) {
	for range n {
		if len(b.code) > 6000 {
			return
		}
		b.step()
	}
}

func (b *smithBody) step() {
	steps := []func(){
		b.numeric, b.numeric, b.numeric, b.variable, b.variable, b.memory, b.memory, b.block, b.block, b.branch, b.branch,
		b.call, b.bulkMemory, b.tableOp, b.vector, b.other, func() { b.value(b.valueType()) },
	}
	steps[b.pick(len(steps))]()
}

// A numericOp is a range of instructions of the same type.
type numericOp struct {
	from, to byte
	of       Signature
}

var numericOps = func() (ops []numericOp) {
	add := func(from, to byte, result Type, params ...Type) {
		ops = append(ops, numericOp{from, to, Signature{Params: params, Results: []Type{result}}})
	}
	add(0x45, 0x45, I32, I32)
	add(0x46, 0x4f, I32, I32, I32)
	add(0x50, 0x50, I32, I64)
	add(0x51, 0x5a, I32, I64, I64)
	add(0x5b, 0x60, I32, F32, F32)
	add(0x61, 0x66, I32, F64, F64)
	add(0x67, 0x69, I32, I32)
	add(0x6a, 0x6c, I32, I32, I32)
	add(0x71, 0x78, I32, I32, I32)
	add(0x79, 0x7b, I64, I64)
	add(0x7c, 0x7e, I64, I64, I64)
	add(0x83, 0x8a, I64, I64, I64)
	add(0x8b, 0x91, F32, F32)
	add(0x92, 0x98, F32, F32, F32)
	add(0x99, 0x9f, F64, F64)
	add(0xa0, 0xa6, F64, F64, F64)
	add(0xa7, 0xa7, I32, I64)
	add(0xac, 0xad, I64, I32)
	add(0xb2, 0xb3, F32, I32)
	add(0xb4, 0xb5, F32, I64)
	add(0xb6, 0xb6, F32, F64)
	add(0xb7, 0xb8, F64, I32)
	add(0xb9, 0xba, F64, I64)
	add(0xbb, 0xbb, F64, F32)
	add(0xbc, 0xbc, I32, F32)
	add(0xbd, 0xbd, I64, F64)
	add(0xbe, 0xbe, F32, I32)
	add(0xbf, 0xbf, F64, I64)
	add(0xc0, 0xc1, I32, I32)
	add(0xc2, 0xc4, I64, I64)
	// Those that trap on some operands.
	add(0x6d, 0x70, I32, I32, I32)
	add(0x7f, 0x82, I64, I64, I64)
	add(0xa8, 0xa9, I32, F32)
	add(0xaa, 0xab, I32, F64)
	add(0xae, 0xaf, I64, F32)
	add(0xb0, 0xb1, I64, F64)
	return ops
}()

func (b *smithBody) numeric() {
	if b.rarely(16) { // saturating
		from := []Type{F32, F32, F64, F64}
		n := b.pick(8)
		b.need(from[n%4])
		b.bulkOp(byte(n))
		b.push([]Type{I32, I64}[n/4])
		return
	}
	kinds := len(numericOps)
	if !b.rarely(16) {
		kinds -= 6
	}
	o := numericOps[b.pick(kinds)]
	b.need(o.of.Params...)
	b.op(o.from + byte(b.pick(int(o.to-o.from)+1)))
	b.push(o.of.Results...)
}

func (b *smithBody) variable() {
	if n := len(b.locals); n > 0 && b.pick(2) == 0 {
		i := b.pick(n)
		t := b.locals[i]
		b.need(t)
		if b.pick(2) == 0 {
			b.indexed(opLocalSet, i)
		} else {
			b.indexed(opLocalTee, i)
			b.push(t)
		}
		return
	}
	if i := b.pick(len(b.globals)); i != budgetGlobal && b.globals[i].mutable {
		b.need(b.globals[i].of)
		b.indexed(opGlobalSet, i)
	}
}

const opRefIsNull = 0xd1

// other is drop, select and nop.
func (b *smithBody) other() {
	switch b.pick(4) {
	case 0:
		b.op(0x01)
	case 1:
		if n := len(b.have()); n > 0 {
			b.pop(1)
			b.op(opDrop)
		}
	case 2:
		t := numbers[b.pick(len(numbers))]
		b.need(t, t, I32)
		b.op(opSelect)
		b.push(t)
	default:
		t := b.valueType()
		b.need(t, t, I32)
		b.op(opSelectTyped, 1, byte(t))
		b.push(t)
	}
}

func (b *smithBody) call() {
	if b.pick(3) == 0 { // one that the table has had at that place
		entry := b.pick(5)
		function := int(b.elementCode[0][5+entry])
		of := b.types[b.functions[function]]
		b.need(of.Params...)
		b.i32(int64(entry) + int64(b.elementCode[0][2]))
		b.indexed(opCallIndirect, b.functions[function])
		b.op(0)
		b.push(of.Results...)
		return
	}
	function := b.pick(len(b.functions))
	of := b.types[b.functions[function]]
	b.need(of.Params...)
	b.indexed(opCall, function)
	b.push(of.Results...)
}

// blockType writes the type of a block.
func (b *smithBody) blockType(t Signature) {
	switch {
	case len(t.Params)+len(t.Results) == 0 && b.pick(4) > 0:
		b.op(noResult)
	case len(t.Params) == 0 && len(t.Results) == 1 && b.pick(4) > 0:
		b.op(byte(t.Results[0]))
	default:
		b.code = appendSigned(b.code, int64(b.typeOf(t)))
	}
}

func (b *smithBody) block() {
	if len(b.frames) > 6 {
		return
	}
	t := b.signature(2)
	op := []byte{opBlock, opLoop, opIf}[b.pick(3)]
	counter := -1
	if op == opLoop && b.pick(2) == 0 {
		counter = len(b.locals)
		b.locals = append(b.locals, I32)
		b.i32(int64(b.pick(9)))
		b.indexed(opLocalSet, counter)
	}
	without := op == opIf && b.pick(3) == 0 // without an else, which gives what it was given
	if without {
		t.Results = t.Params
	}
	if op == opIf {
		b.need(append(slices.Clone(t.Params), I32)...)
	} else {
		b.need(t.Params...)
	}
	b.op(op)
	b.blockType(t)
	f := smithFrame{label: t.Results, height: len(b.stack)}
	if op == opLoop {
		f.label = t.Params
	}
	b.frames = append(b.frames, f)
	b.push(t.Params...)
	if op == opLoop && !b.endless {
		b.spend()
	}
	b.steps(b.pick(12))
	if counter >= 0 {
		b.settle(t.Params)
		b.indexed(opLocalGet, counter)
		b.i32(1)
		b.op(opI32Sub)
		b.indexed(opLocalTee, counter)
		b.indexed(opBranchIf, 0)
	}
	b.settle(t.Results)
	if op == opIf && !without {
		b.op(opElse)
		b.frame().dead = false
		b.stack = append(b.stack[:f.height], t.Params...)
		b.steps(b.pick(12))
		b.settle(t.Results)
	}
	b.op(opEnd)
	b.frames = b.frames[:len(b.frames)-1]
	b.stack = append(b.stack[:f.height], t.Results...)
}

// branch leaves a block, or begins a loop anew.
func (b *smithBody) branch() {
	depth := b.pick(len(b.frames))
	label := b.frames[len(b.frames)-1-depth].label
	switch b.pick(12) {
	default:
		b.need(append(slices.Clone(label), I32)...)
		b.indexed(opBranchIf, depth)
		b.push(label...)
		return
	case 7:
		b.need(label...)
		b.indexed(opBranch, depth)
	case 8, 9:
		b.branchTable(depth, label)
	case 10:
		b.need(b.of.Results...)
		b.op(opReturn)
	case 11:
		if !b.rarely(6) {
			return
		}
		b.op(opUnreachable)
	}
	b.die()
}

func (b *smithBody) branchTable(depth int, label []Type) {
	b.need(append(slices.Clone(label), I32)...)
	var same []int
	for i := range b.frames {
		if slices.Equal(b.frames[len(b.frames)-1-i].label, label) {
			same = append(same, i)
		}
	}
	n := b.pick(5)
	b.indexed(opBranchTable, n)
	for range n {
		b.code = appendUnsigned(b.code, uint32(same[b.pick(len(same))]))
	}
	b.code = appendUnsigned(b.code, uint32(depth))
}
