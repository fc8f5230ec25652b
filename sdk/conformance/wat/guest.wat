;; The guest of the conformance kit in WebAssembly's text: it makes the calls that its input lists, one a line, and writes
;; what each was answered. README.md, one folder up, says how they are written.
(module
	(import "quern_v1" "result_read" (func $result_read (param i32 i32 i32) (result i32)))
	(import "quern_v1" "result_size" (func $result_size (result i32)))
	(import "quern_v1" "input_size" (func $input_size (result i32)))
	(import "quern_v1" "input_read" (func $input_read (param i32 i32 i32) (result i32)))
	(import "quern_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
	(import "quern_v1" "error_set" (func $error_set (param i32 i32) (result i32)))
	(import "quern_v1" "retry_after" (func $retry_after (param i64) (result i32)))
	(import "quern_v1" "task_text" (func $task_text (param i32) (result i32)))
	(import "quern_v1" "task_number" (func $task_number (param i32 i32) (result i32)))
	(import "quern_v1" "cancelled" (func $cancelled (result i32)))
	(import "quern_v1" "log" (func $log (param i32 i32 i32 i32 i32) (result i32)))
	(import "quern_v1" "progress" (func $progress (param f64 i32 i32) (result i32)))
	(import "quern_v1" "checkpoint_save" (func $checkpoint_save (param i32 i32) (result i32)))
	(import "quern_v1" "checkpoint_load" (func $checkpoint_load (result i32)))
	(import "quern_v1" "kv_get" (func $kv_get (param i32 i32 i32 i32) (result i32)))
	(import "quern_v1" "kv_set" (func $kv_set (param i32 i32 i32 i32 i32 i32 i64) (result i32)))
	(import "quern_v1" "kv_delete" (func $kv_delete (param i32 i32 i32 i32) (result i32)))
	(import "quern_v1" "kv_increment" (func $kv_increment (param i32 i32 i32 i32 i64 i32) (result i32)))
	(import "quern_v1" "kv_swap" (func $kv_swap (param i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)))
	(import "quern_v1" "kv_list" (func $kv_list (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
	(import "quern_v1" "http" (func $http (param i32 i32 i32 i32) (result i32)))
	(import "quern_v1" "config_get" (func $config_get (param i32 i32) (result i32)))
	(import "quern_v1" "secret_get" (func $secret_get (param i32 i32) (result i32)))
	(import "quern_v1" "clock" (func $clock (param i32 i32) (result i32)))
	(import "quern_v1" "sleep" (func $sleep (param i64) (result i32)))
	(import "quern_v1" "random" (func $random (param i32 i32) (result i32)))
	(import "quern_v1" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32) (result i32)))
	(import "quern_v1" "dependency_result" (func $dependency_result (param i32 i32) (result i32)))

	;; Where things lie. Tables are lines of words with a newline behind each and a zero at the end.
	(memory (export "memory") 449)
	(global $calls i32 (i32.const 0x400))      ;; verb, kind of answer, function, arguments
	(global $options i32 (i32.const 0xc00))    ;; of enqueue: name, member of the object
	(global $starts i32 (i32.const 0xe00))     ;; what is asked at the start: name, function, arguments
	(global $functions i32 (i32.const 0x1000)) ;; in the order of $invoke
	(global $errors i32 (i32.const 0x1200))    ;; in the order of their numbers
	(global $texts i32 (i32.const 0x1400))
	(global $words (mut i32) (i32.const 0x2000)) ;; of the line at hand: each its address and its length
	(global $row i32 (i32.const 0x2200))         ;; words of the line that $lookup has found
	(global $name i32 (i32.const 0x2400))        ;; the same of a function's name
	(global $arguments i32 (i32.const 0x2600))   ;; of the next call, an i64 each
	(global $digits i32 (i32.const 0x2800))      ;; 64 bytes, in which numbers are written
	(global $answers i32 (i32.const 0x2a00))     ;; to $starts, an i32 each
	(global $remembered i32 (i32.const 0x2c00))  ;; by a task
	(global $scratch i32 (i32.const 0x8000))     ;; 128 KiB, where & points
	(global $room i32 (i32.const 0x40000))       ;; 2 MiB for JSON, and for what was in the slot
	(global $input i32 (i32.const 0x400000))     ;; 4 MiB
	(global $decoded i32 (i32.const 0x800000))   ;; 20 MiB for what words stand for
	(global $used (mut i32) (i32.const 0))       ;; of $decoded
	(global $built (mut i32) (i32.const 0))      ;; of $room
	(global $given (mut i32) (i32.const 0))      ;; of $arguments
	(global $kept (mut i32) (i32.const 0))       ;; of $remembered
	(global $ending (mut i32) (i32.const 0))     ;; what the handler returns
	(global $ended (mut i32) (i32.const 0))      ;; the last call was one that ends

	(data (i32.const 0x400)
		"write w output_write t\nend E\nretry R\ntrap T\nsize n input_size -\nsum S\ntext s task_text n\nnumber i task_number n&\ndeadline V\n"
		"cancelled n cancelled -\nawait A\nlog G\nprogress 0 progress nt\nsave 0 checkpoint_save t\nload s checkpoint_load -\n"
		"get s kv_get tt\nset 0 kv_set tttn\ndelete n kv_delete tt\nincrement i kv_increment ttn&\nswap W kv_swap ttotn\n"
		"list l kv_list tttn\nhttp H\nconfig s config_get t\nsecret s secret_get t\nclock C\nsleep P\nrandom D\nremember M\n"
		"result s dependency_result t\nenqueue Q\npublish Q\nstart B\nraw X\npeek K\n\00")
	(data (i32.const 0xc00)
		"id \"id\":\"$1\"\nkey \"key\":\"$1\"\npriority \"priority\":$1\ndelay \"delay_ms\":$1\nat \"at_ms\":$1\n"
		"attempts \"max_attempts\":$1\ntimeout \"timeout_ms\":$1\n"
		"label \"labels\":{\"kit\":\"$1\"}\nheader \"headers\":{\"kit\":\"$1\"}\nunique \"unique\":{\"key\":\"$1\"}\n"
		"after \"after\":[\"$1\"]\nwhen \"when\":\"$1\"\ntopic \"topic\":\"$1\"\nattribute \"attributes\":{\"kit\":\"$1\"}\n"
		"fair_key \"fair_key\":\"$1\"\nfair_weight \"fair_weight\":$1\n"
		"concurrency_key \"concurrency_key\":\"$1\"\nmax_concurrent \"max_concurrent\":$1\n\00")
	(data (i32.const 0xe00)
		"text task_text 0\nconfig config_get @size\nlog log 2 @start 0 0\nrandom random & 1\nclock clock 0 &\nget kv_get @kit @start\n"
		"secret secret_get @api_key\nsave checkpoint_save @start\nload checkpoint_load\nsize input_size\n\00")
	(data (i32.const 0x1000)
		"result_read\nresult_size\ninput_size\ninput_read\noutput_write\nerror_set\nretry_after\ntask_text\n"
		"task_number\ncancelled\nlog\nprogress\ncheckpoint_save\ncheckpoint_load\nkv_get\nkv_set\n"
		"kv_delete\nkv_increment\nkv_swap\nkv_list\nhttp\nconfig_get\nsecret_get\nclock\n"
		"sleep\nrandom\nenqueue\ndependency_result\n"
		"\00")
	(data (i32.const 0x1200)
		"ok\nEINVAL\nEFAULT\nEDENIED\nENOTFOUND\nETOOBIG\nEQUOTA\nECONFLICT\nECANCELED\nEAGAIN\nESTATE\nELIMIT\n\00")
	(data (i32.const 0x1400) "{\"method\":\"$1\",\"url\":\"$2\",\"headers\":{\"X-Ask\":\"$3\"},\"timeout_ms\":$5}\00")
	(data (i32.const 0x1480) "\"$0\":\"$1\"\00")
	(data (i32.const 0x14a0) "\"status\":\00")
	(data (i32.const 0x14b0) "\"x-answer\":[\"\00")
	(data (i32.const 0x14c0) "waiting\00")
	(data (i32.const 0x14d0) " too early\00")
	(data (i32.const 0x14e0) " back\00")
	(data (i32.const 0x14f0) " too short\00")
	(data (i32.const 0x1500) " is no call of this guest\00")
	(data (i32.const 0x1520) "-!onnan0123456789abcdefonce")

	;; ---- Words ----

	(func $address (param $i i32) (result i32) (i32.load (i32.add (global.get $words) (i32.shl (local.get $i) (i32.const 3)))))
	(func $size (param $i i32) (result i32) (i32.load offset=4 (i32.add (global.get $words) (i32.shl (local.get $i) (i32.const 3)))))
	(func $word (param $i i32) (result i32 i32) (call $address (local.get $i)) (call $size (local.get $i)))
	(func $text_of (param $i i32) (result i32 i32) (call $text (call $word (local.get $i))))
	(func $number_of (param $i i32) (result i64) (call $number (call $word (local.get $i))))

	(func $equal (param $a i32) (param $an i32) (param $b i32) (param $bn i32) (result i32)
		(if (i32.ne (local.get $an) (local.get $bn)) (then (return (i32.const 0))))
		(block $differ (block $same (loop $next
			(br_if $same (i32.eqz (local.get $an)))
			(br_if $differ (i32.ne (i32.load8_u (local.get $a)) (i32.load8_u (local.get $b))))
			(local.set $a (i32.add (local.get $a) (i32.const 1)))
			(local.set $b (i32.add (local.get $b) (i32.const 1)))
			(local.set $an (i32.sub (local.get $an) (i32.const 1)))
			(br $next)))
			(return (i32.const 1)))
		(i32.const 0))

	;; The length of a text that a zero ends.
	(func $length (param $p i32) (result i32) (local $n i32)
		(loop $next
			(if (i32.load8_u (i32.add (local.get $p) (local.get $n)))
				(then (local.set $n (i32.add (local.get $n) (i32.const 1))) (br $next))))
		(local.get $n))

	(func $is_digit (param $c i32) (result i32) (i32.lt_u (i32.sub (local.get $c) (i32.const 48)) (i32.const 10)))

	;; A decimal number; after a $ it is added to the size of memory, and nan is the least one.
	(func $number (param $p i32) (param $n i32) (result i64) (local $end i32) (local $sum i64) (local $value i64) (local $minus i32)
		(if (call $equal (local.get $p) (local.get $n) (i32.const 0x1524) (i32.const 3)) (then (return (i64.const 0x8000000000000000))))
		(local.set $end (i32.add (local.get $p) (local.get $n)))
		(if (i32.lt_u (local.get $p) (local.get $end)) (then (if (i32.eq (i32.load8_u (local.get $p)) (i32.const 36)) (then
			(local.set $sum (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))))))
		(if (i32.lt_u (local.get $p) (local.get $end)) (then (if (i32.eq (i32.load8_u (local.get $p)) (i32.const 45)) (then
			(local.set $minus (i32.const 1))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))))))
		(loop $next (if (i32.lt_u (local.get $p) (local.get $end)) (then
			(local.set $value (i64.add (i64.mul (local.get $value) (i64.const 10))
				(i64.extend_i32_u (i32.sub (i32.load8_u (local.get $p)) (i32.const 48)))))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))
			(br $next))))
		(if (local.get $minus) (then (local.set $value (i64.sub (i64.const 0) (local.get $value)))))
		(i64.add (local.get $sum) (local.get $value)))

	(func $hex (param $c i32) (result i32)
		(select (i32.sub (local.get $c) (i32.const 48)) (i32.sub (local.get $c) (i32.const 87)) (call $is_digit (local.get $c))))

	;; What a word stands for: %61 is a byte, a trailing *3 repeats all before it, and - alone is nothing.
	(func $text (param $p i32) (param $n i32) (result i32 i32)
		(local $end i32) (local $digits i32) (local $times i32) (local $start i32) (local $to i32) (local $unit i32) (local $c i32)
		(local.set $start (i32.add (global.get $decoded) (global.get $used)))
		(if (call $equal (local.get $p) (local.get $n) (i32.const 0x1520) (i32.const 1)) (then (return (local.get $start) (i32.const 0))))
		(local.set $end (i32.add (local.get $p) (local.get $n)))
		(local.set $times (i32.const 1))
		(local.set $digits (local.get $end))
		(loop $next (if (i32.gt_u (local.get $digits) (local.get $p)) (then
			(if (call $is_digit (i32.load8_u (i32.sub (local.get $digits) (i32.const 1)))) (then
				(local.set $digits (i32.sub (local.get $digits) (i32.const 1)))
				(br $next))))))
		(if (i32.and (i32.gt_u (i32.sub (local.get $digits) (local.get $p)) (i32.const 1)) (i32.lt_u (local.get $digits) (local.get $end))) (then
			(if (i32.eq (i32.load8_u (i32.sub (local.get $digits) (i32.const 1))) (i32.const 42)) (then
				(local.set $times (i32.wrap_i64 (call $number (local.get $digits) (i32.sub (local.get $end) (local.get $digits)))))
				(local.set $end (i32.sub (local.get $digits) (i32.const 1)))))))
		(local.set $to (local.get $start))
		(loop $next (if (i32.lt_u (local.get $p) (local.get $end)) (then
			(local.set $c (i32.load8_u (local.get $p)))
			(if (i32.eq (local.get $c) (i32.const 37)) (then
				(local.set $c (i32.or (i32.shl (call $hex (i32.load8_u offset=1 (local.get $p))) (i32.const 4))
					(call $hex (i32.load8_u offset=2 (local.get $p)))))
				(local.set $p (i32.add (local.get $p) (i32.const 2)))))
			(i32.store8 (local.get $to) (local.get $c))
			(local.set $to (i32.add (local.get $to) (i32.const 1)))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))
			(br $next))))
		(local.set $unit (i32.sub (local.get $to) (local.get $start)))
		(local.set $end (i32.add (local.get $start) (i32.mul (local.get $unit) (local.get $times))))
		(loop $next (if (i32.lt_u (local.get $to) (local.get $end)) (then
			(i32.store8 (local.get $to) (i32.load8_u (i32.sub (local.get $to) (local.get $unit))))
			(local.set $to (i32.add (local.get $to) (i32.const 1)))
			(br $next))))
		(global.set $used (i32.sub (local.get $end) (global.get $decoded)))
		(local.get $start) (i32.sub (local.get $end) (local.get $start)))

	;; Puts the words of a line, with one space between them, into a list; those that it does not have are empty.
	(func $split (param $p i32) (param $end i32) (param $to i32) (local $start i32)
		(memory.fill (local.get $to) (i32.const 0) (i32.const 0x1f0))
		(loop $word (if (i32.lt_u (local.get $p) (local.get $end)) (then
			(local.set $start (local.get $p))
			(block $over (loop $next
				(br_if $over (i32.ge_u (local.get $p) (local.get $end)))
				(br_if $over (i32.eq (i32.load8_u (local.get $p)) (i32.const 32)))
				(local.set $p (i32.add (local.get $p) (i32.const 1)))
				(br $next)))
			(i32.store (local.get $to) (local.get $start))
			(i32.store offset=4 (local.get $to) (i32.sub (local.get $p) (local.get $start)))
			(local.set $to (i32.add (local.get $to) (i32.const 8)))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))
			(br $word)))))

	;; The end of the line at p.
	(func $line_end (param $p i32) (result i32)
		(loop $next (if (i32.ne (i32.load8_u (local.get $p)) (i32.const 10)) (then
			(local.set $p (i32.add (local.get $p) (i32.const 1)))
			(br $next))))
		(local.get $p))

	;; The number of a table's line that begins with a word, and its words in a list; -1 if there is none.
	(func $lookup (param $table i32) (param $p i32) (param $n i32) (param $to i32) (result i32) (local $index i32) (local $end i32)
		(loop $next (if (i32.load8_u (local.get $table)) (then
			(local.set $end (call $line_end (local.get $table)))
			(call $split (local.get $table) (local.get $end) (local.get $to))
			(if (call $equal (i32.load (local.get $to)) (i32.load offset=4 (local.get $to)) (local.get $p) (local.get $n))
				(then (return (local.get $index))))
			(local.set $index (i32.add (local.get $index) (i32.const 1)))
			(local.set $table (i32.add (local.get $end) (i32.const 1)))
			(br $next))))
		(i32.const -1))

	;; ---- Calls of functions ----

	(func $push (param $value i64)
		(i64.store (i32.add (global.get $arguments) (i32.shl (global.get $given) (i32.const 3))) (local.get $value))
		(global.set $given (i32.add (global.get $given) (i32.const 1))))
	(func $push_text (param $p i32) (param $n i32)
		(call $push (i64.extend_i32_u (local.get $p)))
		(call $push (i64.extend_i32_u (local.get $n))))
	(func $argument (param $i i32) (result i64) (i64.load (i32.add (global.get $arguments) (i32.shl (local.get $i) (i32.const 3)))))
	;; The first one in hundredths; the least number is none.
	(func $fraction (result f64)
		(if (i64.eq (call $argument (i32.const 0)) (i64.const 0x8000000000000000)) (then (return (f64.const nan))))
		(f64.div (f64.convert_i64_s (call $argument (i32.const 0))) (f64.const 100)))
	(func $i0 (result i32) (i32.wrap_i64 (call $argument (i32.const 0))))
	(func $i1 (result i32) (i32.wrap_i64 (call $argument (i32.const 1))))
	(func $i2 (result i32) (i32.wrap_i64 (call $argument (i32.const 2))))
	(func $i3 (result i32) (i32.wrap_i64 (call $argument (i32.const 3))))
	(func $i4 (result i32) (i32.wrap_i64 (call $argument (i32.const 4))))
	(func $i5 (result i32) (i32.wrap_i64 (call $argument (i32.const 5))))
	(func $i6 (result i32) (i32.wrap_i64 (call $argument (i32.const 6))))
	(func $i7 (result i32) (i32.wrap_i64 (call $argument (i32.const 7))))

	;; Calls the function of that number with the arguments that were pushed.
	(func $invoke (param $function i32) (result i32)
		(global.set $given (i32.const 0))
		(block $unknown
		(block $dependency_result (block $enqueue (block $random (block $sleep (block $clock (block $secret_get (block $config_get (block $http
		(block $kv_list (block $kv_swap (block $kv_increment (block $kv_delete (block $kv_set (block $kv_get (block $checkpoint_load
		(block $checkpoint_save (block $progress (block $log (block $cancelled (block $task_number (block $task_text (block $retry_after
		(block $error_set (block $output_write (block $input_read (block $input_size (block $result_size (block $result_read
			(br_table
				$result_read $result_size $input_size $input_read $output_write $error_set $retry_after $task_text $task_number
				$cancelled $log $progress $checkpoint_save $checkpoint_load $kv_get $kv_set $kv_delete $kv_increment
				$kv_swap $kv_list $http $config_get $secret_get $clock $sleep $random $enqueue $dependency_result
				$unknown (local.get $function))
		) (return (call $result_read (call $i0) (call $i1) (call $i2)))
		) (return (call $result_size))
		) (return (call $input_size))
		) (return (call $input_read (call $i0) (call $i1) (call $i2)))
		) (return (call $output_write (call $i0) (call $i1)))
		) (return (call $error_set (call $i0) (call $i1)))
		) (return (call $retry_after (call $argument (i32.const 0))))
		) (return (call $task_text (call $i0)))
		) (return (call $task_number (call $i0) (call $i1)))
		) (return (call $cancelled))
		) (return (call $log (call $i0) (call $i1) (call $i2) (call $i3) (call $i4)))
		) (return (call $progress (call $fraction) (call $i1) (call $i2)))
		) (return (call $checkpoint_save (call $i0) (call $i1)))
		) (return (call $checkpoint_load))
		) (return (call $kv_get (call $i0) (call $i1) (call $i2) (call $i3)))
		) (return (call $kv_set (call $i0) (call $i1) (call $i2) (call $i3) (call $i4) (call $i5) (call $argument (i32.const 6))))
		) (return (call $kv_delete (call $i0) (call $i1) (call $i2) (call $i3)))
		) (return (call $kv_increment (call $i0) (call $i1) (call $i2) (call $i3) (call $argument (i32.const 4)) (call $i5)))
		) (return (call $kv_swap (call $i0) (call $i1) (call $i2) (call $i3) (call $i4) (call $i5) (call $i6) (call $i7) (call $argument (i32.const 8))))
		) (return (call $kv_list (call $i0) (call $i1) (call $i2) (call $i3) (call $i4) (call $i5) (call $i6)))
		) (return (call $http (call $i0) (call $i1) (call $i2) (call $i3)))
		) (return (call $config_get (call $i0) (call $i1)))
		) (return (call $secret_get (call $i0) (call $i1)))
		) (return (call $clock (call $i0) (call $i1)))
		) (return (call $sleep (call $argument (i32.const 0))))
		) (return (call $random (call $i0) (call $i1)))
		) (return (call $enqueue (call $i0) (call $i1) (call $i2) (call $i3) (call $i4) (call $i5)))
		) (return (call $dependency_result (call $i0) (call $i1)))
		)
		(i32.const -1))

	(func $invoke_named (param $p i32) (param $n i32) (result i32)
		(call $invoke (call $lookup (global.get $functions) (local.get $p) (local.get $n) (global.get $name))))

	;; Pushes raw arguments, from a word on: a number; @WORD for the two arguments of a text; & for a pointer to $scratch.
	(func $push_raw (param $at i32) (local $p i32) (local $n i32)
		(loop $next
			(local.set $p (i32.load (local.get $at)))
			(local.set $n (i32.load offset=4 (local.get $at)))
			(if (local.get $n) (then
				(if (i32.eq (i32.load8_u (local.get $p)) (i32.const 64))
					(then (call $push_text (call $text (i32.add (local.get $p) (i32.const 1)) (i32.sub (local.get $n) (i32.const 1)))))
					(else (if (i32.eq (i32.load8_u (local.get $p)) (i32.const 38))
						(then (call $push (i64.extend_i32_u (global.get $scratch))))
						(else (call $push (call $number (local.get $p) (local.get $n)))))))
				(local.set $at (i32.add (local.get $at) (i32.const 8)))
				(br $next)))))

	;; Pushes the words of the line at hand as the characters say: t a text, o one that may be missing, n a number, & a pointer.
	(func $push_as (param $p i32) (param $n i32) (local $end i32) (local $i i32) (local $c i32)
		(local.set $end (i32.add (local.get $p) (local.get $n)))
		(local.set $i (i32.const 1))
		(loop $next (if (i32.lt_u (local.get $p) (local.get $end)) (then
			(local.set $c (i32.load8_u (local.get $p)))
			(if (i32.eq (local.get $c) (i32.const 116)) (then (call $push_text (call $text_of (local.get $i)))))
			(if (i32.eq (local.get $c) (i32.const 111)) (then
				(if (call $equal (call $word (local.get $i)) (i32.const 0x1521) (i32.const 1))
					(then (call $push_text (i32.const 0) (i32.const -1)))
					(else (call $push_text (call $text_of (local.get $i)))))))
			(if (i32.eq (local.get $c) (i32.const 110)) (then (call $push (call $number_of (local.get $i)))))
			(if (i32.eq (local.get $c) (i32.const 38)) (then (call $push (i64.extend_i32_u (global.get $scratch)))))
			(local.set $i (i32.add (local.get $i) (i32.const 1)))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))
			(br $next)))))

	;; ---- Answers ----

	(func $put (param $p i32) (param $n i32)
		(if (i32.lt_s (call $output_write (local.get $p) (local.get $n)) (i32.const 0)) (then
			(global.set $ending (i32.const 1))
			(global.set $ended (i32.const 1)))))

	(func $put_byte (param $c i32)
		(i32.store8 (global.get $digits) (local.get $c))
		(call $put (global.get $digits) (i32.const 1)))
	(func $put_zero_terminated (param $p i32) (call $put (local.get $p) (call $length (local.get $p))))
	(func $space (call $put_byte (i32.const 32)))
	(func $newline (call $put_byte (i32.const 10)))

	(func $put_number (param $value i64) (local $at i32) (local $rest i64)
		(local.set $at (i32.add (global.get $digits) (i32.const 64)))
		(local.set $rest (select (i64.sub (i64.const 0) (local.get $value)) (local.get $value) (i64.lt_s (local.get $value) (i64.const 0))))
		(loop $next
			(local.set $at (i32.sub (local.get $at) (i32.const 1)))
			(i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $rest) (i64.const 10)))))
			(local.set $rest (i64.div_u (local.get $rest) (i64.const 10)))
			(br_if $next (i64.ne (local.get $rest) (i64.const 0))))
		(if (i64.lt_s (local.get $value) (i64.const 0)) (then
			(local.set $at (i32.sub (local.get $at) (i32.const 1)))
			(i32.store8 (local.get $at) (i32.const 45))))
		(call $put (local.get $at) (i32.sub (i32.add (global.get $digits) (i32.const 64)) (local.get $at))))

	;; A space and the bytes, or # and how many they are if they are more than 64.
	(func $show (param $p i32) (param $n i32)
		(call $space)
		(if (i32.le_u (local.get $n) (i32.const 64)) (then (call $put (local.get $p) (local.get $n)) (return)))
		(call $put_byte (i32.const 35))
		(call $put_number (i64.extend_i32_u (local.get $n))))
	(func $show_number (param $value i64) (call $space) (call $put_number (local.get $value)))

	;; A name, a space, and ok or the name of an error.
	(func $begin_as (param $p i32) (param $n i32) (param $answer i32) (local $error i32) (local $end i32)
		(call $put (local.get $p) (local.get $n))
		(call $space)
		(local.set $error (global.get $errors))
		(loop $next
			(local.set $end (call $line_end (local.get $error)))
			(if (i32.lt_s (local.get $answer) (i32.const 0)) (then
				(local.set $answer (i32.add (local.get $answer) (i32.const 1)))
				(local.set $error (i32.add (local.get $end) (i32.const 1)))
				(br $next))))
		(call $put (local.get $error) (i32.sub (local.get $end) (local.get $error))))
	(func $begin (param $answer i32) (call $begin_as (call $word (i32.const 0)) (local.get $answer)))
	(func $tell (param $answer i32) (call $begin (local.get $answer)) (call $newline))
	(func $tell_number (param $answer i32) (param $value i64)
		(call $begin (local.get $answer))
		(if (i32.ge_s (local.get $answer) (i32.const 0)) (then (call $show_number (local.get $value))))
		(call $newline))

	;; The slot, copied to $room.
	(func $take (result i32 i32) (global.get $room) (call $result_read (i32.const 0) (global.get $room) (i32.const 0x200000)))
	(func $tell_slot (param $answer i32)
		(call $begin (local.get $answer))
		(if (i32.ge_s (local.get $answer) (i32.const 0)) (then (call $show (call $take))))
		(call $newline))

	(func $tell_list (param $answer i32) (local $at i32) (local $end i32)
		(call $begin (local.get $answer))
		(if (i32.ge_s (local.get $answer) (i32.const 0)) (then
			(call $take)
			(local.set $at) ;; the length
			(local.set $end (i32.add (local.get $at)))
			(local.set $at (global.get $room))
			(loop $next (if (i32.lt_u (local.get $at) (local.get $end)) (then
				(call $show (i32.add (local.get $at) (i32.const 4)) (i32.load (local.get $at)))
				(local.set $at (i32.add (i32.add (local.get $at) (i32.const 4)) (i32.load (local.get $at))))
				(br $next))))))
		(call $newline))

	;; ---- JSON ----

	(func $build (param $c i32)
		(i32.store8 (i32.add (global.get $room) (global.get $built)) (local.get $c))
		(global.set $built (i32.add (global.get $built) (i32.const 1))))
	(func $build_all (param $p i32) (param $n i32)
		(memory.copy (i32.add (global.get $room) (global.get $built)) (local.get $p) (local.get $n))
		(global.set $built (i32.add (global.get $built) (local.get $n))))

	;; Builds a text in which $1 stands for a word: the one that many behind a first.
	(func $build_from (param $p i32) (param $n i32) (param $first i32) (local $end i32)
		(local.set $end (i32.add (local.get $p) (local.get $n)))
		(loop $next (if (i32.lt_u (local.get $p) (local.get $end)) (then
			(if (i32.eq (i32.load8_u (local.get $p)) (i32.const 36))
				(then
					(local.set $p (i32.add (local.get $p) (i32.const 1)))
					(call $build_all (call $text_of (i32.add (local.get $first) (i32.sub (i32.load8_u (local.get $p)) (i32.const 48))))))
				(else (call $build (i32.load8_u (local.get $p)))))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))
			(br $next)))))

	;; Builds an object of the pairs of words from the third on and pushes it; nothing if there are none. With options the first
	;; of a pair is one of their names.
	(func $push_object (param $options i32) (local $i i32)
		(global.set $built (i32.const 0))
		(local.set $i (i32.const 3))
		(loop $next (if (call $size (local.get $i)) (then
			(call $build (select (i32.const 123) (i32.const 44) (i32.eqz (global.get $built))))
			(if (local.get $options)
				(then
					(drop (call $lookup (global.get $options) (call $word (local.get $i)) (global.get $row)))
					(call $build_from (i32.load offset=8 (global.get $row)) (i32.load offset=12 (global.get $row)) (local.get $i)))
				(else (call $build_from (i32.const 0x1480) (call $length (i32.const 0x1480)) (local.get $i))))
			(local.set $i (i32.add (local.get $i) (i32.const 2)))
			(br $next))))
		(if (global.get $built) (then (call $build (i32.const 125))))
		(call $push_text (global.get $room) (global.get $built)))

	;; Where a text goes on behind one that a zero ends; 0 if that is not in it.
	(func $behind (param $p i32) (param $n i32) (param $what i32) (result i32) (local $size i32)
		(local.set $size (call $length (local.get $what)))
		(loop $next (if (i32.ge_u (local.get $n) (local.get $size)) (then
			(if (call $equal (local.get $p) (local.get $size) (local.get $what) (local.get $size))
				(then (return (i32.add (local.get $p) (local.get $size)))))
			(local.set $p (i32.add (local.get $p) (i32.const 1)))
			(local.set $n (i32.sub (local.get $n) (i32.const 1)))
			(br $next))))
		(i32.const 0))

	;; ---- Calls that are more than a function ----

	(func $end (local $p i32) (local $n i32)
		(call $text_of (i32.const 2))
		(local.set $n) (local.set $p)
		(if (local.get $n) (then (drop (call $error_set (local.get $p) (local.get $n)))))
		(global.set $ending (i32.wrap_i64 (call $number_of (i32.const 1))))
		(global.set $ended (i32.const 1)))

	(func $retry
		(drop (call $error_set (call $text_of (i32.const 2))))
		(drop (call $retry_after (call $number_of (i32.const 1))))
		(global.set $ending (i32.const 75))
		(global.set $ended (i32.const 1)))

	;; The input's FNV-1a of 32 bits, read in pieces.
	(func $sum (local $hash i32) (local $at i32) (local $n i32) (local $i i32)
		(local.set $hash (i32.const 0x811c9dc5))
		(loop $piece
			(local.set $n (call $input_read (local.get $at) (global.get $scratch) (i32.const 1000)))
			(local.set $i (i32.const 0))
			(loop $next (if (i32.lt_s (local.get $i) (local.get $n)) (then
				(local.set $hash (i32.mul
					(i32.xor (local.get $hash) (i32.load8_u (i32.add (global.get $scratch) (local.get $i)))) (i32.const 16777619)))
				(local.set $i (i32.add (local.get $i) (i32.const 1)))
				(br $next))))
			(local.set $at (i32.add (local.get $at) (local.get $n)))
			(br_if $piece (i32.gt_s (local.get $n) (i32.const 0))))
		(call $tell_number (i32.const 0) (i64.extend_i32_u (local.get $hash))))

	;; In minutes: the host's clock and Redis's differ.
	(func $deadline
		(drop (call $task_number (i32.const 2) (global.get $scratch)))
		(call $tell_number (i32.const 0) (i64.div_s (i64.add (i64.load (global.get $scratch)) (i64.const 30000)) (i64.const 60000))))

	(func $await
		(drop (call $progress (f64.const 0) (i32.const 0x14c0) (call $length (i32.const 0x14c0))))
		(loop $next (if (i32.eqz (call $cancelled)) (then (drop (call $sleep (i64.const 5))) (br $next))))
		(call $tell (i32.const 0)))

	(func $log_fields
		(call $push (call $number_of (i32.const 1)))
		(call $push_text (call $text_of (i32.const 2)))
		(call $push_object (i32.const 0))
		(call $tell (call $invoke (i32.const 10))))

	;; The present value is told where there is another one than was believed.
	(func $swap (param $answer i32)
		(if (i32.eq (local.get $answer) (i32.const -4)) (then (call $tell (i32.const -7)) (return)))
		(call $begin (local.get $answer))
		(if (i32.eq (local.get $answer) (i32.const -7)) (then (call $show (call $take))))
		(call $newline))

	(func $fetch (local $answer i32) (local $head i32) (local $size i32) (local $value i32) (local $end i32)
		(global.set $built (i32.const 0))
		(call $build_from (i32.const 0x1400) (call $length (i32.const 0x1400)) (i32.const 0))
		(local.set $answer (call $http (global.get $room) (global.get $built) (call $text_of (i32.const 4))))
		(call $begin (local.get $answer))
		(if (i32.ge_s (local.get $answer) (i32.const 0)) (then
			(call $take) (drop) (drop)
			(local.set $size (i32.load (global.get $room)))
			(local.set $head (i32.add (global.get $room) (i32.const 4)))
			(call $show_number (call $number (call $behind (local.get $head) (local.get $size) (i32.const 0x14a0)) (i32.const 3)))
			(local.set $value (call $behind (local.get $head) (local.get $size) (i32.const 0x14b0)))
			(local.set $end (local.get $value))
			(loop $next (if (i32.ne (i32.load8_u (local.get $end)) (i32.const 34)) (then
				(local.set $end (i32.add (local.get $end) (i32.const 1)))
				(br $next))))
			(call $show (local.get $value) (i32.sub (local.get $end) (local.get $value)))
			(call $show (i32.add (local.get $head) (local.get $size)) (i32.sub (i32.sub (local.get $answer) (i32.const 4)) (local.get $size)))))
		(call $newline))

	;; A time that is one: the real one is after 2023, the other is later by a millisecond after one.
	(func $time (local $id i32) (local $answer i32) (local $first i64)
		(local.set $id (i32.wrap_i64 (call $number_of (i32.const 1))))
		(local.set $answer (call $clock (local.get $id) (global.get $scratch)))
		(local.set $first (i64.load (global.get $scratch)))
		(call $begin (local.get $answer))
		(drop (call $sleep (i64.const 1)))
		(drop (call $clock (local.get $id) (global.get $scratch)))
		(if (i32.and (i32.eqz (local.get $id)) (i64.lt_s (local.get $first) (i64.const 1700000000000000000)))
			(then (call $put_zero_terminated (i32.const 0x14d0))))
		(if (i64.lt_s (i64.sub (i64.load (global.get $scratch)) (local.get $first)) (i64.const 1000000)) (then
			(if (local.get $id) (then (call $put_zero_terminated (i32.const 0x14e0))))))
		(call $newline))

	(func $rest (local $first i64)
		(drop (call $clock (i32.const 1) (global.get $scratch)))
		(local.set $first (i64.load (global.get $scratch)))
		(call $begin (call $sleep (call $number_of (i32.const 1))))
		(drop (call $clock (i32.const 1) (global.get $scratch)))
		(if (i64.lt_s (i64.sub (i64.load (global.get $scratch)) (local.get $first)) (i64.mul (call $number_of (i32.const 1)) (i64.const 1000000)))
			(then (call $put_zero_terminated (i32.const 0x14f0))))
		(call $newline))

	(func $draw (local $i i32)
		(call $begin (call $random (global.get $scratch) (i32.const 8)))
		(call $space)
		(loop $next
			(call $put_byte (i32.load8_u offset=0x1527 (i32.shr_u (i32.load8_u (i32.add (global.get $scratch) (local.get $i))) (i32.const 4))))
			(call $put_byte (i32.load8_u offset=0x1527 (i32.and (i32.load8_u (i32.add (global.get $scratch) (local.get $i))) (i32.const 15))))
			(local.set $i (i32.add (local.get $i) (i32.const 1)))
			(br_if $next (i32.lt_u (local.get $i) (i32.const 8))))
		(call $newline))

	(func $remember (local $p i32) (local $n i32)
		(call $begin (i32.const 0))
		(call $show (global.get $remembered) (global.get $kept))
		(call $newline)
		(call $text_of (i32.const 1))
		(local.set $n) (local.set $p)
		(memory.copy (global.get $remembered) (local.get $p) (local.get $n))
		(global.set $kept (local.get $n)))

	(func $new_task
		(call $push_text (call $text_of (i32.const 1)))
		(call $push_text (call $text_of (i32.const 2)))
		(call $push_object (i32.const 1))
		(call $tell_slot (call $invoke (i32.const 26))))

	(func $raw (local $answer i32)
		(call $push_raw (i32.add (global.get $words) (i32.const 16)))
		(local.set $answer (call $invoke_named (call $word (i32.const 1))))
		(call $begin_as (call $word (i32.const 1)) (local.get $answer))
		(if (i32.ge_s (local.get $answer) (i32.const 0)) (then (call $show_number (i64.extend_i32_s (local.get $answer)))))
		(call $newline))

	;; The bytes that & points to.
	(func $peek
		(call $begin (i32.const 0))
		(call $show (global.get $scratch) (i32.wrap_i64 (call $number_of (i32.const 1))))
		(call $newline))

	;; ---- The start ----

	(func (export "_initialize") (local $table i32) (local $end i32) (local $to i32)
		(local.set $table (global.get $starts))
		(local.set $to (global.get $answers))
		(loop $next (if (i32.load8_u (local.get $table)) (then
			(local.set $end (call $line_end (local.get $table)))
			(call $split (local.get $table) (local.get $end) (global.get $row))
			(call $push_raw (i32.add (global.get $row) (i32.const 16)))
			(i32.store (local.get $to) (call $invoke_named (i32.load offset=8 (global.get $row)) (i32.load offset=12 (global.get $row))))
			(local.set $to (i32.add (local.get $to) (i32.const 4)))
			(local.set $table (i32.add (local.get $end) (i32.const 1)))
			(br $next)))))

	(func $start
		(call $tell (i32.load (i32.add (global.get $answers)
			(i32.shl (call $lookup (global.get $starts) (call $word (i32.const 1)) (global.get $row)) (i32.const 2))))))

	;; ---- The handler ----

	;; Makes the call of the line at hand.
	(func $run (local $kind i32) (local $answer i32)
		(if (i32.lt_s (call $lookup (global.get $calls) (call $word (i32.const 0)) (global.get $row)) (i32.const 0)) (then
			(call $put (call $word (i32.const 0)))
			(call $put_zero_terminated (i32.const 0x1500))
			(return)))
		(local.set $kind (i32.load8_u (i32.load offset=8 (global.get $row))))
		(if (i32.eq (local.get $kind) (i32.const 69)) (then (call $end) (return)))        ;; E
		(if (i32.eq (local.get $kind) (i32.const 82)) (then (call $retry) (return)))      ;; R
		(if (i32.eq (local.get $kind) (i32.const 84)) (then unreachable))                 ;; T
		(if (i32.eq (local.get $kind) (i32.const 83)) (then (call $sum) (return)))        ;; S
		(if (i32.eq (local.get $kind) (i32.const 86)) (then (call $deadline) (return)))   ;; V
		(if (i32.eq (local.get $kind) (i32.const 65)) (then (call $await) (return)))      ;; A
		(if (i32.eq (local.get $kind) (i32.const 71)) (then (call $log_fields) (return))) ;; G
		(if (i32.eq (local.get $kind) (i32.const 72)) (then (call $fetch) (return)))      ;; H
		(if (i32.eq (local.get $kind) (i32.const 67)) (then (call $time) (return)))       ;; C
		(if (i32.eq (local.get $kind) (i32.const 80)) (then (call $rest) (return)))       ;; P
		(if (i32.eq (local.get $kind) (i32.const 68)) (then (call $draw) (return)))       ;; D
		(if (i32.eq (local.get $kind) (i32.const 77)) (then (call $remember) (return)))   ;; M
		(if (i32.eq (local.get $kind) (i32.const 81)) (then (call $new_task) (return)))   ;; Q
		(if (i32.eq (local.get $kind) (i32.const 66)) (then (call $start) (return)))      ;; B
		(if (i32.eq (local.get $kind) (i32.const 88)) (then (call $raw) (return)))        ;; X
		(if (i32.eq (local.get $kind) (i32.const 75)) (then (call $peek) (return)))       ;; K
		(call $push_as (i32.load offset=24 (global.get $row)) (i32.load offset=28 (global.get $row)))
		(local.set $answer (call $invoke_named (i32.load offset=16 (global.get $row)) (i32.load offset=20 (global.get $row))))
		(if (i32.eq (local.get $kind) (i32.const 119)) (then ;; w
			(if (local.get $answer) (then (global.set $ending (i32.const 1)) (global.set $ended (i32.const 1))))
			(return)))
		(if (i32.eq (local.get $kind) (i32.const 48)) (then (call $tell (local.get $answer)))) ;; 0
		(if (i32.eq (local.get $kind) (i32.const 110)) (then (call $tell_number (local.get $answer) (i64.extend_i32_s (local.get $answer))))) ;; n
		(if (i32.eq (local.get $kind) (i32.const 105)) (then (call $tell_number (local.get $answer) (i64.load (global.get $scratch))))) ;; i
		(if (i32.eq (local.get $kind) (i32.const 115)) (then (call $tell_slot (local.get $answer)))) ;; s
		(if (i32.eq (local.get $kind) (i32.const 108)) (then (call $tell_list (local.get $answer)))) ;; l
		(if (i32.eq (local.get $kind) (i32.const 87)) (then (call $swap (local.get $answer))))) ;; W

	;; Runs one line. "on 2 VERB …" is for the second attempt alone, "once VERB …" for a run that finds no checkpoint, and
	;; leaves one.
	(func $line (param $p i32) (param $end i32)
		(global.set $used (i32.const 0))
		(global.set $words (i32.const 0x2000))
		(call $split (local.get $p) (local.get $end) (global.get $words))
		(if (i32.eqz (call $size (i32.const 0))) (then (return)))
		(if (i32.eq (i32.load8_u (local.get $p)) (i32.const 35)) (then (return)))
		(if (call $equal (call $word (i32.const 0)) (i32.const 0x1522) (i32.const 2)) (then
			(drop (call $task_number (i32.const 0) (global.get $scratch)))
			(if (i64.ne (i64.load (global.get $scratch)) (call $number_of (i32.const 1))) (then (return)))
			(global.set $words (i32.const 0x2010))))
		(if (call $equal (call $word (i32.const 0)) (i32.const 0x1537) (i32.const 4)) (then
			(if (i32.ne (call $checkpoint_load) (i32.const -4)) (then (return)))
			(if (call $checkpoint_save (i32.const 0x1537) (i32.const 4)) (then (return)))
			(global.set $words (i32.const 0x2008))))
		(call $run))

	(func (export "quern_handle") (result i32) (local $at i32) (local $end i32) (local $last i32)
		(local.set $at (global.get $input))
		(local.set $last (i32.add (local.get $at) (call $input_read (i32.const 0) (local.get $at) (i32.const 0x400000))))
		(block $over (loop $next
			(br_if $over (i32.ge_u (local.get $at) (local.get $last)))
			(br_if $over (global.get $ended))
			(local.set $end (local.get $at))
			(block $found (loop $search
				(br_if $found (i32.ge_u (local.get $end) (local.get $last)))
				(br_if $found (i32.eq (i32.load8_u (local.get $end)) (i32.const 10)))
				(local.set $end (i32.add (local.get $end) (i32.const 1)))
				(br $search)))
			(call $line (local.get $at) (local.get $end))
			(local.set $at (i32.add (local.get $end) (i32.const 1)))
			(br $next)))
		(global.get $ending))
)
