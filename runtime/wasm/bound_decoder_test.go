package wasm

import "testing"

// What follows reads rewritten modules for the verifier of bound_test.go. It shares nothing with the package but the
// names of instructions, and takes it for granted that a module is valid.

// boundModule is what the verifier needs of a module.
type boundModule struct {
	imports   int   // functions
	tick      int   // its index, -1 without
	fuel      int64 // the index of the counter
	functions [][]boundInstr
	own       int // functions that are the guest's; behind them are the helpers
	hidden    int // the table that stands for ref.func
}

// boundInstr is an instruction.
type boundInstr struct {
	op     byte
	free   bool   // it makes machine code, but is part of the one before it
	sub    uint32 // behind a prefix
	value  int64  // the first immediate
	labels []int64
	match  int // the end of a block, loop, if or else
	other  int // the else of an if, -1 without
}

// counted tells whether it is one of those that make machine code.
func (i *boundInstr) counted() bool {
	switch i.op {
	case opBlock, opLoop, opElse, opEnd:
		return false
	default:
		return !i.free
	}
}

// price is what an instruction costs by the rules of the package.
func (m *boundModule) price(i *boundInstr) int64 {
	callee := int(i.value) - m.imports
	switch {
	case !i.counted():
		return 0
	case i.op == opMemoryGrow, i.op == opCall && callee >= m.own && m.grows(callee):
		return growPrice
	default:
		return 1
	}
}

// grows tells whether a helper is that of table.grow.
func (m *boundModule) grows(function int) bool {
	for _, i := range m.functions[function] {
		if i.op == opBulk && i.sub == bulkTableGrow {
			return true
		}
	}
	return false
}

// boundReader reads what is known to be valid: out of bounds is a panic.
type boundReader struct {
	b  []byte
	at int
}

func (r *boundReader) byte() byte { r.at++; return r.b[r.at-1] }

func (r *boundReader) number() int64 {
	n, shift := int64(0), 0
	for {
		b := r.byte()
		n |= int64(b&0x7f) << shift
		if shift += 7; b < 0x80 {
			return n
		}
	}
}

func (r *boundReader) signed() int64 {
	from := r.at
	n := r.number()
	if bits := 7 * (r.at - from); bits < 64 {
		n = n << (64 - bits) >> (64 - bits)
	}
	return n
}

func (r *boundReader) take(n int64) []byte {
	r.at += int(n)
	return r.b[r.at-int(n) : r.at]
}

func (r *boundReader) name() string { return string(r.take(r.number())) }

func (r *boundReader) limits() {
	if r.byte()&1 != 0 {
		r.number()
	}
	r.number()
}

// decodeBound reads a rewritten module.
func decodeBound(t testing.TB, rewritten *Rewritten) *boundModule {
	t.Helper()
	m := &boundModule{tick: -1, fuel: -1, own: rewritten.Functions, hidden: len(rewritten.Tables)}
	for _, i := range rewritten.Imports {
		if i.Kind == Table {
			m.hidden++
		}
	}
	r := &boundReader{b: rewritten.Binary, at: HeaderSize}
	for r.at < len(r.b) {
		id := r.byte()
		section := &boundReader{b: r.take(r.number())}
		switch id {
		case 2:
			m.importSection(section)
		case 7:
			m.exportSection(section)
		case 10:
			for range section.number() {
				m.functions = append(m.functions, m.decodeBody(t, section.take(section.number())))
			}
		}
	}
	if m.fuel < 0 {
		t.Fatal("no counter is exported")
	}
	return m
}

func (m *boundModule) importSection(r *boundReader) {
	for range r.number() {
		module, name := r.name(), r.name()
		switch r.byte() {
		case 0:
			r.number()
			if module == HostModule && name == TickName {
				m.tick = m.imports
			}
			m.imports++
		case 1:
			r.byte()
			r.limits()
		case 2:
			r.limits()
		case 3:
			r.take(2)
		}
	}
}

func (m *boundModule) exportSection(r *boundReader) {
	for range r.number() {
		name, kind, index := r.name(), r.byte(), r.number()
		if name == FuelExport && kind == byte(Global) {
			m.fuel = index
		}
	}
}

