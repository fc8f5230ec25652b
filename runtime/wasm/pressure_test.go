package wasm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestPressure: programs with more values alive than there are registers compute what the interpreter does. Those in
// testdata/pressure wazero's compiler for amd64 gets wrong without what repair.go does, as it does some of the random ones; those in
// beside there only if it does the rest.
func TestPressure(t *testing.T) {
	t.Parallel()
	reduced, err := filepath.Glob("testdata/pressure/*.wat")
	if err != nil || len(reduced) == 0 {
		t.Fatal(err)
	}
	beside, err := filepath.Glob("testdata/pressure/beside/*.wat")
	if err != nil || len(beside) == 0 {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(reduced, beside) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if difference := runPressure(t, string(text), Options{}); difference != "" {
			t.Errorf("%s: %s", name, difference)
		}
		if runtime.GOARCH == "amd64" && slices.Contains(reduced, name) && runPressure(t, string(text), Options{unrepaired: true}) == "" {
			t.Errorf("%s is right without a repair, too", name)
		}
	}
	for seed := range programs(300) {
		if difference := runPressure(t, newPressure(seed).module(), Options{}); difference != "" {
			t.Errorf("seed %d: %s", seed, difference)
		}
	}
}

// runPressure runs a program for 16 arguments as it is, by the interpreter, and rewritten, by the compiler.
func runPressure(t testing.TB, text string, o Options) (difference string) {
	t.Helper()
	file := runtimetest.BuildWAT(t, text)
	both := smithWorlds(t, o)
	defer both[0].runtime.Close(t.Context())
	defer both[1].runtime.Close(t.Context())
	var results [2][16]string
	for n, w := range both {
		i, err := w.instantiate(t.Context(), file, "")
		if err != nil {
			t.Fatal(err)
		}
		f := i.ExportedFunction("f")
		for argument := range results[n] {
			got, err := f.Call(t.Context(), uint64(argument))
			results[n][argument] = fmt.Sprintf("%x %v", got, err)
		}
	}
	for argument := range results[0] {
		if results[0][argument] != results[1][argument] {
			return fmt.Sprintf("f(%d): plain %s, rewritten %s", argument, results[0][argument], results[1][argument])
		}
	}
	return ""
}

// pressure makes a module with a function f of an i32, whose result depends on all of its locals. Most of them are of one
// type.
type pressure struct {
	*rand.Rand
	most      string                 // that type
	locals    map[string][]int       // by type
	favorites map[string][]operation // half of the instructions of a type
}

var pressureTypes = []string{"i32", "i64", "f32", "f64", "v128"}

func newPressure(seed uint64) *pressure {
	p := &pressure{Rand: rand.New(rand.NewPCG(seed, 2)), locals: map[string][]int{}, favorites: map[string][]operation{}}
	p.most = append(pressureTypes, "v128", "v128")[p.IntN(len(pressureTypes)+2)]
	for _, t := range pressureTypes {
		for range 3 {
			p.favorites[t] = append(p.favorites[t], p.operation(t))
		}
	}
	return p
}

func (p *pressure) module() string {
	const ours = 7 // the parameter, and the locals with names
	var b strings.Builder
	b.WriteString(`(module (func $mix (param v128 v128 i64 f64) (result v128)
	(v128.xor (i64x2.add (local.get 0) (i64x2.splat (local.get 2))) (v128.xor (local.get 1) (f64x2.splat (local.get 3)))))
(func (export "f") (param i32) (result i64)
	(local $f32 f32) (local $f64 f64) (local $v128 v128) (local $n0 i32) (local $n1 i32) (local $sum i64)
	(local`)
	at := ours
	for _, t := range pressureTypes {
		n := 2 + p.IntN(3)
		if t == p.most {
			n = 8 + p.IntN(14)
		}
		b.WriteString(strings.Repeat(" "+t, n))
		for range n {
			p.locals[t] = append(p.locals[t], at)
			at++
		}
	}
	b.WriteString(")\n")
	for _, t := range pressureTypes {
		for i, local := range p.locals[t] {
			x := fmt.Sprintf("(i32.mul (i32.add (local.get 0) (i32.const %d)) (i32.const %d))", i+1, p.Int32())
			switch t {
			case "i64":
				x = "(i64.extend_i32_s " + x + ")"
			case "f32", "f64":
				x = "(" + t + ".convert_i32_s " + x + ")"
			case "v128":
				x = "(i32x4.add (v128.const i32x4 1 2 3 4) (i32x4.splat " + x + "))"
			}
			fmt.Fprintf(&b, "(local.set %d %s)\n", local, x)
		}
	}
	p.steps(&b, 5+p.IntN(25), 0)
	for _, t := range pressureTypes {
		for _, local := range p.locals[t] {
			x := fmt.Sprintf("(local.get %d)", local)
			switch t {
			case "i32":
				x = "(i64.extend_i32_u " + x + ")"
			case "f32":
				x = "(i64.extend_i32_u (i32.reinterpret_f32 " + x + "))"
			case "f64":
				x = "(i64.reinterpret_f64 " + x + ")"
			case "v128":
				x = "(i64.add (i64x2.extract_lane 0 " + x + ") (i64.rotl (i64x2.extract_lane 1 " + x + ") (i64.const 7)))"
			}
			fmt.Fprintf(&b, "(local.set $sum (i64.add (i64.rotl (local.get $sum) (i64.const 5)) %s))\n", x)
		}
	}
	b.WriteString("(local.get $sum)))")
	return b.String()
}

