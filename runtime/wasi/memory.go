package wasi

import (
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero/api"
)

// view returns n bytes of the guest's memory, or false if they do not all lie in it. It is not kept
// longer than the function runs: the memory may move when it grows. A pointer to nothing may point
// anywhere.
func view(mem api.Memory, pointer uint32, n uint64) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if n > math.MaxUint32 {
		return nil, false
	}
	return mem.Read(pointer, uint32(n))
}

// put32 and put64 write a result, all of it or nothing.
func put32(mem api.Memory, pointer, value uint32) errno {
	if !mem.WriteUint32Le(pointer, value) {
		return errnoFault
	}
	return errnoSuccess
}

func put64(mem api.Memory, pointer uint32, value uint64) errno {
	if !mem.WriteUint64Le(pointer, value) {
		return errnoFault
	}
	return errnoSuccess
}

// put writes a structure, all of it or nothing.
func put(mem api.Memory, pointer uint32, value []byte) errno {
	if !mem.Write(pointer, value) {
		return errnoFault
	}
	return errnoSuccess
}

var le = binary.LittleEndian
