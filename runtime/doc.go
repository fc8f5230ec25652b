// Package runtime runs guests: WebAssembly programs that nobody here has written or checked, each
// call in a sandbox of its own.
//
//	                 Engine                                       Module
//	file ──▶ sniff ──▶ outline ──▶ refusals ──▶ compile ──▶ try ──▶  │
//	          text?    imports,    WASI only?     ▲                  │ Run, any number at once
//	          native?  exports,    _start?        │                  ▼
//	          cut off? memory      memory?      cache     ┌─────── instance ────────┐
//	                                            on disk   │ stdin   ◀── Call.Input  │
//	                                                      │ environ ◀── TASK_*, Env │
//	                                                      │ stdout  ──▶ output      │──▶ Outcome
//	                                                      │ stderr  ──▶ lines, tail │
//	                                                      │ memory  ≤ Limits.Memory │
//	                                                      └─────────────────────────┘
//
// An Engine compiles files to Modules. A Module runs Calls, and each Call gets a new instance: its
// memory, globals and tables begin as the file says, and are dropped when it ends. What a guest may
// reach is its input, its arguments and environment, its two outputs, the clocks, randomness and
// sleep. There is no file system and no network.
//
// # Kinds
//
// Three kinds of plugins are told apart: a handler exports quern_handle, an Extism plugin imports
// from extism:host/env, a command exports _start. Commands are WASI preview 1 programs, and the only
// kind that can be served yet; the others are recognized and refused by name.
//
// # Limits
//
// Each Call has limits on memory, input, output, log and wall-clock time. Input is looked at before
// the guest starts. Output and log are counted as they are written; the write that would pass the
// limit does not return to the guest. Memory is reserved as address space and never grows past the
// limit: the guest is told -1, as WebAssembly has it, and may cope with that. Only if it then fails
// is the outcome the memory limit.
//
// A guest is stopped where it looks whether it may go on: at the head of every loop and in every
// wait. Code with neither loops nor waits (a recursion that branches without end) is not stopped
// before it ends, or before its stack does.
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
// Run returns no error: every end of a call is an Outcome. The first cause wins. A limit, a fault of
// the host and the end of the caller's context are recorded as the cause with which the call's own
// context is cancelled, so whichever comes first is the one, and whatever the guest still says or
// does is not looked at. Only without a cause does the exit code count, and only without an exit
// code the trap.
//
//	context of the call
//	├─ cause: limit     ▶ LimitExceeded   stopped at input, output, log or timeout
//	├─ cause: fault     ▶ HostFault       the host's own error; the guest is not to blame
//	├─ cause: caller's  ▶ Cancelled
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
