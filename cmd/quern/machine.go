package main

import (
	"os"
	goruntime "runtime"
	"runtime/debug"
	"sync"
)

// spare is how many goroutines of the host may run beside guests on all cores.
const spare = 2

// guestPlaces is how many guests compute at the same time: one for each core. A guest holds its thread for a quarter of a
// millisecond at a time, in which Go can run nothing else on it; and while any goroutine is ready to run, Go looks for what
// came over the network every 10 ms only. So Go may use some threads more than there are cores, and the operating system,
// which can interrupt a guest, shares the cores out.
var guestPlaces = sync.OnceValue(func() int {
	cores := goruntime.GOMAXPROCS(0)
	goruntime.GOMAXPROCS(cores + spare)
	return cores
})

// slots is how many tasks a host runs at a time if it is not told.
func slots() int { return max(4, 2*guestPlaces()) }

const (
	// heapOfSlot is what a task may take of Go's own heap: its input and output by default, and the call
	// stack of a guest that recurses without end.
	heapOfSlot = 32<<20 + 128<<20
	heapOfHost = 128 << 20
)

// boundHeap makes the collector work harder where tasks leave much behind at once. Its own rule would let
// the heap grow to twice what lives: eight guests that recursed without end took 2 GiB. It is a soft bound,
// and GOMEMLIMIT goes before it.
func boundHeap(slots int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapOfHost + int64(slots)*heapOfSlot)
	}
}
