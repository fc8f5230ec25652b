// Package abi implements quern_v1, the functions that a handler imports from its host in addition to WASI.
//
//	           ┌──────────────── System ────────────────┐
//	           │  input_*               ◀── Config.Input│
//	Functions  │  output_write          ──▶ Host.Output │
//	──────────▶│  task_text, task_number◀── Config.Task │
//	 of guest  │  kv_*, http, enqueue,  │               │
//	           │  secret_*, config_*,   │               │
//	           │  dependency_result,    │               │
//	           │  checkpoint_*          ◀─▶ Services    │
//	           │  result_*              ◀── the slot    │
//	           │  error_set, retry_after──▶ Error, …    │
//	           │  log, progress, sleep  ──▶ Host        │
//	           │  cancelled, clock, random              │
//	           └────────────────────────────────────────┘
//
// sdk/ABI.md describes the functions for authors of guests; a test compares it with the code. In the comments of
// functions, a parameter "result X" is the address at which the function writes X.
//
// A System lives for one call of a handler, so a task leaves nothing in it for the next task. The guest pulls its input
// and pushes its output: the host never calls the guest to allocate memory.
//
// # Results
//
// A result of 0 or more is success, a negative result is an errno. A text is returned in the result slot: the function
// returns the text's length, and result_read copies the text from the slot, from any offset and any number of times.
// The slot is empty at first and keeps its contents until another call fills it. A call that fails leaves it unchanged,
// except kv_swap with ECONFLICT. Reading at or after the end of the contents copies nothing.
//
// # Stages
//
// A guest runs in three stages. Only Running has a task:
//
//	                 Initializing  Warming            Running
//	clock, random, log, config_get
//	                 work          work               work
//	input_*, output_write, error_set, retry_after, cancelled, sleep
//	                 ESTATE        work               work
//	task_text, task_number
//	                 ESTATE        ESTATE             work
//	result_*         where the slot was filled        work
//	all others       ESTATE        ESTATE, recorded   work
//
// The snapshot for all tasks is taken after Warming. So if a function is refused in that stage, its name is recorded,
// and the host uses the snapshot that it took before the warm call. task_text and task_number are not recorded: an SDK
// calls them before it knows whether the handler needs their results.
//
// # Hostile arguments
//
// Arguments are untrusted. A pointer and a length are added in 64 bits. A range that is not entirely in memory is
// refused with EFAULT; if the length is zero, the pointer is ignored. Host.Spend charges for bytes before they are
// moved. Large moves are charged piece by piece, so that the host can end the guest between two pieces. No function
// keeps a view of the guest's memory after it has returned.
//
// # Extism
//
// ExtismFunctions are the functions that Extism's kernel imports. They share the System with quern_v1; a plugin uses
// only one of the two interfaces. The kernel is a WebAssembly module, written in kernel.wat. It holds the blocks of
// memory in which an Extism plugin exchanges bytes with the host. The kernel itself implements the functions that need
// no host: a plugin calls one of them for each eight bytes, and such calls take only nanoseconds.
//
//	guest ──extism:host/env──▶ kernel ──quern_extism──▶ System ──▶ Host, Services
//
// # Failure
//
// No arguments make a function panic. The Host ends a guest by a panic, which this package does not recover.
package abi
