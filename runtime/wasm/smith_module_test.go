package wasm

import (
	"slices"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// choices are bytes that decide what a random program is. Behind the last every choice is 0, which the smith takes for
// the end of things: the fewer the bytes, the smaller the program.
type choices struct {
	bytes []byte
	at    int
}

// pick is a number below n, which is at most 256.
func (c *choices) pick(n int) int {
	if c.at >= len(c.bytes) || n <= 1 {
		return 0
	}
	c.at++
	return int(c.bytes[c.at-1]) % n
}

// rarely is true once in n times, and never behind the end.
func (c *choices) rarely(n int) bool { return c.pick(n) == n-1 && n > 1 }

// raw are n bytes.
func (c *choices) raw(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(c.pick(256))
	}
	return b
}

// smith makes valid modules with a bit of everything, out of choices. All that it makes ends: each function and each
// turn of a loop takes one from the global "budget", and returns when nothing is left of it. What is made exports its
// functions f0, f1, ..., all of its globals g0, g1, ... and its memory, and imports the functions of smithHost.
type smith struct {
	*choices
	types     []Signature
	functions []int // their types, the imported ones first
	globals   []global
	tables    []Type
	elements  []Type // of segments
	segments  int    // of data
	endless   bool   // no budget: the program may run for ever
	tall      bool   // a memory as large as one may be, and accesses at both of its ends

	elementCode, dataCode [][]byte
}

// numbers are the types that have constants.
var numbers = []Type{I32, I64, F32, F64, V128}

// smithHost are the functions that modules import from "host": a and b.
var smithHost = []Signature{{Params: []Type{I32}, Results: []Type{I32}}, {Params: []Type{F64, I64}}}

const (
	budgetGlobal = 0 // mutable i32, exported as "budget"
	tableSize    = 8
)

// forge makes a module.
func forge(bytes []byte) []byte { return (&smith{choices: &choices{bytes: bytes}}).module() }

func (s *smith) module() []byte {
	var imports, functions, tables, memories, globals, exports, bodies [][]byte
	s.types = append(s.types, smithHost...)
	for i := range smithHost {
		s.functions = append(s.functions, i)
		imports = append(imports, runtimetest.Import("host", string(rune('a'+i)), runtimetest.FunctionKind, byte(i)))
	}
	for range 1 + s.pick(5) {
		s.functions = append(s.functions, s.typeOf(s.signature(3)))
	}
	s.functions = append(s.functions, s.typeOf(Signature{})) // may be the start function
	for i, t := range s.functions[len(smithHost):] {
		functions = append(functions, runtimetest.Number(uint32(t)))
		exports = append(exports, runtimetest.Export("f"+string(rune('0'+i)), runtimetest.FunctionKind, byte(len(smithHost)+i)))
	}
	s.tables = []Type{FuncRef, ExternRef, FuncRef}
	tables = [][]byte{{byte(FuncRef), 1, tableSize, 2 * tableSize}, {byte(ExternRef), 0, tableSize}, {byte(FuncRef), 0, 0}}
	memories = [][]byte{{1, 1, byte(1 + s.pick(4))}}
	if s.tall {
		memories = [][]byte{slices.Concat([]byte{1}, runtimetest.Number(MaxPages-1), runtimetest.Number(MaxPages))}
	}
	exports = append(exports, runtimetest.Export("memory", runtimetest.MemoryKind, 0))
	globals, exports = s.globalSection(exports)
	s.segmentSections()
	for _, t := range s.functions[len(smithHost):] {
		bodies = append(bodies, s.body(s.types[t]))
	}
	var types [][]byte
	for _, t := range s.types { // bodies have added some
		types = append(types, runtimetest.FunctionType(typeString(t.Params), typeString(t.Results)))
	}
	module := runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, types...),
		runtimetest.Section(runtimetest.ImportSection, imports...),
		runtimetest.RawSection(0, append(runtimetest.Name("padding"), s.raw(s.pick(8))...)),
		runtimetest.Section(runtimetest.FunctionSection, functions...),
		runtimetest.Section(runtimetest.TableSection, tables...),
		runtimetest.Section(runtimetest.MemorySection, memories...),
		runtimetest.Section(globalSection, globals...),
		runtimetest.Section(runtimetest.ExportSection, exports...))
	if s.rarely(3) {
		module = append(module, runtimetest.RawSection(runtimetest.StartSection, runtimetest.Number(uint32(len(s.functions)-1)))...)
	}
	return slices.Concat(module,
		runtimetest.Section(elementSection, s.elementCode...),
		runtimetest.RawSection(dataCountSection, runtimetest.Number(uint32(s.segments))),
		runtimetest.Section(runtimetest.CodeSection, bodies...),
		runtimetest.Section(runtimetest.DataSection, s.dataCode...))
}

