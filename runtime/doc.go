// Package runtime runs guests: untrusted WebAssembly programs. Each call runs in its own sandbox.
//
//	                      Engine                                    Module ── Bind(Profile) ──▶ Pool
//	file ─▶ sniff ─▶ rewrite ─▶ refusals ─▶ compile ────────▶ try ──▶                            │ Run(Call),
//	        text?    checked,   imports?    in a child process,                                  │ concurrently
//	        native?  fueled     entry?      into the cache on disk                               ▼
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
// An Engine compiles files into Modules. A Module binds a Profile to a Pool; the Profile holds what all tasks of a
// plugin version and tenant share. A Pool runs Calls, each in an instance without a trace of any other call. A guest
// can reach its input, arguments and environment, its output, the files that it was granted, clocks, randomness and
// sleep. A handler can also use the services of the host. No guest can reach the host's file system or network by
// itself. Package wasm checks and rewrites modules, packages wasi and abi implement the functions that guests import,
// and package snapshot resets the memory of guests.
//
// # Kinds
//
// A handler exports quern_handle and imports quern_v1. It starts once (_initialize), and each task begins in the state
// after that start. A command is a WASI preview 1 program, which exports _start. It starts anew for each task and reads
// the task's input from stdin. An Extism plugin imports functions from extism:host/env. A kernel provides these
// functions: a second module in the same instance, with its own memory. A task of an Extism plugin calls the export
// that the profile names. sdk/EXTISM.md describes the functions.
//
// # Pristine instances
//
// The calls of a pool share its instances; an instance serves one call at a time. After each call, the instance is
// reset to the pool's snapshot. The reset restores the changed pages of the memory, the memory's size, and the mutable
// globals. The snapshot of a command is taken before _start. The snapshot of a handler is taken after _initialize, or
// after a warm call: a call without a task, with the input that the manifest gives.
//
//	first call            ┌────────────────── Pool ──────────────────┐       later calls
//	instantiate, start ─▶ │ snapshot (sealed memfd, globals)         │
//	                      │   ├─ private mapping ─ instance, idle  ──┼─▶ run ─▶ reset ─▶ idle
//	                      │   └─ private mapping ─ instance, in use  │       └▶ closed if that fails
//	                      └──────────────────────────────────────────┘
//
// Three reset modes find the changed pages: by an ioctl, by a file of the kernel, or by comparing all memory. Each mode
// is tested once in each process. A fourth mode resets nothing: it makes a new instance for each task. Modules that
// change tables or segments, or that have mutable globals which the host cannot set, always get the fourth mode.
//
// All pools of a module share its machine code. Modules that differ only in the files that they carry share it, too.
// Snapshots of the same code share the pages in which they are equal. So a hundred plugins for one interpreter take the
// interpreter's memory once. No guest can change shared code or pages. A pool keeps at least one instance, and as many
// as calls ran at once in the last seconds. After Config.IdleUnload without a call, a pool frees its instances and its
// snapshot, and a module its code; the next call makes them again. The host's memory admission uses Engine.Held and
// Engine.Relieve.
//
// # Limits
//
// Limits bound the memory, input, output, log, wall-clock time and fuel of each call; LIMITS.md says what happens at
// each limit. Memory is reserved as address space: memory.grow beyond the limit returns -1, and the guest can go on.
// The outcome is LimitExceeded only if the call fails after that. The output limit of a handler works the same way.
//
// The start of a handler has its own limits, and counts towards no task. If a reset cannot restore all that a module
// changes, each of the module's tasks needs a new instance, and pays for making and starting it.
//
// # Fuel
//
// Neither a context nor Go's garbage collector can interrupt compiled code. So the guest decrements a counter by about
// one for each instruction, and calls the host when the counter falls below zero. That call is a tick. It comes after a
// quantum of 10,000 units, or some 5 µs. The tick checks the caller's context, the timeout and the fuel, and
// lets other guests compute after each slice of 250 µs. Host functions are called through one wrapper, which charges
// for the call. The functions themselves charge for each byte that they move.
//
// The fuel of a call depends only on the module, its input and its snapshot. So a fuel limit means the same on every
// machine.
//
//	guest ── counter < 0 ──▶ tick ──▶ over? ──▶ panic unwound ──▶ wazero returns it from the call
//	  ▲                       │ no                                 └▶ judge: the run has the cause
//	  └── the next quantum ───┘
//
// A gate lets as many guests compute at once as there are processors. Guests that wait for their first turn alternate
// with the others, so that long calls do not hold up short ones. A call first gets its place at the gate, then its
// instance.
//
// The call stack of a guest is on Go's heap. An endless recursion makes the stack grow to 120 MB for a moment.
// Engine.Held counts call stacks.
//
// # Compilation
//
// Package compile compiles modules in a child process, into the cache on disk, and loads them from there.
//
// # Failure
//
// For a file that cannot be served, Load returns a RefusedError, with every reason and its remedy. Nothing of a file
// runs before it is accepted.
//
// Run returns no error: every end of a call is an Outcome. The first cause wins: what the guest does after a limit, a
// fault or the end of the caller's context does not count. If there is no cause, the exit code decides; if there is no
// exit code either, the trap.
//
//	cause of the run
//	├─ limit     ▶ LimitExceeded   stopped at input, output, log, timeout or cpu
//	├─ fault     ▶ HostFault       the host's own error; the guest is not to blame
//	├─ caller's  ▶ Cancelled
//	└─ none
//	   ├─ exit 0, return ▶ Complete
//	   ├─ exit 75        ▶ Retry
//	   ├─ exit 65        ▶ Fatal
//	   ├─ other exit     ▶ Failed   ┐ LimitExceeded after a refused growth of memory
//	   └─ trap           ▶ Trap     ┘ or a refused output of a handler
//
// A panic in a host function becomes a HostFault. Memory is unmapped only when the call has returned: see the type
// memory. An instance is closed if it cannot be reset, or if its call was a HostFault.
//
// New fails if the cache directory is not private.
package runtime
