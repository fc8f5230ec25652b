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
// A System lives for one call. It uses a Host for what takes time or leaves the guest, and keeps the rest in memory:
// input, arguments, environment, and a read-only tree of files. If the guest has files or a checkpoint, the root of the
// tree is preopened as descriptor 3; else there are no files and directories.
//
// # Answers by group
//
//	args_*, environ_*     as configured
//	clock_*, poll_oneoff  wall clock and monotonic clock; inval for other clocks
//	random_get            the system's randomness
//	fd_*, path_*          reads work; writes are rofs, if their arguments are right
//	fd_fdstat_set_rights  notsup: WASI has given up rights
//	proc_exit             ends the guest
//	proc_raise            notsup: there are no signals
//	sock_*                notsock: there is no network
//
// Paths are relative to a directory and stay below it: an absolute path, or one that leads out by .., is perm, which
// libraries report as permission denied. Inodes are numbers of the tree and times are 0, so nothing of the host shows.
//
// # Hostile arguments
//
// Arguments are untrusted. A pointer and a length are added in 64 bits; a range outside memory is fault. Numbers of
// vectors, subscriptions and descriptors are bounded before anything is allocated. One call moves at most 1 MiB between
// a guest and its files or streams, and Host.Spend charges for each move first. Results are written once everything has
// succeeded. Views of the guest's memory are not kept.
//
// # Failure
//
// No arguments make a function panic. Panics of the Host, by which it ends the guest, pass through.
//
// Source: the description of WASI snapshot 01, and POSIX where the description refers to it.
package wasi