// The sections that package runtimetest does not name.
const (
	globalSection    = 6
	elementSection   = 9
	dataCountSection = 12
)

func typeString(types []Type) string {
	var b []byte
	for _, t := range types {
		b = append(b, byte(t))
	}
	return string(b)
}

// valueType is any type; references are seldom.
func (s *smith) valueType() Type {
	if s.rarely(8) {
		return []Type{FuncRef, ExternRef}[s.pick(2)]
	}
	return numbers[s.pick(len(numbers))]
}

func (s *smith) signature(most int) (t Signature) {
	for range s.pick(most + 1) {
		t.Params = append(t.Params, s.valueType())
	}
	for range s.pick(most + 1) {
		t.Results = append(t.Results, s.valueType())
	}
	return t
}

// typeOf is the index of a type, which is added if it is new.
func (s *smith) typeOf(t Signature) int {
	i := slices.IndexFunc(s.types, func(u Signature) bool { return u.String() == t.String() })
	if i < 0 {
		s.types = append(s.types, t)
		i = len(s.types) - 1
	}
	return i
}

func (s *smith) globalSection(exports [][]byte) (globals, allExports [][]byte) {
	s.globals = []global{{of: I32, mutable: true}}
	globals = [][]byte{{byte(I32), 1, opI32Const, 0, opEnd}}
	exports = append(exports, runtimetest.Export("budget", runtimetest.GlobalKind, budgetGlobal))
	for i := range 2 + s.pick(5) {
		g := global{of: s.valueType(), mutable: !s.rarely(4)}
		s.globals = append(s.globals, g)
		code := []byte{byte(g.of), 0}
		if g.mutable {
			code[1] = 1
		}
		globals = append(globals, slices.Concat(code, s.constant(g.of), []byte{opEnd}))
		exports = append(exports, runtimetest.Export("g"+string(rune('0'+i)), runtimetest.GlobalKind, byte(i+1)))
	}
	return globals, exports
}

// constant is the code of a constant. Those of small numbers are more likely.
func (s *smith) constant(t Type) []byte {
	switch t {
	case I32:
		return appendSigned([]byte{opI32Const}, int64(int32(s.integer())))
	case I64:
		return appendSigned([]byte{opI64Const}, s.integer())
	case F32:
		return append([]byte{opF32Const}, s.raw(4)...)
	case F64:
		return append([]byte{opF64Const}, s.raw(8)...)
	case V128:
		return append([]byte{opVector, vectorConst}, s.raw(16)...)
	case FuncRef:
		if s.pick(2) == 1 {
			return append([]byte{opRefFunc}, runtimetest.Number(uint32(s.pick(len(s.functions))))...)
		}
		return []byte{opRefNull, byte(t)}
	default:
		return []byte{opRefNull, byte(t)}
	}
}

func (s *smith) integer() int64 {
	interesting := []int64{0, -1, 1 << 31, 1<<31 - 1, -1 << 63, 1<<63 - 1, 1 << 16, 63, 64, 127, 128}
	switch s.pick(4) {
	case 0, 1:
		return int64(s.pick(32))
	case 2:
		return interesting[s.pick(len(interesting))]
	default:
		var n int64
		for _, b := range s.raw(8) {
			n = n<<8 | int64(b)
		}
		return n
	}
}

// segmentSections makes the segments: active ones for the first table and the memory, passive ones for the rest, and
// one that declares every function.
func (s *smith) segmentSections() {
	function := func() []byte { return runtimetest.Number(uint32(s.pick(len(s.functions)))) }
	active := []byte{0, opI32Const, byte(s.pick(3)), opEnd, 5}
	passive := []byte{1, 0, 4}
	expressions := []byte{5, byte(FuncRef), 2, opRefNull, byte(FuncRef), opEnd, opRefFunc}
	for range 5 {
		active = append(active, function()...)
	}
	for range 4 {
		passive = append(passive, function()...)
	}
	expressions = append(append(expressions, function()...), opEnd)
	declared := append([]byte{3, 0}, runtimetest.Number(uint32(len(s.functions)))...)
	for i := range s.functions {
		declared = append(declared, runtimetest.Number(uint32(i))...)
	}
	s.elementCode = [][]byte{active, passive, expressions, declared}
	s.elements = []Type{FuncRef, FuncRef, FuncRef, FuncRef}

	for range 1 + s.pick(3) {
		n := s.pick(40)
		code := []byte{1}
		if s.pick(2) == 0 {
			code = append(appendSigned([]byte{0, opI32Const}, int64(s.pick(256)*64)), opEnd)
		}
		s.dataCode = append(s.dataCode, slices.Concat(code, runtimetest.Number(uint32(n)), s.raw(n)))
	}
	s.segments = len(s.dataCode)
}
