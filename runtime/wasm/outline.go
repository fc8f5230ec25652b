package wasm

import (
	"cmp"
	"slices"
	"strings"
)

// PageSize is the unit of memory sizes, in bytes.
const PageSize = 64 << 10

// validPages is the maximum size that a valid memory declares, in pages: 4 GiB. Source: core specification 2.0, section
// 3.2.1.
const validPages = 1 << 16

// MaxPages is the maximum size of a memory that Rewrite accepts, in pages: 2 GiB. wazero's compiler for amd64 (1.12.0,
// lowerAddendFromInstr) places an access at a constant address of 2 GiB or more 4 GiB too low, outside the memory. In a
// smaller memory no such address passes the bounds check.
const MaxPages = 1 << 15

// Magic begins every module and every component.
const Magic = "\x00asm"

// HeaderSize is the length of the magic, the version and the layer.
const HeaderSize = 8

// Type is a value type. Its value is the type's code in the binary format.
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

var typeNames = map[Type]string{
	I32: "i32", I64: "i64", F32: "f32", F64: "f64", V128: "v128", FuncRef: "funcref", ExternRef: "externref",
}

// String returns the name in the text format: i32, funcref.
func (t Type) String() string { return cmp.Or(typeNames[t], "unknown") }

// Number reports whether the type is an integer or a float.
func (t Type) Number() bool { return t == I32 || t == I64 || t == F32 || t == F64 }

// Signature is the type of a function.
type Signature struct {
	Params, Results []Type
}

// String returns the form "(i32, i64) -> (i32)".
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

// Kind is the kind of an import or export. Its value is the kind's code in the binary format.
type Kind byte

// The kinds of imports and exports.
const (
	Function Kind = iota
	Table
	Memory
	Global
)

var kindNames = map[Kind]string{Function: "function", Table: "table", Memory: "memory", Global: "global"}

// String returns the name, such as "function".
func (k Kind) String() string { return cmp.Or(kindNames[k], "unknown") }

// Import is something that the host must provide.
type Import struct {
	Module, Name string
	Kind         Kind
	Signature    *Signature // of a function, shared by all functions of its type; nil for other kinds
}

// Export is something that the host can use.
type Export struct {
	Name      string
	Kind      Kind
	Signature *Signature // of a function, shared by all functions of its type; nil for other kinds
}

// Limits is the size of a memory in pages or of a table in entries.
type Limits struct {
	Min, Max uint32
	HasMax   bool
}

// Outline is what a module declares.
type Outline struct {
	Imports []Import
	Exports []Export
	// Functions counts the functions that the module defines.
	Functions int
	// NameBytes is the total size of the names of imports, exports and functions, in bytes. Names that are not kept are
	// not counted.
	NameBytes int
	// Memories and Tables are the memories and tables that the module defines, with their declared limits.
	Memories, Tables []Limits
	// Mutable lists the types of the mutable globals that the module defines, in order. The rewritten module exports
	// those of number types: see GlobalExport.
	Mutable []Type
	// Lasting names the instructions of the module that change tables or segments. The names are sorted, without
	// duplicates.
	Lasting []string
	// Start is set if the module has a start function.
	Start bool
	// Overflow describes the first active element segment that exceeds its table; "" if all fit. Such a module is
	// valid, but cannot be instantiated.
	Overflow string
	// Custom lists the names of the custom sections.
	Custom []string
}

// Export returns the export with that name.
func (o *Outline) Export(name string) (Export, bool) {
	for _, export := range o.Exports {
		if export.Name == name {
			return export, true
		}
	}
	return Export{}, false
}

// ImportsFrom reports whether the module imports anything from a module.
func (o *Outline) ImportsFrom(module string) bool {
	return slices.ContainsFunc(o.Imports, func(i Import) bool { return i.Module == module })
}
