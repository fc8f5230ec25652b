package hostlog

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// TestLogSink: what is logged while somebody reads is written, each one's lines in their order.
func TestLogSink(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := StartSink(&out, func(n int) { t.Errorf("%d lines were dropped", n) }, hclog.NewNullLogger())
	const writers, lines = 8, 1000
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := range lines {
				fmt.Fprintf(s, "%d %d\n", writer, i)
			}
		})
	}
	group.Wait()
	s.Close()
	var next [writers]int
	for line := range strings.Lines(out.String()) {
		var writer, i int
		if _, err := fmt.Sscan(line, &writer, &i); err != nil || next[writer] != i {
			t.Fatalf("%q (%v) where line %d should be", line, err, next[writer])
		}
		next[writer]++
	}
	if next != [writers]int{lines, lines, lines, lines, lines, lines, lines, lines} {
		t.Errorf("lines of each: %v, want %d", next, lines)
	}
}

// TestLogSinkWithoutReader: lines that cannot be written count as dropped.
func TestLogSinkWithoutReader(t *testing.T) {
	t.Parallel()
	read, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	_ = read.Close()
	var dropped atomic.Int64
	s := StartSink(out, func(n int) { dropped.Add(int64(n)) }, hclog.NewNullLogger())
	for range 10 {
		fmt.Fprint(s, "one\ntwo\n")
	}
	fmt.Fprint(s, "no end")
	s.Close()
	if n := dropped.Load(); n != 21 {
		t.Errorf("%d lines count as dropped, want 21", n)
	}
}

// TestLogSinkLargeLine: a line that is larger than what may wait is written if nothing does.
func TestLogSinkLargeLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := StartSink(&out, func(n int) { t.Errorf("%d lines were dropped", n) }, hclog.NewNullLogger())
	line := strings.Repeat("x", 2*maxUnwritten) + "\n"
	fmt.Fprint(s, line)
	s.Close()
	if out.String() != line {
		t.Errorf("%d bytes were written, want %d", out.Len(), len(line))
	}
}
