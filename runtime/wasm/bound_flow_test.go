package wasm

import (
	"fmt"
	"testing"
)

// flow is the worst of what is known at an instruction, over all paths that lead to it. Instructions are counted in
// plain order of execution; that the rewriter charges for what has gathered is no excuse for what ran before the charge.
type flow struct {
	seen bool
	// run counts the instructions since the last charge that no charge had covered when they were executed.
	run int32
	// cover counts those to come that the last charge has paid for.
	cover int32
	// tail counts those since the last return of a call, paid for or not; -1 if a charge has been since.
	tail int32
	// entry tells that there was no charge since the function was entered.
	entry bool
}

func (a flow) join(b flow) flow {
	if !a.seen {
		return b
	}
	return flow{true, max(a.run, b.run), min(a.cover, b.cover), max(a.tail, b.tail), a.entry || b.entry}
}

// endlessRun stands for a loop without a charge.
const endlessRun = 1 << 20

// flowResult is what the verifier says of a function.
type flowResult struct {
	// run is the longest uncharged one, tail the longest after a call and exit the longest uncharged one at a return.
	run, tail, exit int32
	// late tells that something is executed before the first charge.
	late bool
	// inexact tells of the first charge that is not the price of the straight line behind it, "" if there is none.
	inexact string
	charged bool
}

// boundFlow follows all paths of a function to a fixed point.
type boundFlow struct {
	m      *boundModule
	code   []boundInstr
	after  func(call *boundInstr, run int32) int32 // the run after a call
	states []flow
	dirty  []bool // those to look at, again if there are such
	again  bool
	chain  []int32 // the block around each instruction, -1 for the function
	result flowResult
}

func (m *boundModule) follow(function int, after func(call *boundInstr, run int32) int32) flowResult {
	f := &boundFlow{m: m, code: m.functions[function], after: after}
	f.states, f.dirty = make([]flow, len(f.code)+1), make([]bool, len(f.code))
	f.parents()
	f.reach(0, flow{seen: true, tail: -1, entry: true})
	for f.again {
		f.again = false
		for at := range f.code {
			if f.dirty[at] {
				f.dirty[at] = false
				f.execute(at, f.states[at])
			}
		}
	}
	exit := f.states[len(f.code)]
	f.result.exit = exit.run
	return f.result
}

// parents notes for each instruction the block that it is in.
func (f *boundFlow) parents() {
	f.chain = make([]int32, len(f.code))
	current := int32(-1)
	for at := range f.code {
		i := &f.code[at]
		f.chain[at] = current
		switch i.op {
		case opBlock, opLoop, opIf:
			current = int32(at)
		case opEnd:
			if current >= 0 {
				current = f.chain[current]
			}
		}
	}
}

// target is where a branch leads: behind the end of a block, to the head of a loop, out of the function.
func (f *boundFlow) target(at int, label int64) int {
	block := f.chain[at]
	for range label {
		block = f.chain[block]
	}
	switch {
	case block < 0:
		return len(f.code)
	case f.code[block].op == opLoop:
		return int(block)
	default:
		return f.code[block].match + 1
	}
}

// reach joins a state to that of an instruction, which is looked at again if that changed it.
func (f *boundFlow) reach(at int, s flow) {
	joined := f.states[at].join(s)
	if joined != f.states[at] {
		f.states[at] = joined
		if at < len(f.code) {
			f.dirty[at], f.again = true, true
		}
	}
}

func (f *boundFlow) execute(at int, s flow) {
	i := &f.code[at]
	if amount, next, ok := f.m.chargeAt(f.code, at); ok {
		f.result.charged = true
		length, price := f.straight(next)
		if amount >= 0 && amount != price && f.result.inexact == "" {
			f.result.inexact = fmt.Sprintf("at instruction %d %d for %d", at, amount, price)
		}
		f.reach(next, flow{seen: true, cover: int32(min(max(amount, 0), length)), tail: -1})
		return
	}
	if (i.op == opGlobalGet || i.op == opGlobalSet) && i.value == f.m.fuel {
		f.result.inexact = fmt.Sprintf("the counter is used at instruction %d outside of a charge", at)
		f.result.run = endlessRun
		return
	}
	if i.counted() {
		f.count(&s)
	}
	f.succeed(at, i, s)
}

