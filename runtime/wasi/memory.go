package wasi

import (
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero/api"
)

// view returns n bytes of the guest's memory, or false if any byte lies outside. Callers must not keep the bytes: the
// memory can move when it grows. If n is 0, the pointer is ignored.
func view(mem api.Memory, pointer uint32, n uint64) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if n > math.MaxUint32 {
		return nil, false
	}
	return mem.Read(pointer, uint32(n))
}

// put32, put64 and put write a result to the guest's memory. They write nothing and return fault if any byte lies
// outside.
func put32(mem api.Memory, pointer, value uint32) errno {
	return faultUnless(mem.WriteUint32Le(pointer, value))
}

func put64(mem api.Memory, pointer uint32, value uint64) errno {
	return faultUnless(mem.WriteUint64Le(pointer, value))
}

func put(mem api.Memory, pointer uint32, value []byte) errno {
	return faultUnless(mem.Write(pointer, value))
}

func faultUnless(written bool) errno {
	if !written {
		return errnoFault
	}
	return errnoSuccess
}

var le = binary.LittleEndian
