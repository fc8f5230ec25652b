// Package runtime runs guests: WebAssembly programs that nobody here has written or checked, each
// call in a sandbox of its own.
//
//	                      Engine                                         Module
//	file ─▶ sniff ─▶ rewrite ─▶ refusals ─▶ compile ──────────▶ try ──▶  │
//	        text?    checked,   WASI only?  in a child process,          │ Run, any number at once
//	        native?  fuelled    _start?     into the cache on disk       ▼
//	        cut off?                                        ┌─────── instance ────────┐
//	                                                        │ stdin   ◀── Call.Input  │
//	                                                        │ environ ◀── TASK_*, Env │
//	                                                        │ files   ◀── Files       │──▶ Outcome
//	                                                        │ stdout  ──▶ output      │
//	                                                        │ stderr  ──▶ lines, tail │
//	                                                        │ memory  ≤ Limits.Memory │
//	                                                        │ fuel    ≤ Limits.CPU    │
//	                                                        └─────────────────────────┘
//
// An Engine makes Modules of files. A Module runs Calls, and each Call gets a new instance: its memory,
// globals and tables begin as the file says, and are dropped when it ends. What a guest may reach is its
// input, its arguments and environment, its two outputs, the files that it was granted, the clocks,
// randomness and sleep. There is no file system of the host's and no network. Package wasm checks and
// rewrites, package wasi is what guests import.
//
// # Kinds
//
// Three kinds of plugins are told apart: a handler exports quern_handle, an Extism plugin imports
// from extism:host/env, a command exports _start. Commands are WASI preview 1 programs, and the only
// kind that can be served yet; the others are recognized and refused by name.
//
// # Limits
//
// Each Call has limits on memory, input, output, log, wall-clock time and fuel; LIMITS.md lists what
// happens at each. Input is looked at before the guest starts. Output and log are counted as they are
// written; the write that would pass the limit does not return to the guest. Memory is reserved as address
// space and never grows past the limit: the guest is told -1, as WebAssembly has it, and may cope with
// that. Only if it then fails is the outcome the memory limit.
//
// # Fuel
//
// Compiled code cannot be interrupted: neither by a context nor by Go's garbage collector, which waits for
// it, and all other goroutines with it. So a guest counts down by itself, about one for each instruction,
// and calls the host when its counter falls below zero: that is a tick, after a quantum of 10,000 or some
// 5 µs. There the host looks whether the caller's context, the timeout or the fuel is over, and after each
// millisecond lets other guests have their turn. Functions of the host are called through one wrapper,
// which looks at the same, and takes a price for the call and for each byte that it moves.
//
// Fuel depends on the module and its input alone: a limit of fuel means the same on every machine.
//
//	guest ── counter < 0 ──▶ tick ──▶ over? ──▶ panic unwound ──▶ wazero returns it from the call
//	  ▲                       │ no                                 └▶ judge: the cause stands in the run
//	  └── the next quantum ───┘
//
// A gate lets as many guests compute at once as there are cores. Whoever waits for a first turn comes
// first, so that a short call is not held up by long ones.
//
// The stack of a guest's own calls is not in its memory but on Go's heap: up to 120 MB for a moment, in a
// recursion without end.
//
// # Compilation
//
// The compiler is not made for hostile input: a file of some kilobytes can keep it busy for minutes. So it
// runs in a child process with a bound on time and memory, which fills the cache; the host loads from there,
// and compiles nothing but how functions of each type are entered, which Caps.AllValues bounds. See
// CompileChild.
//
// # Lines to the host
//
// Two lines of stderr speak to the host instead of a reader. Progress, from 0 to 1 and with a message
// if the guest likes, is handed on as it comes; it is not logged, and not counted against the limit of
// the log. The delay after which a guest that exits with 75 wants to be called again is named by its
// last line. A line that is not exactly so is a line of the log.
//
//	quern:progress=0.42 resizing
//	quern:retry-after=30s
//
// # Failure
//
// A file that cannot be served is a RefusedError, which holds every reason with its remedy. Nothing
// of a file is executed before it is accepted.
//
// Run returns no error: every end of a call is an Outcome. The first cause wins. Whoever ends a guest from
// within the host (a limit, a fault, the end of the caller's context) notes why in the run and unwinds it;
// what the guest still says or does is not looked at. Only without a cause does the exit code count, and
// only without an exit code the trap.
//
//	cause of the run
//	├─ limit     ▶ LimitExceeded   stopped at input, output, log, timeout or cpu
//	├─ fault     ▶ HostFault       the host's own error; the guest is not to blame
//	├─ caller's  ▶ Cancelled
//	└─ none
//	   ├─ exit 0, return ▶ Complete
//	   ├─ exit 75        ▶ Retry
//	   ├─ exit 65        ▶ Fatal
//	   ├─ other exit     ▶ Failed   ┐ after a refused growth of memory
//	   └─ trap           ▶ Trap     ┘ both are LimitExceeded (memory)
//
// A panic below a guest, in a function of the host, becomes a HostFault. Memory is unmapped when the
// call has returned and not before, whatever closed the instance: see memory.
//
// The cache on disk is only a help. Its directory must be private, else New fails; but an entry that
// is damaged is made again, and a disk that is full is a warning.
package runtime
