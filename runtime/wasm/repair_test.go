package wasm

import (
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// BenchmarkFloatSelect is a loop that clamps 10,000 numbers by two selects each: as it is, which may be wrong, as if-else,
// and rewritten. Charges for fuel are a part of the last, and of what "charged" is without selects.
func BenchmarkFloatSelect(b *testing.B) {
	loop := func(clamp string) string {
		return `(module (func (export "f") (param $n i32) (result f64) (local $x f64) (local $sum f64) (loop $l
			(local.set $x (f64.convert_i32_s (i32.and (i32.mul (local.get $n) (i32.const 7919)) (i32.const 1023))))
			` + clamp + `
			(local.set $sum (f64.add (local.get $sum) (local.get $x)))
			(br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1))))) (local.get $sum)))`
	}
	selects := loop(`(local.set $x (select (local.get $x) (f64.const 255) (f64.lt (local.get $x) (f64.const 255))))
		(local.set $x (select (local.get $x) (f64.const 16) (f64.gt (local.get $x) (f64.const 16))))`)
	branches := loop(`(if (f64.ge (local.get $x) (f64.const 255)) (then (local.set $x (f64.const 255))))
		(if (f64.le (local.get $x) (f64.const 16)) (then (local.set $x (f64.const 16))))`)
	plain, rewritten := worlds(b, api.CoreFeaturesV2, Options{})
	for _, kind := range []struct {
		name, text string
		world      *world
	}{
		{"AsItIs", selects, plain}, {"IfElse", branches, plain}, {"Rewritten", selects, rewritten}, {"Charged", loop(""), rewritten}, {"Plain", loop(""), plain},
	} {
		b.Run(kind.name, func(b *testing.B) {
			i, err := kind.world.instantiate(b.Context(), runtimetest.BuildWAT(b, kind.text), "")
			if err != nil {
				b.Fatal(err)
			}
			f := i.ExportedFunction("f")
			for b.Loop() {
				if _, err := f.Call(b.Context(), 10_000); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/number")
		})
	}
}
