package wasm

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// full is a module with everything that an outline tells.
func full() []byte {
	const fn = runtimetest.FunctionKind
	return runtimetest.Module(
		runtimetest.RawSection(0, append(runtimetest.Name("producers"), 1, 2, 3)),
		runtimetest.Section(runtimetest.TypeSection,
			runtimetest.FunctionType("\x7f\x7e", "\x7d"), runtimetest.FunctionType("\x7c\x7b\x70\x6f", "\x7f\x7f")),
		runtimetest.Section(runtimetest.ImportSection,
			runtimetest.Import("m", "f", fn, 1),
			runtimetest.Import("m", "t", runtimetest.TableKind, 0x70, 1, 1, 2),
			runtimetest.Import("n", "m", runtimetest.MemoryKind, 0, 1),
			runtimetest.Import("n", "g", runtimetest.GlobalKind, 0x7f, 1),
			runtimetest.Import("n", "x", 4, 0, 0)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}, []byte{0}),
		runtimetest.Section(runtimetest.TableSection, []byte{0x70, 1, 0x80, 0x01, 0x80, 0x02}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 0x80, 0x80, 0x04}),
		runtimetest.Section(13, []byte{0, 0}),
		runtimetest.Section(6, []byte{0x7f, 0, 0x41, 0, 0x0b}),
		runtimetest.Section(runtimetest.ExportSection,
			runtimetest.Export("a", fn, 0), runtimetest.Export("b", fn, 2), runtimetest.Export("t", runtimetest.TableKind, 0),
			runtimetest.Export("m", runtimetest.MemoryKind, 0), runtimetest.Export("g", runtimetest.GlobalKind, 0), runtimetest.Export("x", 4, 0)),
		runtimetest.RawSection(runtimetest.StartSection, []byte{1}),
		runtimetest.Section(9),
		runtimetest.RawSection(12, []byte{0}),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(), runtimetest.Body()),
		runtimetest.Section(runtimetest.DataSection),
		runtimetest.RawSection(0, append(runtimetest.Name("name"), labels(3)...)),
	)
}

