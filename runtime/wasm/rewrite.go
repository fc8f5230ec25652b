package wasm

import (
	"maps"
	"slices"
	"strconv"
)

// Names that a rewritten module adds. A module that uses the prefix itself is refused.
const (
	// Prefix begins the names of the import modules and exports that we add.
	Prefix = "quern:"
	// HostModule is the module from which tick is imported.
	HostModule = Prefix + "host"
	// TickName is the name of the function (i32) -> (i32) that the guest calls when its counter is below zero. The
	// function takes the counter and returns its next value.
	TickName = "tick"
	// FuelExport is the export name of the counter, a mutable i32 global. The counter starts at 0, so that the first
	// charge calls tick.
	FuelExport = Prefix + "fuel"
	// WhereExport is the name of a guest's export that tells where the guest was stopped. If it is (i32) -> (i32), then
	// each function (i32) -> (i32) notes its place when its counter is below zero, in the global PlaceExport: the
	// function's index without imports, times 1<<16, plus its first parameter. That is 0 at other charge points. Go's
	// compiler keeps the number of the block that runs in this parameter.
	WhereExport = "quern_where"
	PlaceExport = Prefix + "place"
	// StartExport is the export name of the module's start function, which does not run at instantiation.
	StartExport = Prefix + "start"
)

// GlobalExport returns the export name of Outline.Mutable[i]. References and vectors are not exported: the host cannot
// set them.
func GlobalExport(i int) string { return Prefix + "global:" + strconv.Itoa(i) }

// Options of Rewrite. The zero value works.
type Options struct {
	Caps Caps // limits of a module
	// Every is the number of instructions that can gather on a path before they are charged. Default 256. If it is 1,
	// exactly the executed instructions are charged, each before it runs.
	Every int

	unrepaired bool // for tests only: leaves out the replacements of repair.go
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
	Binary  []byte // the rewritten module, for the compiler
	Charges int    // number of charge points
	// Code is the size of the file's code section, in bytes.
	Code int
	// Entries counts the entries of all sections except code. Elements counts the elements of all segments.
	Entries, Elements int
	// Locals counts the locals of all functions, parameters included.
	Locals int
	// InstancePrice is the fuel to charge for making an instance. The module's code does not charge for that.
	InstancePrice int64
	// TableMemory is the maximum memory that an instance's tables take, in bytes.
	TableMemory int64
}

// Rewrite checks a core module and rewrites it: see the package comment. An error is an *Error. The result is then
// filled as far as the file was read, and its Binary is nil. The result does not refer to file. Operand types are
// checked by the compiler, except those of selects: a function with invalid types stays invalid.
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
