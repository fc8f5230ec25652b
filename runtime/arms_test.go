package runtime

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestArmsPayForThemselves: in a loop like an interpreter's, whose arms meet again, a short arm does not pay for a long one.
func TestArmsPayForThemselves(t *testing.T) {
	t.Parallel()
	const arms, rounds, long = 80, 1000, 200
	work := func(n int) string {
		return strings.Repeat("(local.set $x (i32.add (local.get $x) (i32.const 3)))\n", n/4)
	}
	var code strings.Builder
	for arm := range arms {
		n := 12
		if arm%2 == 1 {
			n = long
		}
		code.WriteString("(if (i32.eqz (local.get $x)) (then (local.set $x (i32.const 1))))\n" + work(n) + "(br $again))\n")
	}
	guest := runtimetest.BuildWAT(t, fmt.Sprintf(`(module
		(import "quern_v1" "input_size" (func $input_size (result i32)))
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32)
			(local $x i32) (local $n i32) (local $arm i32)
			(local.set $arm (call $input_size))
			(loop $next
				(block $again
					%s (br_table %s (local.get $arm))) %s
				(br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const %d))))
			(i32.const 0)))`, strings.Repeat("(block ", arms), numbers(arms), code.String(), rounds))
	module := load(t, guest)
	for arm, most := range []int64{60, long + 60} {
		got := bound(module, "pool", Profile{}).Run(t.Context(), Call{Input: make([]byte, arm)})
		complete(t, got)
		if each := got.Fuel / rounds; each > most || each < 20 {
			t.Errorf("arm %d burns %d each time, want at most %d", arm, each, most)
		}
	}
}

// numbers are those below n.
func numbers(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprint(&text, i, " ")
	}
	return text.String()
}
