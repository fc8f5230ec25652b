// Package compile turns modules into machine code, and keeps the code on disk and in memory.
//
//	module ─▶ Cache.Code ─▶ Code ─ Hold ─▶ in memory? ─ no ─▶ on disk? ─ no ─▶ a child process compiles it into a stage
//	rewritten     │                          │ yes              │ yes             │
//	            source: an unlinked file     ▼                  ▼                 ▼
//	                                     Instantiate ◀── load, checked ◀── entry and sum file, moved from the stage
//
// A small file can keep the compiler busy for minutes, so a child process compiles it, with limits on time and memory.
// The host only loads from the cache, where it compiles no more than an entry function for each function type. Owners
// of modules take turns at compiling and at loading. A waiting module lies in a file and holds no other turn.
//
// The cache holds code that this process executes: nobody else may write to its directory, and each load compares the
// SHA-256 of the entry. Entries that no engine serves are removed after 30 days, the least recently used ones earlier
// if the cache exceeds 1 GiB.
//
// # Failure
//
// A failure that is the module's fault is an *Error, and remembered for 10 minutes. Any other failure is the host's
// error. A damaged entry is compiled again. If the directory fails, modules are compiled into a temporary directory.
// Without a working compile child nothing is compiled.
package compile
