package wasm

import "strings"

// PageSize is the unit of memory sizes, in bytes.
const PageSize = 64 << 10

// validPages is what a memory may declare, in pages: 4 GiB. Source: core specification 2.0, section 3.2.1.
const validPages = 1 << 16

// MaxPages is what a memory may have, in pages: 2 GiB. Wazero's compiler for amd64 (1.12.0, lowerAddendFromInstr) puts an
// access at a constant address of 2 GiB or more 4 GiB too low, outside of the memory. In a smaller memory no such
// address passes the check of its bounds.
const MaxPages = 1 << 15

// Magic begins every module and every component.
const Magic = "\x00asm"

// HeaderSize is the length of the magic, the version and the layer.
const HeaderSize = 8

// Type is a value type by its code in the binary format.
type Type byte

// The value types.
const (
	I32       Type = 0x7f
	I64       Type = 0x7e
	F32       Type = 0x7d
	F64       Type = 0x7c
	V128      Type = 0x7b
	FuncRef   Type = 0x70
	ExternRef Type = 0x6f
)

// String is the name in the text format: i32, funcref.
func (t Type) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	default:
		return "unknown"
	}
}

// Number tells whether the type is one of integers or floats.
func (t Type) Number() bool { return t == I32 || t == I64 || t == F32 || t == F64 }

func (t Type) isReference() bool { return t == FuncRef || t == ExternRef }

// Signature is the type of a function.
type Signature struct {
	Params, Results []Type
}

// String writes a signature as "(i32, i64) -> (i32)".
func (s Signature) String() string {
	return list(s.Params) + " -> " + list(s.Results)
}

func list(types []Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// Kind says what an import or an export is, by its code in the binary format.
type Kind byte

// The kinds of imports and exports.
const (
	Function Kind = iota
	Table
	Memory
	Global
)

// String is the name in the text format, written out.
func (k Kind) String() string {
	switch k {
	case Function:
		return "function"
	case Table:
		return "table"
	case Memory:
		return "memory"
	case Global:
		return "global"
	default:
		return "unknown"
	}
}

// Import is something that the host must provide.
type Import struct {
	Module, Name string
	Kind         Kind
	Signature    *Signature // of a function, shared by all of its type; else nil
}

// Export is something that the host may use.
type Export struct {
	Name      string
	Kind      Kind
	Signature *Signature // of a function, shared by all of its type; else nil
}

// Limits is the size of a memory in pages or of a table in entries.
type Limits struct {
	Min, Max uint32
	HasMax   bool
}

// Outline is what a module says about itself.
type Outline struct {
	Imports []Import
	Exports []Export
	// Functions counts the functions that the module defines, without the imported ones.
	Functions int
	// Memories and Tables are the defined ones, without the imported ones, as the file declares them.
	Memories, Tables []Limits
	// Mutable lists the types of the globals that the module defines and may change, by their order in
	// the file. Those of numbers are exported by the rewritten module: see GlobalExport.
	Mutable []Type
	// Lasting names the instructions of the module that change what is neither memory nor a global: the
	// tables, and the segments that were dropped. Sorted, each once.
	Lasting []string
	// References tells that the module takes references of functions (ref.func in a body).
	References bool
	// Start tells that the module has a function that runs when it is instantiated.
	Start bool
	// Overflow tells of the first active element segment that does not fit into its table; "" if all do. The
	// module is valid, and no instance of it can be made.
	Overflow string
	// Custom lists the names of the custom sections.
	Custom []string
}

// Export returns the export of that name.
func (o *Outline) Export(name string) (Export, bool) {
	for _, export := range o.Exports {
		if export.Name == name {
			return export, true
		}
	}
	return Export{}, false
}

// ImportsFrom tells whether the module imports anything from that module.
func (o *Outline) ImportsFrom(module string) bool {
	for _, imported := range o.Imports {
		if imported.Module == module {
			return true
		}
	}
	return false
}
