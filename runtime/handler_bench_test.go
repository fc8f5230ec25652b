package runtime

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// BenchmarkHandler is what a task costs on each rung: an empty handler and one that parses JSON, from an image that
// was taken before any call and from a warm one. "never" is the yardstick: an instance that is never reset.
func BenchmarkHandler(b *testing.B) {
	for _, language := range runtimetest.Languages() {
		for _, work := range []struct {
			name   string
			binary []byte
		}{{"empty", language.Empty(b)}, {"json", language.JSON(b)}} {
			for _, rung := range []Rung{RungScan, RungPagemap, RungCopy, RungNew} {
				for _, warm := range []bool{false, true} {
					name := string(rung) + "/cold"
					if warm {
						name = string(rung) + "/warm"
					}
					b.Run(string(language)+"/"+work.name+"/"+name, func(b *testing.B) {
						benchmarkHandler(b, rung, warm, work.binary)
					})
				}
			}
			b.Run(string(language)+"/"+work.name+"/never", func(b *testing.B) { benchmarkNever(b, work.binary) })
		}
	}
}

func benchmarkHandler(b *testing.B, rung Rung, warm bool, binary []byte) {
	if !works(rung) {
		b.Skip("this rung does not work here")
	}
	module := loadInto(b, setupWith(b, Config{Rung: rung}), binary)
	c := handlerCall(warm)
	b.ReportAllocs()
	b.ResetTimer()
	defer reportProcessor(b)()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got := module.Run(b.Context(), c); got.Kind != Complete {
				b.Errorf("%+v", got)
				return
			}
		}
	})
}

func handlerCall(warm bool) Call {
	c := Call{Pool: "pool", Tenant: "tenant", Input: runtimetest.JSONInput()}
	if warm {
		c.Warm = c.Input
	}
	return c
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
func benchmarkNever(b *testing.B, binary []byte) {
	engine := setup(b)
	module := loadInto(b, engine, binary)
	b.ReportAllocs()
	b.ResetTimer()
	defer reportProcessor(b)()
	b.RunParallel(func(pb *testing.PB) {
		c := handlerCall(true)
		limits := c.limits()
		p := module.pool(&c, limits)
		i, ended, _ := p.take(b.Context(), &c)
		if ended != nil {
			b.Errorf("%+v", ended)
			return
		}
		var err error
		for pb.Next() {
			r := module.newRun(b.Context(), &c, limits, nil, abi.Running)
			r.meter.start()
			i, err = p.call(r, i)
			r.meter.stop()
			if got := r.finish(err); got.Kind != Complete {
				b.Errorf("%+v", got)
			}
		}
		p.give(i, true)
	})
}
