package runtime

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// chore is what a handler is given to do.
type chore struct {
	name   string
	binary []byte
	input  []byte
}

// shortOrder is what runtimetest.JSONInput has a kilobyte of.
const shortOrder = `{"id":"9f4e1c52","customer":{"name":"Zoë","email":"zoe@example.org"},` +
	`"lines":[{"sku":"SKU-1","title":"Widget","quantity":2,"price":990,"weights":[1,2,3]}],"paid":true,"note":null}`

// BenchmarkHandler is what a task costs in each reset mode: an empty handler and one that parses JSON, from an image that
// was taken before any call and from a warm one. "never" is the yardstick: an instance that is never reset.
func BenchmarkHandler(b *testing.B) {
	cache := filepath.Join(b.TempDir(), "cache")
	for _, language := range runtimetest.Languages() {
		for _, work := range []chore{
			{"empty", language.Empty(b), nil},
			{"json", language.JSON(b), []byte(shortOrder)},
			{"json1k", language.JSON(b), runtimetest.JSONInput()},
		} {
			for _, mode := range []ResetMode{ResetScan, ResetPagemap, ResetCopy, ResetNew} {
				for _, warm := range []bool{false, true} {
					name := string(mode) + "/cold"
					if warm {
						name = string(mode) + "/warm"
					}
					b.Run(string(language)+"/"+work.name+"/"+name, func(b *testing.B) {
						benchmarkHandler(b, Config{ResetMode: mode, CacheDir: cache}, warm, work)
					})
				}
			}
			b.Run(string(language)+"/"+work.name+"/never", func(b *testing.B) { benchmarkNever(b, Config{CacheDir: cache}, work) })
		}
	}
}

func benchmarkHandler(b *testing.B, cfg Config, warm bool, work chore) {
	if !works(cfg.ResetMode) {
		b.Skip("this reset mode does not work here")
	}
	module := loadInto(b, setupWith(b, cfg), work.binary)
	p, c := work.bind(module, warm), Call{Input: work.input}
	b.ReportAllocs()
	b.ResetTimer()
	defer reportProcessor(b)()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got := p.Run(b.Context(), c); got.Kind != Complete {
				b.Errorf("%+v", got)
				return
			}
		}
	})
}

func (w chore) bind(module *Module, warm bool) *Pool {
	profile := Profile{Tenant: "tenant"}
	if warm {
		profile.Warm = append([]byte{}, w.input...) // not nil
	}
	return module.Bind(profile)
}

// reportProcessor reports the processor time of a call, in all threads, which other work on the machine changes less than
// the time.
func reportProcessor(b *testing.B) func() {
	begun := usedProcessor(b)
	return func() { b.ReportMetric(float64((usedProcessor(b)-begun).Nanoseconds())/float64(b.N), "cpu-ns/op") }
}

func usedProcessor(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// benchmarkNever does what Run does, but gives no instance back.
func benchmarkNever(b *testing.B, cfg Config, work chore) {
	engine := setupWith(b, cfg)
	p := work.bind(loadInto(b, engine, work.binary), true)
	b.ReportAllocs()
	b.ResetTimer()
	defer reportProcessor(b)()
	b.RunParallel(func(pb *testing.PB) {
		c := Call{Input: work.input}
		i, _, ended := p.acquire(b.Context(), &c, time.Now())
		if ended != nil {
			b.Errorf("%+v", ended)
			return
		}
		var err error
		for pb.Next() {
			now := time.Now()
			r := p.newRun(b.Context(), &c, p.limits, nil, abi.Running, now)
			i, _, err = p.invoke(r, &c, i, now, (*instance).callTask)
			if got := r.finish(err); got.Kind != Complete {
				b.Errorf("%+v", got)
			}
			*r = run{}
			runs.Put(r)
		}
		p.release(i, true, 0, time.Now())
	})
}
