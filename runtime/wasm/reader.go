package wasm

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

var (
	// ErrTruncated is wrapped by the error for a file that ends too early.
	ErrTruncated = errors.New("the file ends too early")
	// ErrReserved is wrapped by the error for a name that is reserved for the host.
	ErrReserved = errors.New("names that begin with \"" + Prefix + "\" are the host's own")
	// ErrUnsupported is wrapped by the error for a feature of a later WebAssembly version or of a proposal.
	ErrUnsupported = errors.New("not supported")
)

// Error says what is wrong with a module, and where. Err can be a *CapError or wrap one of the errors above.
type Error struct {
	// Section is the section's name, "header" for the first eight bytes.
	Section string
	// Function is the index of the function whose code is wrong, imported functions first; -1 outside code.
	Function int
	// Offset is where reading stopped, in bytes.
	Offset int
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return e.Where() + ": " + e.Err.Error() }

// Where returns the place in the file.
func (e *Error) Where() string {
	if e.Function >= 0 {
		return fmt.Sprintf("function %d at byte %d", e.Function, e.Offset)
	}
	return fmt.Sprintf("%s section at byte %d", e.Section, e.Offset)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, ErrUnsupported) }

// maxName is the maximum length of the name of an import, an export or a custom section, in bytes.
const maxName = 64 << 10

// reader reads a part of a file. It keeps the first error, after which everything reads as zero, so callers check err
// only once, before they allocate memory.
type reader struct {
	file     []byte
	at, end  int
	err      error
	overflow error // the error of reading past the end
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
		r.end = r.at // nothing more is read
	}
}

func (r *reader) left() int { return r.end - r.at }

func (r *reader) byte() byte {
	if r.at >= r.end {
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

// part skips n bytes, and returns a reader of these bytes.
func (r *reader) part(n uint32, overflow error) reader {
	begin := r.at
	r.bytes(uint64(n))
	return reader{file: r.file, at: begin, end: r.at, err: r.err, overflow: overflow}
}

// ended fails the reader if bytes are left.
func (r *reader) ended() {
	if r.left() > 0 {
		r.fail(fmt.Errorf("%d bytes are left over", r.left()))
	}
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (r *reader) u32() uint32 {
	if r.at < r.end {
		if b := r.file[r.at]; b < 0x80 {
			r.at++
			return uint32(b)
		}
	}
	return r.long()
}

// long reads an unsigned number in LEB128 as u32 does, but accepts an encoding of any number of bytes.
func (r *reader) long() uint32 {
	var value uint32
	for shift := uint(0); ; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		if shift == 28 && b > 0x0f {
			r.fail(errors.New("a number has more than 32 bits"))
			return 0
		}
		value |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return value
		}
	}
}

// signed reads a signed LEB128 number of at most the given number of bits.
func (r *reader) signed(bits uint) int64 {
	if r.at < r.end && r.file[r.at] < 0x80 { // fast path
		r.at++
		return int64(int8(r.file[r.at-1]<<1) >> 1)
	}
	var value int64
	for shift := uint(0); ; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		value |= int64(b&0x7f) << shift
		if left := bits - shift; left <= 7 {
			// In the last byte, the bits above those of the number repeat the number's sign.
			rest := int8(b<<1) >> left
			if b >= 0x80 || rest != 0 && rest != -1 {
				r.fail(fmt.Errorf("a number has more than %d bits", bits))
				return 0
			}
		}
		if b < 0x80 {
			if unused := 57 - int(shift); unused > 0 {
				value = value << unused >> unused
			}
			return value
		}
	}
}

// count reads the length of a vector, whose elements take at least one byte each. It never returns more than the bytes
// left or the cap.
func (r *reader) count(what string, limit int) int {
	n := r.u32()
	if uint64(n) > uint64(r.left()) {
		r.fail(fmt.Errorf("%d %s do not fit into the %d bytes that are left", n, what, r.left()))
		return 0
	}
	r.bound(what, uint64(n), limit)
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	n := r.u32()
	r.bound("bytes in a name", uint64(n), maxName)
	b := r.bytes(uint64(n))
	if !utf8.Valid(b) {
		r.fail(errors.New("a name is not UTF-8"))
		return ""
	}
	return string(b)
}

func (r *reader) valueType() Type {
	switch b := r.byte(); b {
	case 0x7f, 0x7e, 0x7d, 0x7c, 0x7b, 0x70, 0x6f:
		return Type(b)
	case 0x69:
		r.fail(unsupported("exception references"))
	case 0x63, 0x64: // (ref null heaptype), (ref heaptype)
		r.fail(unsupported("typed references"))
	case 0x6e, 0x6d, 0x6c, 0x6b, 0x6a, 0x71, 0x72, 0x73:
		r.fail(unsupported("garbage collection"))
	default:
		r.fail(fmt.Errorf("value type 0x%02x is unknown", b))
	}
	return 0
}

func (r *reader) referenceType() Type {
	t := r.valueType()
	if r.err == nil && t != FuncRef && t != ExternRef {
		r.fail(fmt.Errorf("%s is no type of references", t))
	}
	return t
}

// limits reads the size of a memory or a table.
func (r *reader) limits() Limits {
	switch flags := r.byte(); {
	case flags > 7:
		r.fail(fmt.Errorf("limits have the unknown flags 0x%02x", flags))
	case flags&4 != 0:
		r.fail(unsupported("64-bit memories and tables"))
	case flags&2 != 0:
		r.fail(unsupported("shared memory (threads)"))
	case flags == 1:
		l := Limits{Min: r.u32(), Max: r.u32(), HasMax: true}
		if r.err == nil && l.Min > l.Max {
			r.fail(fmt.Errorf("its minimum of %d is above its maximum of %d", l.Min, l.Max))
		}
		return l
	}
	return Limits{Min: r.u32()}
}
