package guest

import "unsafe"

// ResultRead copies up to n bytes of the slot, from offset on, to p. The slot has what the previous call of the host
// left there. A negative answer is an errno.
//
//go:wasmimport quern_v1 result_read
//go:noescape
func ResultRead(offset uint32, p *byte, n uint32) int32

//go:wasmimport quern_v1 task_text
func taskText(field uint32) int32

// Refusal returns why the host refused the previous call; "" if it gave no reason.
func Refusal() string {
	const field = 10
	why, _ := Slot(taskText(field))
	return string(why)
}

// View returns the bytes as a string without copying them. Use the string at once, and do not keep it.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Slot returns the first size bytes of the slot. If size is negative, it is the errno of the call that was to fill the
// slot.
func Slot(size int32) (b []byte, errno int32) {
	if size < 0 {
		return nil, size
	}
	b = make([]byte, size)
	n := ResultRead(0, unsafe.SliceData(b), uint32(len(b)))
	return b[:max(0, n)], min(0, n)
}
