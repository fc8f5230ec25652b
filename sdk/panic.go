package sdk

import (
	"context"
	"io"
	"runtime"
	"strconv"
	"strings"
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

// textOf says what a handler has panicked with, as Go would, and of a type of the handler's own that says nothing the type alone.
// The packages fmt and reflect would know more, and would be a tenth of a plugin that does not use them. A value that panics
// when it is asked has only its type, too.
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
	case string:
		return p
	case bool:
		return strconv.FormatBool(p)
	case int:
		return strconv.Itoa(p)
	case int8:
		return strconv.FormatInt(int64(p), 10)
	case int16:
		return strconv.FormatInt(int64(p), 10)
	case int32:
		return strconv.FormatInt(int64(p), 10)
	case int64:
		return strconv.FormatInt(p, 10)
	case uint:
		return strconv.FormatUint(uint64(p), 10)
	case uint8:
		return strconv.FormatUint(uint64(p), 10)
	case uint16:
		return strconv.FormatUint(uint64(p), 10)
	case uint32:
		return strconv.FormatUint(uint64(p), 10)
	case uint64:
		return strconv.FormatUint(p, 10)
	}
	return typeOf(p)
}

// unlike is a type that nobody panics with.
type unlike struct{}

// typeOf is the name of a value's type. The runtime says it where a value is taken for what it is not:
// "interface conversion: interface {} is main.color, not sdk.unlike".
func typeOf(p any) (name string) {
	defer func() {
		err, _ := recover().(error)
		_, name, _ = strings.Cut(err.Error(), " is ")
		name = "(" + strings.TrimSuffix(name, ", not sdk.unlike") + ")"
	}()
	_ = p.(unlike) //nolint:errcheck // that it panics is what it is for
	return ""
}
