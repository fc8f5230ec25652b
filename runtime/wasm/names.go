package wasm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The name of the custom section of names, and the ID of its part for functions.
const (
	nameSection   = "name"
	namesFunction = 1
)

const (
	// maxLabel is the maximum length of a function's name, in bytes: each frame of a stack trace repeats the name.
	maxLabel = 256
	// maxLabels is the maximum length of all names together, in bytes. Functions after that have no name.
	maxLabels = 4 << 20
)

// nameSection returns the rewritten name section. It names only functions; each name is cut to maxLabel and escaped. A
// damaged section ends at the damage, because names do not change what a module means. Source: core specification 2.0,
// appendix "Custom Sections".
func (d *decoder) nameSection() []byte {
	labels := d.labels()
	for i, h := range d.helpers.list {
		labels[uint32(len(d.functions)+1+i)] = h.name
	}
	if len(labels) == 0 {
		return nil
	}
	var part, out vector
	for _, function := range slices.Sorted(maps.Keys(labels)) {
		part.count++
		part.u32(function)
		part.name(labels[function])
	}
	n := appendUnsigned(nil, uint32(part.count))
	out.name(nameSection)
	out.byte(namesFunction)
	out.u32(uint32(len(n) + len(part.bytes)))
	out.raw(n)
	out.raw(part.bytes)
	return out.bytes
}

// labels returns the names of functions by their index in the rewritten module.
func (d *decoder) labels() map[uint32]string {
	labels, total := map[uint32]string{}, 0
	r := reader{file: d.names, end: len(d.names), overflow: errShort}
	for r.left() > 0 {
		id := r.byte()
		part := r.part(r.u32(), errShort)
		if id != namesFunction || part.err != nil {
			continue
		}
		for range part.count("names", part.left()) {
			function := part.index("function", len(d.functions))
			label := safe(part.bytes(uint64(part.u32())))
			if total += len(label); part.err != nil || total > maxLabels {
				break
			}
			if strings.HasPrefix(label, Prefix) {
				label = "(" + label + ")" // stack traces leave out names with our prefix
			}
			labels[d.moved(function)] = label
			d.out.NameBytes += len(label)
		}
	}
	return labels
}

// safe makes a function's name safe for a log: it cuts the name, and escapes unprintable characters and invalid UTF-8.
func safe(name []byte) string {
	label := make([]byte, 0, min(len(name), maxLabel))
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		next := name[:size]
		switch {
		case size == 1 && (r == utf8.RuneError || !unicode.IsPrint(r)):
			next = fmt.Appendf(nil, `\x%02x`, name[0])
		case !unicode.IsPrint(r):
			next = fmt.Appendf(nil, `\u%04x`, r)
		}
		if len(label)+len(next) > maxLabel {
			break
		}
		label, name = append(label, next...), name[size:]
	}
	return string(label)
}