func (p *pressure) steps(b *strings.Builder, n, depth int) {
	for range n {
		switch choice := p.IntN(10); {
		case choice == 0:
			fmt.Fprintf(b, "(local.set %d (call $mix %s %s %s %s))\n", p.local("v128"), p.value("v128", 1), p.value("v128", 1), p.value("i64", 1), p.value("f64", 1))
		case choice < 3 && depth < 2:
			fmt.Fprintf(b, "(if %s (then\n", p.value("i32", 1))
			p.steps(b, 1+p.IntN(4), depth+1)
			b.WriteString(") (else\n")
			p.steps(b, 1+p.IntN(4), depth+1)
			b.WriteString("))\n")
		case choice == 3 && depth < 2:
			fmt.Fprintf(b, "(local.set $n%d (i32.const 3)) (loop $l%[1]d\n", depth)
			p.steps(b, 1+p.IntN(4), depth+1)
			fmt.Fprintf(b, "(br_if $l%d (local.tee $n%[1]d (i32.sub (local.get $n%[1]d) (i32.const 1)))))\n", depth)
		default:
			t := p.most
			if p.IntN(4) == 0 {
				t = pressureTypes[p.IntN(len(pressureTypes))]
			}
			fmt.Fprintf(b, "(local.set %d %s)\n", p.local(t), p.value(t, 3))
		}
	}
}

func (p *pressure) local(t string) int { return p.locals[t][p.IntN(len(p.locals[t]))] }

func (p *pressure) operation(t string) operation {
	return pressureOperations[t][p.IntN(len(pressureOperations[t]))]
}

// value is an expression of a type, of so many levels at most. No float of it is a NaN: their bits are not determined.
func (p *pressure) value(t string, depth int) string {
	switch {
	case depth == 0 || p.IntN(4) == 0:
		return fmt.Sprintf("(local.get %d)", p.local(t))
	case p.IntN(6) == 0:
		typed := ""
		if p.IntN(2) == 0 || t == "v128" {
			typed = " (result " + t + ")"
		}
		return fmt.Sprintf("(select%s %s %s %s)", typed, p.value(t, depth-1), p.value(t, depth-1), p.condition())
	}
	o := p.operation(t)
	if p.IntN(2) == 0 {
		o = p.favorites[t][p.IntN(len(p.favorites[t]))]
	}
	x := "(" + o.text
	for _, operand := range o.operands {
		x += " " + p.value(operand, depth-1)
	}
	x += ")"
	shape, _, _ := strings.Cut(o.text, ".")
	switch {
	case t == "f32" || t == "f64":
		return fmt.Sprintf("(select (local.tee $%[1]s %[2]s) (%[1]s.const 0) (%[1]s.eq (local.get $%[1]s) (local.get $%[1]s)))", t, x)
	case t == "v128" && (shape == "f32x4" || shape == "f64x2"):
		return fmt.Sprintf("(v128.and (local.tee $v128 %[2]s) (%[1]s.eq (local.get $v128) (local.get $v128)))", shape, x)
	}
	return x
}

func (p *pressure) condition() string {
	switch t := []string{"f32", "f64", "", ""}[p.IntN(4)]; {
	case t != "":
		return fmt.Sprintf("(%s.lt (local.get %d) (local.get %d))", t, p.local(t), p.local(t))
	case p.IntN(2) == 0:
		return fmt.Sprintf("(i32.lt_s (local.get 0) (i32.const %d))", p.IntN(16))
	default:
		return fmt.Sprintf("(i32.and (local.get 0) (i32.const %d))", 1<<p.IntN(4))
	}
}

// operation is an instruction with its immediates, and the types of its operands.
type operation struct {
	text     string
	operands []string
}

