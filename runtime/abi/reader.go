package abi

import (
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"
)

// reader reads what a guest passes, one parameter after the other. What is wrong first is the answer; all that is
// read after it is empty.
type reader struct {
	system *System
	mem    api.Memory
	rest   []uint64
	wrong  errno // errnoSuccess if nothing is
}

func (s *System) reader(mem api.Memory, a []uint64) *reader {
	return &reader{system: s, mem: mem, rest: a}
}

// number is the next parameter.
func (a *reader) number() uint64 {
	n := a.rest[0]
	a.rest = a.rest[1:]
	return n
}

// bytes copies what the next two parameters, a pointer and a length, show. More than most is ETOOBIG.
func (a *reader) bytes(most int) []byte {
	pointer, n := a.number(), a.number()
	if a.wrong != errnoSuccess {
		return nil
	}
	p, ok := view(a.mem, pointer, n)
	switch {
	case !ok:
		a.wrong = errnoFault
		return nil
	case len(p) > most:
		a.wrong = errnoTooBig
		return nil
	}
	a.system.spend(len(p))
	return append(make([]byte, 0, len(p)), p...)
}

// name is bytes of at most maxName that have to be UTF-8, else EINVAL.
func (a *reader) name() string {
	p := a.bytes(maxName)
	if !utf8.Valid(p) {
		a.wrong = a.system.invalid("%q is no UTF-8", p)
		return ""
	}
	return string(p)
}
