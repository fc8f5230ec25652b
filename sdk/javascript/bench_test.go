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
