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

// BenchmarkRollout pushes one release after the other, and measures how long it takes until all hosts serve it. Each host
// is a process with a cache of its own. A module of data is compiled in no time, one of code is not:
//
//	go test -run '^$' -bench Rollout -benchtime 50x ./host/chaos
func BenchmarkRollout(b *testing.B) {
	for _, hosts := range []int{2, 5} {
		for _, kind := range []string{"data", "code"} {
			b.Run(fmt.Sprintf("hosts=%d/module=%s", hosts, kind), func(b *testing.B) { benchmarkRollout(b, hosts, kind) })
		}
	}
}

func benchmarkRollout(b *testing.B, hosts int, kind string) {
	b.Helper()
	loaded := make(chan string, hosts)
	f := newFleet(b, settings{
		hosts: hosts, concurrency: 2, lease: 10 * time.Second, grace: time.Second, patience: time.Hour, apart: true,
		heard: func(_ *process, line logLine) {
			if line.Message == "plugin loaded" && line.Plugin == "release" {
				loaded <- line.Version
			}
		},
	})
	module, filled := runtimetest.EmptyGo(b), 8
	if kind == "data" {
		module, filled = runtimetest.Version(b, "data"), rolledOut
	}
	store, random := release.NewStore(f.client), rand.NewChaCha8([32]byte{1})
	var took []time.Duration
	for b.Loop() {
		version := fmt.Sprint("v", len(took)+1)
		filling := make([]byte, filled) // makes each module a new one
		_, _ = random.Read(filling)
		files := []release.Content{
			{Name: "release.wasm", Data: append(slices.Clone(module), customSection(filling)...)},
			{Name: "release.yaml", Data: []byte("version: " + version)},
		}
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
	b.ReportMetric(float64(len(module)+filled)/(1<<20), "MiB")
}

// customSection is a custom section of WebAssembly.
func customSection(filling []byte) []byte {
	body := append([]byte{4, 'f', 'i', 'l', 'l'}, filling...)
	return append(binary.AppendUvarint([]byte{0}, uint64(len(body))), body...)
}
