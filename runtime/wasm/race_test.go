//go:build race

package wasm

// raceDetector tells that the tests run under the race detector. wazero's compiler is some twenty times slower there, and
// nothing here runs in more than one goroutine but the tests themselves: what is large is left to the plain run.
const raceDetector = true
