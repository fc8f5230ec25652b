package runtime

import (
	"strings"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasm"
)

const (
	// maxFrames and maxFrame bound a backtrace: its entries, and the bytes of each.
	maxFrames = 32
	maxFrame  = 256
	// omitted is the entry that stands for the frames that are left out.
	omitted = "…"
)

// How wazero writes a trap down: the error, then the frames, innermost first and each by its module,
// its function and that one's type, then Go's own stack if the trap was a panic of wazero. A test
// pins it.
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

// backtrace takes the frames out of the error of a trap; nil if it has none. All that stands between
// the marks may be the guest's own choice: the names of its functions, and so more marks.
func backtrace(err error, module string) []string {
	_, trace, found := strings.Cut(err.Error(), traceHead)
	if !found {
		return nil
	}
	trace, _, _ = strings.Cut(trace, traceEnd) // what follows is the host's and nobody else's business
	var frames []string
	for frame := range strings.SplitSeq(trace, traceFrame) {
		switch name := frameName(frame, module); {
		case frame == "" || strings.HasPrefix(name, wasm.Prefix): // on the way to the host
		case len(frames) == maxFrames-1 || strings.HasPrefix(frame, traceMore):
			return append(frames, omitted)
		default:
			frames = append(frames, name)
		}
	}
	return frames
}

// frameName is the function of a frame: without its type, and without the name of the guest's own
// module, which every frame has.
func frameName(frame, module string) string {
	name := strings.TrimPrefix(withoutType(frame), module+".")
	return prefix(redact.Escape([]byte(prefix(name, maxFrame))), maxFrame)
}

// withoutType cuts off what wazero writes behind a name: "(PARAMS)", then nothing, " RESULT" or
// " (RESULTS)". A name may itself have parentheses and spaces, a type of a parameter has neither.
func withoutType(frame string) string {
	if name, ok := cutParentheses(frame); ok {
		if inner, ok := cutParentheses(strings.TrimSuffix(name, " ")); ok && strings.HasSuffix(name, " ") {
			return inner
		}
		return name
	}
	if space := strings.LastIndexByte(frame, ' '); space >= 0 {
		if name, ok := cutParentheses(frame[:space]); ok {
			return name
		}
	}
	return frame
}

// cutParentheses cuts off a last "(…)".
func cutParentheses(text string) (before string, ok bool) {
	open := strings.LastIndexByte(text, '(')
	if open < 0 || !strings.HasSuffix(text, ")") {
		return text, false
	}
	return text[:open], true
}

// trapOf names the trap in an error of wazero, and its usual cause. Any other error is the host's.
//
// wazero does not export its traps, so they are recognized by their texts: a test provokes each of them.
func trapOf(err error) (name, hint string, ok bool) {
	text, _, _ := strings.Cut(err.Error(), "\n")
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
