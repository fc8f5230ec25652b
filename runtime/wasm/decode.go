package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Section numbers.
const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
	sectionTag
	sectionCount
)

// section describes one kind of section.
type section struct {
	name   string
	order  int // sections come in this order, each at most once
	decode func(*decoder, *reader)
}

var sections = [sectionCount]section{
	sectionCustom:    {"custom", 0, (*decoder).customSection},
	sectionType:      {"type", 1, (*decoder).typeSection},
	sectionImport:    {"import", 2, (*decoder).importSection},
	sectionFunction:  {"function", 3, (*decoder).functionSection},
	sectionTable:     {"table", 4, (*decoder).tableSection},
	sectionMemory:    {"memory", 5, (*decoder).memorySection},
	sectionTag:       {"tag", 6, func(_ *decoder, r *reader) { r.fail(unsupported("exception handling")) }},
	sectionGlobal:    {"global", 7, (*decoder).globalSection},
	sectionExport:    {"export", 8, (*decoder).exportSection},
	sectionStart:     {"start", 9, (*decoder).startSection},
	sectionElement:   {"element", 10, (*decoder).elementSection},
	sectionDataCount: {"data count", 11, (*decoder).dataCountSection},
	sectionCode:      {"code", 12, (*decoder).codeSection},
	sectionData:      {"data", 13, (*decoder).dataSection},
}

// decoder reads the sections and rewrites each as it reads it. Indices are checked in the section that uses them, which
// the order of sections allows.
type decoder struct {
	options Options
	out     *Rewritten
	parts   [sectionCount]vector // the rewritten sections, without their headers

	types           []Signature
	functions       []uint32 // indices of the types of all functions, imported functions first
	imported        int      // number of imported functions
	places          bool     // functions note their places: see WhereExport
	tables          []Type   // the type of the elements of each table
	memories        int
	globals         []global
	importedGlobals int // number of imported globals; constant expressions can use only these
	references      int // number of elements in all segments
	function        int // index of the function whose body is being read, or outside

	hasDataCount bool
	dataCount    uint32 // the declared number of data segments

	declared map[uint32]bool // functions that ref.func is allowed to name
	names    []byte          // the contents of the name section
	helpers  helpers
	body     body // reused for each function
}

type global struct {
	of      Type
	mutable bool
}

// vector is a rewritten section: its elements and their number.
type vector struct {
	count int
	bytes []byte
}

// module reads a whole file.
func (d *decoder) module(file []byte) error {
	if err := checkHeader(file, d.options.Caps.Size); err != nil {
		return &Error{Section: "header", Function: outside, Err: err}
	}
	r := &reader{file: file, at: HeaderSize, end: len(file), overflow: ErrTruncated}
	for last := 0; r.left() > 0; {
		begin := r.at
		id := r.byte()
		if id >= sectionCount {
			return &Error{Section: "unknown", Function: outside, Offset: begin, Err: fmt.Errorf("section %d is unknown", id)}
		}
		known := sections[id]
		contents := r.part(r.u32(), errShort)
		if r.err != nil {
			return &Error{Section: known.name, Function: outside, Offset: begin, Err: r.err}
		}
		if id != sectionCustom {
			if known.order <= last {
				return &Error{
					Section: known.name, Function: outside, Offset: begin,
					Err: errors.New("it is out of order or there twice"),
				}
			}
			last = known.order
		}
		known.decode(d, &contents)
		contents.ended()
		d.boundRewritten(&contents)
		if contents.err != nil {
			return &Error{Section: known.name, Function: d.function, Offset: contents.at, Err: contents.err}
		}
	}
	// A file can be cut off between two sections.
	if missing := d.out.Functions - d.parts[sectionCode].count; missing > 0 {
		err := fmt.Errorf("%w: %d of %d functions have no body", ErrTruncated, missing, d.out.Functions)
		return &Error{Section: "code", Function: outside, Offset: len(file), Err: err}
	}
	if segments := d.parts[sectionData].count; d.hasDataCount && int(d.dataCount) != segments {
		err := fmt.Errorf("%w: %d of %d data segments are there", ErrTruncated, segments, d.dataCount)
		return &Error{Section: "data", Function: outside, Offset: len(file), Err: err}
	}
	return nil
}

// boundRewritten fails the reader if the rewritten sections are too large.
func (d *decoder) boundRewritten(r *reader) {
	size := 0
	for i := range d.parts {
		size += len(d.parts[i].bytes)
	}
	r.bound("bytes in the module as rewritten", uint64(size), d.options.Caps.Rewritten)
}

var errShort = errors.New("its contents end too early")

// checkHeader checks size, magic and version. The caller of Rewrite explains files that are not modules at all.
func checkHeader(file []byte, limit int) error {
	switch {
	case len(file) > limit:
		return &CapError{What: "bytes in the file", Count: uint64(len(file)), Cap: uint64(limit)}
	case len(file) < HeaderSize:
		return ErrTruncated
	case string(file[:len(Magic)]) != Magic:
		return errors.New("it does not begin with \\0asm")
	case binary.LittleEndian.Uint32(file[len(Magic):]) != 1:
		return errors.New("it is not version 1")
	default:
		return nil
	}
}

