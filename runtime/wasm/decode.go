package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The sections by number.
const (
	sectionCustom    = 0
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionTable     = 4
	sectionMemory    = 5
	sectionGlobal    = 6
	sectionExport    = 7
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
	sectionTag       = 13
)

// section is what the decoder knows about a section by its number.
type section struct {
	name   string
	order  int    // sections come in this order, each at most once
	vector string // what the section is a vector of, "" if it is none
	whole  bool   // the decoder reads every byte of it
}

func sectionOf(id byte) (section, bool) {
	known := [...]section{
		sectionCustom:    {name: "custom"},
		sectionType:      {name: "type", order: 1, vector: "types", whole: true},
		sectionImport:    {name: "import", order: 2, vector: "imports", whole: true},
		sectionFunction:  {name: "function", order: 3, vector: "functions", whole: true},
		sectionTable:     {name: "table", order: 4, vector: "tables", whole: true},
		sectionMemory:    {name: "memory", order: 5, vector: "memories", whole: true},
		sectionTag:       {name: "tag", order: 6, vector: "tags"},
		sectionGlobal:    {name: "global", order: 7, vector: "globals"},
		sectionExport:    {name: "export", order: 8, vector: "exports", whole: true},
		sectionStart:     {name: "start", order: 9, whole: true},
		sectionElement:   {name: "element", order: 10, vector: "element segments"},
		sectionDataCount: {name: "data count", order: 11},
		sectionCode:      {name: "code", order: 12, vector: "function bodies", whole: true},
		sectionData:      {name: "data", order: 13, vector: "data segments"},
	}
	if int(id) >= len(known) {
		return section{}, false
	}
	return known[id], true
}

// decoder gathers what the sections say; indices are resolved when the section that uses them is
// read, which the order of sections allows.
type decoder struct {
	outline   Outline
	types     []Signature
	functions []Signature // imported and defined: the function index space
	bodies    int
}

// Decode reads the outline of a core module. The error is an *Error.
func Decode(file []byte) (*Outline, error) {
	if err := checkHeader(file); err != nil {
		return nil, &Error{Section: "header", Err: err}
	}
	var d decoder
	r := &reader{file: file, at: HeaderSize, end: len(file), overflow: ErrTruncated}
	last := 0
	for r.left() > 0 {
		begin := r.at
		id := r.byte()
		known, ok := sectionOf(id)
		if !ok {
			return nil, &Error{Section: "unknown", Offset: begin, Err: fmt.Errorf("section %d is unknown", id)}
		}
		size := r.u32()
		contents := &reader{file: file, at: r.at, overflow: errors.New("its contents end too early")}
		r.bytes(uint64(size))
		contents.end = r.at
		if r.err != nil {
			return nil, &Error{Section: known.name, Offset: begin, Err: r.err}
		}
		if id != sectionCustom {
			if known.order <= last {
				return nil, &Error{Section: known.name, Offset: begin, Err: errors.New("it is out of order or there twice")}
			}
			last = known.order
		}
		if d.section(id, known, contents); contents.err != nil {
			return nil, &Error{Section: known.name, Offset: contents.at, Err: contents.err}
		}
	}
	if d.bodies < d.outline.Functions {
		// A file that was cut off exactly between two sections.
		err := fmt.Errorf("%w: %d of %d functions have no body", ErrTruncated, d.outline.Functions-d.bodies, d.outline.Functions)
		return nil, &Error{Section: "code", Offset: len(file), Err: err}
	}
	return &d.outline, nil
}