// pressureOperations are nearly all instructions that compute and cannot trap, by the type of their results.
var pressureOperations = func() map[string][]operation {
	all := make(map[string][]operation)
	// add takes names that a prefix is put before; a colon stands for a space.
	add := func(result, operands, prefix, names string) {
		for _, name := range strings.Fields(names) {
			all[result] = append(all[result], operation{strings.ReplaceAll(prefix+name, ":", " "), strings.Fields(operands)})
		}
	}
	for _, i := range []string{"i32", "i64"} {
		add(i, i+" "+i, i+".", "add sub mul and or xor shl shr_s shr_u rotl rotr")
		add("i32", i+" "+i, i+".", "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u")
		add(i, i, i+".", "clz ctz popcnt extend8_s extend16_s")
		add("i32", i, i+".", "eqz")
		for _, f := range []string{"f32", "f64"} {
			add(i, f, i+".", "trunc_sat_"+f+"_s trunc_sat_"+f+"_u")
			add(f, i, f+".", "convert_"+i+"_s convert_"+i+"_u")
		}
	}
	add("i32", "i64", "i32.", "wrap_i64")
	add("i64", "i32", "i64.", "extend_i32_s extend_i32_u")
	add("i32", "f32", "i32.", "reinterpret_f32")
	add("i64", "f64", "i64.", "reinterpret_f64")
	add("f32", "f64", "f32.", "demote_f64")
	add("f64", "f32", "f64.", "promote_f32")
	for _, f := range []string{"f32", "f64"} {
		add(f, f+" "+f, f+".", "add sub mul div min max copysign")
		add(f, f, f+".", "abs neg sqrt ceil floor trunc nearest")
		add("i32", f+" "+f, f+".", "eq ne lt gt le ge")
	}

	const one, two = "v128", "v128 v128"
	add("v128", one, "v128.", "not")
	add("v128", two, "v128.", "and or xor andnot")
	add("v128", two+" v128", "v128.", "bitselect")
	add("i32", one, "v128.", "any_true")
	add("v128", two, "i8x16.", `swizzle avgr_u narrow_i16x8_s narrow_i16x8_u shuffle:0:17:2:19:4:21:6:23:8:25:10:27:12:29:14:31
		shuffle:31:1:30:3:29:5:28:7:27:9:26:11:25:13:24:15`)
	add("v128", one, "i8x16.", "popcnt")
	add("v128", two, "i16x8.", `avgr_u q15mulr_sat_s narrow_i32x4_s narrow_i32x4_u extmul_low_i8x16_s extmul_high_i8x16_s
		extmul_low_i8x16_u extmul_high_i8x16_u`)
	add("v128", one, "i16x8.", "extadd_pairwise_i8x16_s extadd_pairwise_i8x16_u extend_low_i8x16_s extend_high_i8x16_s extend_low_i8x16_u extend_high_i8x16_u")
	add("v128", two, "i32x4.", "dot_i16x8_s extmul_low_i16x8_s extmul_high_i16x8_s extmul_low_i16x8_u extmul_high_i16x8_u")
	add("v128", one, "i32x4.", `extadd_pairwise_i16x8_s extadd_pairwise_i16x8_u extend_low_i16x8_s extend_high_i16x8_s
		extend_low_i16x8_u extend_high_i16x8_u trunc_sat_f32x4_s trunc_sat_f32x4_u trunc_sat_f64x2_s_zero trunc_sat_f64x2_u_zero`)
	add("v128", two, "i64x2.", "extmul_low_i32x4_s extmul_high_i32x4_s extmul_low_i32x4_u extmul_high_i32x4_u")
	add("v128", one, "i64x2.", "extend_low_i32x4_s extend_high_i32x4_s extend_low_i32x4_u extend_high_i32x4_u")
	add("v128", one, "f32x4.", "convert_i32x4_s convert_i32x4_u demote_f64x2_zero")
	add("v128", one, "f64x2.", "convert_low_i32x4_s convert_low_i32x4_u promote_low_f32x4")
	for _, shape := range []string{"i8x16", "i16x8", "i32x4", "i64x2"} {
		add("v128", two, shape+".", "add sub eq ne lt_s gt_s le_s ge_s")
		add("v128", one, shape+".", "abs neg")
		add("v128", one+" i32", shape+".", "shl shr_s shr_u")
		add("i32", one, shape+".", "all_true bitmask")
		if shape != "i64x2" {
			add("v128", two, shape+".", "min_s min_u max_s max_u lt_u gt_u le_u ge_u")
		}
		if shape != "i8x16" {
			add("v128", two, shape+".", "mul")
		}
		if shape == "i8x16" || shape == "i16x8" {
			add("v128", two, shape+".", "add_sat_s add_sat_u sub_sat_s sub_sat_u")
			add("i32", one, shape+".", "extract_lane_s:3 extract_lane_u:2")
		}
	}
	for _, shape := range []string{"f32x4", "f64x2"} {
		add("v128", two, shape+".", "add sub mul div min max pmin pmax eq ne lt gt le ge")
		add("v128", one, shape+".", "abs neg sqrt ceil floor trunc nearest")
	}
	for _, s := range []struct{ shape, lane string }{{"i8x16", "i32"}, {"i16x8", "i32"}, {"i32x4", "i32"}, {"i64x2", "i64"}, {"f32x4", "f32"}, {"f64x2", "f64"}} {
		shape, lane := s.shape, s.lane
		add("v128", lane, shape+".", "splat")
		add("v128", "v128 "+lane, shape+".", "replace_lane:0 replace_lane:1")
		if shape != "i8x16" && shape != "i16x8" {
			add(lane, one, shape+".", "extract_lane:0 extract_lane:1")
		}
	}
	return all
}()
