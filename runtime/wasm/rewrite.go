package wasm

import (
	"maps"
	"slices"
	"strconv"
)

// The names that a rewritten module has besides its own. A module that uses the prefix itself is refused.
const (
	// Prefix begins the names of import modules and exports that are ours.
	Prefix = "quern:"
	// HostModule is the import module of tick.
	HostModule = Prefix + "host"
	// TickName is the function (i32) -> (i32) that the guest calls when its counter has fallen below zero:
	// with the counter, for the one to go on with.
	TickName = "tick"
	// FuelExport is the counter, a mutable i32. It begins at 0, so that the first charge calls tick.
	FuelExport = Prefix + "fuel"
	// StartExport is what the module declared as its start function: nothing runs at instantiation.
	StartExport = Prefix + "start"
)

// GlobalExport is the name under which the i-th of Outline.Mutable is exported. Those of references and
// vectors are not: the host could not set them.
func GlobalExport(i int) string { return Prefix + "global:" + strconv.Itoa(i) }

// Options of Rewrite. The zero value works.
type Options struct {
	// Caps are what a module may have at most.
	Caps Caps
	// Every is how many instructions may gather on a path before they are charged. Default 256; with 1
	// each is charged before it is executed, and none that is not.
	Every int

	unrepaired bool // leaves instructions as they are that repair.go is for: tests show what becomes of them
}

func (o Options) withDefaults() Options {
	if o.Every <= 0 {
		o.Every = 256
	}
	o.Caps = o.Caps.withDefaults()
	return o
}

// Rewritten is a module that was written anew.
type Rewritten struct {
	Outline
	// Binary is the module as it is to be compiled.
	Binary []byte
	// Charges counts the charge points.
	Charges int
	// Code is the size of the code section in the file, in bytes.
	Code int
	// Entries are those of all sections but the code, and Elements those of all segments.
	Entries, Elements int
	// Locals are those of all functions, their parameters among them.
	Locals int
	// InstancePrice is what making an instance costs in fuel, of which no code of the module knows.
	InstancePrice int64
	// TableMemory is what the tables of an instance take at most, in bytes.
	TableMemory int64
}

// Rewrite checks a core module and writes it anew: see the package. What it returns is filled as far as
// the file could be read, also beside an error, which is an *Error; Binary is nil then. The file is not
// kept. Types are left to the compiler, but for those of selects: a function that is
// invalid in its types is so when rewritten.
func Rewrite(file []byte, o Options) (*Rewritten, error) {
	d := &decoder{options: o.withDefaults(), out: &Rewritten{}, function: outside}
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
