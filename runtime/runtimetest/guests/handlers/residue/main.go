//go:build wasip1

// Handler residue looks for data that an earlier task has left, and then leaves as much data as it can: see Residue in
// residue.go.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport quern_v1 input_read
func inputRead(offset uint32, to unsafe.Pointer, capacity uint32) int32

//go:wasmimport quern_v1 output_write
func outputWrite(from unsafe.Pointer, size uint32) int32

//go:wasmimport quern_v1 error_set
func errorSet(from unsafe.Pointer, size uint32) int32

// currentMemory returns the size of memory in pages.
//
//go:linkname currentMemory runtime.currentMemory
func currentMemory() int32

// abort executes WebAssembly's unreachable at once, without the work of a Go panic.
//
//go:linkname abort runtime.abort
func abort()

// A canary is a word of eight bytes: its low byte is the number of the task, the seven bytes above are a mark. The mark
// is half XOR other. No variable holds the mark itself, because look would find that variable.
var half, other uint64 = 0x5ad7e319c4860b, 0x92306ff8a1d5e4

func canary(task byte) uint64 { return (half^other)<<8 | uint64(task) }

func fill(p []uint64, task byte) {
	for i := range p {
		p[i] = canary(task)
	}
}

// The data that a task leaves and still refers to.
var (
	zeros   [512]uint64
	ones    = [512]uint64{0: 1, 511: 1}
	kept    [][]uint64
	table   map[uint64]string
	waiting chan uint64
	spins   int
)

// look searches all memory for canaries, and returns a report of what it found. While it holds a pointer that is not
// Go's, it allocates nothing and calls nothing.
func look() string {
	var first, count [256]uint32
	mark, rest := half, other
	for at, end := uintptr(8), uintptr(currentMemory())<<16; at <= end-8; at += 4 {
		word := *(*uint64)(unsafe.Pointer(at))
		if word>>8^mark != rest {
			continue
		}
		if count[byte(word)] == 0 {
			first[byte(word)] = uint32(at)
		}
		count[byte(word)]++
	}
	var report strings.Builder
	for task, n := range count {
		if n > 0 {
			fmt.Fprintf(&report, "canary of task: %d at %#x\n", task, first[task])
		}
	}
	if zeros != [512]uint64{} || ones != [512]uint64{0: 1, 511: 1} {
		report.WriteString("static data\n")
	}
	if kept != nil || table != nil || waiting != nil || spins != 0 || os.Getenv("CANARY") != "" {
		fmt.Fprintf(&report, "kept: %d %d, spun %d times\n", len(kept), len(table), spins)
	}
	for i, value := range make([]uint64, 512<<10) { // mostly new from the system: Go expects it to be zero
		if value != 0 {
			fmt.Fprintf(&report, "new memory: %#x at %d\n", byte(value), i)
			break
		}
	}
	return report.String()
}

func leave(task byte) {
	leaveOnStack(50, task)
	fill(zeros[:], task)
	fill(ones[:], task)
	table, waiting = map[uint64]string{}, make(chan uint64)
	for _, size := range []int{2, 13, 125, 625, 8750, 25_000} {
		kept = append(kept, make([]uint64, size))
		fill(kept[len(kept)-1], task)
		fill(make([]uint64, size), task)
		table[canary(task)+uint64(size)<<8] = strings.Repeat("x", size)
	}
	os.Setenv("CANARY", fmt.Sprint(task))
	time.AfterFunc(time.Hour, func() { spins++ })
	go leaveWaiting(task)
	go func() {
		for {
			spins++
			runtime.Gosched()
		}
	}()
	runtime.Gosched()
	runtime.GC()
	fill(make([]uint64, 1000), task)
}

//go:noinline
func leaveOnStack(depth int, task byte) int {
	var here [512]uint64
	fill(here[:], task)
	if depth > 0 {
		depth = leaveOnStack(depth-1, task)
	}
	return depth + int(here[depth]&1)
}

func leaveWaiting(task byte) {
	var here [512]uint64
	fill(here[:], task)
	<-waiting
	fill(here[1:], task)
}

var zero int

//go:noinline
func recurse(n int) int { return recurse(n+1) + n }

func end(ending, task byte) int32 {
	switch ending {
	case 'c':
		return 0
	case 'f':
		return 65
	case 't':
		abort()
	case 'd':
		return int32(1 / zero)
	case 'r':
		return int32(recurse(zero))
	case 'e':
		os.Exit(7)
	case 'l':
		for {
			zero = 0
		}
	case 'm':
		for {
			kept = append(kept, make([]uint64, 128<<10))
			fill(kept[len(kept)-1], task)
		}
	case 'g':
		kept = append(kept, make([]uint64, 9<<20/8))
		fill(kept[len(kept)-1], task)
		return 0
	}
	return 64
}

//go:wasmexport quern_handle
func handle() int32 {
	var input [2]byte
	if inputRead(0, unsafe.Pointer(&input), 2) != 2 {
		return 0
	}
	if report := look(); report != "" {
		outputWrite(unsafe.Pointer(unsafe.StringData(report)), uint32(len(report)))
		errorSet(unsafe.Pointer(unsafe.StringData(report)), uint32(len(report)))
		return 1
	}
	leave(input[0])
	return end(input[1], input[0])
}

func main() {}