// checkHeader leaves it to the caller to tell what a file is that is no module at all.
func checkHeader(file []byte) error {
	switch {
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

func (d *decoder) section(id byte, known section, r *reader) {
	n := 0
	if known.vector != "" {
		n = r.count(known.vector)
	}
	for range n {
		d.element(id, r)
		if r.err != nil {
			return
		}
	}
	switch id {
	case sectionCustom:
		name := r.name()
		d.outline.Custom = append(d.outline.Custom, name)
		if name == nameSection {
			names(r)
		}
	case sectionStart:
		d.outline.Start = true
		r.u32()
	case sectionCode:
		d.bodies = n
	}
	if known.whole && r.left() > 0 {
		r.fail(fmt.Errorf("%d bytes are left over", r.left()))
	}
}

// The custom section that names functions, and its parts.
const (
	nameSection   = "name"
	namesModule   = 0
	namesFunction = 1
)

// names looks at the names of the module and its functions, and drops them: what it checks is that
// each has at most maxName bytes, for they are repeated in every frame of a stack trace.
func names(r *reader) {
	for r.left() > 0 {
		id, size := r.byte(), r.u32()
		part := &reader{file: r.file, at: r.at, overflow: r.overflow}
		r.bytes(uint64(size))
		part.end = r.at
		if r.err != nil || id > namesFunction {
			continue
		}
		n := 1
		if id == namesFunction {
			n = part.count("names")
		}
		for range n {
			if id == namesFunction {
				part.u32() // which function
			}
			part.name()
			if part.err != nil {
				break
			}
		}
		if part.err == nil && part.left() > 0 {
			part.fail(fmt.Errorf("%d bytes are left over behind the names", part.left()))
		}
		if part.err != nil {
			r.at = part.at
			r.fail(part.err)
		}
	}
}

// element reads one element of a section's vector. The sections that the outline says nothing of are
// left unread.
func (d *decoder) element(id byte, r *reader) {
	switch id {
	case sectionType:
		d.functionType(r)
	case sectionImport:
		d.imported(r)
	case sectionFunction:
		d.outline.Functions++
		d.functions = append(d.functions, d.signature(r))
	case sectionTable:
		d.outline.Tables = append(d.outline.Tables, table(r))
	case sectionMemory:
		d.outline.Memories = append(d.outline.Memories, r.limits())
	case sectionExport:
		d.exported(r)
	case sectionCode:
		body(r)
	}
}

func (d *decoder) functionType(r *reader) {
	if form := r.byte(); form != 0x60 {
		if r.err == nil {
			r.fail(fmt.Errorf("type 0x%02x is no function type; garbage collection is not supported", form))
		}
		return
	}
	d.types = append(d.types, Signature{Params: r.valueTypes("parameters"), Results: r.valueTypes("results")})
}

func (r *reader) valueTypes(what string) []Type {
	types := make([]Type, r.count(what))
	for i := range types {
		types[i] = r.valueType()
	}
	return types
}

func (d *decoder) signature(r *reader) Signature {
	index := r.u32()
	if uint64(index) >= uint64(len(d.types)) {
		r.fail(fmt.Errorf("type %d does not exist", index))
		return Signature{}
	}
	return d.types[index]
}

func (d *decoder) imported(r *reader) {
	i := Import{Module: r.name(), Name: r.name()}
	switch kind := r.byte(); kind {
	case 0:
		i.Kind, i.Signature = Function, d.signature(r)
		d.functions = append(d.functions, i.Signature)
	case 1:
		i.Kind = Table
		r.valueType()
		r.limits()
	case 2:
		i.Kind = Memory
		r.limits()
	case 3:
		i.Kind = Global
		r.valueType()
		r.byte() // mutable or not
	case 4:
		i.Kind = Tag
		r.byte() // the attribute, always 0
		r.u32()
	default:
		r.fail(fmt.Errorf("import kind %d is unknown", kind))
	}
	d.outline.Imports = append(d.outline.Imports, i)
}

func (d *decoder) exported(r *reader) {
	e := Export{Name: r.name()}
	kind, index := r.byte(), r.u32()
	switch kind {
	case 0:
		if uint64(index) >= uint64(len(d.functions)) {
			r.fail(fmt.Errorf("function %d does not exist", index))
			return
		}
		e.Kind, e.Signature = Function, d.functions[index]
	case 1:
		e.Kind = Table
	case 2:
		e.Kind = Memory
	case 3:
		e.Kind = Global
	case 4:
		e.Kind = Tag
	default:
		r.fail(fmt.Errorf("export kind %d is unknown", kind))
	}
	d.outline.Exports = append(d.outline.Exports, e)
}

// table reads a table. One with an initial value is a later proposal: its expression has no length,
// so what follows it cannot be found without reading code.
func table(r *reader) Limits {
	if r.left() > 0 && r.file[r.at] == 0x40 {
		r.fail(errors.New("tables with an initial value are not supported"))
	}
	r.valueType()
	return r.limits()
}

// maxLocals bounds the locals of a function. A compiler allocates each, while a file declares any
// number of them in five bytes.
const maxLocals = 50_000

// body reads the locals of a function and steps over its code.
func body(r *reader) {
	size := uint64(r.u32())
	if size > uint64(r.left()) {
		r.fail(fmt.Errorf("a function of %d bytes does not fit into the %d bytes that are left", size, r.left()))
		return
	}
	end := r.at + int(size)
	locals := uint64(0)
	for range r.count("groups of locals") {
		locals += uint64(r.u32())
		r.valueType()
		if locals > maxLocals {
			r.fail(fmt.Errorf("a function has %d locals, more than %d", locals, maxLocals))
			return
		}
	}
	if r.err == nil && r.at > end {
		r.fail(errors.New("the locals of a function end behind it"))
	}
	if r.err == nil {
		r.at = end
	}
}
