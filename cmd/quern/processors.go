package main

import (
	goruntime "runtime"
	"sync"
)

// spare is how many goroutines of the host may run beside guests on all cores.
const spare = 2

// guestPlaces is how many guests compute at the same time: one for each core. A guest holds its thread for
// a millisecond at a time, in which Go can run nothing else on it; and while any goroutine is ready to run,
// Go looks for what came over the network every 10 ms only. So Go may use some threads more than there are
// cores, and the operating system, which can interrupt a guest, shares the cores out. Beside eight
// attackers a short task took 50 ms without that.
var guestPlaces = sync.OnceValue(func() int {
	cores := goruntime.GOMAXPROCS(0)
	goruntime.GOMAXPROCS(cores + spare)
	return cores
})
