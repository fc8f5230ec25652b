package wasm

import "strings"

// PageSize is the unit of memory sizes, in bytes.
const PageSize = 64 << 10

// Magic begins every module and every component.
const Magic = "\x00asm"

// HeaderSize is the length of the magic, the version and the layer.
const HeaderSize = 8

// Type is a value type, by the names of the text format: i32, i64, f32, f64, v128, funcref …
type Type string

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
		names[i] = string(t)
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// ExternKind says what an import or an export is.
type ExternKind string

// The kinds of imports and exports.
const (
	Function ExternKind = "function"
	Table    ExternKind = "table"
	Memory   ExternKind = "memory"
	Global   ExternKind = "global"
	Tag      ExternKind = "tag"
)

// Import is something that the host must provide.
type Import struct {
	Module, Name string
	Kind         ExternKind
	Signature    Signature // of a function
}

// Export is something that the host may use.
type Export struct {
	Name      string
	Kind      ExternKind
	Signature Signature // of a function
}

// Limits is the size of a memory in pages or of a table in entries.
type Limits struct {
	Min    uint64
	Max    uint64
	HasMax bool
}

// Outline is what a module says about itself.
type Outline struct {
	Imports []Import
	Exports []Export
	// Functions counts the functions that the module defines, without the imported ones.
	Functions int
	// Memories and Tables are the defined ones, without the imported ones.
	Memories, Tables []Limits
	// Start tells that the module has a function that runs when it is instantiated.
	Start bool
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
