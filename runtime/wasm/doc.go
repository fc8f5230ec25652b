// Package wasm reads an untrusted WebAssembly module and rewrites it so that execution can be stopped, metered and
// reset.
//
//	file ──▶ sections ──▶ indices, caps ──▶ instructions ──▶ charges ──▶ ours ──▶ module
//	         in order,    every one is      decoded and      where?      tick,     for the
//	         once         in its space      encoded again    how much?   counter   compiler
//
// # Checks
//
// The package accepts the features of WebAssembly 2.0. It refuses later proposals, with an error that names the
// proposal. Every count is checked against the number of bytes left and its cap before anything is allocated: a file of
// fourteen bytes can make a reader that trusts counts take all memory. Every index is checked against the file's own
// index spaces, because our additions enlarge them: a counter after the last global must not make an invalid index
// valid. Types are checked by the compiler. Our code never encloses code of the file and leaves the stack unchanged, so
// a rewritten function is valid exactly if the original is.
//
// # Rewriting
//
// Only strings and data are copied unchanged. Numbers get their shortest form, custom sections are dropped, and names
// of functions are cut and escaped. In addition:
//
//   - code charges fuel: see fuel.go for the places, and bulk.go for bulk instructions;
//   - one function is imported, quern:host.tick, after the file's imports: the indices of all functions that the module
//     defines grow by one;
//   - the counter is a global after the file's globals, exported like every mutable global;
//   - the start function becomes an export, and nothing runs at instantiation;
//   - tables get a maximum, and the declared maximum of a memory is raised by a page, so that the host can shrink the
//     memory;
//   - ref.func becomes a table.get on an added table, which holds all functions that ref.func names.
//
// # Failure
//
// Rewrite returns an Error with the section or function, the offset, and the cause. The cause is a CapError,
// ErrTruncated, ErrReserved or ErrUnsupported; any other cause means that the file is damaged. Rewrite never panics,
// reads each byte once, and takes at most about twenty times the memory of the file.
//
// Source: the WebAssembly core specification, version 2.0.
package wasm
