package wasi

import (
	"fmt"
	"testing"
)

// BenchmarkWrite is fd_write of a short line.
func BenchmarkWrite(b *testing.B) {
	g := setup(b, 1, Config{})
	g.system.host = silent{}
	write, line := g.functions["fd_write"], "a line of the log\n"
	text, n := g.put(100, line)
	at, count := g.vectors(0, [2]uint32{uint32(text), uint32(n)})
	var stack [4]uint64
	b.ReportAllocs()
	for b.Loop() {
		stack = [4]uint64{2, at, count, 50}
		if write.Call(g.system, g.mem, stack[:]); stack[0] != 0 {
			b.Fatal(stack[0])
		}
	}
}

// BenchmarkNew is what a call pays for its system, with many files.
func BenchmarkNew(b *testing.B) {
	contents := map[string][]byte{}
	for i := range 1000 {
		contents[fmt.Sprintf("/%d/%d", i%10, i)] = nil
	}
	files, err := NewFiles(contents)
	if err != nil {
		b.Fatal(err)
	}
	c := Config{Host: silent{}, Files: files, Checkpoint: []byte("state")}
	b.ReportAllocs()
	for b.Loop() {
		newSystem(c)
	}
}

// silent is a Host that does nothing.
type silent struct{ *recorder }

func (silent) Spend(int)     {}
func (silent) Stdout([]byte) {}
func (silent) Stderr([]byte) {}
