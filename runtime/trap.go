package runtime

import "strings"

// trapOf names the trap that an error of wazero stands for, and says what it commonly means. An
// error that is no trap is one of the host.
//
// The kinds of traps are internal to wazero, so they are told by their texts, which are pinned in
// hintOf and nowhere else: a test provokes each of them.
func trapOf(err error) (name, hint string, ok bool) {
	text, _, _ := strings.Cut(err.Error(), "\n")
	name = text
	if at := strings.LastIndex(text, ": "); at >= 0 {
		name = text[at+len(": "):]
	}
	if hint, ok = hintOf(name); ok {
		return name, hint, true
	}
	return name, "a trap of WebAssembly", strings.Contains(text, "wasm error: ")
}

func hintOf(trap string) (hint string, known bool) {
	switch trap {
	case "unreachable":
		return "the program aborted or panicked", true
	case "out of bounds memory access":
		return "a bad pointer or index, or a full stack", true
	case "integer divide by zero":
		return "a division by zero", true
	case "integer overflow":
		return "a result that its type cannot hold", true
	case "invalid conversion to integer":
		return "a float that no integer can hold", true
	case "invalid table access":
		return "a call through a null or wild function pointer", true
	case "indirect call type mismatch":
		return "a call through a function pointer of another type", true
	case "stack overflow":
		return "endless or too deep recursion", true
	default:
		return "", false
	}
}
