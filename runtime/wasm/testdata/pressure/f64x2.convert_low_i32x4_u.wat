;; A random program, reduced: with charges for fuel, wazero's compiler for amd64 gets it wrong unless the rewriter repairs it.
(module (func $mix (param)) 
(func (export "f") (param i32) (result i64) (local $cf32 f32) (local $cf64 f64) (local $cv128 v128) (local $sum i64) (local i32) (local i32) (local i64) (local i64) (local i64) (local i64) (local f32) (local f32) (local f32) (local f32) (local f64) (local f64) (local f64) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128)
(local.set 8 (i64.const 1))
(if (i64.ge_u (local.get 7) (local.get 8))
(local.set 18 (local.get 23))
(local.set 19 (f64x2.convert_low_i32x4_u (local.get 22))))
(local.set $sum (i64x2.extract_lane 1 (local.get 19)))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 30)))) (local.get $sum)))
