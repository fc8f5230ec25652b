package wasm

import "fmt"

// MaxSize is the default of Caps.Size, in bytes.
const MaxSize = 64 << 20

// Caps bound what a module may ask of its readers and of the compiler. A field that is zero has its
// default, which real programs do not reach; what a field bounds is counted before anything is allocated
// for it.
type Caps struct {
	// Size is the whole file in bytes. Default 64 MiB.
	Size int
	// Types, Imports, Exports, Globals, Elements and Data are the entries of those sections; Functions
	// those that the module defines, without what we add. Defaults 10,000, 1,000, 100,000, 10,000, 10,000, 100,000 and 200,000.
	Types, Imports, Exports, Globals, Elements, Data, Functions int
	// References are the elements of all segments together. Default 100,000: wazero takes over 100 bytes
	// for each, in the host, and for passive segments again in each instance.
	References int
	// Values is the most parameters, and the most results, of a type, and AllValues what all types have
	// together. Defaults 128 and 20,000: loading a module compiles a piece for each type, in the host.
	Values, AllValues int
	// Helpers are the functions that bulk instructions need, one for each instruction with other segments
	// or tables. Default 1,000.
	Helpers int
	// Body is the code of one function in bytes. Default 4 MiB.
	Body int
	// Locals are those of one function, its parameters among them. Default 50,000: a file declares
	// millions in a few bytes, and a compiler allocates each.
	Locals int
	// AllLocals are those of all functions, their parameters among them. Default 2,000,000: whoever decodes a
	// module keeps 8 bytes for each, and a file declares 50,000 in nine. CPython has 45,000.
	AllLocals int
	// Nesting is the depth of blocks. Default 20,000; Go nests one block for each call of a function.
	Nesting int
	// Work is what a compiler does in one function to join values where ways meet: for each loop, block and
	// if, the locals of the function, and the parameters and results of the block. Default 150,000; the most
	// of CPython is 103,000, and 200,000 took 13 s to compile.
	Work int
	// Operands are those of one function at once. Default 65,536: a call of two bytes leaves up to Values of them.
	Operands int
	// Loops is the depth of loops. Default 256.
	Loops int
	// Targets are the labels of one br_table, and AllTargets those of all in the module. Defaults 50,000
	// and 1,000,000; a million took 13 s to compile.
	Targets, AllTargets int
	// Code is what charges and selects may make of the code, in bytes for each byte of it, beyond the first MiB. Default
	// 8: real programs become larger by a tenth or two, those of calls alone elevenfold.
	Code int
	// Rewritten are the bytes of all sections as they are written anew. Default 128 MiB: the host and the
	// compile child each hold them several times. Go's compiler has 57 MiB.
	Rewritten int
	// Tables are those of a module, and Entries what all of them have from the start. Defaults 16 and
	// 1,048,576. They lie outside the memory limit.
	Tables, Entries int
	// Growth is how many entries a table may grow by. Default 65,536.
	Growth int
}

func (c Caps) withDefaults() Caps {
	for _, field := range []struct {
		value    *int
		fallback int
	}{
		{&c.Size, MaxSize},
		{&c.Types, 10_000},
		{&c.Imports, 1000},
		{&c.Exports, 100_000},
		{&c.Globals, 10_000},
		{&c.Elements, 10_000},
		{&c.Data, 100_000},
		{&c.References, 100_000},
		{&c.Functions, 200_000},
		{&c.Values, 128},
		{&c.AllValues, 20_000},
		{&c.Helpers, 1000},
		{&c.Body, 4 << 20},
		{&c.Locals, 50_000},
		{&c.AllLocals, 2_000_000},
		{&c.Nesting, 20_000},
		{&c.Work, 150_000},
		{&c.Operands, 1 << 16},
		{&c.Loops, 256},
		{&c.Targets, 50_000},
		{&c.AllTargets, 1_000_000},
		{&c.Code, 8},
		{&c.Rewritten, 128 << 20},
		{&c.Tables, 16},
		{&c.Entries, 1 << 20},
		{&c.Growth, 1 << 16},
	} {
		if *field.value <= 0 {
			*field.value = field.fallback
		}
	}
	return c
}

// CapError says that a module has more of something than a cap allows.
type CapError struct {
	// What is counted: "locals", "bytes in the code of a function".
	What string
	// Count is what the module has, or has at least; Cap is what it may have.
	Count, Cap uint64
}

// Error implements error.
func (e *CapError) Error() string {
	return fmt.Sprintf("%d %s, more than %d", e.Count, e.What, e.Cap)
}

// bound fails the reader if there are more of something than a cap allows.
func (r *reader) bound(what string, count uint64, limit int) {
	if r.err == nil && count > uint64(limit) {
		r.fail(&CapError{What: what, Count: count, Cap: uint64(limit)})
	}
}
