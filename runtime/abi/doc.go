// Package abi implements quern_v1, the functions that a handler imports from its host beside WASI.
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
// sdk/ABI.md is the description for guests; a test compares it with the code.
//
// A System lives for one call of a handler, so a task leaves nothing in it for the next one. The guest pulls its input
// and pushes its output: the host never calls into the guest for memory.
//
// # Answers
//
// A result from 0 up is success, a negative one an errno. Texts are passed through the result slot: the call answers
// their length, and result_read copies them out, from any offset and any number of times. The slot is empty at first
// and keeps its contents until another call fills it; a call that fails does not change it. Reading at or after its end
// copies nothing.
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
// and the host keeps the snapshot from before the warm call. task_text and task_number are not recorded: an SDK calls
// them before it knows whether the handler needs the answers.
//
// # Hostile arguments
//
// Arguments are untrusted. A pointer and a length are added in 64 bits; a range that is not entirely in memory is
// EFAULT; with a length of zero the pointer may be anything. Host.Spend charges for each move of bytes first, and for
// large ones piece by piece, so that the host can end the guest in between. Views of the guest's memory are not kept.
//
// # Extism
//
// ExtismFunctions are the functions that Extism's kernel imports. They share the System with quern_v1: a plugin uses
// one or the other. The kernel is a module in kernel.wat. It has the blocks in which an Extism plugin moves bytes, and
// exports the functions that need no host. A call of such a function takes nanoseconds; a plugin makes one for each
// eight bytes.
//
//	guest ──extism:host/env──▶ kernel ──quern_extism──▶ System ──▶ Host, Services
//
// # Failure
//
// No arguments make a function panic. Panics of the Host, by which it ends the guest, pass through.
package abi