// decodeBody reads the instructions of a function and where its blocks end.
func (m *boundModule) decodeBody(t testing.TB, code []byte) (all []boundInstr) {
	t.Helper()
	r := &boundReader{b: code}
	for range r.number() {
		r.number()
		r.byte()
	}
	var open []int
	for r.at < len(r.b) {
		i := boundInstr{op: r.byte(), other: -1}
		r.immediates(t, &i)
		i.free = i.op == opTableGet && i.value == int64(m.hidden)
		at := len(all)
		all = append(all, i)
		switch i.op {
		case opBlock, opLoop, opIf:
			open = append(open, at)
		case opElse:
			all[open[len(open)-1]].other = at
		case opEnd:
			if len(open) > 0 {
				begin := &all[open[len(open)-1]]
				begin.match = at
				if begin.other >= 0 {
					all[begin.other].match = at
				}
				open = open[:len(open)-1]
			}
		}
	}
	return all
}

// immediates reads what follows the code of an instruction.
func (r *boundReader) immediates(t testing.TB, i *boundInstr) {
	switch op := i.op; {
	case op == opBlock || op == opLoop || op == opIf || op == opI32Const || op == opI64Const:
		i.value = r.signed()
	case op == opBranch || op == opBranchIf || op == opCall || op >= 0x20 && op <= 0x26 || op == opMemorySize || op == opMemoryGrow ||
		op == opRefNull || op == opRefFunc:
		i.value = r.number()
	case op == opBranchTable:
		for range r.number() + 1 {
			i.labels = append(i.labels, r.number())
		}
	case op == opCallIndirect || op >= 0x28 && op <= 0x3e:
		i.value = r.number()
		r.number()
	case op == opF32Const:
		r.take(4)
	case op == opF64Const:
		r.take(8)
	case op == opSelectTyped:
		r.take(r.number())
	case op == opBulk:
		i.sub = uint32(r.number())
		for range []int{0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1}[i.sub] {
			r.number()
		}
	case op == opVector:
		i.sub = uint32(r.number())
		switch n := i.sub; {
		case n == 12 || n == 13:
			r.take(16)
		case n <= 11 || n == 92 || n == 93:
			r.number()
			r.number()
		case n >= 84 && n <= 91:
			r.number()
			r.number()
			r.byte()
		case n >= 21 && n <= 34:
			r.byte()
		}
	case op <= 0x1b || op >= 0x45 && op <= 0xc4 || op == opRefIsNull:
	default:
		t.Fatalf("the verifier does not know the instruction 0x%02x", op)
	}
}

// chargeAt tells whether a charge point begins at an instruction, what it charges, and where it ends. The amount is
// -1 if it is computed.
func (m *boundModule) chargeAt(code []boundInstr, at int) (amount int64, next int, ok bool) {
	if code[at].op != opGlobalGet || code[at].value != m.fuel {
		return 0, 0, false
	}
	rest := code[at+1:]
	switch {
	case match(rest, opI32Const, opI32Sub):
		amount, rest = rest[0].value, rest[2:]
	case match(rest, opLocalGet, opI32Const, opI32ShrU, opI32Sub):
		amount, rest = -1, rest[4:]
	default:
		return 0, 0, false
	}
	if !match(rest, opGlobalSet, opGlobalGet, opI32Const, opI32LtS, opIf) || rest[0].value != m.fuel || rest[1].value != m.fuel || rest[2].value != 0 {
		return 0, 0, false
	}
	rest = rest[5:]
	if match(rest, opLocalGet, opI32Const, opI32Or, opCall) { // it notes its place
		rest = rest[3:]
	}
	ok = match(rest, opCall, opEnd) && m.refuels(int(rest[0].value))
	return amount, len(code) - len(rest) + 2, ok
}

func match(code []boundInstr, ops ...byte) bool {
	if len(code) < len(ops) {
		return false
	}
	for i, op := range ops {
		if code[i].op != op {
			return false
		}
	}
	return true
}

// refuels tells whether a function is counter = tick(counter), maybe after it has noted a place.
func (m *boundModule) refuels(function int) bool {
	if function < m.imports {
		return false
	}
	code := m.functions[function-m.imports]
	if match(code, opLocalGet, opGlobalSet) || match(code, opI32Const, opGlobalSet) {
		code = code[2:]
	}
	return len(code) == 4 && match(code, opGlobalGet, opCall, opGlobalSet, opEnd) &&
		code[0].value == m.fuel && code[1].value == int64(m.tick) && code[2].value == m.fuel
}
