package wasm

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// referring is a module that takes the reference of a function, for which we append a table, and has one
// element segment more.
func referring(segment ...byte) []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.TableSection, []byte{0x70, 0, 4}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("f", runtimetest.FunctionKind, 0)),
		runtimetest.Section(9, segment),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(opRefFunc, 0, 0x1a)),
	)
}

// TestIndicesOfOurs: what we append does not make an index valid that was not.
func TestIndicesOfOurs(t *testing.T) {
	t.Parallel()
	in := func(table byte) []byte { return referring(2, table, opI32Const, 0, opEnd, 0, 1, 0) }
	if _, err := Rewrite(in(0), Options{}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file []byte
		want string
	}{
		"our table":     {in(1), "table 1 does not exist"},
		"a passive one": {referring(1, 0, 0), ""},
		"their table":   {in(2), "table 2 does not exist"},
		"a wild table":  {referring(2, 0xff, 0xff, 0xff, 0xff, 0x0f, opI32Const, 0, opEnd, 0, 0), "table 4294967295 does not exist"},
		"our segment":   {withCode(0xfc, 13, 0), "element segment 0 does not exist"},
		"our function":  {withCode(opCall, 1), "function 1 does not exist"},
		"our type":      {withCode(opLoop, 1, opEnd), "type 1 does not exist"},
		"our counter":   {withCode(opGlobalGet, 0, 0x1a), "global 0 does not exist"},
		"no table":      {withCode(opTableGet, 0), "table 0 does not exist"},
	} {
		_, err := Rewrite(test.file, Options{})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// withCode is a module of one function.
func withCode(code ...byte) []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(code...)),
	)
}

// TestSizes: how far tables grow, and how far a memory does, is ours to say.
func TestSizes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ section, want []byte }{
		"table without a maximum":   {[]byte{4, 4, 1, 0x70, 0, 4}, []byte{0x70, 1, 4, 0x84, 0x80, 4}}, // 4 + 65,536
		"table with a large one":    {[]byte{4, 7, 1, 0x70, 1, 4, 0xff, 0xff, 7}, []byte{0x70, 1, 4, 0x84, 0x80, 4}},
		"table with a small one":    {[]byte{4, 5, 1, 0x70, 1, 4, 9}, []byte{0x70, 1, 4, 9}},
		"memory with a maximum":     {[]byte{5, 4, 1, 1, 1, 2}, []byte{1, 1, 1, 3}},
		"memory without one":        {[]byte{5, 3, 1, 0, 1}, []byte{1, 0, 1}},
		"memory of all that it may": {[]byte{5, 6, 1, 1, 1, 0x80, 0x80, 2}, []byte{1, 1, 1, 0x81, 0x80, 2}},
		"memory with a larger one":  {[]byte{5, 6, 1, 1, 1, 0x80, 0x80, 4}, []byte{1, 1, 1, 0x81, 0x80, 2}},
	} {
		m, err := Rewrite(runtimetest.Module(test.section), Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		section := append([]byte{test.section[0], byte(len(test.want) + 1), 1}, test.want...)
		if test.section[0] == sectionMemory {
			section = append([]byte{sectionMemory, byte(len(test.want))}, test.want...)
		}
		if !bytes.Contains(m.Binary, section) {
			t.Errorf("%s: % x is not in % x", name, section, m.Binary)
		}
	}
}

// TestPrices: what a call, a branch and a growth cost.
func TestPrices(t *testing.T) {
	t.Parallel()
	for want, code := range map[int64][]byte{
		2:             {0x01, 0x01},                                  // nops
		growPrice + 2: {opI32Const, 0, opMemoryGrow, 0, 0x1a},        // with its operand, and what drops its result
		5:             {opI32Const, 0, 0x28, 2, 0, 0x1a, 0x01, 0x01}, // a load is no dearer than others
	} {
		m, err := Rewrite(withMemory(code...), Options{Every: 1})
		if err != nil {
			t.Fatal(err)
		}
		charge := append(appendSigned([]byte{opGlobalGet, 0, opI32Const}, want), opI32Sub)
		if !bytes.Contains(m.Binary, charge) {
			t.Errorf("% x does not cost %d: % x", code, want, m.Binary)
		}
	}
	many := strings.Repeat("\x7f", 40)
	m, err := Rewrite(runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType(many, many)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(opLoop, 0, opBranch, 0, opEnd)),
	), Options{Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte{opI32Const, 1 + 40/valuesPerUnit, opI32Sub}; !bytes.Contains(m.Binary, want) {
		t.Errorf("a branch with 40 values does not cost %d", want[1])
	}
}

func withMemory(code ...byte) []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(code...)),
	)
}

// TestLeavingCosts: whichever way a function is left, what it executed is paid.
func TestLeavingCosts(t *testing.T) {
	t.Parallel()
	nops := bytes.Repeat([]byte{0x01}, 200)
	arm := append([]byte{opI32Const, 0, opBranchIf, 0}, nops...) // the first branch ends the straight line
	for name, way := range map[string][]byte{
		"end": nil, "return": {opReturn}, "branch": {opBranch, 0},
		"branch if": {opI32Const, 1, opBranchIf, 0}, "table": {opI32Const, 0, opBranchTable, 0, 0},
	} {
		m, err := Rewrite(withCode(append(bytes.Clone(arm), way...)...), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Charges != 2 {
			t.Errorf("%s: %d charges, want one at the entry and one for the nops", name, m.Charges)
		}
	}
}

// TestHelpersAreBounded: a small file cannot ask for any number of functions of ours.
func TestHelpersAreBounded(t *testing.T) {
	t.Parallel()
	var segments [][]byte
	var code []byte
	for i := range 1500 {
		segments = append(segments, []byte{1, 0, 0})
		code = append(code, opI32Const, 0, opI32Const, 0, opI32Const, 0, opBulk, bulkTableInit)
		code = append(append(code, runtimetest.Number(uint32(i))...), 0)
	}
	_, err := Rewrite(runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.TableSection, []byte{0x70, 0, 4}),
		runtimetest.Section(9, segments...),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(code...)),
	), Options{})
	var over *CapError
	if !errors.As(err, &over) || over.What != "kinds of bulk instructions" {
		t.Errorf("Rewrite = %v, want a cap", err)
	}
}
