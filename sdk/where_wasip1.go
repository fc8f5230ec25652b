package sdk

import (
	"runtime"
	"strconv"
	"strings"
	"unsafe"
)

// stopped is static memory for the place where the host has stopped the handler: in the middle of anything, so that
// nothing may be allocated.
var stopped struct {
	sp, pc uintptr
	pcs    [32]uintptr
	n      int // the number of pcs
	text   [4 << 10]byte
	used   int // the number of bytes of text
}

// where returns the address of a text of the handler's frames, innermost first, such as "main.draw (main.go:12)". at is
// where the host has stopped the handler: the number of a function, times 1<<16, plus the number of the function's block
// that ran, from which its line follows. See "The place of a limit" in ABI.md.
//
// Where Go keeps these is no public interface: Go's linker numbers functions from firstFunction, and a program counter
// is such a number, times 1<<16, plus that of a block. An answer that does not end at the SDK is not given.
//
//go:wasmexport quern_where
func where(at uint32) uint32 {
	// The wrapper of this export has put at, and room for the result, below the frame of the function that was stopped.
	stopped.sp = uintptr(unsafe.Pointer(&at)) + wrapperFrame
	stopped.pc = firstFunction<<16 + uintptr(at)
	if at&0xffff != 0 {
		stopped.pc++ // a caller's counter is that of the block after its call
	}
	callFrom(stopped.sp, stopped.pc)
	if !writeFrames() && stopped.pc&0xffff == 0 { // the first block: not before the function has its frame, but after
		stopped.pc++
		callFrom(stopped.sp, stopped.pc)
		writeFrames()
	}
	if stopped.used == 0 {
		return 0
	}
	return uint32(uintptr(unsafe.Pointer(&stopped.text)))
}

const (
	firstFunction = 0x1000
	wrapperFrame  = 16
)

// callFrom calls collectFrames as if the code at pc had called it.
//
//go:noescape
func callFrom(sp, pc uintptr)

// collectFrames reads the stack of its caller.
func collectFrames() { stopped.n = runtime.Callers(2, stopped.pcs[:]) }

// writeFrames writes the handler's frames into stopped.text. It writes nothing and returns false if they do not end at
// the SDK.
//
//go:noinline
func writeFrames() bool {
	stopped.used = 0
	text := stopped.text[:0:len(stopped.text)]
	frames := runtime.CallersFrames(stopped.pcs[:stopped.n])
	for {
		frame, more := frames.Next()
		name := frame.Function[strings.LastIndexByte(frame.Function, '/')+1:]
		if name == "sdk.attempt" {
			stopped.used = len(text)
			return len(text) > 0
		}
		file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]
		if !more || len(text)+len(name)+len(file)+32 > cap(text) {
			return false
		}
		if strings.HasPrefix(name, "runtime.") {
			continue
		}
		text = append(append(append(text, name...), " ("...), file...)
		text = append(strconv.AppendInt(append(text, ':'), int64(frame.Line), 10), ")\n"...)
	}
}
