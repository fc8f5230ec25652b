// Package wasm reads the outline of a WebAssembly module: what it imports, exports and declares.
//
// It looks at bytes that nobody has checked yet, so it trusts none of them. Every count is at most
// the number of bytes left, every section lies within the file, sections come in their order and
// once, and nothing is allocated before that holds. Of function bodies only the locals are counted:
// whether the code is valid is the compiler's business.
//
//	┌──────────┬─────────┬──────────────────────────┬──────────────────────────┬───
//	│ \0asm    │ version │ id │ size │ contents      │ id │ size │ contents      │ …
//	│ 4 bytes  │ 4 bytes │  1 │ 1–5  │ size bytes    │  1 │ 1–5  │ size bytes    │
//	└──────────┴─────────┴──────────────────────────┴──────────────────────────┴───
//
// Source of the rules: the WebAssembly core specification, chapter "Binary Format".
package wasm
