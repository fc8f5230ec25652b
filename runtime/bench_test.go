package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// BenchmarkRunEmptyC is what a task costs at least: an instance of a small guest that does nothing.
func BenchmarkRunEmptyC(b *testing.B) { benchmarkRun(b, runtimetest.Empty(b)) }

// BenchmarkRunEmptyGo is the same for Go, whose runtime starts anew in each instance.
func BenchmarkRunEmptyGo(b *testing.B) { benchmarkRun(b, runtimetest.EmptyGo(b)) }

func benchmarkRun(b *testing.B, binary []byte) {
	module := load(b, binary)
	c := Call{TaskID: "1", Queue: "queue", Plugin: "plugin", Attempt: 1}
	b.ReportAllocs()
	b.ResetTimer() // RunParallel does not
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got := bound(module, "", Profile{Tenant: "tenant"}).Run(b.Context(), c); got.Kind != Complete {
				b.Errorf("outcome = %+v", got)
				return
			}
		}
	})
}

// BenchmarkLog is the way of a line from the guest to the host.
func BenchmarkLog(b *testing.B) {
	line := []byte("2006-01-02T15:04:05Z INFO resized photo.jpg to 200x200 in 12ms\n")
	l := logs{limit: 1 << 62, line: func(string) {}}
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		l.write(&l.stream, line)
		if l.wrong != nil {
			b.Fatal(l.wrong)
		}
	}
}

// BenchmarkLoad is the way of a Go plugin of some 3 MB into a host: cold, compiled by a child, and from the
// cache that the child has filled.
func BenchmarkLoad(b *testing.B) {
	source, err := os.ReadFile("testdata/fuel/json.go")
	if err != nil {
		b.Fatal(err)
	}
	binary := runtimetest.BuildGo(b, string(source))
	b.Run("cold", func(b *testing.B) { benchmarkLoad(b, binary, b.TempDir) })
	b.Run("cached", func(b *testing.B) {
		dir := b.TempDir()
		loadFrom(b, dir, binary)
		benchmarkLoad(b, binary, func() string { return dir })
	})
}

func benchmarkLoad(b *testing.B, binary []byte, dir func() string) {
	b.SetBytes(int64(len(binary)))
	for b.Loop() {
		loadFrom(b, dir(), binary)
	}
}

// loadFrom loads a module with a cache in a folder, by an engine of its own.
func loadFrom(b *testing.B, dir string, binary []byte) {
	engine, err := newEngine(b.Context(), Config{CacheDir: filepath.Join(dir, "cache"), Compiler: itself(compileMode)}, testVersion)
	if err != nil {
		b.Fatal(err)
	}
	module, err := engine.Load(b.Context(), binary)
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(module.Close(b.Context()), engine.Close(b.Context())); err != nil {
		b.Fatal(err)
	}
}
