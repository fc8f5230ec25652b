package runtime

import (
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasm"
)

const (
	// maxFrames is the maximum number of entries in a backtrace, and maxFrame the maximum length of an entry in bytes.
	maxFrames = 32
	maxFrame  = 256
	// omitted is the entry that stands for the frames that are left out.
	omitted = "…"
)

// The separators in the text of a trap. A test checks this form. The text consists of the error; the frames, innermost
// first, each as module, function and type; and Go's stack if the trap was a panic of wazero.
//
//	wasm error: unreachable
//	wasm stack trace:
//		image.decode(i32,i32) i32
//		image.$12()
//		... maybe followed by omitted frames
const (
	traceHead  = "\nwasm stack trace:\n\t"
	traceFrame = "\n\t"
	traceEnd   = "\n\nGo runtime stack trace:\n"
	traceMore  = "... "
)

// backtrace returns the frames in the error of a trap, or nil if the error has none. A guest chooses the names of its
// functions, so a name can contain the separators above.
func backtrace(err error, module string) []string {
	_, trace, found := strings.Cut(err.Error(), traceHead)
	if !found {
		return nil
	}
	trace, _, _ = strings.Cut(trace, traceEnd) // tenants must not see Go's stack
	var frames []string
	for frame := range strings.SplitSeq(trace, traceFrame) {
		switch name := frameName(frame, module); {
		case frame == "" || strings.HasPrefix(name, wasm.Prefix): // functions that the rewriting has added
		case len(frames) == maxFrames-1 || strings.HasPrefix(frame, traceMore):
			return withoutGo(append(frames, omitted))
		default:
			frames = append(frames, name)
		}
	}
	return withoutGo(frames)
}

// withoutGo returns the frames without those of Go's runtime. If all frames are Go's, it returns them all.
func withoutGo(frames []string) []string {
	own := slices.DeleteFunc(slices.Clone(frames), isRuntime)
	if len(own) == 0 || own[0] == omitted {
		return frames
	}
	return own
}

// frameName returns the function's name in a frame, without its type and the name of the guest's module.
func frameName(frame, module string) string {
	name := strings.TrimPrefix(withoutType(frame), module+".")
	return redact.Prefix(redact.Escape([]byte(redact.Prefix(name, maxFrame))), maxFrame)
}

// withoutType cuts off what wazero adds to a name: "(PARAMS)", then nothing, " RESULT" or " (RESULTS)". A name can
// contain parentheses and spaces; PARAMS and RESULTS contain neither.
func withoutType(frame string) string {
	if space := strings.LastIndexByte(frame, ' '); space >= 0 && strings.LastIndexByte(frame[space:], '(') <= len(" ") {
		if name, ok := cutParentheses(frame[:space]); ok {
			return name
		}
	}
	name, _ := cutParentheses(frame)
	return name
}

// cutParentheses cuts off a last "(…)", if there is one.
func cutParentheses(text string) (before string, ok bool) {
	open := strings.LastIndexByte(text, '(')
	if open < 0 || !strings.HasSuffix(text, ")") {
		return text, false
	}
	return text[:open], true
}

// trapOf returns the name of the trap in an error of wazero, and the usual cause of that trap. If the error is not a
// trap, ok is false: it is the host's error. wazero does not export its traps, so trapOf recognizes them by their
// texts; a test provokes each trap.
func trapOf(err error) (name, hint string, ok bool) {
	text := redact.FirstLine(err.Error())
	parts := strings.Split(text, ": ")
	name = parts[len(parts)-1]
	if hint, ok = trapHints[name]; ok {
		return name, hint, true
	}
	return name, "a trap of WebAssembly", strings.Contains(text, "wasm error: ")
}

var trapHints = map[string]string{
	"unreachable":                   "the program aborted or panicked",
	"out of bounds memory access":   "a bad pointer or index, or a full stack",
	"integer divide by zero":        "a division by zero",
	"integer overflow":              "a result that its type cannot hold",
	"invalid conversion to integer": "a float that no integer can hold",
	"invalid table access":          "a call through a null or wild function pointer",
	"indirect call type mismatch":   "a call through a function pointer of another type",
	"stack overflow":                "endless or too deep recursion",
}
