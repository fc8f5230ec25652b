package python_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
)

// TestLibrary tries each module that README.md lists: those that are there are used, or at least imported; importing another
// says what README.md says.
func TestLibrary(t *testing.T) {
	source, err := os.ReadFile("testdata/library/handler.py")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := setup(t, map[string]string{"handler.py": string(source), "shop.db": database(t)}, runtime.Profile{})
	table := regexp.MustCompile("(?m)^\\| (`.*) \\| (yes|no|partly) \\|(?: (.*))? \\|$").FindAllStringSubmatch(string(readme), -1)
	if len(table) < 20 {
		t.Fatalf("%d lines in README.md's table of the standard library", len(table))
	}
	for _, row := range table {
		for _, module := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			r := p.run(t, module[1])
			switch {
			case row[2] == "no" && (r.Kind == runtime.Complete || !strings.Contains(r.Message, row[3])):
				t.Errorf("import %s: %s %s\nwant %s", module[1], r.Kind, r.Message, row[3])
			case row[2] != "no" && r.Kind != runtime.Complete:
				t.Errorf("%s: %s %s\n%s", module[1], r.Kind, r.Message, r.logged())
			}
		}
	}
}

// database is a file of SQLite.
func database(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	script := "import sqlite3, sys\n" +
		"with sqlite3.connect(sys.argv[1]) as base: base.executescript(\"create table goods (name text); insert into goods values ('Widget')\")\n"
	if said, err := exec.CommandContext(t.Context(), "python3", "-c", script, path).CombinedOutput(); err != nil {
		t.Fatalf("no python3 with the module sqlite3: run make deps (%v %s)", err, said)
	}
	contents, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(contents)
}

// TestSources: the engine tells what it was built of, in the zip of the library.
func TestSources(t *testing.T) {
	t.Parallel()
	need(t)
	library := shared.library["/lib/python311.zip"]
	archive, err := zip.NewReader(bytes.NewReader(library), int64(len(library)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"SOURCES.txt": `(?ms)^[0-9a-f]{64}  python3\.11_3\.11\.2-\S+\.debian\.tar\.xz$.*^[0-9a-f]{64}  expat_2\.5\.0-\S+\.debian\.tar\.xz$`,
		"LICENSE":     `PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2`,
	} {
		text, err := fs.ReadFile(archive, name)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s lacks %s:\n%s", name, want, text)
		}
	}
}
