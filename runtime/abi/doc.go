// Package abi is quern_v1: what a handler asks of its host beside WASI.
//
//	           ┌──────────────── System ────────────────┐
//	           │  input_*               ◀── Config.Input│
//	Functions  │  output_write          ──▶ Host.Output │
//	──────────▶│  task_text, task_number◀── Config.Task │
//	 of guest  │  kv_*, http, enqueue,  │               │
//	           │  secret_*, config_*,   │               │
//	           │  checkpoint_*          ◀─▶ Services    │
//	           │  result_*              ◀── the slot    │
//	           │  error_set, retry_after──▶ Error, …    │
//	           │  log, progress, sleep  ──▶ Host        │
//	           │  cancelled, clock, random              │
//	           └────────────────────────────────────────┘
//
// sdk/ABI.md is what guests are told of them; a test compares it with the code.
//
// A System is made for one call of a handler and dropped with it, so nothing of a task is left when the
// instance serves the next one. The guest pulls its input and pushes its output: the host never calls into
// the guest for memory.
//
// # Answers
//
// A result from 0 up is success, a negative one an errno. Texts of the task come in the result slot: the
// call answers their length and result_read copies them out, from wherever and as often as the guest likes.
// The slot is empty at first, and holds what was put there until another call fills it; a call that fails
// leaves it. Reading at its end or behind it copies nothing.
//
// # Stages
//
// A guest runs in three stages, and not all of them have a task:
//
//	                 Initializing  Warming            Running
//	clock, random, log, config_get
//	                 work          work               work
//	input_*, output_write, error_set, retry_after, cancelled, sleep
//	                 ESTATE        work               work
//	task_text, task_number
//	                 ESTATE        ESTATE             work
//	result_*         where the slot was filled        work
//	all others       ESTATE        ESTATE, and noted  work
//
// What a guest does while it warms is kept in the image of its memory, and every task begins with it. So a
// function that is refused then is noted by its name, and the host keeps the image of the start. That there is no task to
// describe is not: an SDK asks for the description before it knows whether the handler looks at it.
//
// # Hostile arguments
//
// Nobody has checked what a guest passes. A pointer and a length are added in 64 bits; what does not lie in
// memory, all of it, is EFAULT; a length of zero makes the pointer nothing. Each move of bytes is paid for by
// Host.Spend first, and large ones piece by piece, so that the host can end the guest in between. Views of
// the guest's memory are not kept.
//
// # Failure
//
// No arguments make a function panic. What does pass through is a panic of the Host, by which it ends
// the guest.
package abi
