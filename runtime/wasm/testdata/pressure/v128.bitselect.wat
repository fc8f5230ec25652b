;; A random program, reduced: with charges for fuel, wazero's compiler for amd64 gets it wrong unless the rewriter repairs it.
(module (func $mix (param)) 
(func (export "f") (param i32) (result i64) (local $cf32 f32) (local $cf64 f64) (local $cv128 v128) (local $sum i64) (local i32) (local i32) (local i64) (local i64) (local i64) (local i64) (local f32) (local f32) (local f32) (local f64) (local f64) (local f64) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128)
(local.set 5 (local.get 0))
(local.set 21 (v128.const i32x4 1 2 3 4))
(local.set 23 (i32x4.splat (local.get 0)))
(if (local.get 6) (then)
(local.set 28 (v128.bitselect (local.get 21) (local.get 18) (local.get 23))))
(if (local.get 5) (then
(local.set 20 (local.get 28))
(local.set 29 (local.get 20))))
(local.set $sum (i64x2.extract_lane 1 (local.get 29))) (local.get $sum)))
