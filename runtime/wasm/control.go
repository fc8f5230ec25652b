package wasm

import (
	"errors"
	"fmt"
)

// control reads and rewrites the control instructions. block, loop, else and end produce no machine code, and are free.
func (b *body) control(op byte) {
	switch op {
	case opBlock:
		b.begin(op)
	case opLoop:
		b.loop()
	case opIf:
		b.count(1)
		b.pop(1)
		b.begin(op)
		b.open = closed
	case opElse:
		b.otherwise()
	case opEnd:
		b.end()
	case opBranch, opBranchIf:
		b.branch(op)
	case opBranchTable:
		b.branchTable()
	default: // unreachable, return
		b.count(1)
		if op == opReturn {
			b.leave()
		}
		b.code = append(b.code, op)
		b.unreached()
	}
}

// unreached sets the state after an instruction that never continues with the next one.
func (b *body) unreached() {
	b.path, b.open = path{}, closed
	b.operands = b.operands[:b.frames[len(b.frames)-1].height]
}

// loop opens a loop. If instructions are unpaid, it places a point for them before the loop instruction. The point at
// the loop's head follows the loop instruction.
func (b *body) loop() {
	if b.path.live && b.path.unpaid > 0 {
		b.pay()
	}
	b.begin(opLoop)
	b.open = closed
	at := len(b.frames) - 1
	depth := 1
	if b.inner > 0 {
		depth += b.frames[b.inner].loop.depth
	}
	b.r.bound("loops in each other", uint64(depth), b.d.options.Caps.Loops)
	b.frames[at].loop = loopPoints{head: b.place(0), outer: b.inner, depth: depth}
	b.inner = at
}

// begin reads the type of a block, loop or if, and opens its frame.
func (b *body) begin(op byte) {
	r, f := b.r, frame{op: op, start: b.path, of: &blocks[0]}
	b.code = append(b.code, op)
	switch first := r.peek(); {
	case first == noResult:
		b.code = append(b.code, r.byte())
	case first&0xc0 == 0x40: // a negative one-byte number: a value type
		t := r.valueType()
		b.code = append(b.code, byte(t))
		f.of = &blocks[t]
	default:
		index := r.signed(33)
		if r.err == nil && (index < 0 || index >= int64(len(b.d.types))) {
			r.fail(fmt.Errorf("type %d does not exist", index))
		}
		if r.err == nil {
			f.of = &b.d.types[index]
		}
		b.code = appendSigned(b.code, index)
	}
	b.pop(len(f.of.Params))
	f.height = int32(len(b.operands))
	b.push(f.of.Params...)
	b.frames = append(b.frames, f)
	caps := b.d.options.Caps
	b.work += uint64(len(b.locals) + len(f.of.Params) + len(f.of.Results))
	r.bound("blocks in each other", uint64(len(b.frames)), caps.Nesting)
	r.bound("locals × blocks in a function", b.work, caps.Work)
}

// peek returns the next byte without reading it.
func (r *reader) peek() byte {
	if r.left() == 0 {
		r.fail(r.overflow)
		return 0
	}
	return r.file[r.at]
}

func (b *body) otherwise() {
	f := &b.frames[len(b.frames)-1]
	if f.op != opIf {
		b.r.fail(errors.New("an else without an if"))
		return
	}
	b.code = append(b.code, opElse)
	f.op = opElse
	f.join = f.join.join(b.path)
	b.path, b.open = f.start, closed
	b.operands = append(b.operands[:f.height], f.of.Params...)
}

func (b *body) end() {
	f := b.frames[len(b.frames)-1]
	b.frames = b.frames[:len(b.frames)-1]
	b.arms = min(b.arms, len(b.frames))
	join := f.join
	switch f.op {
	case opLoop:
		if f.loop.edges == 1 { // the point at the head takes over the amount
			head, edge := &b.points[f.loop.head], &b.points[f.loop.edge]
			head.amount, edge.amount = edge.amount, 0
		}
		b.inner = f.loop.outer
	case opIf:
		join = join.join(f.start) // an if without an else
	}
	if join.live {
		b.path, b.open = b.path.join(join), closed
	}
	b.operands = append(b.operands[:f.height], f.of.Results...)
	if len(b.frames) == 0 {
		b.leave()
	}
	b.code = append(b.code, opEnd)
}

// target reads a label, and returns its frame.
func (b *body) target() (label uint32, f *frame) {
	label = b.r.index("label", len(b.frames))
	if b.r.err != nil {
		return 0, nil
	}
	return label, &b.frames[len(b.frames)-1-int(label)]
}

func (b *body) branch(op byte) {
	label, f := b.target()
	if f == nil {
		return
	}
	b.count(priceOf(f.moves()))
	if f == &b.frames[0] {
		b.leave()
	}
	if f.op == opLoop {
		b.back(&f.loop, len(b.frames)-1-int(label) == b.inner)
	} else {
		b.meet(len(b.frames) - 1 - int(label))
		f.join = f.join.join(b.path)
	}
	b.code = appendUnsigned(append(b.code, op), label)
	b.open = closed
	if op == opBranch {
		b.unreached()
	} else {
		b.pop(1)
	}
}

// branchTable reads a br_table. It pays before the branch if any target is the head of a loop. The br_table costs as
// much as a branch to the target with the highest price.
func (b *body) branchTable() {
	n := b.r.count("labels of a br_table", b.d.options.Caps.Targets)
	b.targets += uint64(n)
	b.r.bound("labels of all br_tables", b.targets, b.d.options.Caps.AllTargets)
	most, back, out := 0, false, false
	b.labels = b.labels[:0]
	for range n + 1 { // the last label is the default
		label, f := b.target()
		if f == nil {
			return
		}
		b.labels = append(b.labels, label)
		most, back, out = max(most, f.moves()), back || f.op == opLoop, out || len(b.frames)-1-int(label) < max(b.arms, 1)
		if f.op == opLoop && b.path.live {
			f.loop.edges = many
		}
	}
	b.count(priceOf(most))
	if n >= manyArms {
		b.arms = len(b.frames)
	}
	switch {
	case back && b.path.live:
		b.pay()
	case out:
		b.leave()
	}
	b.code = appendUnsigned(append(b.code, opBranchTable), uint32(n))
	for _, label := range b.labels {
		if f := &b.frames[len(b.frames)-1-int(label)]; f.op != opLoop {
			f.join = f.join.join(b.path)
		}
		b.code = appendUnsigned(b.code, label)
	}
	b.unreached()
}
