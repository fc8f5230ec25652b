package runtime

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestInstancesArePaidFor: where each task makes an instance, because the module changes what a reset does not reach, the
// task burns what that takes: its exports, tables, globals and data, and what a handler runs before its first task.
func TestInstancesArePaidFor(t *testing.T) {
	t.Parallel()
	var exports strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&exports, `(export "%d" (func $f))`, n)
	}
	for name, test := range map[string]struct {
		text  string
		least int64
	}{
		"exports":  {exports.String(), 150_000},
		"table":    {`(table 1000000 externref)`, 1_000_000},
		"globals":  {strings.Repeat(`(global (mut i64) (i64.const 1))`, 1000), 500_000},
		"data":     {`(data (i32.const 0) "` + strings.Repeat("x", 100_000) + `")`, 100_000},
		"passive":  {`(data "` + strings.Repeat("x", 100_000) + `")`, 0},
		"elements": {`(table $e 1000 funcref) (elem (table $e) (i32.const 0) func ` + strings.Repeat("$f ", 1000) + `)`, 500_000},
		"start":    {`(func (export "_initialize") (local $i i32) (loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100000)))))`, 500_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const frame = `(module (memory (export "memory") 2) (table $t 1 externref) (func $f) (func (export "quern_handle") (result i32) %s (i32.const 0)) %s)`
			kept := load(t, runtimetest.BuildWAT(t, fmt.Sprintf(frame, "", test.text)))
			lasting := load(t, runtimetest.BuildWAT(t, fmt.Sprintf(frame, "(table.set $t (i32.const 0) (ref.null extern))", test.text)))
			for range 2 {
				usual, paid := bound(kept, "pool", Profile{}).Run(t.Context(), Call{}), bound(lasting, "pool", Profile{}).Run(t.Context(), Call{})
				if usual.Kind != Complete || paid.Kind != Complete || usual.Fuel > 10_000 {
					t.Fatalf("outcomes = %+v, %+v", usual, paid)
				}
				if paid.Fuel < test.least || paid.Fuel > 2*test.least+10_000 {
					t.Errorf("a new instance for a task costs it %d, want some %d", paid.Fuel, test.least)
				}
			}
		})
	}
}

// TestOverhead: what tables may take is known before they do.
func TestOverhead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"":                            0,
		"(table 1000 1000 funcref)":   0,
		"(table 10000 10000 funcref)": 80_000,
		"(table 10000 20000 funcref)": 320_000,
		"(table 1000 funcref) (table 5 5 funcref)": 16*(1000+1<<16) + 40,
	} {
		module := load(t, runtimetest.BuildWAT(t, `(module `+text+` (func (export "_start")))`))
		if got := module.Overhead(); got != want {
			t.Errorf("%s: %d bytes, want %d", text, got, want)
		}
	}
}
