package wasm

import (
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// BenchmarkRepair is what the instructions of repair.go cost as they are, and as they are written: a loop executes one
// 10,000 times on what it has computed before. "Loop" is that loop without any.
//
//	ns/round  of the loop
func BenchmarkRepair(b *testing.B) {
	_, asItIs := worlds(b, api.CoreFeaturesV2, Options{unrepaired: true})
	_, repaired := worlds(b, api.CoreFeaturesV2, Options{})
	for _, c := range []struct{ name, typ, next string }{
		{"Loop", "f64", `(local.get $x)`},
		{"F32Select", "f32", `(select (local.get $x) (local.get $y) (local.get $n))`},
		{"F64Select", "f64", `(select (local.get $x) (local.get $y) (local.get $n))`},
		{"V128Select", "v128", `(select (local.get $x) (local.get $y) (local.get $n))`},
		{"V128Bitselect", "v128", `(v128.bitselect (local.get $x) (local.get $y) (local.get $y))`},
		{"F64Copysign", "f64", `(f64.copysign (local.get $x) (local.get $y))`},
		{"F32x4Min", "v128", `(f32x4.min (local.get $x) (local.get $y))`},
		{"F64x2Max", "v128", `(f64x2.max (local.get $x) (local.get $y))`},
		{"I64x2Mul", "v128", `(i64x2.mul (local.get $x) (local.get $y))`},
		{"I8x16Popcnt", "v128", `(i8x16.popcnt (local.get $x))`},
		{"F32x4ConvertI32x4U", "v128", `(f32x4.convert_i32x4_u (local.get $x))`},
		{"F64x2ConvertLowI32x4U", "v128", `(f64x2.convert_low_i32x4_u (local.get $x))`},
		{"F64ConvertI64U", "f64", `(f64.convert_i64_u (i64.reinterpret_f64 (local.get $x)))`},
		{"F64x2ReplaceLane", "v128", `(f64x2.replace_lane 0 (local.get $x) (f64.const 1))`},
	} {
		text := `(module (func (export "f") (param $n i32) (local $x ` + c.typ + `) (local $y ` + c.typ + `) (loop $l
			(local.set $x ` + c.next + `)
			(br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1))))) (global.set $out (local.get $x)))
			(global $out (mut ` + c.typ + `) ` + map[string]string{
			"f32": "(f32.const 0)", "f64": "(f64.const 0)", "v128": "(v128.const i64x2 0 0)",
		}[c.typ] + `))`
		for _, kind := range []struct {
			name  string
			world *world
		}{{"AsItIs", asItIs}, {"Repaired", repaired}} {
			b.Run(c.name+"/"+kind.name, func(b *testing.B) {
				i, err := kind.world.instantiate(b.Context(), runtimetest.BuildWAT(b, text), "")
				if err != nil {
					b.Fatal(err)
				}
				f := i.ExportedFunction("f")
				for b.Loop() {
					if _, err := f.Call(b.Context(), 10_000); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/round")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
