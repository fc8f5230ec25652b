package runtime

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasm"
)

// access is one store and one load, or one bulk instruction, at an address that the compiler knows.
type access struct {
	form        string
	at, offset  uint32
	bytes       uint64
	instruction string
	writes      bool // 77 into the first byte
}

// inside tells whether a memory of MaxMemory has all of the bytes.
func (a access) inside() bool { return uint64(a.at)+uint64(a.offset)+a.bytes <= MaxMemory }

// accesses are at addresses on both sides of 2 GiB and of 4 GiB, where a compiler that takes a number for a signed one
// goes wrong. A first access proves the bounds, so that the compiler leaves the check of the second one out; between the
// two ways meet, or the memory grows.
func accesses() (all []access) {
	for _, at := range []uint32{
		0, 64, 0x7fff0000, 0x7ffffff0, 0x7ffffff8, 0x7ffffffc, 0x7fffffff,
		0x80000000, 0x80000001, 0x80010000, 0xc0000000, 0xffff0000, 0xfffffff0, 0xfffffffc, 0xffffffff,
	} {
		for _, offset := range []uint32{0, 1, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff} {
			for _, of := range []struct {
				bytes              uint64
				store, load, value string
			}{
				{1, "i32.store8", "i32.load8_u", "(i32.const 77)"},
				{4, "i32.store", "i32.load", "(i32.const 77)"},
				{8, "i64.store", "i64.load", "(i64.const 77)"},
				{8, "f64.store", "f64.load", "(f64.reinterpret_i64 (i64.const 77))"},
				{16, "v128.store", "v128.load", "(v128.const i64x2 77 77)"},
			} {
				store := fmt.Sprintf("(%s offset=%d (local.get $at) %s)", of.store, offset, of.value)
				load := fmt.Sprintf("(local.set $at (i32.const %d)) (drop (%s offset=%d (local.get $at)))", at, of.load, offset)
				for _, way := range []struct{ form, between string }{
					{"at once", ""},
					{"after a join", "(block $b (br_if $b (global.get $zero)) (global.set $zero (i32.const 0)))"},
					{"after a join with a call", "(if (global.get $zero) (then (call $nothing)))"},
					{"after a call", "(call $nothing)"},
					{"after a growth", "(drop (memory.grow (i32.const 0)))"},
				} {
					all = append(all, access{way.form, at, offset, of.bytes, load + way.between + store, true})
				}
			}
		}
		for _, n := range []uint32{1, 0x10000, 0x180000} {
			all = append(all,
				access{"fill", at, 0, uint64(n), fmt.Sprintf("(memory.fill (i32.const %d) (i32.const 77) (i32.const %d))", at, n), true},
				access{"copy to", at, 0, uint64(n), fmt.Sprintf("(memory.copy (i32.const %d) (i32.const 256) (i32.const %d))", at, n), false},
				access{"copy from", at, 0, uint64(n), fmt.Sprintf("(memory.copy (i32.const 256) (i32.const %d) (i32.const %d))", at, n), false},
			)
		}
	}
	return all
}

// TestHostileAddresses: whatever constant a guest makes an address of, it touches that address of its memory or
// traps. The memory is as large as one may be, and nothing else lies within 4 GiB of it.
func TestHostileAddresses(t *testing.T) {
	t.Parallel()
	all := accesses()
	var text strings.Builder
	text.WriteString(`(module
		(import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
		(memory (export "memory") ` + strconv.Itoa(wasm.MaxPages) + `) (global $zero (mut i32) (i32.const 0)) (func $nothing) (type $case (func))
		(func (export "_start")
			(i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 4))
			(drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
			(call_indirect (type $case) (i32.load (i32.const 16))))
		(func $expect (param $at i32) (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 77)) (then (unreachable))))
		(table funcref (elem`)
	for n := range all {
		fmt.Fprintf(&text, " $case%d", n)
	}
	text.WriteString("))\n")
	for n, a := range all {
		fmt.Fprintf(&text, "(func $case%d (type $case) (local $at i32) %s", n, a.instruction)
		if a.writes {
			fmt.Fprintf(&text, "(call $expect (i32.const %d))", a.at+a.offset)
		}
		text.WriteString(")\n")
	}
	text.WriteString(")")
	module := load(t, runtimetest.BuildWAT(t, text.String()))
	for n, a := range all {
		input := binary.LittleEndian.AppendUint32(nil, uint32(n))
		got := bound(module, "pool", Profile{Limits: Limits{Memory: MaxMemory}}).Run(t.Context(), Call{Plugin: "plugin", Input: input})
		switch {
		case a.inside() && got.Kind != Complete:
			t.Errorf("%s of %d bytes at %#x + %#x: outcome = %+v, want complete", a.form, a.bytes, a.at, a.offset, got)
		case !a.inside() && (got.Kind != Trap || got.Trap != "out of bounds memory access"):
			t.Errorf("%s of %d bytes at %#x + %#x: outcome = %+v, want a trap for its bounds", a.form, a.bytes, a.at, a.offset, got)
		}
	}
}
