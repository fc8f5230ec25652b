package sdk

import (
	"context"
	"reflect"
	"runtime"
	"strconv"
	"time"
)

// panicError is a handler's panic as an error.
type panicError struct {
	text  string
	stack []byte
}

func (e *panicError) Error() string        { return "panic: " + e.text }
func (e *panicError) exitStatus() int      { return exitPanic }
func (e *panicError) delay() time.Duration { return 0 }

// maxStack is how much of a stack is told, in bytes.
const maxStack = 8 << 10

// attempt calls the handler, and makes its panic an error. Nothing that the panic has left half done
// outlives the task.
func attempt(handler Handler, task *Task) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, maxStack)
			result, err = nil, &panicError{textOf(p), stack[:runtime.Stack(stack, false)]}
		}
	}()
	return handler(context.Background(), task)
}

// textOf says what a handler has panicked with, as Go would; without the package fmt, which would add a
// sixth to the smallest plugin. A method that panics itself says nothing.
func textOf(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = reflect.TypeOf(p).String()
		}
	}()
	switch p := p.(type) {
	case error:
		return p.Error()
	case interface{ String() string }:
		return p.String()
	}
	if v := reflect.ValueOf(p); v.CanInt() {
		return strconv.FormatInt(v.Int(), 10)
	} else {
		return v.String() // for what is no string: its type
	}
}
