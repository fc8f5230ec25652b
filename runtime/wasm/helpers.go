package wasm

import "slices"

// helpers are the functions that we append to a module, and other additions that its code needs.
type helpers struct {
	list    []helper
	indices map[helperKey]uint32
	types   []Signature     // appended to those of the module
	slots   []uint32        // the functions in the added table of references, by slot
	slotOf  map[uint32]int  // indices in slots, by function
	lasting map[string]bool // see Outline.Lasting
}

// helper is a function that we append to a module.
type helper struct {
	name      string
	signature Signature
	code      []byte
}

// helperKey identifies a helper. For a bulk instruction, it contains the instruction and its immediates.
type helperKey struct {
	op            int
	first, second uint32
}

func (d *decoder) lasting(instruction string) {
	d.helpers.lasting[instruction] = true
}

// slot returns the index of a function in the table of references.
func (h *helpers) slot(function uint32) int {
	if slot, ok := h.slotOf[function]; ok {
		return slot
	}
	h.slotOf[function] = len(h.slots)
	h.slots = append(h.slots, function)
	return len(h.slots) - 1
}

// typeOf returns the index of the type t, which it appends to the module's types on first use.
func (h *helpers) typeOf(d *decoder, t Signature) uint32 {
	i := slices.IndexFunc(h.types, func(u Signature) bool {
		return slices.Equal(t.Params, u.Params) && slices.Equal(t.Results, u.Results)
	})
	if i < 0 {
		i = len(h.types)
		h.types = append(h.types, t)
		d.parts[sectionType].signature(t)
	}
	return uint32(len(d.types) + i)
}

// get returns the function index of a helper, which build makes on first use.
func (h *helpers) get(d *decoder, key helperKey, build func() helper) uint32 {
	if index, ok := h.indices[key]; ok {
		return index
	}
	made := build()
	index := uint32(len(d.functions) + 1 + len(h.list)) // 1: tick
	h.list = append(h.list, made)
	h.indices[key] = index
	return index
}

// refuel returns the function index of the helper that executes counter = tick(counter).
func (h *helpers) refuel(d *decoder) uint32 {
	return h.get(d, helperKey{op: -1}, func() helper {
		code := []byte{0} // no locals
		if d.places {
			code = appendUnsigned(append(code, opI32Const, 0, opGlobalSet), d.place())
		}
		return helper{name: Prefix + "refuel", code: appendTick(code, d)}
	})
}

// refuelAt returns the function index of the helper that does so too, and first notes its parameter as the place.
func (h *helpers) refuelAt(d *decoder) uint32 {
	return h.get(d, helperKey{op: -2}, func() helper {
		code := appendUnsigned([]byte{0, opLocalGet, 0, opGlobalSet}, d.place())
		return helper{name: Prefix + "refuel at", signature: Signature{Params: []Type{I32}}, code: appendTick(code, d)}
	})
}

func appendTick(code []byte, d *decoder) []byte {
	code = appendUnsigned(append(code, opGlobalGet), d.counter())
	code = appendUnsigned(append(code, opCall), uint32(d.imported))
	code = appendUnsigned(append(code, opGlobalSet), d.counter())
	return append(code, opEnd)
}
