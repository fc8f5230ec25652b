package conformance_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEngines runs the guests that are files for an engine, which the manifest grants to it, instead of a module: those in
// folders without a file build.
func TestEngines(t *testing.T) {
	t.Parallel()
	all := read(t)
	for language, engine := range map[string]struct {
		files map[string]string // of the guest, by the paths at which the engine finds them
		lacks map[string]string
	}{
		"python": {
			files: map[string]string{"/app/handler.py": "python/handler.py"},
			lacks: map[string]string{
				"escapes": "json writes a newline as \\n, and the table wants \\u000a",
				"raw":     "the SDK takes Python's own bytes and strings",
				"status":  "the SDK has errors, which are 1, 65 and 75",
			},
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			built := filepath.Join("..", "..", "build", "engines")
			module, err := os.ReadFile(filepath.Join(built, language+".wasm"))
			if err != nil {
				t.Skipf("no engine for %s (%v): run make engines", language, err)
			}
			dir := folder(t, module)
			grant(t, dir, filepath.Join(built, language, "lib"), engine.files)
			all.Languages[language] = struct{ Lacks map[string]string }{engine.lacks}
			n := start(t, dir)
			t.Run("behaviors", func(t *testing.T) {
				for _, b := range all.Behaviors {
					t.Run(b.Name, func(t *testing.T) {
						t.Parallel()
						if why := all.lacks(language, b); why != "" {
							t.Skipf("not in %s: %s", language, why)
						}
						n.bounded(t).behave(t, b)
					})
				}
			})
			t.Run("cancelled", func(t *testing.T) { n.bounded(t).endsWithHost(t) })
		})
	}
}

// grant puts the files beside the manifests in a folder, and into them. What the engine brings is found below /lib.
func grant(t *testing.T, dir, library string, files map[string]string) {
	t.Helper()
	var grants strings.Builder
	add := func(from, to string) {
		contents, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(strings.TrimPrefix(to, "/"), "/", "-")
		if err := os.WriteFile(filepath.Join(dir, name), contents, 0o600); err != nil {
			t.Fatal(err)
		}
		grants.WriteString("    - {from: " + name + ", to: " + to + "}\n")
	}
	for to, from := range files {
		add(from, to)
	}
	err := filepath.WalkDir(library, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			add(path, "/lib"+filepath.ToSlash(strings.TrimPrefix(path, library)))
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range manifests {
		manifest, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(manifest), "capabilities:\n", "capabilities:\n  files:\n"+grants.String(), 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
