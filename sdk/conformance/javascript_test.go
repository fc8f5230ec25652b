package conformance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJavaScript: a handler in JavaScript behaves as the others do. It is no module of its own but a file that the engine reads.
func TestJavaScript(t *testing.T) { //nolint:tparallel // the second subtest ends the host of the first
	t.Parallel()
	const like = "go" // what its SDK lacks is what Go's lacks
	untyped := map[string]string{
		"kv-names":    "a key is a string, which is always UTF-8",
		"log-escapes": "fields are compared byte by byte, and JSON.stringify writes a line break as \\n",
	}
	engine, err := os.ReadFile("../../build/engines/javascript.wasm")
	if err != nil {
		t.Skip("no JavaScript engine: run make engines")
	}
	dir := folder(t, engine)
	handler, err := os.ReadFile("javascript/handler.js")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "handler.js"), handler, 0o600); err != nil {
		t.Fatal(err)
	}
	for name := range variants {
		path := filepath.Join(dir, name+".yaml")
		manifest, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		granted := strings.Replace(string(manifest), "capabilities:\n", "capabilities:\n  files: [{from: handler.js, to: /app/handler.js}]\n", 1)
		if err := os.WriteFile(path, []byte(granted), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, dir)
	all := read(t)
	t.Run("behaviors", func(t *testing.T) {
		for _, b := range all.Behaviors {
			t.Run(b.Name, func(t *testing.T) {
				t.Parallel()
				if why := all.lacks(like, b); why != "" {
					t.Skip(why)
				}
				if why := untyped[b.Name]; why != "" {
					t.Skip(why)
				}
				n.bounded(t).behave(t, b)
			})
		}
	})
	t.Run("cancelled", func(t *testing.T) { n.bounded(t).endsWithHost(t) })
}