func (d *decoder) typeSection(r *reader) {
	caps := d.options.Caps
	n := r.count("types", caps.Types)
	d.types = make([]Signature, 0, min(n, r.left()/3))
	part, values := &d.parts[sectionType], uint64(0)
	for range n {
		if form := r.byte(); form != 0x60 && r.err == nil {
			r.fail(fmt.Errorf("type 0x%02x is no function type", form))
			if form == 0x5f || form == 0x5e || form == 0x4e || form == 0x50 {
				r.err = unsupported("garbage collection")
			}
		}
		t := Signature{Params: r.valueTypes("parameters of a type", caps.Values)}
		t.Results = r.valueTypes("results of a type", caps.Values)
		if r.err != nil {
			return
		}
		values += uint64(len(t.Params) + len(t.Results))
		r.bound("values of all types", values, caps.AllValues)
		d.types = append(d.types, t)
		part.signature(t)
	}
}

func (r *reader) valueTypes(what string, limit int) []Type {
	n := r.count(what, limit)
	if n == 0 {
		return nil
	}
	types := make([]Type, n)
	for i := range types {
		types[i] = r.valueType()
	}
	return types
}

func (d *decoder) typeIndex(r *reader) uint32 {
	return r.index("type", len(d.types))
}

// index reads an index, which must be below space.
func (r *reader) index(what string, space int) uint32 {
	i := r.u32()
	if r.err == nil && uint64(i) >= uint64(space) {
		r.fail(fmt.Errorf("%s %d does not exist", what, i))
		return 0
	}
	return i
}

func (d *decoder) importSection(r *reader) {
	n := r.count("imports", d.options.Caps.Imports)
	d.out.Imports = make([]Import, 0, min(n, r.left()/4))
	for range n {
		d.importOne(r)
		if r.err != nil {
			return
		}
	}
	d.imported = len(d.functions)
}

func (d *decoder) importOne(r *reader) {
	i := Import{Module: d.name(r), Name: d.name(r), Kind: Kind(r.byte())}
	if strings.HasPrefix(i.Module, Prefix) {
		r.fail(fmt.Errorf("it imports from %q: %w", i.Module, ErrReserved))
	}
	part := &d.parts[sectionImport]
	part.count++
	part.name(i.Module)
	part.name(i.Name)
	part.byte(byte(i.Kind))
	switch i.Kind {
	case Function:
		t := d.typeIndex(r)
		if r.err != nil {
			return
		}
		i.Signature = &d.types[t]
		d.functions = append(d.functions, t)
		part.u32(t)
	case Table:
		of, limits := r.referenceType(), r.limits()
		d.tables = append(d.tables, of)
		part.byte(byte(of))
		part.limits(limits)
	case Memory:
		d.memories++
		part.limits(r.memoryLimits())
	case Global:
		g := r.global()
		d.globals = append(d.globals, g)
		d.importedGlobals++
		part.global(g)
	default:
		if i.Kind == 4 {
			r.fail(unsupported("exception handling"))
		}
		r.fail(fmt.Errorf("import kind %d is unknown", i.Kind))
		return
	}
	d.out.Imports = append(d.out.Imports, i)
}

func (r *reader) global() global {
	g := global{of: r.valueType()}
	switch b := r.byte(); {
	case b == 1:
		g.mutable = true
	case b > 1:
		r.fail(fmt.Errorf("a global has the unknown flags 0x%02x", b))
	}
	return g
}

func (d *decoder) functionSection(r *reader) {
	n := r.count("functions", d.options.Caps.Functions)
	d.functions = append(make([]uint32, 0, len(d.functions)+n), d.functions...)
	part := &d.parts[sectionFunction]
	for range n {
		t := d.typeIndex(r)
		if r.err != nil {
			return
		}
		d.functions = append(d.functions, t)
		part.count++
		part.u32(t)
	}
	d.out.Functions = n
}

func (d *decoder) tableSection(r *reader) {
	caps := d.options.Caps
	entries := uint64(0)
	part := &d.parts[sectionTable]
	for range r.count("tables", caps.Tables) {
		if r.left() > 0 && r.file[r.at] == 0x40 {
			r.fail(unsupported("tables with an initial value"))
		}
		of, limits := r.referenceType(), r.limits()
		entries += uint64(limits.Min)
		r.bound("entries in tables", entries, caps.Entries)
		if r.err != nil {
			return
		}
		d.out.InstancePrice += int64(limits.Min)
		d.tables = append(d.tables, of)
		d.out.Tables = append(d.out.Tables, limits)
		most := uint32(min(uint64(limits.Min)+uint64(caps.Growth), math.MaxUint32))
		if !limits.HasMax || limits.Max > most {
			limits.Max, limits.HasMax = most, true
		}
		d.out.TableMemory += tableMemory(limits)
		part.count++
		part.byte(byte(of))
		part.limits(limits)
	}
}

