;; What has gone wrong in wazero's compilers, in small: see canary.go. Each function takes a number and returns a number; beyond
;; traps. Make the module of it by: wat2wasm canary.wat -o canary.wasm
(module
  (memory (export "memory") 1 2)
  (type $unary (func (param i32) (result i32)))
  (type $binary (func (param i32 i32) (result i32)))
  (table funcref (elem $add $rem $double))
  (global $zero (mut i32) (i32.const 0))

  (func $add (type $binary) (i32.add (local.get 0) (local.get 1)))
  (func $rem (type $binary) (i32.rem_u (local.get 0) (local.get 1)))
  (func $double (type $unary) (i32.mul (local.get 0) (i32.const 2)))
  (func $mix (param $x f64) (param $y f64) (param $z f64) (result f64)
    (f64.add (f64.mul (local.get $x) (f64.const 0.5)) (f64.add (f64.mul (local.get $y) (f64.const 0.25)) (local.get $z))))

  ;; Selects of floats that are arguments of calls, wazero's issue 2534.
  (func (export "floats") (param $n i32) (result i64) (local $a f64) (local $b f64) (local $c f64) (local $d f64) (local $e f64) (local $f f64)
    (local.set $a (f64.convert_i32_s (i32.mul (i32.add (local.get $n) (i32.const 1)) (i32.const 3))))
    (local.set $b (f64.convert_i32_s (i32.mul (i32.add (local.get $n) (i32.const 2)) (i32.const 10))))
    (local.set $c (f64.convert_i32_s (i32.mul (i32.add (local.get $n) (i32.const 3)) (i32.const 17))))
    (local.set $d (f64.convert_i32_s (i32.mul (i32.add (local.get $n) (i32.const 4)) (i32.const 24))))
    (local.set $e (f64.convert_i32_s (i32.mul (i32.add (local.get $n) (i32.const 5)) (i32.const 31))))
    (local.set $f (f64.convert_i32_s (i32.mul (i32.add (local.get $n) (i32.const 6)) (i32.const 38))))
    (local.set $e (call $mix (local.get $e)
      (select (local.get $d) (select (local.get $d) (local.get $e) (f64.lt (local.get $c) (local.get $c))) (f64.lt (local.get $a) (local.get $f)))
      (select (local.get $b) (local.get $a) (i32.lt_s (local.get $n) (i32.const 8)))))
    (local.set $f (call $mix (local.get $b)
      (select (local.get $f) (local.get $d) (f64.lt (local.get $c) (local.get $a)))
      (select (select (local.get $a) (local.get $a) (i32.and (local.get $n) (i32.const 2))) (local.get $b) (f64.lt (local.get $a) (local.get $b)))))
    (local.set $b (call $mix (select (local.get $c) (local.get $c) (i32.and (local.get $n) (i32.const 2))) (local.get $c) (local.get $a)))
    (local.set $b (select (local.get $c) (local.get $a) (i32.lt_s (local.get $n) (i32.const 3))))
    (local.set $e (call $mix (select (local.get $d) (local.get $a) (f64.lt (local.get $d) (local.get $a))) (local.get $c)
      (select (select (local.get $a) (local.get $c) (f64.lt (local.get $a) (local.get $a))) (local.get $d) (i32.and (local.get $n) (i32.const 4)))))
    (i64.reinterpret_f64 (f64.add (local.get $a) (call $mix (local.get $b) (local.get $e) (call $mix (local.get $f) (local.get $c) (local.get $d))))))

  ;; Remainders among many values that are alive, wazero's issues 2508 and 2516: the digits of two numbers.
  (func (export "digits") (param $n i32) (result i64)
    (local $x i32) (local $y i64) (local $a i32) (local $b i64) (local $c i32) (local $d i64) (local $e i32) (local $sum i64)
    (local.set $x (i32.mul (i32.add (local.get $n) (i32.const 12345)) (i32.const 7919)))
    (local.set $y (i64.mul (i64.extend_i32_u (local.get $x)) (i64.const 6364136223846793005)))
    (loop $next
      (local.set $a (i32.rem_u (local.get $x) (i32.const 10)))
      (local.set $b (i64.rem_u (local.get $y) (i64.const 10)))
      (local.set $c (i32.rem_s (local.get $x) (i32.add (local.get $n) (i32.const 60))))
      (local.set $d (i64.rem_s (local.get $y) (i64.extend_i32_u (i32.add (local.get $a) (i32.const 7)))))
      (local.set $e (i32.rem_u (i32.add (local.get $c) (local.get $a)) (i32.add (local.get $a) (i32.const 3))))
      (local.set $sum (i64.add (i64.mul (local.get $sum) (i64.const 31)) (i64.add
        (i64.extend_i32_s (i32.add (i32.add (local.get $a) (local.get $c)) (local.get $e)))
        (i64.xor (local.get $b) (local.get $d)))))
      (local.set $x (i32.div_u (local.get $x) (i32.const 10)))
      (local.set $y (i64.div_u (local.get $y) (i64.const 10)))
      (br_if $next (i64.ne (local.get $y) (i64.const 0))))
    (local.get $sum))

  ;; Calls through a table, whose types a second runtime once took for others: wazero's issue 2511.
  (func (export "calls") (param $n i32) (result i64)
    (i64.extend_i32_u (call_indirect (type $binary)
      (call_indirect (type $unary) (local.get $n) (i32.const 2))
      (i32.add (local.get $n) (i32.const 7))
      (i32.and (local.get $n) (i32.const 1)))))

  ;; Memory by instructions of all widths, in bulk, after it has grown, and through an address whose bounds were checked.
  (func (export "memories") (param $n i32) (result i64) (local $at i32)
    (local.set $at (i32.const 65528))
    (memory.fill (i32.const 100) (local.get $n) (i32.const 1000))
    (i64.store (local.get $at) (i64.mul (i64.extend_i32_u (local.get $n)) (i64.const 0x0123456789abcdef)))
    (drop (memory.grow (i32.eqz (local.get $n))))
    (block $b (br_if $b (global.get $zero)) (memory.copy (i32.const 4097) (i32.const 65520) (i32.const 16)))
    (i32.store16 offset=1 (local.get $at) (i32.const 0xbeef))
    (i64.add (i64.load (local.get $at)) (i64.add (i64.load offset=8 (i32.const 4097)) (i64.load32_s (i32.add (local.get $n) (i32.const 90))))))

  ;; An address behind 2 GiB.
  (func (export "beyond") (param $n i32) (result i64) (local $at i32)
    (local.set $at (i32.const 0x80000000))
    (i64.load (local.get $at)))
)
