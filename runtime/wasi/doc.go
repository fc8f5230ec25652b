// Package wasi is WASI preview 1 for guests that share nothing with their host.
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
// A System is made for one call and dropped with it. It needs a Host for what takes time or leaves the
// guest, and holds the rest in memory: the input, the arguments and environment, and a tree of files
// that nothing changes. The root of the tree is preopened as descriptor 3, if the guest has files or a
// checkpoint; else it has neither files nor directories.
//
// # What the groups answer
//
//	args_*, environ_*     as configured
//	clock_*, poll_oneoff  the wall clock and the monotonic one; other clocks are inval
//	random_get            the system's randomness
//	fd_*, path_*          what reads works; what would write is rofs, once its arguments are right
//	fd_fdstat_set_rights  notsup: rights were given up by WASI
//	proc_exit             ends the guest
//	proc_raise            notsup: there are no signals
//	sock_*                notsock: there is no network
//
// Paths are relative to a directory and stay below it: an absolute path and one that leads out by ..
// are perm, which libraries know for a permission denied. Inodes are numbers of the tree, times are 0:
// nothing of the host shows.
//
// # Hostile arguments
//
// Nobody has checked what a guest passes. A pointer and a length are added in 64 bits, and what does
// not lie in memory is fault. Numbers of vectors, subscriptions and descriptors are bounded, and
// nothing is allocated before they are. One call moves at most 1 MiB between a guest and its files or
// streams, and each move is paid for by Host.Spend first. Results are written when all has succeeded.
// Views of the guest's memory are not kept.
//
// # Failure
//
// No arguments make a function panic. What does pass through is a panic of the Host, by which it ends
// the guest.
//
// Source of the rules: the description of WASI snapshot 01, and POSIX where that refers to it.
package wasi
