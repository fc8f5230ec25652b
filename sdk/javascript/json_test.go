package javascript_test

import (
	"bytes"
	_ "embed"
	"os/exec"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
)

//go:embed testdata/json.js
var jsonCases string

// TestJSON: JSON.parse and JSON.stringify, which json.patch makes faster, do what those of Node do.
func TestJSON(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("no node: run make deps")
	}
	command := exec.CommandContext(t.Context(), node, "--input-type=module")
	command.Stdin = strings.NewReader(strings.Replace(jsonCases, "export default", "const cases =", 1) + "\nprocess.stdout.write(cases());")
	var failure bytes.Buffer
	command.Stderr = &failure
	want, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &failure)
	}
	got := write(t, jsonCases).run(runtime.Call{})
	if got.Kind != runtime.Complete {
		t.Fatalf("%+v", got)
	}
	theirs, ours := bytes.Split(want, []byte("\n")), bytes.Split(got.Output, []byte("\n"))
	if len(theirs) < 1000 || len(theirs) != len(ours) {
		t.Fatalf("%d lines, in Node %d", len(ours), len(theirs))
	}
	for i := range theirs {
		if !bytes.Equal(theirs[i], ours[i]) {
			t.Errorf("%s\nin Node\n%s", ours[i], theirs[i])
		}
	}
}

// TestJSONSource: a reviver gets the text of a number, a string and so on, unless an earlier call has changed the value.
func TestJSONSource(t *testing.T) {
	t.Parallel()
	got := write(t, `export default function () {
		const sources = [];
		JSON.parse('{"a":"x","b": 12 ,"c":-0,"d":1234567890,"e":"\\n","f":[1,"",9]}', function (key, value, { source }) {
			sources.push(key + " " + source);
			if (key === "a") this.b = 13;
			return value;
		});
		return sources.join(", ");
	}`).run(runtime.Call{})
	const want = `a "x", b undefined, c -0, d 1234567890, e "\n", 0 1, 1 "", 2 9, f undefined,  undefined`
	if got.Kind != runtime.Complete || string(got.Output) != want {
		t.Errorf("%+v\n%s, want\n%s", got, got.Output, want)
	}
}

// TestJSONOutOfMemory: a text that is too long for the memory is an error that can be caught, in quotes as in between.
func TestJSONOutOfMemory(t *testing.T) {
	t.Parallel()
	p := write(t, `export default function () {
		const failed = [];
		for (const value of ["\n".repeat(4e6), [1, "x".repeat(5e6), "€"], { ["\n".repeat(4e6)]: 1 }]) {
			try {
				failed.push(JSON.stringify([value, value, value]).length);
			} catch (error) {
				failed.push(error.message);
			}
		}
		return JSON.stringify({ failed, list: [1, "\n"] });
	}`)
	p.Limits.Memory = 32 << 20
	got := p.run(runtime.Call{})
	const want = `{"failed":["out of memory","out of memory","out of memory"],"list":[1,"\n"]}`
	if got.Kind != runtime.Complete || string(got.Output) != want {
		t.Errorf("%+v\n%s, want\n%s", got, got.Output, want)
	}
}

// TestJSONInput: an input that is not UTF-8 is no JSON, also where it encodes surrogates, which JSON.parse gets from strings.
func TestJSONInput(t *testing.T) {
	t.Parallel()
	pool := write(t, "export default (task) => task.json()").bind()
	for _, input := range []string{`"` + "\xed\xa0\x80" + `"`, `"` + "\xed\xa0\xbd\xed\xb8\x80" + `"`, `"` + "\xff" + `"`, `"` + "\xc0\x80" + `"`} {
		got := pool.Run(t.Context(), runtime.Call{Input: []byte(input)})
		if want := "the input is not JSON: invalid UTF-8 at byte 1"; got.Kind != runtime.Fatal || !strings.HasSuffix(got.Message, want) {
			t.Errorf("%q: %v, %q, want %q", input, got.Kind, got.Message, want)
		}
	}
	if got := pool.Run(t.Context(), runtime.Call{Input: []byte(`"` + `\ud83d😀` + `"`)}); got.Kind != runtime.Complete {
		t.Errorf("%+v", got)
	}
}
