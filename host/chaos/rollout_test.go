package chaos

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// rolledOut is how many bytes of data a module of BenchmarkRollout has.
const rolledOut = 3 << 20

// codeSource is a module of code, other code for each number.
const codeSource = `package main

import "fmt"

func main() { fmt.Println(uint64(%d)) }
`

// BenchmarkRollout pushes one release after the other, and measures how long it takes until all hosts serve it. Each host
// is a process with a cache of its own. A module of data is code of some KiB, compiled once, with 3 MiB that are new in each
// release; one of code is new code, which each host compiles, or one of them if they share their cache ("shared"):
//
//	cd host/chaos && go test -run '^$' -bench Rollout -benchtime 50x .
func BenchmarkRollout(b *testing.B) {
	for _, hosts := range []int{1, 5} {
		for _, kind := range []string{"data", "code", "shared"} {
			b.Run(fmt.Sprintf("hosts=%d/module=%s", hosts, kind), func(b *testing.B) { benchmarkRollout(b, hosts, kind) })
		}
	}
}

func benchmarkRollout(b *testing.B, hosts int, kind string) {
	b.Helper()
	loaded := make(chan string, hosts)
	f := newFleet(b, settings{
		hosts: hosts, concurrency: 2, lease: 10 * time.Second, grace: time.Second, patience: time.Hour, apart: true,
		oneCache: kind == "shared",
		heard: func(_ *process, line logLine) {
			if line.Message == "plugin loaded" && line.Plugin == "release" {
				loaded <- line.Version
			}
		},
	})
	store, random := release.NewStore(f.client), rand.NewChaCha8([32]byte{1})
	var took []time.Duration
	size := 0
	for b.Loop() {
		b.StopTimer()
		version := fmt.Sprint("v", len(took)+1)
		var module []byte
		if kind != "data" {
			module = runtimetest.BuildGo(b, fmt.Sprintf(codeSource, rand.Uint64()))
		} else {
			filling := make([]byte, rolledOut)
			_, _ = random.Read(filling)
			module = append(slices.Clone(runtimetest.Version(b, "data")), customSection(filling)...)
		}
		size = len(module)
		files := []release.Content{
			{Name: "release.wasm", Data: module}, {Name: "release.yaml", Data: []byte("version: " + version)},
		}
		b.StartTimer()
		began := time.Now()
		r, err := release.New("release", files)
		if err == nil {
			_, err = release.Push(f.ctx, store, r, files, nil)
		}
		if err != nil {
			b.Fatal(err)
		}
		for range hosts {
			select {
			case got := <-loaded:
				if got != version {
					b.Fatalf("a host serves %s, want %s", got, version)
				}
			case <-f.ctx.Done():
				b.Fatalf("%s does not serve on all hosts", version)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	for name, at := range map[string]time.Duration{"p50": percentile(took, 50), "p99": percentile(took, 99), "max": percentile(took, 100)} {
		b.ReportMetric(float64(at.Microseconds())/1000, name+"-ms")
	}
	b.ReportMetric(float64(size)/(1<<20), "MiB")
}

// customSection is a custom section of WebAssembly.
func customSection(filling []byte) []byte {
	body := append([]byte{4, 'f', 'i', 'l', 'l'}, filling...)
	return append(binary.AppendUvarint([]byte{0}, uint64(len(body))), body...)
}
