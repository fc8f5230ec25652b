package wasm

import (
	"encoding/binary"
	"slices"
)

// These methods append parts of the binary format to a vector.

func (v *vector) byte(b byte)    { v.bytes = append(v.bytes, b) }
func (v *vector) raw(b []byte)   { v.bytes = append(v.bytes, b...) }
func (v *vector) u32(n uint32)   { v.bytes = appendUnsigned(v.bytes, n) }
func (v *vector) signed(n int64) { v.bytes = appendSigned(v.bytes, n) }

func (v *vector) name(name string) {
	v.u32(uint32(len(name)))
	v.bytes = append(v.bytes, name...)
}

func (v *vector) signature(t Signature) {
	v.count++
	v.byte(0x60)
	for _, types := range [][]Type{t.Params, t.Results} {
		v.u32(uint32(len(types)))
		for _, t := range types {
			v.byte(byte(t))
		}
	}
}

func (v *vector) limits(l Limits) {
	if !l.HasMax {
		v.byte(0)
		v.u32(l.Min)
		return
	}
	v.byte(1)
	v.u32(l.Min)
	v.u32(l.Max)
}

func (v *vector) global(g global) {
	v.byte(byte(g.of))
	if g.mutable {
		v.byte(1)
	} else {
		v.byte(0)
	}
}

func (v *vector) export(name string, kind Kind, index uint32) {
	v.count++
	v.name(name)
	v.byte(byte(kind))
	v.u32(index)
}

// appendUnsigned appends an unsigned LEB128 number in its shortest form.
func appendUnsigned(b []byte, n uint32) []byte {
	return binary.AppendUvarint(b, uint64(n))
}

// appendSigned appends a signed LEB128 number in its shortest form.
func appendSigned(b []byte, n int64) []byte {
	for n < -64 || n > 63 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n)&0x7f)
}

// encode writes the module. In each section, our additions follow the entries of the file. size is the size of the
// file.
func (d *decoder) encode(size int) []byte {
	d.addOurs()
	out := make([]byte, 0, size+size/4+1024)
	out = append(out, Magic...)
	out = append(out, 1, 0, 0, 0)
	for _, id := range []byte{
		sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal, sectionExport,
		sectionElement, sectionDataCount, sectionCode, sectionData,
	} {
		part := d.parts[id]
		if id == sectionDataCount {
			if d.hasDataCount {
				n := appendUnsigned(nil, d.dataCount)
				out = append(append(out, id, byte(len(n))), n...)
			}
			continue
		}
		if part.count > 0 {
			n := appendUnsigned(nil, uint32(part.count))
			out = appendUnsigned(append(out, id), uint32(len(n)+len(part.bytes)))
			out = append(append(out, n...), part.bytes...)
		}
	}
	if names := d.nameSection(); len(names) > 0 {
		out = appendUnsigned(append(out, sectionCustom), uint32(len(names)))
		out = append(out, names...)
	}
	return out
}

// addOurs appends the counter, tick, the helpers, and the table of references.
func (d *decoder) addOurs() {
	tick := Signature{Params: []Type{I32}, Results: []Type{I32}}
	imports := &d.parts[sectionImport]
	imports.count++
	imports.name(HostModule)
	imports.name(TickName)
	imports.byte(byte(Function))
	imports.u32(d.helpers.typeOf(d, tick))

	globals := &d.parts[sectionGlobal]
	globals.count++
	globals.global(global{of: I32, mutable: true})
	globals.raw([]byte{opI32Const, 0, opEnd})
	d.parts[sectionExport].export(FuelExport, Global, d.counter())
	if d.places {
		globals.count++
		globals.global(global{of: I32, mutable: true})
		globals.raw([]byte{opI32Const, 0, opEnd})
		d.parts[sectionExport].export(PlaceExport, Global, d.place())
	}

	for _, h := range d.helpers.list {
		functions, code := &d.parts[sectionFunction], &d.parts[sectionCode]
		functions.count++
		functions.u32(d.helpers.typeOf(d, h.signature))
		code.count++
		code.u32(uint32(len(h.code)))
		code.raw(h.code)
	}
	if slots := d.helpers.slots; len(slots) > 0 {
		tables := &d.parts[sectionTable]
		tables.count++
		tables.byte(byte(FuncRef))
		tables.limits(Limits{Min: uint32(len(slots)), Max: uint32(len(slots)), HasMax: true})
		elements := &d.parts[sectionElement]
		elements.count++
		elements.u32(elementHasIndex)
		elements.u32(uint32(len(d.tables)))
		elements.raw([]byte{opI32Const, 0, opEnd, 0})
		elements.u32(uint32(len(slots)))
		for _, function := range slots {
			elements.u32(d.moved(function))
		}
	}
}

// counter returns the index of the fuel counter, a global.
func (d *decoder) counter() uint32 { return uint32(len(d.globals)) }

// place returns the index of the global for the place, which follows the counter.
func (d *decoder) place() uint32 { return d.counter() + 1 }

// noted reports whether functions of this type note their places.
func (s *Signature) noted() bool {
	return slices.Equal(s.Params, []Type{I32}) && slices.Equal(s.Results, []Type{I32})
}
