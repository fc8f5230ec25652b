package sdk

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strconv"
	"time"
	"unsafe"
)

// The functions that a handler imports. A negative answer is an errno.

//go:wasmimport quern_v1 result_read
//go:noescape
func resultRead(offset uint32, p *byte, n uint32) int32

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

// errno is a negative answer.
type errno int32

const (
	errnoTooBig errno = -5
	errnoState  errno = -10
)

func (e errno) Error() string {
	switch e {
	case errnoTooBig:
		return "it is larger than the plugin's limit"
	default:
		return "the host answers " + strconv.Itoa(int(e))
	}
}

// Fields of task_text and task_number.
const (
	textID = iota
	textQueue
	textTenant
	textPlugin

	numberAttempt     = 0
	numberMaxAttempts = 1
)

func runHandler(handler Handler) int32 {
	input, err := readInput()
	if errors.Is(err, errnoState) {
		// Somebody calls Run while the module starts. Quern then refuses it with these words.
		panic("sdk.Run is for " + exportName + " alone: there is no task yet")
	}
	if err != nil {
		return tell("read the task's input: ", err)
	}
	own.task = Task{
		ID:          text(textID),
		Queue:       text(textQueue),
		Tenant:      text(textTenant),
		Plugin:      text(textPlugin),
		Attempt:     number(numberAttempt, 1),
		MaxAttempts: number(numberMaxAttempts, 0),
		Input:       input,
	}
	result, err := handler(context.Background(), &own.task)
	if err != nil {
		return tell("", err)
	}
	if len(result) > 0 {
		if e := errno(outputWrite(unsafe.SliceData(result), uint32(len(result)))); e < 0 {
			return tell("write the task's result: ", e)
		}
	}
	return exitComplete
}

var own struct {
	task  Task
	room  [4096-unsafe.Sizeof(Task{})-16]byte
	taken int
}

func take(n int) []byte {
	if n > len(own.room)-own.taken {
		return make([]byte, n)
	}
	b := own.room[own.taken : own.taken+n : own.taken+n]
	own.taken += n
	return b
}

// readInput returns the task's input.
func readInput() ([]byte, error) {
	size := inputSize()
	if size < 0 {
		return nil, errno(size)
	}
	input := take(int(size))
	for at := 0; at < len(input); {
		rest := input[at:]
		n := inputRead(uint32(at), unsafe.SliceData(rest), uint32(len(rest)))
		switch {
		case n < 0:
			return nil, errno(n)
		case n == 0:
			return nil, io.ErrUnexpectedEOF
		}
		at += int(n)
	}
	return input, nil
}

// text and number ask for what describes the task. It is not said while the host warms the module, for
// then there is no task.
func text(field uint32) string {
	size := taskText(field)
	if size <= 0 {
		return ""
	}
	b := take(int(size))
	return unsafe.String(unsafe.SliceData(b), max(0, resultRead(0, unsafe.SliceData(b), uint32(len(b)))))
}

var num int64

func number(field uint32, otherwise int) int {
	if taskNumber(field, &num) < 0 || num <= 0 {
		return otherwise
	}
	return int(num)
}

// tell makes the error the task's, and returns the exit status that it asks for.
func tell(doing string, err error) int32 {
	text := doing + err.Error()
	errorSet(unsafe.StringData(text), uint32(len(text)))
	status, delay := judge(err)
	if delay > 0 {
		// Not a moment too early: what is less than a millisecond would be no delay at all.
		retryAfter((delay + time.Millisecond - 1).Milliseconds())
	}
	return int32(status)
}

// misplaced tells whether this is called by the export of a handler, whose name stands in the stack as
// that of a function.
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
