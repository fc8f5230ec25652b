package guest

import "unsafe"

// ResultRead reads what the call before has left in the slot. A negative answer is an errno.
//
//go:wasmimport quern_v1 result_read
//go:noescape
func ResultRead(offset uint32, p *byte, n uint32) int32

// View is the bytes as a text that is read at once and not kept.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Slot is so much of the slot; else an errno.
func Slot(size int32) (b []byte, errno int32) {
	if size < 0 {
		return nil, size
	}
	b = make([]byte, size)
	n := ResultRead(0, unsafe.SliceData(b), uint32(len(b)))
	return b[:max(0, n)], min(0, n)
}
