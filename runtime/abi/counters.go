package abi

import "sync/atomic"

// Counters count the calls of guests by function and result. They are safe for concurrent use; the zero value is ready.
type Counters struct {
	functions [maxFunctions]struct {
		answers [1 - errnoLast]atomic.Uint64 // indexed by the negated errno; 0 is success
		bytes   atomic.Uint64
	}
}

const (
	errnoLast = errnoLimit
	// The functions of quern_v1 are numbered from 0. After them comes extismInput, which counts the inputs copied to
	// kernels, and then the functions that kernels import.
	extismInput  = 32
	extismFirst  = extismInput + 1
	maxFunctions = 48
)

// count counts a call of the function with the given number, and the bytes that the call moved.
func (c *Counters) count(number int, answer errno, bytes int) {
	if c == nil {
		return
	}
	f := &c.functions[number]
	f.answers[-min(answer, 0)].Add(1)
	if bytes > 0 {
		f.bytes.Add(uint64(bytes))
	}
}

// Each reports, for each function, the calls by result and the bytes moved. A result is "ok" or the name of an error,
// such as EDENIED. Errors that a function never returned are left out; "ok" is always reported. Extism's functions are
// reported as extism_NAME. A task's input, which the kernel serves, is reported as a call of extism_input.
func (c *Counters) Each(calls func(function, result string, n uint64), bytes func(function string, n uint64)) {
	report := func(number int, function string) {
		counted := &c.functions[number]
		for answer := range counted.answers {
			if n := counted.answers[answer].Load(); n > 0 || answer == 0 {
				calls(function, names[-errno(answer)], n)
			}
		}
		bytes(function, counted.bytes.Load())
	}
	for i, f := range Functions() {
		report(i, f.Name)
	}
	report(extismInput, ExtismOldPrefix+"input")
	for i, f := range ExtismFunctions() {
		report(extismFirst+i, ExtismOldPrefix+f.Name)
	}
}
