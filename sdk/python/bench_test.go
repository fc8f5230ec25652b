package python_test

import (
	"os"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

const jsonHandler = `
def handle(task):
    order = task.json()
    total = sum(line["price"] * line["quantity"] for line in order["lines"])
    return {"id": order["id"], "total": total, "lines": len(order["lines"])}
`

const order = `{"id":"9f4e1c52","customer":{"name":"Zoë","email":"zoe@example.org"},` +
	`"lines":[{"sku":"SKU-1","title":"Widget","quantity":2,"price":990,"weights":[1,2,3]}],"paid":true,"note":null}`

// BenchmarkTask is what a task costs, cold, from the snapshot after the start, and warm.
func BenchmarkTask(b *testing.B) {
	for _, work := range []struct{ name, source, input string }{
		{"empty", "def handle(task): pass\n", ""},
		{"json", jsonHandler, order},
		{"async", "async def handle(task): pass\n", ""},
		{"log", "import logging\ndef handle(task): logging.info('hello', extra={'n': 1})\n", ""},
		{"random", "import random\ndef handle(task): return random.random()\n", ""},
		{"failure", "def handle(task): return 1 / 0\n", ""},
	} {
		for _, warm := range []bool{false, true} {
			name, profile := work.name+"/cold", runtime.Profile{}
			if warm {
				name, profile.Warm = work.name+"/warm", append([]byte{}, work.input...)
			}
			b.Run(name, func(b *testing.B) {
				p := setup(b, map[string]string{"handler.py": work.source}, profile)
				call := runtime.Call{TaskID: "id", Queue: "queue", Plugin: "plugin", Input: []byte(work.input)}
				p.pool.Run(b.Context(), call)
				var fuel int64
				least := time.Hour
				for b.Loop() {
					r := p.pool.Run(b.Context(), call)
					fuel, least = r.Fuel, min(least, r.CPU)
				}
				b.ReportMetric(float64(fuel), "fuel/op")
				b.ReportMetric(float64(least.Nanoseconds()), "least-cpu-ns") // what other work on the machine does not change
			})
		}
	}
}

// BenchmarkStart is how long it takes until a plugin can run its first task, with the engine compiled.
func BenchmarkStart(b *testing.B) {
	need(b)
	defer func() { b.ReportMetric(float64(shared.size), "module-bytes") }()
	for b.Loop() {
		p := setup(b, map[string]string{"handler.py": "def handle(task): pass\n"}, runtime.Profile{})
		p.run(b, "")
		p.pool.Close()
	}
}

// BenchmarkCompile is how long the engine's first load takes.
func BenchmarkCompile(b *testing.B) {
	binary, err := os.ReadFile(runtimetest.Engine(b, "python"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		engine, err := runtime.New(b.Context(), runtime.Config{CacheDir: b.TempDir(), IdleUnload: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		module, err := engine.Load(b.Context(), binary)
		if err != nil {
			b.Fatal(err)
		}
		_ = module.Close(b.Context())
		_ = engine.Close(b.Context())
	}
}
