;; A random program, reduced: with charges for fuel, wazero's compiler for amd64 gets it wrong unless the rewriter repairs it.
(module (func $mix (param v128 v128 i64 f64) (result v128) (local.get 0)) 
(func (export "f") (param i32) (result i64) (local $cf32 f32) (local $cf64 f64) (local $cv128 v128) (local $sum i64) (local i32) (local i32) (local i32) (local i32) (local i64) (local i64) (local i64) (local i64) (local f32) (local f32) (local f64) (local f64) (local f64) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128) (local v128)
(local.set 14 (f32.convert_i32_s (local.get 0)))
(local.set 15 (f64.convert_i32_s (local.get 0)))
(local.set 16 (f64.convert_i32_s (local.get 0)))
(if (local.get 5) (then
(local.set 24 (local.get 18))
(local.set 5 (i32.const 1))) (else
(local.set 25 (call $mix (local.get 18) (local.get 25) (local.get 12) (local.get 15)))
(local.set 17 (f64.copysign (f64.promote_f32 (local.get 13)) (f64.copysign (local.get 15) (local.get 16))))))
(local.set $sum (i64.extend_i32_u (i32.reinterpret_f32 (local.get 14))))
(local.set $sum (i64.add (local.get $sum) (i64.reinterpret_f64 (local.get 15))))
(local.set $sum (i64.add (local.get $sum) (i64.reinterpret_f64 (local.get 17)))) (local.get $sum)))
