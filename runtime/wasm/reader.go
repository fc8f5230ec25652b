package wasm

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrTruncated is wrapped by the error about a file that ends too early.
var ErrTruncated = errors.New("the file ends too early")

// Error says what is wrong with a module, and where.
type Error struct {
	// Section is the name of the section, "header" for the first eight bytes.
	Section string
	// Offset is the byte of the file at which reading stopped.
	Offset int
	// Err is what is wrong there.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s section at byte %d: %v", e.Section, e.Offset, e.Err)
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// maxName bounds the names of imports, exports and custom sections, in bytes.
const maxName = 64 << 10

// reader reads a part of a file. The first error sticks, after which everything reads as zero, so
// that the callers need to look at it once, and before they allocate.
type reader struct {
	file     []byte
	at, end  int
	err      error
	overflow error // what it means to read over the end
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
		r.end = r.at // nothing more is read
	}
}

func (r *reader) left() int { return r.end - r.at }

func (r *reader) byte() byte {
	if r.left() < 1 {
		r.fail(r.overflow)
		return 0
	}
	b := r.file[r.at]
	r.at++
	return b
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(r.left()) {
		r.fail(r.overflow)
		return nil
	}
	b := r.file[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

// unsigned reads an unsigned LEB128 number of at most the given bits.
func (r *reader) unsigned(bits uint) uint64 {
	var value uint64
	for shift := uint(0); ; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		if left := bits - shift; left < 7 && b>>left != 0 {
			r.fail(fmt.Errorf("a number has more than %d bits", bits))
			return 0
		}
		value |= uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return value
		}
	}
}

func (r *reader) u32() uint32 { return uint32(r.unsigned(32)) }

// count reads the length of a vector, each of whose elements takes at least one byte. Nothing that
// is larger than the bytes that are left is ever returned.
func (r *reader) count(what string) int {
	n := r.u32()
	if uint64(n) > uint64(r.left()) {
		r.fail(fmt.Errorf("%d %s do not fit into the %d bytes that are left", n, what, r.left()))
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	n := r.u32()
	if n > maxName {
		r.fail(fmt.Errorf("a name of %d bytes is longer than %d", n, maxName))
		return ""
	}
	b := r.bytes(uint64(n))
	if !utf8.Valid(b) {
		r.fail(errors.New("a name is not UTF-8"))
		return ""
	}
	return string(b)
}

// valueType reads a value type. The proposals that wazero does not serve by default are named as
// well: what they are is told by the check of imports and by the compiler.
func (r *reader) valueType() Type {
	switch b := r.byte(); b {
	case 0x7f:
		return "i32"
	case 0x7e:
		return "i64"
	case 0x7d:
		return "f32"
	case 0x7c:
		return "f64"
	case 0x7b:
		return "v128"
	case 0x70:
		return "funcref"
	case 0x6f:
		return "externref"
	case 0x69:
		return "exnref"
	case 0x63, 0x64: // (ref null heaptype), (ref heaptype)
		r.unsigned(33)
		return "ref"
	default:
		if r.err == nil {
			r.fail(fmt.Errorf("value type 0x%02x is unknown", b))
		}
		return ""
	}
}

// limits reads the size of a memory or a table; bit 2 of the flags makes both numbers 64 bits wide.
func (r *reader) limits() Limits {
	flags := r.byte()
	if flags > 7 {
		r.fail(fmt.Errorf("limits have the unknown flags 0x%02x", flags))
	}
	bits := uint(32)
	if flags&4 != 0 {
		bits = 64
	}
	l := Limits{Min: r.unsigned(bits), HasMax: flags&1 != 0}
	if l.HasMax {
		l.Max = r.unsigned(bits)
	}
	return l
}