// tableMemory returns the maximum memory that a table takes, in bytes. Growing copies the table, which then exists
// twice.
func tableMemory(l Limits) int64 {
	const entry = 8
	if l.Max > l.Min {
		return 2 * entry * int64(l.Max)
	}
	return entry * int64(l.Min)
}

// memoryLimits reads the size of a memory. The caller of Rewrite limits the number of memories.
func (r *reader) memoryLimits() Limits {
	l := r.limits()
	if l.Min > validPages || l.Max > validPages {
		r.fail(fmt.Errorf("a memory of %d pages has more than 4 GiB", max(l.Min, l.Max)))
	}
	return l
}

// memorySection lowers the declared maximum of a memory to at most MaxPages, and adds one page: otherwise the host
// could not shrink a memory that has reached its maximum size.
func (d *decoder) memorySection(r *reader) {
	part := &d.parts[sectionMemory]
	for range r.count("memories", r.left()) {
		d.memories++
		l := r.memoryLimits()
		if r.err != nil {
			return
		}
		d.out.Memories = append(d.out.Memories, l)
		r.bound("pages of memory from the start", uint64(l.Min), MaxPages)
		if l.HasMax {
			l.Max = min(l.Max, MaxPages) + 1
		}
		part.count++
		part.limits(l)
	}
}

func (d *decoder) globalSection(r *reader) {
	n := r.count("globals", d.options.Caps.Globals)
	d.out.InstancePrice += entryPrice * int64(n)
	part := &d.parts[sectionGlobal]
	for range n {
		g := r.global()
		part.global(g)
		d.expression(r, part)
		if r.err != nil {
			return
		}
		part.count++
		d.globals = append(d.globals, g)
		if !g.mutable {
			continue
		}
		if g.of.Number() {
			name := GlobalExport(len(d.out.Mutable))
			d.parts[sectionExport].export(name, Global, uint32(len(d.globals)-1))
		}
		d.out.Mutable = append(d.out.Mutable, g.of)
	}
}

func (d *decoder) exportSection(r *reader) {
	n := r.count("exports", d.options.Caps.Exports)
	d.out.InstancePrice += exportPrice * int64(n)
	d.out.Exports = make([]Export, 0, min(n, r.left()/3))
	for range n {
		d.exportOne(r)
		if r.err != nil {
			return
		}
	}
}

// name reads the name of an import or an export.
func (d *decoder) name(r *reader) string {
	name := r.name()
	d.out.NameBytes += len(name)
	r.bound("bytes in the names of imports and exports", uint64(d.out.NameBytes), d.options.Caps.Names)
	return name
}

func (d *decoder) exportOne(r *reader) {
	e := Export{Name: d.name(r), Kind: Kind(r.byte())}
	if strings.HasPrefix(e.Name, Prefix) {
		r.fail(fmt.Errorf("it exports %q: %w", e.Name, ErrReserved))
	}
	space := 0
	switch e.Kind {
	case Function:
		space = len(d.functions)
	case Table:
		space = len(d.tables)
	case Memory:
		space = d.memories
	case Global:
		space = len(d.globals)
	case 4:
		r.fail(unsupported("exception handling"))
	default:
		r.fail(fmt.Errorf("export kind %d is unknown", e.Kind))
	}
	index := r.index(e.Kind.String(), space)
	if r.err != nil {
		return
	}
	if e.Kind == Function {
		e.Signature = &d.types[d.functions[index]]
		d.declare(index)
		index = d.moved(index)
		d.places = d.places || e.Name == WhereExport && e.Signature.noted()
	}
	d.out.Exports = append(d.out.Exports, e)
	d.parts[sectionExport].export(e.Name, e.Kind, index)
}

// moved returns the index of a function in the rewritten module, where tick follows the imports.
func (d *decoder) moved(function uint32) uint32 {
	if int(function) < d.imported {
		return function
	}
	return function + 1
}

// declare records a function that is named outside of bodies. Code is allowed to use ref.func only for these functions.
// Source: core specification 2.0, section 3.4.12, the context's refs.
func (d *decoder) declare(function uint32) {
	d.declared[function] = true
}

func (d *decoder) startSection(r *reader) {
	index := r.index("function", len(d.functions))
	if r.err != nil {
		return
	}
	if t := d.types[d.functions[index]]; len(t.Params)+len(t.Results) > 0 {
		r.fail(fmt.Errorf("the start function %d is %s instead of () -> ()", index, t))
		return
	}
	d.out.Start = true
	d.parts[sectionExport].export(StartExport, Function, d.moved(index))
}

func (d *decoder) dataCountSection(r *reader) {
	d.hasDataCount, d.dataCount = true, r.u32()
	r.bound("data segments", uint64(d.dataCount), d.options.Caps.Data)
}

func (d *decoder) customSection(r *reader) {
	name := r.name()
	contents := r.bytes(uint64(r.left()))
	if r.err != nil {
		return
	}
	d.out.Custom = append(d.out.Custom, name)
	if name == nameSection {
		d.names = contents
	}
}
