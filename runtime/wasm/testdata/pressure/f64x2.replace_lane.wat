;; A random program, reduced: with charges for fuel, wazero's compiler for amd64 gets it wrong unless the rewriter repairs it.
(module (func $mix (param v128 v128 i64 f64) (result v128) (local.get 1)) 
(func (export "f") (param i32) (result i64) (local $cf32 f32) (local $cf64 f64) (local $cv128 v128) (local $sum i64) (local i32) (local i32) (local i32) (local i32) (local i64) (local i64) (local i64) (local i64) (local f32) (local f32) (local f32) (local f32) (local f64) (local f64) (local f64) (local f64) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128)
(local.set 5 (local.get 0))
(local.set 6 (local.get 0))
(local.set 14 (f32.convert_i32_s (local.get 0)))
(local.set 20 (f64.convert_i32_s (local.get 0)))
(local.set 27 (call $mix (v128.const i32x4 1 2 3 4) (v128.const i32x4 1 2 3 4) (local.get 10) (f64.const 1)))
(if (local.get 6) (then
(if (i32.trunc_sat_f32_u (local.get 13)) (then
(local.set 25 (f64x2.replace_lane 0 (local.get 29) (local.get 20)))
(local.set 22 (local.get 29))) (else
(local.set 13 (f32.div (local.get 16) (local.get 14)))
(local.set 21 (f64x2.replace_lane 0 (local.get 29) (local.get 20)))))
(if (local.get 5)
(local.set 14 (local.get 15)))))
(if (local.get 5)
(local.set 25 (local.get 21))
(local.set 24 (f64x2.replace_lane 0 (local.get 30) (local.get 20))))
(local.set 14 (f32.mul (local.get 14) (local.get 13)))
(local.set $sum (i64x2.extract_lane 1 (local.get 24)))
(local.set $sum (i64x2.extract_lane 1 (local.get 25))) (local.get $sum)))
