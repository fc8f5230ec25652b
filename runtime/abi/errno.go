package abi

// errno is what a function answers: an error if it is negative, else a number that means what the function
// says.
type errno int32

// The errors of quern_v1. Those that are missing in the sequence belong to functions that are planned.
const (
	errnoInval  errno = -1  // an argument that means nothing
	errnoFault  errno = -2  // a range that does not lie in memory
	errnoTooBig errno = -5  // more than is taken
	errnoState  errno = -10 // there is no task
)

const errnoSuccess errno = 0