// labels are the contents of a name section: the module, a function with a name of n bytes, and its
// locals, of which the decoder knows nothing.
func labels(n int) []byte {
	module := runtimetest.RawSection(0, runtimetest.Name("module"))
	functions := runtimetest.Section(1, append([]byte{0}, runtimetest.Name(strings.Repeat("n", n))...))
	return append(append(module, functions...), 2, 1, 0xff)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	got, err := Decode(full())
	if err != nil {
		t.Fatal(err)
	}
	one := Signature{Params: []Type{"i32", "i64"}, Results: []Type{"f32"}}
	two := Signature{Params: []Type{"f64", "v128", "funcref", "externref"}, Results: []Type{"i32", "i32"}}
	want := &Outline{
		Imports: []Import{
			{"m", "f", Function, two},
			{"m", "t", Table, Signature{}},
			{"n", "m", Memory, Signature{}},
			{"n", "g", Global, Signature{}},
			{"n", "x", Tag, Signature{}},
		},
		Exports: []Export{
			{"a", Function, two},
			{"b", Function, one},
			{"t", Table, Signature{}},
			{"m", Memory, Signature{}},
			{"g", Global, Signature{}},
			{"x", Tag, Signature{}},
		},
		Functions: 2,
		Memories:  []Limits{{Min: 65536}},
		Tables:    []Limits{{Min: 128, Max: 256, HasMax: true}},
		Start:     true,
		Custom:    []string{"producers", "name"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("outline =\n%+v\nwant\n%+v", got, want)
	}
	if got := two.String(); got != "(f64, v128, funcref, externref) -> (i32, i32)" {
		t.Errorf("signature = %s", got)
	}
	if export, ok := got.Export("b"); !ok || export.Signature.String() != one.String() {
		t.Errorf("Export(b) = %+v, %v", export, ok)
	}
	if _, ok := got.Export("c"); ok || !got.ImportsFrom("n") || got.ImportsFrom("a") {
		t.Error("the outline knows what is not in it, or not what is")
	}
}

// TestDecodeTruncated: a module that is cut off anywhere does not pass for a whole one, unless it is
// cut before sections that nothing tells the lack of.
func TestDecodeTruncated(t *testing.T) {
	t.Parallel()
	file := full()
	whole := 0
	for n := range file {
		_, err := Decode(file[:n])
		if err == nil {
			whole++
			continue
		}
		if !errors.Is(err, ErrTruncated) {
			t.Errorf("the first %d of %d bytes: %v", n, len(file), err)
		}
	}
	if whole != 6 { // before each section up to the functions, before the data, before the names
		t.Errorf("%d beginnings pass for modules", whole)
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	section, raw, module := runtimetest.Section, runtimetest.RawSection, runtimetest.Module
	types := section(runtimetest.TypeSection, runtimetest.FunctionType("", ""))
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	for name, test := range map[string]struct {
		file []byte
		want string
	}{
		"magic":         {[]byte("\x00bsm\x01\x00\x00\x00"), `header section at byte 0: it does not begin with \0asm`},
		"version":       {[]byte("\x00asm\x01\x00\x01\x00"), `header section at byte 0: it is not version 1`},
		"twice":         {module(types, types), `type section at byte 14: it is out of order or there twice`},
		"order":         {module(section(5), types), `type section at byte 11: it is out of order or there twice`},
		"left over":     {module(raw(1, []byte{0, 0})), `type section at byte 11: 1 bytes are left over`},
		"long number":   {module(raw(1, []byte{0x80, 0x80, 0x80, 0x80, 0x10})), `type section at byte 15: a number has more than 32 bits`},
		"longer number": {module(raw(1, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0})), `type section at byte 15: a number has more than 32 bits`},
		"types":         {module(raw(1, huge)), `type section at byte 15: 4294967295 types do not fit into the 0 bytes that are left`},
		"parameters":    {module(raw(1, append([]byte{1, 0x60}, huge...))), `type section at byte 17: 4294967295 parameters do not fit into the 0 bytes that are left`},
		"bodies":        {module(raw(10, huge)), `code section at byte 15: 4294967295 function bodies do not fit into the 0 bytes that are left`},
		"segments":      {module(raw(11, huge)), `data section at byte 15: 4294967295 data segments do not fit into the 0 bytes that are left`},
		"value type":    {module(section(1, runtimetest.FunctionType("\x01", ""))), `type section at byte 14: value type 0x01 is unknown`},
		"form":          {module(section(1, []byte{0x5f, 0})), `type section at byte 12: type 0x5f is no function type; garbage collection is not supported`},
		"no type":       {module(section(3, []byte{0})), `function section at byte 12: type 0 does not exist`},
		"no function":   {module(section(7, runtimetest.Export("f", 0, 0))), `export section at byte 15: function 0 does not exist`},
		"export kind":   {module(section(7, runtimetest.Export("f", 9, 0))), `export section at byte 15: export kind 9 is unknown`},
		"import kind":   {module(section(2, runtimetest.Import("m", "f", 9))), `import section at byte 16: import kind 9 is unknown`},
		"long name":     {module(section(2, append(huge, 0))), `import section at byte 16: a name of 4294967295 bytes is longer than 65536`},
		"name over end": {module(section(2, []byte{5, 'a'})), `import section at byte 12: its contents end too early`},
		"name utf-8":    {module(section(2, []byte{1, 0xff})), `import section at byte 13: a name is not UTF-8`},
		"limits":        {module(section(5, []byte{8, 0})), `memory section at byte 12: limits have the unknown flags 0x08`},
		"table":         {module(section(4, []byte{0x40, 0, 0x70, 0, 0})), `table section at byte 11: tables with an initial value are not supported`},
		"long label":    {module(raw(0, append(runtimetest.Name("name"), labels(maxName+1)...))), `custom section at byte 35: a name of 65537 bytes is longer than 65536`},
		"label utf-8":   {module(raw(0, append(runtimetest.Name("name"), 0, 2, 1, 0xff))), `custom section at byte 19: a name is not UTF-8`},
		"labels":        {module(raw(0, append(runtimetest.Name("name"), 1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f))), `custom section at byte 22: 4294967295 names do not fit into the 0 bytes that are left`},
		"labels behind": {module(raw(0, append(runtimetest.Name("name"), 0, 2, 0, 0))), `custom section at byte 18: 1 bytes are left over behind the names`},
		"labels over":   {module(raw(0, append(runtimetest.Name("name"), 0, 9))), `custom section at byte 17: its contents end too early`},
		"custom":        {module(raw(0, nil)), `custom section at byte 10: its contents end too early`},
		"locals":        {module(types, section(3, []byte{0}), section(10, append([]byte{9, 1, 0x80, 0x84, 0xaf, 0x5f, 0x7f}, 0x0b, 0, 0))), `code section at byte 28: a function has 200000000 locals, more than 50000`},
		"body":          {module(types, section(3, []byte{0}), section(10, []byte{9, 0, 0x0b})), `code section at byte 22: a function of 9 bytes does not fit into the 2 bytes that are left`},
		"locals behind": {module(types, section(3, []byte{0}), section(10, []byte{2, 1, 1, 0x7f, 0x0b})), `code section at byte 25: the locals of a function end behind it`},
		"bodies lack":   {module(types, section(3, []byte{0}, []byte{0}), section(10, runtimetest.Body())), `code section at byte 25: the file ends too early: 1 of 2 functions have no body`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Decode(test.file)
			var bad *Error
			if !errors.As(err, &bad) || err.Error() != test.want {
				t.Errorf("Decode = %v, want %s", err, test.want)
			}
		})
	}
}

// TestDecodeWide reads the limits of a memory with 64 bits, which is refused later by what it is.
func TestDecodeWide(t *testing.T) {
	t.Parallel()
	file := runtimetest.Module(runtimetest.Section(runtimetest.MemorySection,
		[]byte{5, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}))
	outline, err := Decode(file)
	if err != nil || outline.Memories[0] != (Limits{Min: 1, Max: 1<<64 - 1, HasMax: true}) {
		t.Errorf("Decode = %+v, %v", outline, err)
	}
}

// FuzzDecode: no file makes the decoder panic or say more than the file has bytes for.
func FuzzDecode(f *testing.F) {
	f.Add(full())
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x02\x05\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, file []byte) {
		outline, err := Decode(file)
		if err != nil {
			var bad *Error
			if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > len(file) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error = %#v", err)
			}
			return
		}
		size := len(outline.Imports) + len(outline.Exports) + outline.Functions + len(outline.Memories) + len(outline.Tables) + len(outline.Custom)
		if size > len(file) {
			t.Errorf("%d elements out of %d bytes", size, len(file))
		}
		_ = fmt.Sprint(outline)
	})
}
