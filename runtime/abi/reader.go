package abi

import (
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/redact"
)

// reader reads the parameters of a call in order. The first error becomes the result of the call; all ranges read after
// it are empty.
type reader struct {
	system *System
	mem    api.Memory
	rest   []uint64
	wrong  errno // the first error; errnoSuccess until then
}

func (s *System) reader(mem api.Memory, a []uint64) *reader {
	return &reader{system: s, mem: mem, rest: a}
}

// number reads the next parameter.
func (a *reader) number() uint64 {
	n := a.rest[0]
	a.rest = a.rest[1:]
	return n
}

// bytes copies the range given by the next two parameters, a pointer and a length. A range of more than limit bytes is
// refused with ETOOBIG.
func (a *reader) bytes(limit int) []byte {
	pointer, n := a.number(), a.number()
	if a.wrong != errnoSuccess {
		return nil
	}
	p, ok := view(a.mem, pointer, n)
	switch {
	case !ok:
		a.wrong = errnoFault
		return nil
	case len(p) > limit:
		a.wrong = errnoTooBig
		return nil
	}
	a.system.spend(len(p))
	return append(make([]byte, 0, len(p)), p...)
}

// beginning copies the range given by the next two parameters, a pointer and a length. It cuts the range to limit
// bytes.
func (a *reader) beginning(limit int) []byte {
	pointer, n := a.number(), a.number()
	if a.wrong != errnoSuccess {
		return nil
	}
	p, ok := view(a.mem, pointer, n)
	if !ok {
		a.wrong = errnoFault
		return nil
	}
	p = redact.Prefix(p, limit)
	a.system.spend(len(p))
	return append(make([]byte, 0, len(p)), p...)
}

// name reads a text of at most maxName bytes. A text that is not UTF-8 is refused with EINVAL.
func (a *reader) name() string {
	p := a.bytes(maxName)
	if !utf8.Valid(p) {
		a.wrong = a.system.invalid("%q is no UTF-8", p)
		return ""
	}
	return string(p)
}
