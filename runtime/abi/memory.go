package abi

import (
	"math"

	"github.com/tetratelabs/wazero/api"
)

// view returns n bytes of the guest's memory, or false if any byte lies outside. Callers must not keep the bytes: the
// memory can move when it grows. If n is 0, the pointer is ignored.
func view(mem api.Memory, pointer, n uint64) ([]byte, bool) {
	if n = uint64(uint32(n)); n == 0 {
		return nil, true
	}
	return mem.Read(uint32(pointer), uint32(n))
}

// put64 writes a result of eight bytes to the guest's memory. It writes nothing and returns EFAULT if any byte lies
// outside.
func put64(mem api.Memory, pointer uint64, value int64) errno {
	if !mem.WriteUint64Le(uint32(pointer), uint64(value)) {
		return errnoFault
	}
	return errnoSuccess
}

// piece is the maximum number of bytes moved between two calls of Host.Spend, which can end the guest.
const piece = 1 << 20

// spend charges for moving n bytes, and adds n to s.moved.
func (s *System) spend(n int) {
	s.moved += n
	s.charge(n)
}

// jsonPrice is the charge for parsing or writing one byte of JSON, as a number of moved bytes. Moving the byte is
// charged separately.
const jsonPrice = 15

// charge charges for work that costs as much as moving n bytes, at most a piece at once.
func (s *System) charge(n int) {
	for ; n > piece; n -= piece {
		s.Host.Spend(piece)
	}
	s.Host.Spend(n)
}

// read copies contents, from an offset on, into the guest's buffer and returns the number of bytes copied. a holds the
// offset, and the pointer and the length of the buffer.
func read[T string | []byte](s *System, mem api.Memory, contents T, a []uint64) errno {
	buffer, ok := view(mem, a[1], a[2])
	if !ok {
		return errnoFault
	}
	contents = contents[min(uint64(uint32(a[0])), uint64(len(contents))):]
	n := min(len(buffer), len(contents), math.MaxInt32)
	for at := 0; at < n; at += piece {
		end := min(n, at+piece)
		s.moved += end - at
		s.Host.Spend(end - at)
		copy(buffer[at:end], contents[at:end])
	}
	return errno(n)
}
