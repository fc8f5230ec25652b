package wasm

// This file follows the types of a function's operands, as far as rewriting needs them. The compiler checks the types
// again, and refuses a module for which this package is wrong.

// effect is the effect of an instruction on the operands. pops is the number of operands that it pops. push is the type
// of the operand that it pushes, 0 if it pushes none.
type effect struct {
	pops byte
	push Type
}

// effects are the effects of one-byte instructions with fixed operand types. Source: core specification 2.0, section
// 3.3.
var effects = func() (table [256]effect) {
	fill(&table, 0x1a, 0x1a, effect{1, 0}) // drop
	// Loads by type, stores, memory.size and memory.grow.
	for op, t := range map[int]Type{0x28: I32, 0x29: I64, 0x2a: F32, 0x2b: F64} {
		fill(&table, op, op, effect{1, t})
	}
	fill(&table, 0x2c, 0x2f, effect{1, I32})
	fill(&table, 0x30, 0x35, effect{1, I64})
	fill(&table, 0x36, 0x3e, effect{2, 0})
	fill(&table, 0x3f, 0x3f, effect{0, I32})
	fill(&table, 0x40, 0x40, effect{1, I32})
	for op, t := range map[int]Type{0x41: I32, 0x42: I64, 0x43: F32, 0x44: F64} {
		fill(&table, op, op, effect{0, t})
	}
	// Comparisons.
	fill(&table, 0x45, 0x45, effect{1, I32})
	fill(&table, 0x46, 0x4f, effect{2, I32})
	fill(&table, 0x50, 0x50, effect{1, I32})
	fill(&table, 0x51, 0x66, effect{2, I32})
	// Arithmetic, by type: first with one operand, then with two.
	fill(&table, 0x67, 0x69, effect{1, I32})
	fill(&table, 0x6a, 0x78, effect{2, I32})
	fill(&table, 0x79, 0x7b, effect{1, I64})
	fill(&table, 0x7c, 0x8a, effect{2, I64})
	fill(&table, 0x8b, 0x91, effect{1, F32})
	fill(&table, 0x92, 0x98, effect{2, F32})
	fill(&table, 0x99, 0x9f, effect{1, F64})
	fill(&table, 0xa0, 0xa6, effect{2, F64})
	// Conversions.
	fill(&table, 0xa7, 0xab, effect{1, I32})
	fill(&table, 0xac, 0xb1, effect{1, I64})
	fill(&table, 0xb2, 0xb6, effect{1, F32})
	fill(&table, 0xb7, 0xbb, effect{1, F64})
	for op, t := range map[int]Type{0xbc: I32, 0xbd: I64, 0xbe: F32, 0xbf: F64} {
		fill(&table, op, op, effect{1, t})
	}
	fill(&table, 0xc0, 0xc1, effect{1, I32})
	fill(&table, 0xc2, 0xc4, effect{1, I64})
	fill(&table, 0xd1, 0xd1, effect{1, I32}) // ref.is_null
	return table
}()

// bulkEffects are the effects of instructions after opBulk with fixed operand types.
var bulkEffects = [bulkTableFill + 1]effect{
	0: {1, I32}, 1: {1, I32}, 2: {1, I32}, 3: {1, I32}, // saturating conversions
	4: {1, I64}, 5: {1, I64}, 6: {1, I64}, 7: {1, I64},
	bulkMemoryInit: {3, 0}, bulkDataDrop: {}, bulkMemoryCopy: {3, 0}, bulkMemoryFill: {3, 0},
	bulkTableInit: {3, 0}, bulkElemDrop: {}, bulkTableCopy: {3, 0}, bulkTableGrow: {2, I32},
	bulkTableSize: {0, I32}, bulkTableFill: {3, 0},
}

// vectorEffects are the effects of instructions after opVector. Most of them pop two vectors.
var vectorEffects = func() (table [256]effect) {
	ones := func(ranges ...[2]int) {
		for _, r := range ranges {
			fill(&table, r[0], r[1], effect{1, V128})
		}
	}
	fill(&table, 0, 255, effect{2, V128})
	ones([2]int{0, 10})                // loads
	fill(&table, 11, 11, effect{2, 0}) // store
	fill(&table, vectorConst, vectorConst, effect{0, V128})
	ones([2]int{15, 20}) // splats
	for op, t := range map[int]Type{21: I32, 22: I32, 24: I32, 25: I32, 27: I32, 29: I64, 31: F32, 33: F64} {
		fill(&table, op, op, effect{1, t}) // extract_lane
	}
	ones([2]int{77, 77})                  // not
	fill(&table, 82, 82, effect{3, V128}) // bitselect
	fill(&table, 83, 83, effect{1, I32})  // any_true
	fill(&table, 88, 91, effect{2, 0})    // stores of a lane
	ones([2]int{92, 98})                  // loads with zeroes; demote, promote; abs, neg, popcnt
	for op := 99; op < 224; op += 32 {    // all_true and bitmask of each shape
		fill(&table, op, op+1, effect{1, I32})
	}
	ones([2]int{103, 106}, [2]int{116, 117}, [2]int{122, 122}, [2]int{148, 148}) // roundings
	ones([2]int{124, 129}, [2]int{160, 161}, [2]int{192, 193})                   // extadd_pairwise; abs, neg
	ones([2]int{135, 138}, [2]int{167, 170}, [2]int{199, 202})                   // extend
	ones([2]int{224, 225}, [2]int{227, 227}, [2]int{236, 237}, [2]int{239, 239}) // abs, neg, sqrt
	ones([2]int{248, 255})                                                       // conversions
	return table
}()

// operandStack follows the types of the operands of a function, block by block.
type operandStack struct {
	frames   []frame
	operands []Type // operands of all open blocks, the innermost block last; 0 for an unknown type
}

func (s *operandStack) apply(e effect) {
	s.pop(int(e.pops))
	if e.push != 0 {
		s.operands = append(s.operands, e.push)
	}
}

func (s *operandStack) push(types ...Type) { s.operands = append(s.operands, types...) }

// pop pops n operands of the innermost block, or all of them if there are fewer, which happens after an
// unconditional branch.
func (s *operandStack) pop(n int) {
	s.operands = s.operands[:max(int(s.frames[len(s.frames)-1].height), len(s.operands)-n)]
}

// top returns the type of an operand. At depth 0 is the topmost operand, at depth 1 the operand below. The type is 0 if
// it is unknown, which happens after an unconditional branch.
func (s *operandStack) top(depth int) Type {
	at := len(s.operands) - 1 - depth
	if at < int(s.frames[len(s.frames)-1].height) {
		return 0
	}
	return s.operands[at]
}

// access applies the effect of a get, set or tee of a variable.
func (s *operandStack) access(op byte, of Type) {
	const get, set = 0, 1
	if op != get {
		s.pop(1)
	}
	if op != set {
		s.push(of)
	}
}

// blocks are the signatures of blocks without parameters, by the code of the result's type. The signature at 0 has no
// result.
var blocks = func() (all [0x80]Signature) {
	for code := range all[1:] {
		all[code+1].Results = []Type{Type(code + 1)}
	}
	return all
}()
