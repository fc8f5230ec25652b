// Package wasm reads a WebAssembly module that nobody has checked, and writes it anew so that it can be
// stopped, priced and started again.
//
//	file ──▶ sections ──▶ indices, caps ──▶ instructions ──▶ charges ──▶ ours ──▶ module
//	         in order,    every one is      decoded and      where?      tick,     for the
//	         once         in its space      encoded again    how much?   counter   compiler
//
// # What is checked
//
// Features are those of WebAssembly 2.0; what a later proposal brings is refused by its name. Every count
// is at most the number of bytes left, and below its cap, before anything is allocated for it: fourteen
// bytes are enough to make a reader that trusts a count take all memory. Every index is checked against
// the file's own spaces, since our additions make those larger: a counter behind the last global must not
// make an index valid that was not. Types are left to the compiler. Code of ours encloses none of the
// file's and leaves the stack as it was, so that a function is valid rewritten exactly if it was before.
//
// # What is written anew
//
// Nothing is copied but strings and data: numbers are as short as they can be, custom sections are dropped,
// names of functions are cut and cleaned. Besides,
//
//   - code charges fuel: see fuel.go for where, and bulk.go for instructions that move whole blocks;
//   - one function is imported, quern:host.tick, behind the imports of the file: all functions that the
//     module defines move by one;
//   - the counter is a global behind those of the file, exported like every mutable one;
//   - the start function is an export like any other, and nothing runs at instantiation;
//   - tables have a maximum, and a memory that declares one may be larger by a page, so that its allocator
//     can shrink it;
//   - ref.func is a table.get, from a table that holds the references once and for all.
//
// # Failure
//
// Rewrite returns an Error with the section or function, the byte, and what is wrong: a CapError, or one
// that wraps ErrTruncated or ErrUnsupported; else the file is damaged. It never panics, reads each byte
// once, and takes at most some twenty times the memory of the file.
//
// Source of the rules: the WebAssembly core specification, version 2.0.
package wasm
