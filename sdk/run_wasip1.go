package sdk

import (
	"errors"
	"io"
	"runtime"
	"unsafe"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// The functions that every handler imports. A negative answer is the number of a HostError.

//go:wasmimport quern_v1 input_size
func inputSize() int32

//go:wasmimport quern_v1 input_read
//go:noescape
func inputRead(offset uint32, p *byte, n uint32) int32

//go:wasmimport quern_v1 output_write
//go:noescape
func outputWrite(p *byte, n uint32) int32

//go:wasmimport quern_v1 error_set
//go:noescape
func errorSet(p *byte, n uint32) int32

//go:wasmimport quern_v1 retry_after
func retryAfter(ms int64) int32

//go:wasmimport quern_v1 task_text
func taskText(field uint32) int32

//go:wasmimport quern_v1 task_number
//go:noescape
func taskNumber(field uint32, number *int64) int32

// own is static memory for the task's description and a small input. On the heap, these would touch more pages, and
// resetting those pages would cost more than everything else in Run. The warm call can keep the memory that it got, so
// no part of own is handed out twice.
var own struct {
	task     Task
	ctx      taskContext
	given    bool                                         // task and ctx are in use, and remain so after a warm call
	warming  bool                                         // the current call is the warm call, which has no task
	log      func(level Level, text, fields string) error // nil before Run
	progress func(fraction float64, message string)       // nil before Run
	used     int                                          // the number of bytes of room in use
	room     [8 << 10]byte
}

func runHandler(handler Handler) int32 {
	input, err := readInput()
	switch {
	case err == nil:
	case errors.Is(err, ErrNoHost):
		// Run was called while the module starts. The panic's text becomes the error of the module's tasks.
		panic("sdk.Run is for " + exportName + " alone: there is no task yet")
	default:
		return fail(host{}, "read the task's input: ", err)
	}
	reseed()
	own.log, own.progress = sayLine, sayProgress
	id, isTask := text(textID)
	own.warming = !isTask
	task, ctx := &own.task, &own.ctx
	if own.given {
		task, ctx = new(Task), new(taskContext)
	}
	own.given = true
	*task = describedTask(id, input)
	result, err := attempt(ctx, handler, task, stderr())
	ctx.finish()
	return settle(host{}, result, err)
}

// host is the settler that calls quern_v1.
type host struct{}

func (host) Output(result []byte) error {
	if len(result) == 0 {
		return nil // not calling the host saves time
	}
	return answered(outputWrite(unsafe.SliceData(result), uint32(len(result))))
}

func (host) Fail(text string) { errorSet(unsafe.StringData(text), uint32(len(text))) }

func (host) RetryAfter(ms int64) { retryAfter(ms) }

// take returns n unused bytes of own.room or, if there are not enough, of the heap.
func take(n int) []byte {
	if n > len(own.room)-own.used {
		return make([]byte, n)
	}
	b := own.room[own.used:][:n:n]
	own.used += n
	return b
}

// smallInput is the number of bytes that are read before the size of the input is known. If the input is smaller, this
// saves a call of the host.
const smallInput = 2 << 10

func readInput() ([]byte, error) {
	free := own.room[own.used:]
	most := int32(min(len(free), smallInput))
	switch n := inputRead(0, unsafe.SliceData(free), uint32(most)); {
	case n < 0:
		return nil, HostError(n)
	case n < most:
		return take(int(n)), nil // inputRead has filled the part of room that take returns
	}
	input := take(int(max(0, inputSize())))
	for rest := input; len(rest) > 0; {
		n := inputRead(uint32(len(input)-len(rest)), unsafe.SliceData(rest), uint32(len(rest)))
		switch {
		case n < 0:
			return nil, HostError(n)
		case n == 0:
			return nil, io.ErrUnexpectedEOF
		}
		rest = rest[n:]
	}
	return input, nil
}

// text asks the host for a text of the task's description. In a warm call, which has no task, ok is false.
func text(field uint32) (value string, ok bool) {
	size := taskText(field)
	if size <= 0 {
		return "", size == 0
	}
	b := take(int(size))
	n := guest.ResultRead(0, unsafe.SliceData(b), uint32(len(b)))
	return unsafe.String(unsafe.SliceData(b), max(0, n)), true // no copy: nothing writes to b again
}

// misplaced reports whether the export of a handler is on the stack, which means that Handle was called in place of
// Run.
func misplaced() bool {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers[:])])
	for {
		frame, more := frames.Next()
		if frame.Function == exportName {
			return true
		}
		if !more {
			return false
		}
	}
}
