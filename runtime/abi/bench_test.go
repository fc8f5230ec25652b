package abi

import (
	"testing"
	"time"
)

// BenchmarkTask is what the SDK of Go does for an empty task of which all is said.
func BenchmarkTask(b *testing.B) {
	g := setup(b, 1, Config{})
	functions := make([]Function, 0, 16)
	arguments := make([][]uint64, 0, 16)
	add := func(name string, a ...uint64) {
		functions, arguments = append(functions, g.functions[name]), append(arguments, a)
	}
	add("input_size")
	for field := range uint64(4) {
		add("task_text", field)
		add("result_read", 0, 100, 16)
	}
	add("task_number", 0, 8)
	add("task_number", 1, 8)
	c := Config{
		Host: g.host, Reporter: g.host, Started: time.Now(),
		Task: Task{ID: "0123456789abcdef", Queue: "queue", Tenant: "tenant", Plugin: "plugin", Attempt: 1},
	}
	var stack [4]uint64
	var s System
	b.ReportAllocs()
	for b.Loop() {
		s.Init(c)
		for i, f := range functions {
			copy(stack[:], arguments[i])
			if f.Call(&s, g.mem, stack[:]); int32(uint32(stack[0])) < 0 {
				b.Fatal(f.Name, stack[0])
			}
		}
	}
}
