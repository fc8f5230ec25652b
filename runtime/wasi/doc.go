// Package wasi implements WASI preview 1 for guests that share nothing with their host.
//
//	           ┌──────────────── System ────────────────┐
//	           │  0 stdin   ◀── Config.Stdin            │
//	Functions  │  1 stdout  ──▶ Host.Stdout             │
//	──────────▶│  2 stderr  ──▶ Host.Stderr             │
//	 of guest  │  3 /       ◀── Config.Files            │
//	           │                └ /checkpoint           │
//	           │  4 … what path_open opens              │
//	           │  args, env, clocks, randomness         │
//	           └────────────────────────────────────────┘
//
// A System lives for one call. It calls a Host for operations that take time or leave the guest. Everything else is in
// memory: input, arguments, environment, and a read-only tree of files. If the guest has files or a checkpoint, the
// root of the tree is preopened as descriptor 3. Otherwise the guest has no files and directories. In the comments of
// functions, a parameter "result X" is the address at which the function writes X.
//
// # Results by group
//
//	args_*, environ_*     as configured
//	clock_*, poll_oneoff  wall clock and monotonic clock; inval for other clocks
//	random_get            the system's randomness
//	fd_*, path_*          reads work; changes return rofs if their arguments are valid
//	fd_fdstat_set_rights  notsup: WASI has given up rights
//	proc_exit             ends the guest
//	proc_raise            notsup: there are no signals
//	sock_*                notsock: there is no network
//
// Paths are relative to a directory and stay below it. An absolute path, or a path that leaves the directory by .., is
// refused with perm, which libraries report as permission denied. Inodes are numbered within the tree and times are 0,
// so guests learn nothing about the host's files.
//
// # Hostile arguments
//
// Arguments are untrusted. A pointer and a length are added in 64 bits; a range outside memory is refused with fault.
// Numbers of vectors, subscriptions and descriptors are limited before anything is allocated for them. One call moves
// at most 1 MiB between a guest and its files or streams. Host.Spend charges for bytes before they are moved. Results
// are written only after everything else has succeeded. No function keeps a view of the guest's memory after it has
// returned.
//
// # Failure
//
// No arguments make a function panic. The Host ends a guest by a panic, which this package does not recover.
//
// Source: the description of WASI snapshot 01, and POSIX where the description refers to it.
package wasi
