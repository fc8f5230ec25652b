package wasm

import (
	"cmp"
	"fmt"
)

// MaxSize is the default of Caps.Size, in bytes.
const MaxSize = 64 << 20

// Caps limit what a module can demand from its readers and from the compiler. A zero field stands for its default,
// which real programs do not reach. Every limit is checked before memory is allocated for what it limits.
type Caps struct {
	// Size limits the whole file, in bytes. Default 64 MiB.
	Size int
	// Types, Imports, Exports, Globals, Elements and Data limit the entries of the sections of these names. Functions
	// limits the functions that the module defines. Defaults 10,000, 1,000, 100,000, 10,000, 10,000, 100,000 and 200,000.
	Types, Imports, Exports, Globals, Elements, Data, Functions int
	// Names limits the names of all imports and exports, in bytes. Default 4 MiB: the names are kept as long as the
	// module, and some of them take four bytes for each byte.
	Names int
	// References limits the elements of all segments together. Default 100,000: wazero takes over 100 bytes of the host's
	// memory for each element, and for elements of passive segments again in each instance.
	References int
	// Values limits the parameters of a type, and likewise its results. AllValues limits the parameters and results of
	// all types together. Defaults 128 and 20,000: loading a module compiles code for each type.
	Values, AllValues int
	// Helpers limits the added functions for bulk instructions: one for each instruction with each combination of
	// segments or tables. Default 1,000.
	Helpers int
	// Body limits the code of a function, in bytes. Default 4 MiB.
	Body int
	// Locals limits the locals of a function, parameters included. Default 50,000: a file can declare millions in a few
	// bytes, and a compiler allocates memory for each.
	Locals int
	// AllLocals limits the locals of all functions, parameters included. Default 2,000,000: decoding a module takes 8
	// bytes for each, and a file can declare 50,000 in nine bytes. CPython has 45,000.
	AllLocals int
	// Nesting limits the depth of blocks. Default 20,000: Go nests a block for each call in a function.
	Nesting int
	// Work limits a compiler's effort in one function to join values where paths meet: for each loop, block and if, the
	// function's locals plus the block's parameters and results. Default 150,000; the maximum in CPython is 103,000, and
	// 200,000 took 13 s to compile.
	Work int
	// Operands limits the operands of a function at any point. Default 65,536: a call instruction of two bytes pushes up
	// to Values operands.
	Operands int
	// Loops limits the depth of loops. Default 256.
	Loops int
	// Targets limits the labels of a br_table. AllTargets limits the labels of all br_tables together. Defaults 50,000
	// and 1,000,000; a million took 13 s to compile.
	Targets, AllTargets int
	// Code limits rewritten code, with its charges and repairs, to this multiple of the original size plus 1 MiB. Default
	// 8: real programs grow by a tenth or two, programs that consist only of calls grow elevenfold.
	Code int
	// Rewritten limits the rewritten sections, in bytes. Default 128 MiB: the host and the compile child each keep
	// several copies. Go's compiler has 57 MiB.
	Rewritten int
	// Tables limits the tables. Entries limits the initial entries of all tables together. Defaults 16 and 1,048,576. The
	// limit of a guest's memory does not cover tables.
	Tables, Entries int
	// Growth limits the number of entries by which a table can grow. Default 65,536.
	Growth int
}

func (c Caps) withDefaults() Caps {
	c.Size = cmp.Or(c.Size, MaxSize)
	c.Types = cmp.Or(c.Types, 10_000)
	c.Imports = cmp.Or(c.Imports, 1000)
	c.Exports = cmp.Or(c.Exports, 100_000)
	c.Globals = cmp.Or(c.Globals, 10_000)
	c.Elements = cmp.Or(c.Elements, 10_000)
	c.Data = cmp.Or(c.Data, 100_000)
	c.Names = cmp.Or(c.Names, 4<<20)
	c.References = cmp.Or(c.References, 100_000)
	c.Functions = cmp.Or(c.Functions, 200_000)
	c.Values = cmp.Or(c.Values, 128)
	c.AllValues = cmp.Or(c.AllValues, 20_000)
	c.Helpers = cmp.Or(c.Helpers, 1000)
	c.Body = cmp.Or(c.Body, 4<<20)
	c.Locals = cmp.Or(c.Locals, 50_000)
	c.AllLocals = cmp.Or(c.AllLocals, 2_000_000)
	c.Nesting = cmp.Or(c.Nesting, 20_000)
	c.Work = cmp.Or(c.Work, 150_000)
	c.Operands = cmp.Or(c.Operands, 1<<16)
	c.Loops = cmp.Or(c.Loops, 256)
	c.Targets = cmp.Or(c.Targets, 50_000)
	c.AllTargets = cmp.Or(c.AllTargets, 1_000_000)
	c.Code = cmp.Or(c.Code, 8)
	c.Rewritten = cmp.Or(c.Rewritten, 128<<20)
	c.Tables = cmp.Or(c.Tables, 16)
	c.Entries = cmp.Or(c.Entries, 1<<20)
	c.Growth = cmp.Or(c.Growth, 1<<16)
	return c
}

// CapError says that a module exceeds a cap.
type CapError struct {
	// What names the things that are counted, such as "locals" or "bytes in the code of a function".
	What string
	// Count is the number of these things in the module, or a lower bound of that number. Cap is the limit.
	Count, Cap uint64
}

// Error implements error.
func (e *CapError) Error() string {
	return fmt.Sprintf("%d %s, more than %d", e.Count, e.What, e.Cap)
}

// bound fails the reader if a count exceeds a cap.
func (r *reader) bound(what string, count uint64, limit int) {
	if r.err == nil && count > uint64(limit) {
		r.fail(&CapError{What: what, Count: count, Cap: uint64(limit)})
	}
}
