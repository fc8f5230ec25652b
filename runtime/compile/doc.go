// Package compile turns modules into machine code, and keeps the code on disk and in memory.
//
//	module ─▶ Cache.Code ─▶ Code ─ Hold ─▶ in memory? ─ no ─▶ on disk? ─ no ─▶ a child process compiles it into a stage
//	rewritten     │                          │ yes              │ yes             │
//	            source: an unlinked file     ▼                  ▼                 ▼
//	                                     Instantiate ◀── load, checked ◀── entry and sum file, moved from the stage
//
// A small file can keep the compiler busy for minutes, so a child process compiles it, with limits on time and memory.
// The host only loads from the cache, and in doing so compiles no more than an entry function for each function type.
// Owners of modules take turns at compiling and at loading. While a module waits, it lies in a file and holds no other
// turn.
//
// The cache holds code that this process executes: nobody else may write to its directory, and each load compares the
// SHA-256 of the entry. Entries that no engine uses are removed after 30 days. If the cache exceeds 1 GiB, the least
// recently used entries are removed earlier.
//
// # Failure
//
// A failure that is the module's fault is an *Error. It is remembered for 10 minutes, except after a SIGKILL. Any other
// failure is the host's error. If an entry is damaged, its module is compiled again. If the directory fails, modules
// are compiled into a temporary directory. If compile children do not work, nothing is compiled.
package compile
