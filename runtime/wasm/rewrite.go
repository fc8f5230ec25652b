package wasm

import (
	"maps"
	"slices"
	"strconv"
)

// Names that a rewritten module adds. A module that uses the prefix itself is refused.
const (
	// Prefix begins our import modules and exports.
	Prefix = "quern:"
	// HostModule is the import module of tick.
	HostModule = Prefix + "host"
	// TickName is the function (i32) -> (i32) that the guest calls when its counter is below zero: it takes the counter
	// and returns the next one.
	TickName = "tick"
	// FuelExport is the counter, a mutable i32. It starts at 0, so that the first charge calls tick.
	FuelExport = Prefix + "fuel"
	// StartExport is the module's start function: nothing runs at instantiation.
	StartExport = Prefix + "start"
)

// GlobalExport returns the export name of Outline.Mutable[i]. References and vectors are not exported: the host cannot
// set them.
func GlobalExport(i int) string { return Prefix + "global:" + strconv.Itoa(i) }

// Options of Rewrite. The zero value works.
type Options struct {
	Caps Caps // limits of a module
	// Every is how many instructions may gather on a path before they are charged. Default 256; with 1, exactly the
	// executed instructions are charged, each before it runs.
	Every int

	unrepaired bool // tests only: leaves out repair.go
}

func (o Options) withDefaults() Options {
	if o.Every <= 0 {
		o.Every = 256
	}
	o.Caps = o.Caps.withDefaults()
	return o
}

// Rewritten is a rewritten module.
type Rewritten struct {
	Outline
	Binary  []byte // for the compiler
	Charges int    // number of charge points
	// Code is the size of the file's code section, in bytes.
	Code int
	// Entries counts the entries of all sections except code, Elements the elements of all segments.
	Entries, Elements int
	// Locals counts the locals of all functions, parameters included.
	Locals int
	// InstancePrice is the fuel for making an instance, which the module's code does not charge.
	InstancePrice int64
	// TableMemory is the most memory that an instance's tables take, in bytes.
	TableMemory int64
}

// Rewrite checks a core module and rewrites it: see the package comment. An error is an *Error; the result is then
// filled as far as the file was read, and Binary is nil. The file is not kept. Operand types are left to the
// compiler, except those of selects: a function with invalid types stays invalid.
func Rewrite(file []byte, o Options) (*Rewritten, error) {
	d := &decoder{
		options: o.withDefaults(), out: &Rewritten{}, function: outside, declared: map[uint32]bool{},
		helpers: helpers{indices: map[helperKey]uint32{}, slotOf: map[uint32]int{}, lasting: map[string]bool{}},
	}
	err := d.module(file)
	d.out.Lasting = slices.Sorted(maps.Keys(d.helpers.lasting))
	if err != nil {
		return d.out, err
	}
	d.out.Binary = d.encode(len(file))
	d.out.Elements = d.references
	for id, part := range d.parts {
		if id != sectionCode {
			d.out.Entries += part.count
		}
	}
	return d.out, nil
}
