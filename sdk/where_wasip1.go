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
	used   int  // the number of bytes of text
	waits  bool // the host has stopped the handler in one of its own functions
}

// where returns the address of a text of the handler's frames, innermost first, such as "main.draw (main.go:12)". at is
// where the host has stopped the handler: the number of a function, times 1<<16, plus the number of its block that ran,
// from which its line follows; 0 in a function of the host. See "The place of a limit" in ABI.md.
//
// Where Go keeps these is no public interface: Go's linker numbers functions from firstFunction, and a program counter
// is such a number, times 1<<16, plus that of a block. An answer that does not end at the SDK is not given.
//
//go:nosplit
//go:wasmexport quern_where
func where(at uint32) uint32 {
	keepStack()
	// The wrapper of this export has put at, and room for the result, below the frame of the function that was stopped.
	stopped.sp = uintptr(unsafe.Pointer(&at)) + wrapperFrame
	stopped.pc = firstFunction<<16 + uintptr(at)
	stopped.waits = at == 0
	switch {
	case stopped.waits: // it has no frame but the caller's counter
		stopped.pc = *(*uintptr)(unsafe.Add(unsafe.Pointer(&at), wrapperFrame))
		stopped.sp += unsafe.Sizeof(stopped.pc)
	case at&0xffff != 0:
		stopped.pc++ // a caller's counter is that of the block after its call
	}
	callFrom(stopped.sp, stopped.pc)
	// In the first block, the function may have its frame already.
	if !writeFrames() && !stopped.waits && stopped.pc&0xffff == 0 {
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

// keepStack lets functions run at the end of the stack: Go could not move it, because it does not know its last frame.
// They overwrite what is below then. Either way, the host resets the memory afterwards.
func keepStack()

// callFrom calls collectFrames as if the code at pc had called it.
//
//go:noescape
func callFrom(sp, pc uintptr)

// collectFrames reads the stack of its caller.
func collectFrames() { stopped.n = runtime.Callers(2, stopped.pcs[:]) }

// writeFrames writes the handler's frames into stopped.text. It writes nothing and returns false if they end neither at
// the SDK nor at the begin of a goroutine.
//
//go:noinline
func writeFrames() bool {
	stopped.used = 0
	text := stopped.text[:0:len(stopped.text)]
	if !stopped.waits {
		stopped.pcs[0] = blockOf(stopped.pcs[0])
	}
	frames := runtime.CallersFrames(stopped.pcs[:stopped.n])
	for {
		frame, more := frames.Next()
		name := frame.Function[strings.LastIndexByte(frame.Function, '/')+1:]
		file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]
		last := name == "sdk.attempt" || name == "runtime.goexit"
		if last || stopped.n == len(stopped.pcs) && !more || len(text)+len(name)+len(file)+32 > cap(text) {
			stopped.used = len(text)
			return stopped.used > 0
		}
		if !more {
			return false
		}
		if strings.HasPrefix(frame.Function, "runtime.") || strings.HasPrefix(frame.Function, "internal/runtime/") ||
			stopped.waits && len(text) == 0 && callsHost(frame.Function) {
			continue
		}
		if text = append(text, name...); frame.Line > noLine {
			text = append(append(append(text, " ("...), file...), ':')
			text = append(strconv.AppendInt(text, int64(frame.Line), 10), ')')
		}
		text = append(text, '\n')
	}
}

// callsHost reports whether a function is of the SDK, or of a package of Go through which handlers call the host.
func callsHost(function string) bool {
	for _, prefix := range [...]string{
		"bufio.", "fmt.", "internal/", "io.", "log.", "log/", "os.", "syscall.", "time.", "github.com/quern-project/quern/sdk",
	} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// noLine is the line of the branch that ends a loop of one block, for which Go's compiler notes no other.
const noLine = 1

// blockOf returns the counter by which to look for the line of a block. Go's table has the line of a block's last
// instructions. A block that begins with none, where the body of an inlined function begins, has that of the block
// before: the line is that of the next number then.
func blockOf(pc uintptr) uintptr {
	before, own := [1]uintptr{pc - 1}, [1]uintptr{pc}
	one, _ := runtime.CallersFrames(before[:]).Next()
	two, _ := runtime.CallersFrames(own[:]).Next()
	if pc&0xffff > 1 && one.Line == two.Line && one.Function == two.Function {
		next := [1]uintptr{pc + 1}
		if three, _ := runtime.CallersFrames(next[:]).Next(); three.Line > 0 {
			return pc + 1
		}
	}
	return pc
}
