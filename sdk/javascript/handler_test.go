package javascript_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
)

func TestResult(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, source, input, want string }{
		{"String", `export default (task) => "hello, " + task.text()`, "Zoë", "hello, Zoë"},
		{"Undefined", `export default () => {}`, "", ""},
		{"Null", `export default () => null`, "", "null"},
		{"Number", `export default () => 1.5`, "", "1.5"},
		{"Object", `export default ({ json }) => ({ a: [1, "ä"] })`, "", `{"a":[1,"ä"]}`},
		{"Bytes", `export default (task) => task.bytes().reverse()`, "abc", "cba"},
		{"Empty bytes", `export default (task) => new Uint8Array()`, "abc", ""},
		{"ArrayBuffer", `export default (task) => task.bytes().buffer`, "abc", "abc"},
		{"DataView", `export default (task) => new DataView(task.bytes().buffer, 1, 1)`, "abc", "b"},
		{"Resized", `export default () => { const b = new ArrayBuffer(8, { maxByteLength: 16 }), u = new Uint8Array(b); b.resize(2); return u }`, "", "\x00\x00"},
		{"JSON", `export default (task) => task.json().name`, `{"name": "Ada"}`, "Ada"},
		{"Async", `export default async (task) => { await null; return "later" }`, "", "later"},
		{"Thenable", `export default (task) => ({ then(done) { done("then") } })`, "", "then"},
		{"Lone surrogate", `export default (task) => "\ud800"`, "", "\ufffd"},
		{"Invalid UTF-8", `export default (task) => task.text()`, "a\xe2\x82b", "a\ufffdb"},
		{"Class", `export default class {}; export { f as default2 }; function f() {}`, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.name == "Class" {
				o := write(t, test.source).run(runtime.Call{})
				if o.Kind != runtime.Failed {
					t.Errorf("%+v", o)
				}
				return
			}
			if got := write(t, test.source).input(test.input); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestLeastLimits: the engine starts with as little memory as it declares, so that less is refused at load, and however little
// its tasks may burn.
func TestLeastLimits(t *testing.T) {
	t.Parallel()
	least := module(t).Info().MemoryMin
	if err := module(t).Admits(runtime.Limits{Memory: least - 1}); err == nil || !strings.Contains(err.Error(), "limits.memory") {
		t.Errorf("with less memory: %v", err)
	}
	p := handler(t, `return "ok"`)
	p.Limits = runtime.Limits{Memory: least, CPU: 10 * time.Millisecond}
	if got := p.input(""); got != "ok" {
		t.Error(got)
	}
}
