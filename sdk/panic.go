package sdk

import (
	"context"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// panicError is the error for a handler's panic.
type panicError string

func (e panicError) Error() string                     { return "panic: " + string(e) }
func (panicError) outcome() (int, time.Duration, bool) { return exitPanic, 0, false }

// maxStack is the maximum size of the stack in the log, in bytes.
const maxStack = 8 << 10

// attempt calls the handler. If the handler panics, attempt returns the panic as an error without a result, and logs it
// with its stack as Go does.
func attempt(ctx context.Context, handler Handler, task *Task, log io.Writer) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, maxStack)
			stack = stack[:runtime.Stack(stack, false)]
			own := handlerStack(string(stack))
			text, frames := textOf(p), framesOf(own)
			_, _ = io.WriteString(log, "panic: "+text+"\n\n"+own)
			if len(frames) > 0 {
				text += " [" + strings.Join(frames, " < ") + "]"
			}
			result, err = nil, panicError(text)
		}
	}()
	return handler(ctx, task)
}

// maxFrames is the maximum number of frames in the error of a panic.
const maxFrames = 5

// handlerStack returns the handler's part of the stack that runtime.Stack writes in a recovering function of attempt:
// its first line and, innermost first, the frames between panic and attempt, without those of Go's runtime.
func handlerStack(stack string) string {
	head, frames, _ := strings.Cut(stack, "\npanic(")
	title, _, _ := strings.Cut(head, "\n")
	own := title + "\n"
	lines := strings.Split(frames, "\n")
	for i := 2; i+1 < len(lines); i += 2 {
		if name := functionOf(lines[i]); strings.HasSuffix(name, "/sdk.attempt") {
			break
		} else if !strings.HasPrefix(name, "runtime.") {
			own += lines[i] + "\n" + lines[i+1] + "\n"
		}
	}
	return own
}

// functionOf returns the name of the function in a line of a stack, which its arguments follow.
func functionOf(line string) string {
	if end := strings.LastIndexByte(line, '('); end > 0 {
		return line[:end]
	}
	return line
}

// framesOf returns the first frames of a stack of handlerStack, such as "main.draw (main.go:12)".
func framesOf(stack string) (frames []string) {
	lines := strings.Split(stack, "\n")
	for i := 1; i+1 < len(lines) && len(frames) < maxFrames; i += 2 {
		name, place := functionOf(lines[i]), lines[i+1]
		place, _, _ = strings.Cut(place[strings.LastIndexByte(place, '/')+1:], " ")
		frames = append(frames, name[strings.LastIndexByte(name, '/')+1:]+" ("+strings.TrimSpace(place)+")")
	}
	return frames
}

// textOf describes a panic's value as Go would. If it does not know the value's type, or the value's own method panics,
// it returns the name of the type. With packages fmt and reflect it would know more types, but they would be a tenth of
// a small plugin.
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

// unlike is a type that the value of no panic has.
type unlike struct{}

// typeOf returns the name of a value's type. It takes the name from the runtime's error for a failed assertion:
// "interface conversion: interface {} is main.color, not sdk.unlike".
func typeOf(p any) (name string) {
	defer func() {
		err, _ := recover().(error)
		_, name, _ = strings.Cut(err.Error(), " is ")
		name = "(" + strings.TrimSuffix(name, ", not sdk.unlike") + ")"
	}()
	_ = p.(unlike) //nolint:errcheck // it panics on purpose
	return ""
}
