package wasi

import (
	"math"

	"github.com/tetratelabs/wazero/api"
)

const (
	vectorSize = 8
	// maxVectors is the maximum number of vectors in one call: IOV_MAX of most systems.
	maxVectors = 1024
	// maxTransfer is the maximum number of bytes that one call moves; guests call again for the rest.
	maxTransfer = 1 << 20
)

// vector is a piece of the guest's memory.
type vector struct{ pointer, length uint32 }

// gather reads the vectors of a call. All must lie in memory. It also returns the sum of their lengths, at most
// maxTransfer. gather copies the vectors, because the call can overwrite them in the guest's memory.
func (s *System) gather(mem api.Memory, pointer, count, result uint64) ([]vector, int, errno) {
	n := uint32(count)
	if n > maxVectors {
		return nil, 0, errnoInval
	}
	array, ok := view(mem, uint32(pointer), uint64(n)*vectorSize)
	if _, fits := view(mem, uint32(result), 4); !ok || !fits {
		return nil, 0, errnoFault
	}
	s.host.Spend(len(array))
	s.vectors = s.vectors[:0]
	total := uint64(0)
	for ; len(array) > 0; array = array[vectorSize:] {
		v := vector{le.Uint32(array), le.Uint32(array[4:])}
		if _, ok := view(mem, v.pointer, uint64(v.length)); !ok {
			return nil, 0, errnoFault
		}
		total += uint64(v.length)
		s.vectors = append(s.vectors, v)
	}
	return s.vectors, int(min(total, maxTransfer)), errnoSuccess
}

// piece returns the first n bytes of a vector that gather has checked, or the whole vector if it is shorter.
func piece(mem api.Memory, v vector, n int) []byte {
	p, _ := view(mem, v.pointer, min(uint64(v.length), uint64(n)))
	return p
}

// scatter copies at most room bytes of contents into the vectors. It returns the number of bytes copied, and writes
// this number to the address result.
func (s *System) scatter(mem api.Memory, contents []byte, vectors []vector, room int, result uint64) int {
	contents = contents[:min(room, len(contents))]
	n := len(contents)
	s.host.Spend(n)
	for _, v := range vectors {
		contents = contents[copy(piece(mem, v, len(contents)), contents):]
	}
	mem.WriteUint32Le(uint32(result), uint32(n))
	return n
}

// fdRead implements fd_read(fd, iovs, iovs_len, result nread).
func (s *System) fdRead(mem api.Memory, a []uint64) errno {
	d, e := s.readable(a[0])
	if e != errnoSuccess {
		return e
	}
	vectors, room, e := s.gather(mem, a[1], a[2], a[3])
	if e != errnoSuccess {
		return e
	}
	if d.kind == stdin {
		s.stdin = s.stdin[s.scatter(mem, s.stdin, vectors, room, a[3]):]
		return errnoSuccess
	}
	d.offset += int64(s.scatter(mem, d.node.from(d.offset), vectors, room, a[3]))
	return errnoSuccess
}

// fdPread implements fd_pread(fd, iovs, iovs_len, offset, result nread).
func (s *System) fdPread(mem api.Memory, a []uint64) errno {
	d, e := s.readable(a[0])
	switch {
	case e != errnoSuccess:
		return e
	case d.kind == stdin:
		return errnoSpipe
	case int64(a[3]) < 0:
		return errnoInval
	}
	vectors, room, e := s.gather(mem, a[1], a[2], a[4])
	if e != errnoSuccess {
		return e
	}
	s.scatter(mem, d.node.from(int64(a[3])), vectors, room, a[4])
	return errnoSuccess
}

// readable returns the descriptor with the number fd if it is an open file or stdin.
func (s *System) readable(fd uint64) (*descriptor, errno) {
	d := s.descriptor(fd)
	switch {
	case d == nil || d.kind == stdout || d.kind == stderr:
		return nil, errnoBadf
	case d.kind == directory:
		return nil, errnoIsdir
	}
	return d, errnoSuccess
}

// from returns the contents of a file, beginning at an offset.
func (n *node) from(offset int64) []byte {
	return n.contents[min(offset, int64(len(n.contents))):]
}

// fdWrite implements fd_write(fd, iovs, iovs_len, result nwritten). Only streams are open for writing.
func (s *System) fdWrite(mem api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	if d == nil || d.kind != stdout && d.kind != stderr {
		return errnoBadf
	}
	vectors, n, e := s.gather(mem, a[1], a[2], a[3])
	if e != errnoSuccess {
		return e
	}
	s.host.Spend(n)
	left := n
	for _, v := range vectors {
		p := piece(mem, v, left)
		left -= len(p)
		switch {
		case len(p) == 0:
		case d.kind == stderr:
			s.host.Stderr(p)
		default:
			s.host.Stdout(p)
		}
	}
	return put32(mem, uint32(a[3]), uint32(n))
}

// fdPwrite implements fd_pwrite(fd, iovs, iovs_len, offset, result nwritten).
func (s *System) fdPwrite(_ api.Memory, a []uint64) errno {
	if d := s.descriptor(a[0]); d != nil && (d.kind == stdout || d.kind == stderr) {
		return errnoSpipe
	}
	return errnoBadf
}

// Values of whence in fd_seek.
const (
	whenceSet = 0
	whenceCur = 1
	whenceEnd = 2
)

// fdSeek implements fd_seek(fd, offset, whence, result newoffset).
func (s *System) fdSeek(mem api.Memory, a []uint64) errno {
	d, e := s.seekable(a[0])
	if e != errnoSuccess {
		return e
	}
	from := int64(0)
	switch uint32(a[2]) {
	case whenceSet:
	case whenceCur:
		from = d.offset
	case whenceEnd:
		from = int64(len(d.node.contents))
	default:
		return errnoInval
	}
	by := int64(a[1])
	switch {
	case by > math.MaxInt64-from: // from is not negative
		return errnoOverflow
	case from+by < 0:
		return errnoInval
	}
	if e := put64(mem, uint32(a[3]), uint64(from+by)); e != errnoSuccess {
		return e
	}
	d.offset = from + by
	return errnoSuccess
}

// fdTell implements fd_tell(fd, result offset).
func (s *System) fdTell(mem api.Memory, a []uint64) errno {
	d, e := s.seekable(a[0])
	if e != errnoSuccess {
		return e
	}
	return put64(mem, uint32(a[1]), uint64(d.offset))
}

// seekable returns the descriptor with the number fd if it is an open file.
func (s *System) seekable(fd uint64) (*descriptor, errno) {
	d := s.descriptor(fd)
	switch {
	case d == nil || d.kind == directory:
		return nil, errnoBadf
	case d.kind.stream():
		return nil, errnoSpipe
	}
	return d, errnoSuccess
}
