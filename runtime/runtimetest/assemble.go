package runtimetest

// The sections of a module by their numbers, for Section.
const (
	TypeSection     = 1
	ImportSection   = 2
	FunctionSection = 3
	TableSection    = 4
	MemorySection   = 5
	ExportSection   = 7
	StartSection    = 8
	CodeSection     = 10
	DataSection     = 11
)

// The kinds of imports and exports.
const (
	FunctionKind = 0
	TableKind    = 1
	MemoryKind   = 2
	GlobalKind   = 3
)

// Module assembles a module from its sections, for tests with modules that no compiler would write.
func Module(sections ...[]byte) []byte {
	module := []byte("\x00asm\x01\x00\x00\x00")
	for _, section := range sections {
		module = append(module, section...)
	}
	return module
}

// Section returns a section whose contents are a vector of elements.
func Section(id byte, elements ...[]byte) []byte {
	contents := Number(uint32(len(elements)))
	for _, element := range elements {
		contents = append(contents, element...)
	}
	return RawSection(id, contents)
}

// RawSection returns a section with any contents.
func RawSection(id byte, contents []byte) []byte {
	return append(append([]byte{id}, Number(uint32(len(contents)))...), contents...)
}

// FunctionType returns an element of the type section. params and results are bytes such as 0x7f for i32.
func FunctionType(params, results string) []byte {
	return append([]byte{0x60}, append(Name(params), Name(results)...)...)
}

// Import returns an element of the import section. The description depends on the kind, for example the index of a
// function's type, or the limits of a memory.
func Import(module, name string, kind byte, description ...byte) []byte {
	return append(append(append(Name(module), Name(name)...), kind), description...)
}

// Export returns an element of the export section.
func Export(name string, kind, index byte) []byte {
	return append(Name(name), kind, index)
}

// Body returns an element of the code section: a function without locals. Body appends the final end to code.
func Body(code ...byte) []byte {
	return append(Number(uint32(len(code)+2)), append(append([]byte{0}, code...), 0x0b)...)
}

// Name returns a string preceded by its length.
func Name(name string) []byte {
	return append(Number(uint32(len(name))), name...)
}

// Number returns a number in LEB128.
func Number(n uint32) []byte {
	var encoded []byte
	for n >= 0x80 {
		encoded = append(encoded, byte(n)|0x80)
		n >>= 7
	}
	return append(encoded, byte(n))
}

// Locals returns a command that consists of one function. The function has the given number of i32 locals and contains
// code, to which Locals appends the final end.
func Locals(locals int, code []byte) []byte {
	body := append([]byte{1}, Number(uint32(locals))...)
	body = append(append(append(body, 0x7f), code...), 0x0b)
	return Module(
		Section(TypeSection, FunctionType("", "")),
		Section(FunctionSection, []byte{0}),
		Section(ExportSection, Export("_start", FunctionKind, 0)),
		Section(CodeSection, append(Number(uint32(len(body))), body...)),
	)
}