func (f *boundFlow) count(s *flow) {
	if s.cover > 0 {
		s.cover--
	} else {
		s.run = min(s.run+1, endlessRun)
	}
	if s.tail >= 0 {
		s.tail = min(s.tail+1, endlessRun)
	}
	f.result.late = f.result.late || s.entry
	f.result.run = max(f.result.run, s.run)
	f.result.tail = max(f.result.tail, s.tail)
}

// succeed goes on with what may come after an instruction.
func (f *boundFlow) succeed(at int, i *boundInstr, s flow) {
	switch i.op {
	case opUnreachable:
	case opReturn:
		f.reach(len(f.code), s)
	case opBranch:
		f.reach(f.target(at, i.value), s)
	case opBranchTable:
		for _, label := range i.labels {
			f.reach(f.target(at, label), s)
		}
	case opElse: // the end of the first arm
		f.reach(i.match+1, s)
	case opIf:
		if i.other >= 0 {
			f.reach(i.other+1, s)
		} else {
			f.reach(i.match+1, s)
		}
		f.reach(at+1, s)
	case opBranchIf:
		f.reach(f.target(at, i.value), s)
		f.reach(at+1, s)
	case opCall, opCallIndirect:
		s.run = f.after(i, s.run)
		if i.op == opCallIndirect || int(i.value) < f.m.imports+f.m.own { // helpers do not recurse
			s.tail = 0
		}
		f.reach(at+1, s)
	default:
		f.reach(at+1, s)
	}
}

// straight is the straight line behind a charge: its length and its price.
func (f *boundFlow) straight(at int) (length, price int64) {
	for ; at < len(f.code); at++ {
		i := &f.code[at]
		if _, _, ok := f.m.chargeAt(f.code, at); ok {
			return length, price
		}
		price += f.m.price(i)
		if i.counted() {
			length++
		}
		switch i.op {
		case opElse, opIf, opBranch, opBranchIf, opBranchTable, opReturn, opUnreachable:
			return length, price
		}
	}
	return length, price
}

// bounds is what the verifier says of a module.
type bounds struct {
	run, tail, exit int32
	functions       int
	charges         int
}

func (b bounds) String() string {
	return fmt.Sprintf("%d functions, %d charges: %d instructions uncharged, %d after a call, %d at a return", b.functions, b.charges, b.run, b.tail, b.exit)
}

// What a rewritten module may have at most with the default options.
const (
	maxRun  = 600
	maxTail = 0
)

// verify checks all functions of a rewritten module: the greatest run of a path, with the run at the return of what it
// calls.
func verify(t testing.TB, m *Rewritten, exact bool) (all bounds) {
	t.Helper()
	module := decodeBound(t, m)
	exits := make([]int32, len(module.functions))
	charged := make([]bool, len(module.functions))
	worst := int32(0)
	all.charges = m.Charges
	for n := range module.functions {
		if module.refuels(module.imports + n) {
			continue
		}
		result := module.follow(n, func(*boundInstr, int32) int32 { return 0 })
		exits[n], charged[n] = result.exit, result.charged
		worst = max(worst, result.exit)
		if exact && n < module.own && (result.inexact != "" || result.run > 0) {
			t.Errorf("function %d: charged %s, %d instructions uncharged", n, result.inexact, result.run)
		}
	}
	after := func(call *boundInstr, run int32) int32 {
		callee := int(call.value) - module.imports
		switch {
		case call.op == opCallIndirect:
			return max(run, worst)
		case callee < 0: // of the host, or tick
			return run
		case charged[callee]:
			return exits[callee]
		default:
			return max(run, exits[callee])
		}
	}
	for n := range module.functions {
		if module.refuels(module.imports + n) { // it is part of the charges
			continue
		}
		result := module.follow(n, after)
		all.run, all.tail, all.exit = max(all.run, result.run), max(all.tail, result.tail), max(all.exit, result.exit)
		all.functions++
		if result.late && n < module.own {
			t.Errorf("function %d begins without a charge", n)
		}
		if result.run > maxRun || result.tail > maxTail {
			t.Errorf("function %d: %d instructions run uncharged, %d after a call", n, result.run, result.tail)
		}
		if t.Failed() {
			break
		}
	}
	return all
}
