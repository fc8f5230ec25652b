package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestGoObstacles: what compiles and cannot work is told once for each package, with its place; what has another use is not.
func TestGoObstacles(t *testing.T) {
	t.Parallel()
	const source = `package main

import (
	"net"
	web "net/http"
	"os"

	"github.com/jackc/pgx/v5"
)

func handle() {
	_, _ = web.Get("https://a.example")
	_, _ = web.Post("https://a.example", "", nil)
	_ = web.StatusOK
	_ = net.ParseIP("::1")
	_ = os.Args
	_ = pgx.ErrNoRows
}
`
	const socketless = ": a plugin has no sockets: "
	want := []string{
		"main.go:8:2: warning: github.com/jackc/pgx/v5" + socketless + postgresInstead,
		"main.go:12:9: warning: net/http.Get" + socketless + "use github.com/quern-project/quern/sdk/fetch, with capabilities.http in the manifest",
	}
	if got := goObstacles("main.go", []byte(source)); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	files := "package main\n\nimport \"os\"\n\nfunc main() { os.Args, _ = nil, os.WriteFile }\n"
	want = []string{"main.go:5:33: warning: os.WriteFile: a plugin has no files but those of capabilities.files, for reading: " +
		"grant them in the manifest, or use kv or checkpoints of github.com/quern-project/quern/sdk"}
	if got := goObstacles("main.go", []byte(files)); !slices.Equal(got, want) {
		t.Errorf("files: %q", got)
	}
	database := "package main\n\nimport (\n\t\"database/sql\"\n\n\t_ \"github.com/jackc/pgx/v5/stdlib\"\n)\n\nvar db, _ = sql.Open(\"pgx\", \"\")\n"
	want = []string{
		"main.go:6:2: warning: github.com/jackc/pgx/v5/stdlib" + socketless + postgresInstead,
		"main.go:9:13: warning: database/sql.Open" + socketless + postgresInstead,
	}
	if got := goObstacles("main.go", []byte(database)); !slices.Equal(got, want) {
		t.Errorf("a database: %q", got)
	}
	if got := goObstacles("main.go", []byte("package main\nfunc (")); got != nil {
		t.Errorf("%q of what does not parse", got)
	}
}

// TestGoOwn: the files of all packages of the author's module count, also where another import is missing.
func TestGoOwn(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/a\n\ngo 1.24\n",
		"main.go":          "package main\n\nimport (\n\t_ \"example.com/a/rates\"\n\t_ \"example.com/missing\"\n\t_ \"net/http\"\n)\n\nfunc main() {}\n",
		"main_test.go":     "package main\n",
		"native.go":        "//go:build !wasip1\n\npackage main\n",
		"rates/rates.go":   "package rates\n",
		"unused/unused.go": "package unused\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := goOwn(t.Context(), program, &Source{Dir: dir})
	slices.Sort(got)
	if want := []string{"main.go", filepath.Join("rates", "rates.go")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNewerGo: a changed test of Go needs no new module.
func TestNewerGo(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{"go.mod": "module example.com/a\n", "main.go": "package main\n", "main_test.go": "package main\n"})
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	built := time.Now()
	for _, tt := range []struct {
		changed string
		newer   bool
	}{{"main_test.go", false}, {"main.go", true}} {
		file := filepath.Join(dir, tt.changed)
		if err := os.Chtimes(file, built, built.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if newer := NewerFile(t.Context(), s, built); (newer == file) != tt.newer {
			t.Errorf("%s changed: %q is newer", tt.changed, newer)
		}
	}
}
