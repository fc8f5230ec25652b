// Package replay records what a run of a guest gets from outside, and replays it later on another machine.
//
//	a host                                      a laptop
//	clock, random ─┐                            ┌─▶ clock, random
//	services      ─┼─▶ guest                    ├─▶ services ─▶ guest
//	deadline, …   ─┘      │                     │
//	        └──▶ Tape ──▶ Record ── Redis, file ──▶ Tape
//
// Everything else that a guest computes follows from its module, its input and its snapshot. So a replay takes the same
// path, ends in the same way, and burns the same fuel.
//
// A Tape lies at the sources: runtime/abi and runtime/wasi ask it for each clock and each random number, and it wraps
// the services of the host. All kinds of modules get what is outside of them through these two packages.
//
// # Secrets
//
// The value of a secret that a run reads is not recorded, only its name, and 8 bits of a hash by which a replay tells a
// wrong value. Where a value occurs in an answer or in the checkpoint, the record has the secret's name in its place; a
// replay puts the value back that its user gives. Values are replaced by length, the longest first, because one can be
// a part of another. Secrets that the run does not read are not looked for.
//
// # Encryption
//
// Encode encrypts a record to the recipients that the host's grants name for the tenant, in the format of age. The
// recipients come before it, so that an error can name them.
//
// # Bounds
//
// A Tape that exceeds its limit drops what it has, and records nothing more. The run goes on.
//
// # Failure
//
// A replay ends the guest where it asks for something else than what was recorded (Diverged), where the record ends
// (ErrEnd), and at the fuel at which the caller wants it to stop (ErrStopped). Package runtime reports each as the
// cause of a Cancelled outcome.
package replay
