;; A random program, reduced: with charges for fuel, wazero's compiler for amd64 gets it wrong unless the rewriter repairs it.
(module (func $mix (param)) 
(func (export "f") (param i32) (result i64) (local $cf32 f32) (local $cf64 f64) (local $cv128 v128) (local $sum i64) (local i32) (local i32) (local i32) (local i64) (local i64) (local i64) (local f32) (local f32) (local f32) (local f32) (local f64) (local f64) (local f64) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128)
(local.set 9 (i64.const 1))
(local.set 30 (i32x4.splat (i32.mul (local.get 0) (i32.const 504304762))))
(local.set 32 (v128.const i32x4 1 2 3 4))
(local.set 33 (v128.const i32x4 1 2 3 4))
(local.set 34 (v128.const i32x4 1 2 3 4))
(local.set 22 (v128.const i32x4 1 2 3 4))
(if (local.get 5) (then
(local.set 23 (v128.const i32x4 1 2 3 4))) (else
(local.set 31 (local.get 32))
(local.set 26 (v128.const i32x4 1 2 3 4))
(local.set 35 (local.get 30))))
(if (i64.le_u (local.get 9) (local.get 8)) (then
(local.set 20 (local.get 28))) (else
(if (local.get 6) (then
(local.set 8 (i64.const 1))) (else
(local.set 29 (local.get 33))
(local.set 20 (local.get 23))))
(local.set 28 (v128.const i32x4 1 2 3 4))
(local.set 21 (v128.const i32x4 1 2 3 4))
(local.set 24 (select (v128.const i32x4 1 2 3 4) (i8x16.popcnt (local.get 30)) (i32.and (local.get 0) (i32.const 2))))))
(local.set $sum (i64x2.extract_lane 1 (local.get 20)))
(local.set $sum (i64x2.extract_lane 1 (local.get 21)))
(local.set $sum (i64x2.extract_lane 1 (local.get 22)))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 23))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 24))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 26))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 27))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 28))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 29))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 30))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 31))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 32))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 33))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 34))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 35)))) (local.get $sum)))
