;; The memory of Extism: what plugins import from extism:host/env, or under the 0.x line's names from env. It is a module
;; beside the guest, with a memory of its own, since a call between modules is fast and one of the host is not: a guest moves
;; all its bytes by eights. Make the module of it by: wat2wasm kernel.wat -o kernel.wasm
;;
;;	0     nothing begins here: offset 0 is none
;;	8     $top, where the next block begins
;;	16    the input's offset
;;	24    the input's length
;;	32    how many eights of bytes begin in the input, at any offset
;;	64    free blocks: a list for each size, of which there are four between two powers of 2
;;	4096  blocks
;;
;; A block has 24 bytes before it: a tag, which its address makes unlike what lies there by chance; its length, and while it is
;; free the next free block; and its size, which is the length rounded up. A guest can forge all of them, to its own harm only.
;;
;; No function loops, so that none has to be metered.
(module
  (import "quern_extism" "output_set" (func $output_set (param i64 i64)))
  (import "quern_extism" "error_set" (func $error_set (param i64)))
  (import "quern_extism" "config_get" (func $config_get (param i64) (result i64)))
  (import "quern_extism" "var_get" (func $var_get (param i64) (result i64)))
  (import "quern_extism" "var_set" (func $var_set (param i64 i64)))
  (import "quern_extism" "http_request" (func $http_request (param i64 i64) (result i64)))
  (import "quern_extism" "http_status_code" (func $http_status_code (result i32)))
  (import "quern_extism" "http_headers" (func $http_headers (result i64)))
  (import "quern_extism" "log_trace" (func $log_trace (param i64)))
  (import "quern_extism" "log_debug" (func $log_debug (param i64)))
  (import "quern_extism" "log_info" (func $log_info (param i64)))
  (import "quern_extism" "log_warn" (func $log_warn (param i64)))
  (import "quern_extism" "log_error" (func $log_error (param i64)))
  (import "quern_extism" "get_log_level" (func $get_log_level (result i32)))
  (import "quern_extism" "grow" (func $grow (param i32) (result i32))) ;; memory.grow, paid by the guest

  (memory (export "memory") 1)
  (data (i32.const 8) "\00\10") ;; $top

  (export "output_set" (func $output_set)) (export "extism_output_set" (func $output_set))
  (export "error_set" (func $error_set)) (export "extism_error_set" (func $error_set))
  (export "config_get" (func $config_get)) (export "extism_config_get" (func $config_get))
  (export "var_get" (func $var_get)) (export "extism_var_get" (func $var_get))
  (export "var_set" (func $var_set)) (export "extism_var_set" (func $var_set))
  (export "http_request" (func $http_request)) (export "extism_http_request" (func $http_request))
  (export "http_status_code" (func $http_status_code)) (export "extism_http_status_code" (func $http_status_code))
  (export "http_headers" (func $http_headers))
  (export "log_trace" (func $log_trace))
  (export "log_debug" (func $log_debug)) (export "extism_log_debug" (func $log_debug))
  (export "log_info" (func $log_info)) (export "extism_log_info" (func $log_info))
  (export "log_warn" (func $log_warn)) (export "extism_log_warn" (func $log_warn))
  (export "log_error" (func $log_error)) (export "extism_log_error" (func $log_error))
  (export "get_log_level" (func $get_log_level))

  (func $tag (param $at i64) (result i64)
    (i64.xor (local.get $at) (i64.const 0x5be109a4c6f372d8)))

  ;; within says whether n bytes from an offset on are a guest's to read and write.
  (func $within (param $at i64) (param $n i64) (result i32)
    (i32.and
      (i64.ge_u (local.get $at) (i64.const 4096))
      (i64.le_u (local.get $at) (i64.sub (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)) (local.get $n)))))

  ;; size rounds a length up to the next size.
  (func $size (param $n i64) (result i64) (local $step i64)
    (local.set $n (select (local.get $n) (i64.const 16) (i64.gt_u (local.get $n) (i64.const 16))))
    (local.set $step (i64.shl (i64.const 1) (i64.sub (i64.const 61) (i64.clz (local.get $n)))))
    (i64.and (i64.sub (i64.add (local.get $n) (local.get $step)) (i64.const 1)) (i64.sub (i64.const 0) (local.get $step))))

  ;; list is the address of the list of free blocks of a size: 4 log2(size), and its next two bits.
  (func $list (param $size i64) (result i32) (local $bits i64)
    (local.set $bits (i64.sub (i64.const 63) (i64.clz (local.get $size))))
    (i32.add (i32.const 64) (i32.shl (i32.wrap_i64 (i64.or
      (i64.shl (local.get $bits) (i64.const 2))
      (i64.and (i64.shr_u (local.get $size) (i64.sub (local.get $bits) (i64.const 2))) (i64.const 3)))) (i32.const 3))))

  ;; block says whether a block in use begins there.
  (func $block (param $at i64) (result i32)
    (if (result i32) (call $within (i64.sub (local.get $at) (i64.const 24)) (i64.const 24))
      (then (i64.eq (i64.load (i32.sub (i32.wrap_i64 (local.get $at)) (i32.const 24))) (call $tag (local.get $at))))
      (else (i32.const 0))))

  ;; use makes free bytes a block in use.
  (func $use (param $at i64) (param $n i64) (result i64) (local $header i32)
    (local.set $header (i32.sub (i32.wrap_i64 (local.get $at)) (i32.const 24)))
    (i64.store (local.get $header) (call $tag (local.get $at)))
    (i64.store offset=8 (local.get $header) (local.get $n))
    (local.get $at))

  (func $alloc (export "alloc") (export "extism_alloc") (param $n i64) (result i64)
    (local $at i64) (local $size i64) (local $list i32) (local $missing i64)
    (if (i64.eqz (local.get $n)) (then (return (i64.const 0))))
    (if (i64.gt_u (local.get $n) (i64.const 0x7fffffff)) (then (return (i64.const 0)))) ;; more than a memory has
    (local.set $size (call $size (local.get $n)))
    (local.set $list (call $list (local.get $size)))
    (local.set $at (i64.load (local.get $list)))
    (if (call $within (i64.sub (local.get $at) (i64.const 24)) (i64.const 24))
      (then ;; a free one
        (i64.store (local.get $list) (i64.load (i32.sub (i32.wrap_i64 (local.get $at)) (i32.const 16))))
        (return (call $use (local.get $at) (local.get $n)))))
    (local.set $at (i64.add (i64.load (i32.const 8)) (i64.const 24)))
    (local.set $missing (i64.sub (i64.add (local.get $at) (local.get $size)) (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16))))
    (if (i64.gt_s (local.get $missing) (i64.const 0))
      (then
        (if (i32.eq (i32.const -1) (call $grow (i32.wrap_i64 (i64.shr_u (i64.add (local.get $missing) (i64.const 0xffff)) (i64.const 16)))))
          (then (return (i64.const 0))))))
    (i64.store (i32.sub (i32.wrap_i64 (local.get $at)) (i32.const 8)) (local.get $size))
    (i64.store (i32.const 8) (i64.and (i64.add (i64.add (local.get $at) (local.get $size)) (i64.const 7)) (i64.const -8)))
    (call $use (local.get $at) (local.get $n)))

  (func $free (export "free") (export "extism_free") (param $at i64) (local $header i32) (local $list i32)
    (if (i32.eqz (call $block (local.get $at))) (then (return)))
    (local.set $header (i32.sub (i32.wrap_i64 (local.get $at)) (i32.const 24)))
    (local.set $list (call $list (i64.load offset=16 (local.get $header))))
    (i64.store (local.get $header) (i64.const 0))
    (i64.store offset=8 (local.get $header) (i64.load (local.get $list)))
    (i64.store (local.get $list) (local.get $at)))

  (func $length (export "length") (export "extism_length") (export "length_unsafe") (param $at i64) (result i64)
    (if (result i64) (call $block (local.get $at))
      (then (i64.load (i32.sub (i32.wrap_i64 (local.get $at)) (i32.const 16))))
      (else (i64.const 0))))

  ;; The rest moves bytes. Nothing in it is called, since the compiler inlines no function, and one comparison tells what is a
  ;; guest's: below its beginning a difference is above all ends. What is not a guest's reads as zeroes.

  (func (export "load_u8") (export "extism_load_u8") (param $at i64) (result i32)
    (if (i64.ge_u (i64.sub (local.get $at) (i64.const 4096)) (i64.sub (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)) (i64.const 4096)))
      (then (return (i32.const 0))))
    (i32.load8_u (i32.wrap_i64 (local.get $at))))

  (func (export "load_u64") (export "extism_load_u64") (param $at i64) (result i64)
    (if (i64.gt_u (i64.sub (local.get $at) (i64.const 4096)) (i64.sub (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)) (i64.const 4104)))
      (then (return (i64.const 0))))
    (i64.load (i32.wrap_i64 (local.get $at))))

  (func (export "store_u8") (export "extism_store_u8") (param $at i64) (param $value i32)
    (if (i64.ge_u (i64.sub (local.get $at) (i64.const 4096)) (i64.sub (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)) (i64.const 4096)))
      (then (return)))
    (i32.store8 (i32.wrap_i64 (local.get $at)) (local.get $value)))

  (func (export "store_u64") (export "extism_store_u64") (param $at i64) (param $value i64)
    (if (i64.gt_u (i64.sub (local.get $at) (i64.const 4096)) (i64.sub (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)) (i64.const 4104)))
      (then (return)))
    (i64.store (i32.wrap_i64 (local.get $at)) (local.get $value)))

  (func (export "input_offset") (result i64) (i64.load (i32.const 16)))
  (func (export "input_length") (export "extism_input_length") (result i64) (i64.load (i32.const 24)))

  ;; The input is a block, so that what is within its length is in memory.
  (func (export "input_load_u8") (export "extism_input_load_u8") (param $from i64) (result i32)
    (if (i64.ge_u (local.get $from) (i64.load (i32.const 24))) (then (return (i32.const 0))))
    (i32.load8_u (i32.wrap_i64 (i64.add (i64.load (i32.const 16)) (local.get $from)))))

  (func (export "input_load_u64") (export "extism_input_load_u64") (param $from i64) (result i64)
    (if (i64.ge_u (local.get $from) (i64.load (i32.const 32))) (then (return (i64.const 0))))
    (i64.load (i32.wrap_i64 (i64.add (i64.load (i32.const 16)) (local.get $from)))))

  ;; quern_input_set makes a block the input. The host calls it; no guest may.
  (func (export "quern_input_set") (param $at i64) (local $length i64)
    (local.set $length (call $length (local.get $at)))
    (i64.store (i32.const 16) (local.get $at))
    (i64.store (i32.const 24) (local.get $length))
    (i64.store (i32.const 32) (select (i64.sub (local.get $length) (i64.const 7)) (i64.const 0) (i64.gt_u (local.get $length) (i64.const 7)))))
)
