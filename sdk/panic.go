package sdk

import (
	"context"
	"io"
	"reflect"
	"runtime"
	"strconv"
	"time"
)

// panicError is a handler's panic as an error.
type panicError string

func (e panicError) Error() string      { return "panic: " + string(e) }
func (panicError) exitStatus() int      { return exitPanic }
func (panicError) delay() time.Duration { return 0 }

// maxStack is how much of a stack is logged, in bytes.
const maxStack = 8 << 10

// attempt calls the handler, and makes its panic an error, told to the log as Go does. What the panic has left
// half done is gone with the task.
func attempt(ctx context.Context, handler Handler, task *Task, log io.Writer) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, maxStack)
			stack = stack[:runtime.Stack(stack, false)]
			result, err = nil, panicError(textOf(p))
			_, _ = io.WriteString(log, err.Error()+"\n\n"+string(stack))
		}
	}()
	return handler(ctx, task)
}

// textOf says what a handler has panicked with, as Go would; without the package fmt, which would add a
// sixth to a plugin that does not use it. A value that panics when it is asked has only its type.
func textOf(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = typeOf(p)
		}
	}()
	switch p := p.(type) {
	case error:
		return p.Error()
	case interface{ String() string }:
		return p.String()
	}
	switch v := reflect.ValueOf(p); {
	case v.Kind() == reflect.String:
		return v.String()
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	default:
		return typeOf(p)
	}
}

func typeOf(p any) string { return "(" + reflect.TypeOf(p).String() + ")" }
