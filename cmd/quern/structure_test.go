package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// These tests hold the shape of the repository: which folder may import which, what lies where, and
// what no file may hold. A failure says which rule was broken and what would keep it.

const module = "github.com/quern-project/quern"

// directions says, for each folder, which other folders its packages may import. Packages of one
// folder import each other freely; the longest folder that a package lies in counts, so sdk/queue
// is not a part of sdk.
var directions = map[string][]string{
	"cmd/quern": {
		"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/show", "cmd/quern/option", "cmd/quern/manual", "cmd/quern/hostlog", "cmd/quern/sandbox",
		"cmd/quern/tenant", "cmd/quern/serve", "cmd/quern/database", "cmd/quern/dev", "cmd/quern/plugin", "cmd/quern/bench",
	},
	"cmd/quern/tenant":   {"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/show", "cmd/quern/option", "cmd/quern/top", "host/admin", "host/api", "host/doctor", "host/kv", "host/rollout", "host/upkeep", "host/webhook", "plugins", "runtime", "sdk/queue", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/mover", "sdk/queue/periodic", "cmd/quern/pluginfile", "sdk/queue/release", "cmd/quern/sandbox", "cmd/quern/atomicfile", "sdk/queue/seal"},
	"cmd/quern/serve":    {"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/option", "cmd/quern/nodehost", "cmd/quern/hostlog", "host/api", "host/kv", "sdk/queue", "sdk/queue/manage"},
	"cmd/quern/database": {"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/show", "cmd/quern/option", "cmd/quern/hostlog", "host", "host/admin", "host/postgres", "host/relay", "metrics", "runtime", "sdk/queue"},
	"cmd/quern/dev":      {"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/show", "cmd/quern/option", "cmd/quern/nodehost", "cmd/quern/hostlog", "cmd/quern/pluginfile", "cmd/quern/build", "cmd/quern/atomicfile", "host", "plugins", "sdk/queue", "sdk/queue/periodic"},
	"cmd/quern/plugin":   {"cmd/quern/cli", "cmd/quern/show", "cmd/quern/option", "cmd/quern/sandbox", "cmd/quern/pluginfile", "cmd/quern/build", "cmd/quern/atomicfile", "host", "host/guest", "host/kv", "host/postgres", "host/sql", "plugins", "runtime", "sdk", "sdk/queue", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/release"},
	"cmd/quern/bench":    {"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/show", "cmd/quern/option", "cmd/quern/sandbox", "cmd/quern/pluginfile", "cmd/quern/nodehost", "plugins", "runtime", "sdk/queue", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/periodic"},

	"cmd/quern/nodehost":   {"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/option", "cmd/quern/sandbox", "cmd/quern/hostlog", "host", "host/account", "host/admin", "host/api", "host/guest", "host/kv", "host/relay", "host/rollout", "host/sql", "host/trace", "host/webhook", "metrics", "plugins", "runtime", "sdk/queue", "sdk/queue/manage", "sdk/queue/periodic", "sdk/queue/release", "sdk/queue/seal"},
	"cmd/quern/pluginfile": {"cmd/quern/cli", "cmd/quern/sandbox", "cmd/quern/build", "plugins", "runtime", "sdk/queue", "sdk/queue/release"},
	"cmd/quern/sandbox":    {"cmd/quern/cli", "cmd/quern/option", "plugins", "runtime", "runtime/compile", "sdk/queue"},
	"cmd/quern/hostlog":    {"cmd/quern/option", "cmd/quern/show"},
	"cmd/quern/manual":     {"cmd/quern/cli", "cmd/quern/show", "plugins"},
	"cmd/quern/connect":    {"cmd/quern/cli", "cmd/quern/atomicfile", "sdk/queue", "sdk/queue/listen", "sdk/queue/periodic", "sdk/queue/seal"},
	"cmd/quern/cli":        {"cmd/quern/show", "host/admin", "plugins", "sdk/queue"},
	"cmd/quern/option":     {"cmd/quern/show", "runtime", "sdk/queue"},
	"cmd/quern/show":       {"runtime"},
	"cmd/quern/top":        {"cmd/quern/show", "host/admin", "host/doctor", "sdk/queue"},
	"cmd/quern/build":      {"cmd/quern/atomicfile", "plugins", "runtime", "sdk"},
	"cmd/quern/atomicfile": {},

	"host":                     {"host/account", "host/guest", "host/rollout", "host/schedule", "host/sql", "host/trace", "host/upkeep", "sdk/queue", "sdk/queue/release", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/periodic", "plugins", "runtime", "metrics", "sdk/queue/seal"},
	"host/account":             {},
	"host/admin":               {"host/account", "host/doctor", "host/kv", "host/upkeep", "host/webhook", "sdk/queue", "sdk/queue/taskjson", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/queuetest", "plugins", "runtime", "sdk/queue/release", "sdk/queue/seal"},
	"host/api":                 {"host", "host/account", "host/admin", "host/doctor", "host/kv", "host/trace", "sdk/queue", "sdk/queue/taskjson", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/periodic", "plugins", "runtime", "sdk/queue/release"},
	"host/doctor":              {"sdk/queue", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/release", "plugins", "runtime"},
	"host/guest":               {"host/kv", "host/sql", "sdk/queue", "sdk/queue/listen", "sdk/queue/periodic", "plugins", "runtime", "sdk/queue/seal"},
	"host/kv":                  {"sdk/queue", "runtime"},
	"host/postgres":            {},
	"host/relay":               {"host/admin", "host/postgres", "sdk/queue", "sdk/queue/taskjson", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/periodic", "plugins", "runtime"},
	"host/rollout":             {"host/account", "plugins", "runtime", "sdk/queue", "sdk/queue/periodic", "sdk/queue/release"},
	"host/sql":                 {"host/postgres", "sdk/queue/periodic", "runtime"},
	"host/schedule":            {"host/account", "sdk/queue/periodic"},
	"host/upkeep":              {"host/account", "sdk/queue", "sdk/queue/listen", "sdk/queue/periodic", "sdk/queue/release", "plugins"},
	"host/trace":               {"sdk/queue", "runtime"},
	"host/webhook":             {"host/account", "host/trace", "sdk/queue", "sdk/queue/listen", "sdk/queue/periodic", "runtime", "metrics"},
	"plugins":                  {"runtime"},
	"runtime":                  {"runtime/compile"},
	"sdk":                      {},
	"sdk/queue/periodic":       {},
	"sdk/queue/seal":           {},
	"sdk/queue/internal/store": {"sdk/queue/periodic", "sdk/queue/seal"},
	"sdk/queue":                {"sdk/queue/internal/store", "sdk/queue/periodic", "sdk/queue/seal"},
	"sdk/queue/taskjson":       {"sdk/queue"},
	"sdk/outbox":               {"sdk/queue", "sdk/queue/taskjson"},
	"sdk/queue/listen":         {"sdk/queue", "sdk/queue/internal/store", "sdk/queue/periodic"},
	"sdk/queue/manage":         {"sdk/queue", "sdk/queue/listen", "sdk/queue/internal/store"},
	"sdk/queue/mover":          {"sdk/queue", "sdk/queue/manage", "sdk/queue/internal/store"},
	"sdk/queue/release":        {"sdk/queue", "sdk/queue/internal/store"},
	"sdk/queue/worker":         {"sdk/queue", "sdk/queue/listen", "sdk/queue/internal/store", "sdk/queue/periodic"},
	"sdk/queue/queuetest":      {"sdk/queue/internal/store"},
	"metrics":                  {},
	"examples":                 {"sdk", "sdk/queue"},

	"runtime/compile": {"runtime"}, // its subpackages
}

// confined says which folders alone may import a module of others.
var confined = map[string][]string{
	"github.com/tetratelabs/wazero": {"runtime", "runtime/compile"},
	"github.com/redis/go-redis": {
		"sdk/queue", "sdk/queue/internal/store", "sdk/queue/listen", "sdk/queue/manage", "sdk/queue/mover", "sdk/queue/queuetest", "host", "host/kv",
		"cmd/quern", "cmd/quern/cli", "cmd/quern/connect", "cmd/quern/tenant", "cmd/quern/serve", "cmd/quern/plugin", "cmd/quern/bench", "cmd/quern/nodehost",
	},
	"github.com/prometheus/client_golang": {"metrics", "host", "cmd/quern/nodehost", "cmd/quern/database"},
	"github.com/jackc/pgx":                {"host/postgres", "host/sql"},
	"github.com/extism/go-sdk":            {},
	"github.com/alicebob/miniredis":       {"sdk/queue/queuetest", "cmd/quern/dev", "cmd/quern/plugin"},
	"github.com/spf13/cobra":              withCommands,
	"github.com/spf13/pflag":              withCommands,
	"github.com/knadh/koanf":              {"cmd/quern/cli"},
	"github.com/mattn/go-isatty":          {"cmd/quern/show"},
	"github.com/fsnotify/fsnotify":        {"plugins", "cmd/quern/dev"},
	"github.com/evanw/esbuild":            {"cmd/quern/build"},
	"github.com/netresearch/go-cron":      {"plugins"},
	"github.com/danielgtaylor/huma":       {"host/api"},
	"go.opentelemetry.io/otel":            {"host/trace"},
	"charm.land":                          {"cmd/quern/top"},
	"github.com/coreos/go-oidc":           {"host/api"},
	"aead.dev/minisign":                   {"plugins"},
	"filippo.io/age":                      {"runtime"},
	"oras.land/oras-go":                   {"host/rollout"},
}

// withCommands are the folders with commands, and with what commands are made of.
var withCommands = []string{
	"cmd/quern", "cmd/quern/tenant", "cmd/quern/serve", "cmd/quern/database", "cmd/quern/dev", "cmd/quern/plugin", "cmd/quern/bench", "cmd/quern/manual", "cmd/quern/hostlog",
	"cmd/quern/cli", "cmd/quern/connect", "cmd/quern/show", "cmd/quern/option", "cmd/quern/sandbox", "cmd/quern/nodehost", "cmd/quern/pluginfile",
}

// topLevel is all that may lie in the repository's root.
var topLevel = []string{
	"cmd", "host", "plugins", "runtime", "sdk", "metrics", "examples", ".ci",
	"go.mod", "go.sum", "Makefile", ".gitignore", ".gitattributes", ".golangci.yml",
	"README.md", "ARCHITECTURE.md", "RATIONALE.md", "CHANGELOG.md",
	"CONTRIBUTING.md", "SECURITY.md", "LICENSE",
}

const maxLines = 1000

// maxColumns is the longest line of production Go, in characters.
const maxColumns = 120

type pkg struct {
	ImportPath, Name, Doc string
	Export                string // the file with its types, if list was asked for it
	GoFiles, Imports      []string
}

// rel is the package's folder in the repository.
func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// forTests says whether the package is there for tests, as httptest is.
func (p pkg) forTests() bool { return strings.HasSuffix(p.Name, "test") }

// folder is the longest key of directions that rel lies in, "" if there is none.
func folder(rel string) string {
	for dir := rel; dir != "."; dir = path.Dir(dir) {
		if _, ok := directions[dir]; ok {
			return dir
		}
	}
	return ""
}

// root is the repository's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// list runs go list over the repository for an operating system and a processor, both "" for those
// of this machine.
func list(t *testing.T, goos, goarch string, args ...string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Name,Doc,Export,GoFiles,Imports"}, args...)...)
	cmd.Dir = root(t)
	cmd.Env = os.Environ()
	if goos != "" {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, &stderr)
	}
	var packages []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list %v: %v", args, err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatalf("go list %v found no package", args)
	}
	return packages
}

// files are the paths of what is or would be committed, relative to the root, with slashes.
func files(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root(t)
	var found []string
	if out, err := cmd.Output(); err == nil {
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if _, err := os.Lstat(filepath.Join(root(t), name)); err == nil { // else removed and not yet committed
				found = append(found, name)
			}
		}
	} else { // an archive of the sources
		err := fs.WalkDir(os.DirFS(root(t)), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && (name == ".git" || name == "build") {
				return fs.SkipDir
			}
			if err == nil && !d.IsDir() {
				found = append(found, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) == 0 {
		t.Fatal("the repository has no files")
	}
	return found
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestImportDirections(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "", "", "./...") {
		from := folder(p.rel())
		if from == "" {
			t.Errorf("%s lies in none of the repository's folders; put it into the folder whose subject it is", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			for mod, allowed := range confined {
				if (imported == mod || strings.HasPrefix(imported, mod+"/")) && !slices.Contains(allowed, from) {
					t.Errorf("%s imports %s, which only %v may: let that folder offer what is needed", p.ImportPath, imported, allowed)
				}
			}
			if !strings.HasPrefix(imported, module+"/") {
				continue
			}
			to := pkg{ImportPath: imported, Name: path.Base(imported)}
			if target := folder(to.rel()); target != from && !slices.Contains(directions[from], target) {
				t.Errorf("%s imports %s; of ours %s may import only itself and %q: declare an interface there, and wire it in host or cmd/quern",
					p.ImportPath, imported, from, directions[from])
			}
			if to.forTests() && !p.forTests() {
				t.Errorf("%s imports %s, which is there for tests alone", p.ImportPath, imported)
			}
		}
	}
}

func TestPackageDocs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range append(list(t, "", "", "./..."), list(t, "wasip1", "wasm", "./...")...) {
		if len(p.GoFiles) > 0 && p.Doc == "" && !seen[p.ImportPath] {
			seen[p.ImportPath] = true
			t.Errorf("%s has no doc comment: say above `package %s` what it is for", p.ImportPath, p.Name)
		}
	}
	names := files(t)
	for _, dir := range []string{"sdk/queue", "runtime", "plugins", "host"} {
		if !slices.Contains(names, dir+"/doc.go") {
			t.Errorf("%s has no doc.go: it holds a picture of the package's states or data flow, and what happens on failure", dir)
		}
	}
}

func TestPackageNames(t *testing.T) {
	t.Parallel()
	empty := []string{"util", "utils", "common", "base", "types", "helper", "helpers", "misc", "shared", "lib"}
	for _, p := range list(t, "", "", "./...") {
		for part := range strings.SplitSeq(p.rel(), "/") {
			if slices.Contains(empty, part) || slices.Contains(empty, p.Name) {
				t.Errorf("%s: %q says nothing of its subject; name the package for what it does", p.ImportPath, part)
			}
		}
	}
}

// A plugin's size is what it links, and every host compiles all of it.
func TestGuestsAreLight(t *testing.T) {
	t.Parallel()
	guests := []string{module + "/sdk"}
	for _, p := range list(t, "wasip1", "wasm", "./examples/...") {
		if slices.Contains(p.Imports, module+"/sdk") {
			guests = append(guests, p.ImportPath)
		}
	}
	if len(guests) < 2 {
		t.Fatal("no example is built with sdk")
	}
	for _, guest := range guests {
		deps := list(t, "wasip1", "wasm", "-deps", guest)
		slices.Reverse(deps) // the importer before what it imports: the first one found is the cause
		for _, p := range deps {
			ours := strings.HasPrefix(p.ImportPath, module+"/")
			if ours && folder(p.rel()) != "sdk" && folder(p.rel()) != "examples" ||
				strings.HasPrefix(p.ImportPath, "github.com/redis/go-redis/") ||
				strings.HasPrefix(p.ImportPath, "github.com/tetratelabs/wazero") {
				t.Errorf("%s links %s; a plugin links sdk and what its own work needs", guest, p.ImportPath)
				break
			}
		}
	}
}

func TestTopLevel(t *testing.T) {
	t.Parallel()
	for _, name := range files(t) {
		top, _, _ := strings.Cut(name, "/")
		if !slices.Contains(topLevel, top) {
			t.Errorf("%s: the top level holds only %v; put it into the folder whose subject it is", name, topLevel)
		}
	}
}

func TestRootDocuments(t *testing.T) {
	t.Parallel()
	names := files(t)
	for _, name := range []string{
		"README.md", "ARCHITECTURE.md", "RATIONALE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE",
		".golangci.yml", ".ci/run", "Makefile",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestExamples(t *testing.T) {
	t.Parallel()
	names := files(t)
	has := func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, _ := path.Match(pattern, name)
			return ok
		})
	}
	seen := map[string]bool{}
	for _, name := range names {
		parts := strings.Split(name, "/")
		if parts[0] != "examples" || len(parts) < 3 || parts[1] == "internal" || seen[parts[1]] {
			continue
		}
		seen[parts[1]] = true
		dir := "examples/" + parts[1]
		if !has(dir + "/README.md") {
			t.Errorf("%s has no README.md, which says what it teaches and the commands to run it", dir)
		}
		if !has(dir+"/*_test.go") && !has(dir+"_test.go") {
			t.Errorf("%s has no test that builds and runs it", dir)
		}
	}
	if len(seen) == 0 {
		t.Error("there are no examples")
	}
}

func TestGoFiles(t *testing.T) {
	// Messages stay in one line, to be found, and so do pictures and what a linter reads.
	unbroken := regexp.MustCompile("[\"`]|^\t*//\t|//nolint|│")
	t.Parallel()
	keys := regexp.MustCompile(`_(pending|reserved|started|complete|failed|scheduled)_tasks_`)
	for _, name := range files(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		text := read(t, name)
		if lines := bytes.Count(text, []byte("\n")); lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: which of its subjects is a file of its own?", name, lines, maxLines)
		}
		if !strings.HasSuffix(name, "_test.go") {
			for i, line := range strings.Split(string(text), "\n") {
				if utf8.RuneCountInString(line) > maxColumns && !unbroken.MatchString(line) {
					t.Errorf("%s:%d has more than %d columns: break it", name, i+1, maxColumns)
				}
			}
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		knowsKeys := strings.HasPrefix(name, "sdk/queue/") || strings.HasSuffix(name, "_test.go")
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Sleep" {
					t.Errorf("%s: time.Sleep listens to nothing: wait on a channel with the context beside it, in tests on a ticker with a deadline or in testing/synctest",
						set.Position(n.Pos()))
				}
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Store" && len(n.Args) == 0 && !strings.HasPrefix(name, "sdk/queue/") {
					t.Errorf("%s: Client.Store is for the packages of sdk/queue alone: let one of them offer what is needed", set.Position(n.Pos()))
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && !knowsKeys && keys.MatchString(s) {
					t.Errorf("%s: %s is a key of the protocol, which sdk/queue alone knows", set.Position(n.Pos()), n.Value)
				}
			}
			return true
		})
	}
}

// A path that is true on one machine alone has no place in a repository.
func TestNoMachinePaths(t *testing.T) {
	t.Parallel()
	homes := regexp.MustCompile(`(^|[^\w.~-])(/home/\w+/|/Users/\w+/|[A-Z]:\\Users\\)`)
	here := []string{root(t)}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 { // some containers have / for a home
		here = append(here, home)
	}
	parts := append([]string{"/home/", "/Users/", `:\Users\`}, here...)
	for i := range here {
		here[i] = regexp.QuoteMeta(here[i])
	}
	own := regexp.MustCompile(`(^|[^\w.~/-])(` + strings.Join(here, "|") + `)(/|\W|$)`)
	for _, name := range files(t) {
		text := read(t, name)
		if bytes.IndexByte(text, 0) >= 0 || // not text
			!slices.ContainsFunc(parts, func(part string) bool { return bytes.Contains(text, []byte(part)) }) { // patterns take long
			continue
		}
		number := 0
		for line := range bytes.Lines(text) {
			number++
			for _, pattern := range []*regexp.Regexp{homes, own} {
				if m := pattern.FindSubmatch(bytes.TrimRight(line, "\r\n")); m != nil {
					t.Errorf("%s:%d: %s is a path of one machine; write it relative to the repository, or as ~ or $HOME", name, number, m[2])
				}
			}
		}
	}
}

// A claim about security names a test that exists, or it is not proved.
func TestSecurityClaims(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := files(t)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range declared.FindAllSubmatch(read(t, name), -1) {
				tests[string(m[1])] = true
			}
		}
	}
	for _, name := range names {
		if path.Base(name) != "SECURITY.md" {
			continue
		}
		for _, test := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(string(read(t, name)), -1) {
			if !tests[test] {
				t.Errorf("%s names %s, which does not exist: name the test that proves the claim", name, test)
			}
		}
	}
}

// What is read as a whole stays short; the rest lies beside the code.
func TestSizeOfDocuments(t *testing.T) {
	t.Parallel()
	for _, name := range files(t) {
		most := map[string]int{"RATIONALE.md": 12 << 10, "SECURITY.md": 12 << 10, "ARCHITECTURE.md": 25 << 10}[path.Base(name)]
		if name == "SECURITY.md" {
			most = 8 << 10
		}
		if size := len(read(t, name)); most > 0 && size > most {
			t.Errorf("%s has %d bytes, more than %d: move a subject to the folder whose code it explains", name, size, most)
		}
	}
}
