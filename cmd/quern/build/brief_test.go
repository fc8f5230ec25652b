package build

import "testing"

// TestBrief: who does not see a compiler's messages gets the one that says what is wrong, with its place.
func TestBrief(t *testing.T) {
	t.Parallel()
	s := &Source{Dir: "/src/small", Name: "small"}
	err := because(Failed, "small does not start: "+above)
	for name, test := range map[string]struct{ messages, want string }{
		"Python": {
			"Traceback (most recent call last):\n  File \"/src/small/lib/words.py\", line 6\n    x = (\n        ^\nSyntaxError: '(' was never closed\n",
			"lib/words.py:6: SyntaxError: '(' was never closed",
		},
		"PythonLibrary": {
			"Traceback (most recent call last):\n  File \"/src/small/handler.py\", line 2, in <module>\n    int('x')\n  File \"/lib/python311.zip/a.py\", line 9, in b\nValueError: invalid literal\n",
			"handler.py:2: ValueError: invalid literal",
		},
		"Go":       {"# small\n./main.go:3:15: undefined: greet\n./main.go:4:1: more\n", "main.go:3:15: undefined: greet"},
		"C":        {"a.c:1:2: warning: unused\n  int x;\na.c:1:26: error: expected ';'\n  at\n1 error generated.\n", "a.c:1:26: error: expected ';'"},
		"Link":     {"wasm-ld: error: a.o: undefined symbol: missing\nclang: error: linker command failed\n", "wasm-ld: error: a.o: undefined symbol: missing"},
		"Esbuild":  {"handler.ts:2:30: error: Expected identifier\n  export\n", "handler.ts:2:30: error: Expected identifier"},
		"Rust":     {"warning: unused\n --> src/a.rs:1:1\nerror[E0425]: cannot find function `greet`\n --> src/lib.rs:2:43\n", "src/lib.rs:2:43: error[E0425]: cannot find function `greet`"},
		"Asc":      {"ERROR TS2304: Cannot find name 'greet'.\n    :\n  1 │ export\n    └─ in handler.ts(1,46)\n\nFAILURE 1 compile error(s)\n", "handler.ts:1: ERROR TS2304: Cannot find name 'greet'."},
		"Pip":      {"installing\nERROR: No matching distribution found for x==1\n", "ERROR: No matching distribution found for x==1"},
		"Nothing":  {"", above},
		"NoPlace":  {"something is wrong\n", "something is wrong"},
		"Indented": {"  nothing at the margin\n", above},
	} {
		if got, want := s.Brief(err, test.messages), "small does not start: "+test.want; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
