package javascript_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime"
)

const order = `{"id":"9f4e1c52","customer":{"name":"Zoë","email":"zoe@example.org"},` +
	`"lines":[{"sku":"SKU-1","title":"Widget","quantity":2,"price":990,"weights":[1,2,3]}],"paid":true,"note":null}`

// BenchmarkTask is what a task costs, of an empty handler and of one that parses JSON and returns some, from a snapshot that
// was taken before any call (cold) and after one (warm).
func BenchmarkTask(b *testing.B) {
	for _, bench := range []struct{ name, source, input string }{
		{"empty", `export default function () {}`, ""},
		{"async", `export default async function () {}`, ""},
		{"json", `export default function (task) {
			const order = task.json();
			let total = 0;
			for (const line of order.lines) total += line.quantity * line.price;
			return { id: order.id, name: order.customer.name, total };
		}`, order},
	} {
		for _, warm := range []bool{false, true} {
			name := bench.name + "/cold"
			if warm {
				name = bench.name + "/warm"
			}
			b.Run(name, func(b *testing.B) {
				p := write(b, bench.source)
				if warm {
					p.Warm = []byte(bench.input)
				}
				pool, call := p.bind(), runtime.Call{Input: []byte(bench.input)}
				if got := pool.Run(b.Context(), call); got.Kind != runtime.Complete {
					b.Fatalf("%+v", got)
				}
				b.ReportAllocs()
				b.ResetTimer()
				begun := processor(b)
				for b.Loop() {
					if got := pool.Run(b.Context(), call); got.Kind != runtime.Complete {
						b.Fatalf("%+v", got)
					}
				}
				b.ReportMetric(float64((processor(b)-begun).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processor is the processor time of this process, which other work on the machine changes less than the time.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkEngine is what the engine costs beside its tasks: its size, compiling it and loading it from the cache, starting a
// plugin, the plugin's snapshot, and the memory that its one instance keeps from task to task.
func BenchmarkEngine(b *testing.B) {
	wasm := binary(b)
	cache := b.TempDir()
	for _, bench := range []struct{ name, source string }{
		{"empty", `export default function () {}`},
		{"url", `export default function () { new URL("https://example.org/") }`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				engine, err := runtime.New(b.Context(), runtime.Config{CacheDir: cache})
				if err != nil {
					b.Fatal(err)
				}
				loading := time.Now()
				module, err := engine.Load(b.Context(), wasm)
				if err != nil {
					b.Fatal(err)
				}
				loaded := time.Now()
				files, err := runtime.NewFiles(map[string][]byte{"/app/handler.js": []byte(bench.source)})
				if err != nil {
					b.Fatal(err)
				}
				pool := module.Bind(runtime.Profile{Tenant: "tenant", Files: files})
				if got := pool.Run(b.Context(), runtime.Call{}); got.Kind != runtime.Complete {
					b.Fatalf("%+v", got)
				}
				started := time.Now()
				for range 100 {
					pool.Run(b.Context(), runtime.Call{})
				}
				held := engine.Holdings()
				b.ReportMetric(float64(len(wasm))/1024, "KiB")
				b.ReportMetric(float64(loaded.Sub(loading).Milliseconds()), "load-ms")
				b.ReportMetric(float64(started.Sub(loaded).Microseconds())/1000, "start-ms")
				b.ReportMetric(float64(held.Snapshots)/1024, "snapshot-KiB")
				b.ReportMetric(float64(held.Instances)/1024, "instance-KiB")
				b.ReportMetric(float64(held.Code)/1024, "code-KiB")
				if err := module.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := engine.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
