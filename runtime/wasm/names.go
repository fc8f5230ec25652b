package wasm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The custom section that names functions, and the part of it that does.
const (
	nameSection   = "name"
	namesFunction = 1
)

const (
	// maxLabel bounds the name of a function, which is repeated in each frame of a stack trace, in bytes.
	maxLabel = 256
	// maxLabels bounds all of them: what is behind it is left without a name.
	maxLabels = 4 << 20
)

// nameSection is the name section as it is written anew: functions alone, each name cut to maxLabel and
// without control characters. One that is damaged ends where the damage is: names are no part of what a
// module means. Source: core specification 2.0, appendix "Custom Sections".
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

// labels are the names of functions by their index in the rewritten module.
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
				label = "(" + label + ")" // ours are left out of stack traces
			}
			labels[d.moved(function)] = label
		}
	}
	return labels
}

// safe makes a name of a function fit for a log: it is cut, and control characters and what is not UTF-8
// are escaped.
func safe(name []byte) string {
	label := make([]byte, 0, min(len(name), maxLabel))
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		next := name[:size]
		switch {
		case r == utf8.RuneError && size <= 1:
			next = fmt.Appendf(nil, `\x%02x`, name[0])
		case unicode.IsPrint(r):
		case r < 0x80:
			next = fmt.Appendf(nil, `\x%02x`, r)
		default:
			next = fmt.Appendf(nil, `\u%04x`, r)
		}
		if len(label)+len(next) > maxLabel {
			break
		}
		label, name = append(label, next...), name[size:]
	}
	return string(label)
}
