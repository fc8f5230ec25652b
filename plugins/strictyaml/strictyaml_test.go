package strictyaml_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/plugins/strictyaml"
)

const size = 256 << 10

var most = strictyaml.Limits{Bytes: size, Values: 50_000}

func TestParse(t *testing.T) {
	t.Parallel()
	const (
		anchor = "has an anchor (&), for which aliases would stand: write the value out wherever it is needed, and a text that begins with & in quotes"
		alias  = "has an alias (*): write the value out, and a text that begins with * in quotes"
	)
	for text, want := range map[string]string{
		"":                            "",
		"# nothing\n":                 "",
		"---\n~":                      "",
		"a: [1, x]":                   "",
		"a: \"&b\"\nc: '*b'":          "",
		"\"<<\": 1":                   "",
		"a: &b 1":                     "line 1: " + anchor,
		"a: 1\n&b c: 2":               "line 2: " + anchor,
		"&a [*a]":                     "line 1: " + anchor,
		"a: 1\nb:\n- *hunter2\n":      "line 3: " + alias,
		"a: {b: c}\n<<: {d: e}":       "line 2: merges keys with <<: write the keys out",
		"a:\n  - {<<: [{b: 1}]}":      "line 2: merges keys with <<: write the keys out",
		"a: 1\n---\nb: 1\n":           "line 2: there is a second document: keep one, without a --- between its lines",
		"a: 1\n---\n[":                "line 3: is not YAML: did not find expected node content: " + strictyaml.WriteKeys,
		"a: 1\nb: \x01":               "line 2: has the control character 0x01: remove it",
		"\xff":                        "line 1: has the byte 0xff, which is not UTF-8: save the file as UTF-8",
		strings.Repeat("#", size):     "",
		strings.Repeat("#", size+1):   "has more than 256KiB: put less into it",
		strings.Repeat("- ", 50):      "",
		strings.Repeat("- ", 100):     "line 1: is more than 100 levels deep: put fewer lists and mappings into each other",
		strings.Repeat("[", size):     "has more than 50000 keys and values: put less into it",
		strings.Repeat("-\n", size/2): "has more than 50000 keys and values: put less into it",
		"[" + strings.Repeat("a,", 49_998) + "a]": "",
	} {
		_, err := strictyaml.Parse([]byte(text), most)
		var wrong *strictyaml.Error
		switch {
		case err == nil && want == "":
		case err == nil || !errors.As(err, &wrong) || err.Error() != want:
			t.Errorf("%.40q\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// TestWorstDocuments: what a document of the full size takes, whatever it has.
func TestWorstDocuments(t *testing.T) {
	for _, part := range []string{"a,", "[],", "{},", "- #\n", "- a #x\n#y\n\n", "- \n#\n", "a: b\n", "#\n", "\"\",", "-\n", "a:\n", "&a ", "[", "{a: ", "? ", "? a\n: b\n", "[?,", ":,"} {
		for _, form := range []string{"%s", "[%s]", "{%s}", "a: |\n %s"} {
			text := []byte(fmt.Sprintf(form, strings.Repeat(part, (size-8)/len(part))))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = strictyaml.Parse(text, most)
			runtime.ReadMemStats(&after)
			if took, most := after.TotalAlloc-before.TotalAlloc, uint64(80<<20); took > most {
				t.Errorf("%q in %q: %d MiB, want at most %d", part, form, took>>20, most>>20)
			}
		}
	}
}

// FuzzParse: the values that are counted in the text bound the nodes that the reader makes of it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a: [b, {c: d}]", "- - ? a\n    : b\n", "{a,b,c}", "[a: b, ? c, : d]", "{\"a\":1,'b':}", "? a\n? b\n", "- #x\n- \n", "-\u0085-\u2028-", "a: |\n - [,\n", "--- a\n...\n", "{? a, ? b: c}", "[[]: x]",
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, values int) {
		root, err := strictyaml.Parse(text, strictyaml.Limits{Bytes: size, Values: values})
		if err != nil {
			var wrong *strictyaml.Error
			if !errors.As(err, &wrong) || wrong.What == "" || wrong.Remedy == "" || wrong.Line < 0 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if nodes := count(t, root); nodes > 3*values+3 {
			t.Fatalf("%d nodes of at most %d values", nodes, values)
		}
	})
}

func count(t *testing.T, n *yaml.Node) (nodes int) {
	t.Helper()
	if n == nil {
		return 0
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		t.Fatalf("an alias in line %d", n.Line)
	}
	for _, inner := range n.Content {
		nodes += count(t, inner)
	}
	return nodes + 1
}
