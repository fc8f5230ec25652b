package build

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// put writes files into a new folder, by their paths with slashes.
func put(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A build names the data files of a plugin, once until they change.
func TestTellData(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	b, s := New(Config{Stderr: &said}), &Source{Dir: "orders", Name: "orders"}
	files := map[string][]byte{"/app/handler.py": nil, "/app/credentials.json": nil}
	b.tellData(s, files)
	b.tellData(s, files)
	files["/app/data/a.txt"] = nil
	b.tellData(s, files)
	b.tellData(&Source{Dir: "plain", Name: "plain"}, map[string][]byte{"/app/handler.py": nil})
	if want := "note: data files in orders.wasm: credentials.json\nnote: data files in orders.wasm: credentials.json, data/a.txt\n"; said.String() != want {
		t.Errorf("%q, want %q", said.String(), want)
	}
}

// A handler gets what its author wrote: neither installed packages nor what was built before.
func TestAppFiles(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"handler.py": "", "vendor/words.py": "", "handlers/other.yaml": "", "handlers/model.bin": "", "handlers/lib/x.py": "",
		"served/orders.wasm": "", "served/orders.yaml": "", "served/data/model.bin": "", "env/pyvenv.cfg": "", "env/x.py": "", "node_modules/x.js": "", "secret/x.py": "",
	})
	elsewhere := put(t, map[string]string{"words.py": "", "pyvenv.cfg": ""})
	link := func(name, to string) string {
		file := filepath.Join(dir, name)
		if err := os.Symlink(to, file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	link("words.py", filepath.Join(elsewhere, "words.py"))
	link("nowhere.py", filepath.Join(elsewhere, "none"))
	link("venv", elsewhere)
	link("built", filepath.Join(dir, "handlers"))
	keep := func(name string) bool { return name != "secret/" }
	files, err := appFiles(dir, filepath.Join(dir, "handlers"), keep)
	if got, want := slices.Sorted(maps.Keys(files)), []string{"/app/handler.py", "/app/vendor/words.py", "/app/words.py"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	file := link("linked", filepath.Join(dir, "vendor"))
	if _, err := appFiles(dir, filepath.Join(dir, "handlers"), keep); err == nil || !strings.Contains(err.Error(), file+" is a link to a folder") {
		t.Errorf("a linked folder: %v", err)
	}
}
