;; A random program, reduced: with charges for fuel, wazero's compiler for amd64 gets it wrong unless the rewriter repairs it.
(module (func $mix (param v128 v128 i64 f64) (result v128) (v128.const i32x4 1 2 3 4)) 
(func (export "f") (param i32) (result i64) (local $cf32 f32) (local $cf64 f64) (local $cv128 v128) (local $sum i64) (local i32) (local i32) (local i32) (local i64) (local i64) (local i64) (local f32) (local f32) (local f32) (local f32) (local f64) (local f64) (local f64) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128)
(local.set 6 (local.get 0))
(local.set 10 (i64.const 1))
(local.set 13 (f32.convert_i32_s (local.get 0)))
(local.set 16 (f64.convert_i32_s (local.get 0)))
(local.set 17 (f64.convert_i32_s (local.get 0)))
(local.set 21 (v128.const i32x4 1 2 3 4))
(local.set 22 (v128.const i32x4 1 2 3 4))
(local.set 23 (v128.const i32x4 1 2 3 4))
(local.set 24 (v128.const i32x4 1 2 3 4))
(local.set 27 (v128.const i32x4 1 2 3 4))
(local.set 28 (v128.const i32x4 1 2 3 4))
(local.set 31 (v128.const i32x4 1 2 3 4))
(local.set 32 (v128.const i32x4 1 2 3 4))
(local.set 33 (v128.const i32x4 1 2 3 4))
(local.set 35 (v128.const i32x4 1 2 3 4))
(local.set 36 (v128.const i32x4 1 2 3 4))
(if (i32.const 1) (then
(local.set 24 (call $mix (local.get 34) (local.get 22) (local.get 10) (local.get 16)))) (else
(if (local.get 7) (then) (else
(local.set 15 (f64.const 1))
(local.set 25 (v128.const i32x4 1 2 3 4))
(local.set 36 (local.get 29))
(local.set 34 (local.get 35))))
(local.set 27 (local.get 21))
(local.set 23 (local.get 37))))
(local.set 26 (call $mix (local.get 32) (local.get 32) (local.get 8) (f64.nearest (local.get 16))))
(if (i32.const 1) (then
(if (f32.gt (local.get 13) (local.get 12))
(local.set 34 (i64x2.mul (v128.const i32x4 1 2 3 4) (i64x2.mul (local.get 27) (local.get 21))))
(local.set 29 (local.get 23)))
(local.set 36 (i64x2.mul (i64x2.mul (local.get 26) (local.get 24)) (v128.const i32x4 1 2 3 4))))
(local.set 19 (local.get 28)))
(if (local.get 6) (then
(if (i64.eq (local.get 9) (local.get 10)) (then
(local.set 36 (i64x2.mul (i64x2.mul (v128.const i32x4 1 2 3 4) (i64x2.mul (local.get 25) (local.get 36))) (local.get 22)))) (else
(local.set 12 (local.get 13))
(local.set 36 (i64x2.mul (v128.const i32x4 1 2 3 4) (i64x2.mul (v128.const i32x4 1 2 3 4) (i64x2.mul (local.get 24) (local.get 22)))))))
(if (local.get 5) (then
(local.set 15 (local.get 16))
(local.set 22 (local.get 19))) (else
(local.set 30 (call $mix (local.get 19) (local.get 27) (local.get 8) (local.get 16)))
(local.set 34 (call $mix (i64x2.mul (local.get 31) (local.get 29)) (i64x2.mul (local.get 33) (local.get 22)) (local.get 9) (local.get 17)))))))
(local.set 31 (i64x2.mul (local.get 34) (local.get 32)))
(local.set 19 (i64x2.mul (select (local.get 31) (local.get 28) (local.get 0)) (local.get 20)))
(local.set $sum (i64.extend_i32_u (i32.reinterpret_f32 (local.get 12))))
(local.set $sum (i64.reinterpret_f64 (local.get 15)))
(local.set $sum (i64x2.extract_lane 0 (local.get 19)))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 21))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 35))))
(local.set $sum (i64.add (local.get $sum) (i64x2.extract_lane 0 (local.get 36)))) (local.get $sum)))
