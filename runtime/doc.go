// Package runtime runs guests: WebAssembly programs that nobody here has written or checked, each
// call in a sandbox of its own.
//
//	                      Engine                                         Module
//	file ─▶ sniff ─▶ rewrite ─▶ refusals ─▶ compile ──────────▶ try ──▶  │
//	        text?    checked,   imports?    in a child process,          │ Run, any number at once
//	        native?  fuelled    entry?      into the cache on disk       ▼
//	        cut off?                                        ┌─────── instance ────────┐
//	                                                        │ input   ◀── Call.Input  │
//	                                                        │ task    ◀── TASK_*, Env │
//	                                                        │ files   ◀── Files       │──▶ Outcome
//	                                                        │ result  ──▶ output      │
//	                                                        │ log     ──▶ lines, tail │
//	                                                        │ memory  ≤ Limits.Memory │
//	                                                        │ fuel    ≤ Limits.CPU    │
//	                                                        └─────────────────────────┘
//
// An Engine makes Modules of files. A Module runs Calls, and each Call gets a pristine instance: its memory,
// globals and tables are those of its beginning, and nothing of an earlier call is in them. What a guest may reach
// is its input, its arguments and environment, its outputs, the files that it was granted, the clocks,
// randomness and sleep. There is no file system of the host's and no network. Package wasm checks and
// rewrites, packages wasi and abi are what guests import, package snapshot is their memory.
//
// # Kinds
//
// Three kinds of plugins are told apart: a handler exports quern_handle, an Extism plugin imports
// from extism:host/env, a command exports _start. Commands are WASI preview 1 programs, which begin with each
// task and read it from stdin. Handlers import quern_v1 and begin once: what they are after _initialize is what
// each task finds. Extism plugins cannot be served yet, and are refused by name.
//
// # Pristine instances
//
// Calls that name a pool share its instances, one after the other. After each, the instance is set back: the pages
// of its memory that are not as in the image, its size, and the globals that it may change. The image is taken
// before _start of a command and after _initialize of a handler, or after a call of it without a task, if the
// manifest gives an input for one (a warm image): most of what a runtime does at its first call is then done.
//
//	first call            ┌────────────────── pool ──────────────────┐       later calls
//	instantiate, begin ─▶ │ image (sealed memfd, globals)            │
//	                      │   ├─ private mapping ─ instance, idle  ──┼─▶ run ─▶ reset ─▶ idle
//	                      │   └─ private mapping ─ instance, in use  │       └▶ closed, if that fails
//	                      └──────────────────────────────────────────┘
//
// The reset mode says how the changed pages are found: an ioctl, a file of the kernel's, or comparing all of
// them; each has to prove itself when the process starts. Modules with instructions that change tables or segments,
// or with mutable globals that the host cannot set, get a new instance for each call, which is the last reset mode.
//
// A pool belongs to one module, tenant and manifest; only machine code is shared wider. It has as many instances
// as calls were under way at once in the last seconds, at least one; an idle one gives its own pages back. A module that
// was idle for long keeps nothing in memory: its code comes back from the cache on disk with the next call. See
// Engine.Held and Engine.Relieve for who plans memory.
//
// # Limits
//
// Each Call has limits on memory, input, output, log, wall-clock time and fuel; LIMITS.md lists what
// happens at each. Input is looked at before the guest starts. A command's output, and any guest's log, are
// counted as they are written; the write that would pass the limit does not return to the guest. Memory is
// reserved as address space and never grows past the limit: the guest is told -1, as WebAssembly has it, and may
// cope with that. Only if it then fails is the outcome the memory limit. A handler's output is like that, too.
//
// What a handler does before its first task has the same limits of its own, and counts towards no task: it is done once
// for many. Where each task needs a new instance, because the module changes what a reset does not reach, the task bears
// it, and what the making of the instance takes.
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
// Fuel depends on the module and its input alone (and on whether its image is warm): a limit of fuel means the same
// on every machine.
//
//	guest ── counter < 0 ──▶ tick ──▶ over? ──▶ panic unwound ──▶ wazero returns it from the call
//	  ▲                       │ no                                 └▶ judge: the cause stands in the run
//	  └── the next quantum ───┘
//
// A gate lets as many guests compute at once as there are cores. Whoever waits for a first turn comes
// first, so that a short call is not held up by long ones. Where some wait, whoever has had his turn offers the processor to
// the system as well.
//
// The stack of a guest's own calls is not in its memory but on Go's heap: up to 120 MB for a moment, in a
// recursion without end. Engine.Held counts it.
//
// # Compilation
//
// The compiler is not made for hostile input: a file of some kilobytes can keep it busy for minutes. So it
// runs in a child process with a bound on time and memory, which fills the cache; the host loads from there,
// and compiles nothing but how functions of each type are entered, which Caps.AllValues bounds. See
// CompileChild.
//
// Owners of modules take turns at compiling, and at loading what is compiled. A module that waits holds no other turn,
// and lies in a file.
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
//	   └─ trap           ▶ Trap     ┘ (or of a handler's output) both are LimitExceeded
//
// A panic below a guest, in a function of the host, becomes a HostFault. Memory is unmapped when the
// call has returned and not before, whatever closed the instance: see memory. An instance that cannot be set
// back, or served while the host erred, is closed.
//
// The cache on disk is only a help. Its directory must be private, else New fails; but an entry that
// is damaged is made again, and a disk that is full is a warning.
package runtime
