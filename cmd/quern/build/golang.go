package build

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

var golang = &Language{
	source: func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return filepath.Ext(name) != ".go" ||
				strings.HasSuffix(name, "_test.go")
		})
	},
	several: true,
	above:   []string{"go.mod", "go.work"},
	test:    func(name string) bool { return strings.HasSuffix(name, "_test.go") },
	outside: goOutside,
	build:   buildGo,
}

// goOutside lists the files of the packages that the source imports and that are not below its folder, and their
// go.mod, except the standard library's. It lists none if Go is missing, or if a build would fail.
func goOutside(ctx context.Context, s *Source) (files []string) {
	program, err := lookPath("go")
	if err != nil {
		return nil
	}
	const format = `{{if not .Standard}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{with .Module}}{{.GoMod}}
{{end}}{{end}}`
	dir, failed := filepath.Abs(s.Dir)
	if failed != nil {
		return nil
	}
	for _, file := range goList(ctx, program, s, "-f", format) {
		if below, err := filepath.Rel(dir, file); err != nil || strings.HasPrefix(below, "..") {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// goList returns the paths that `go list` prints for the packages of the source, including those that it imports; none
// if go list fails.
func goList(ctx context.Context, program string, s *Source, flags ...string) (paths []string) {
	cmd := command(ctx, program, append(append([]string{"list", "-deps"}, flags...), ".")...)
	cmd.Dir, cmd.Env = s.Dir, append(cmd.Env, "GOOS=wasip1", "GOARCH=wasm")
	text, err := cmd.Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if file := strings.TrimSpace(line); file != "" {
			paths = append(paths, filepath.FromSlash(file))
		}
	}
	return paths
}

// goOwn returns the source files that a build compiles of the author's own modules, relative to the source's folder.
func goOwn(ctx context.Context, program string, s *Source) (names []string) {
	const format = `{{$dir := .Dir}}{{if and .Module .Module.Main}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{end}}`
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target // as go names it
	}
	for _, file := range goList(ctx, program, s, "-e", "-f", format) { // -e: the compiler tells of errors
		if name, err := filepath.Rel(dir, file); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// goEntry matches source of a handler. Source that does not match is a command's.
var goEntry = regexp.MustCompile(`(?m)^//go:wasmexport quern_handle\s*$`)

// patience is how long a build with Go can take before it says so.
const patience = 5 * time.Second

// buildGo runs the Go toolchain. It keeps function names in the module, for backtraces.
func buildGo(ctx context.Context, b *Builder, s *Source, out string) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	program, err := lookPath("go")
	if err != nil {
		return because(Refused, "cannot build %s without Go: install it from https://go.dev/dl/, with `go` in PATH, "+
			"or make it in another folder with `quern plugin new NAME --lang python`", s.Name)
	}
	for _, name := range goOwn(ctx, program, s) {
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil {
			continue // the compiler tells of it
		}
		for _, line := range goObstacles(name, text) {
			fmt.Fprintln(b.config.Stderr, line)
		}
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", out}
	if slices.ContainsFunc(texts, goEntry.Match) {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := command(ctx, program, append(args, ".")...)
	cmd.Env = append(cmd.Env, "GOOS=wasip1", "GOARCH=wasm")
	stderr := &lockedWriter{w: b.config.Stderr}
	cmd.Stderr = stderr
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ended, end := context.WithCancel(ctx)
	defer end()
	waiting.Go(func() {
		select {
		case <-ended.Done():
		case <-time.After(patience):
			fmt.Fprintf(stderr, "compiling %s with go: a first build takes long, the next ones do not\n", s.Name)
		}
	})
	return b.run(ctx, s, cmd)
}

// lockedWriter can be used by several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// goNames lists names of the standard library that compile and do not work in a plugin.
var goNames = []obstacle{
	{
		names: "net/http.Get net/http.Head net/http.Post net/http.PostForm net/http.Client net/http.DefaultClient " +
			"net/http.Transport net/http.DefaultTransport",
		why: noSockets, instead: "use github.com/quern-project/quern/sdk/fetch, with capabilities.http in the manifest",
	},
	{
		names: "net.Dial net.DialTimeout net.Dialer net.DialTCP net.DialUDP net.LookupHost net.LookupIP net.Resolver " +
			"crypto/tls.Dial net/smtp.SendMail net/smtp.Dial",
		why: noSockets, instead: "use an HTTP API with github.com/quern-project/quern/sdk/fetch",
	},
	{
		names: "net/http.ListenAndServe net/http.ListenAndServeTLS net/http.Serve net/http.Server net.Listen " +
			"net.ListenPacket net.ListenConfig",
		why: noSockets, instead: "a plugin serves tasks, not requests: leave it out",
	},
	{
		names:   "os.ReadFile os.WriteFile os.Open os.OpenFile os.Create os.ReadDir os.MkdirAll os.MkdirTemp os.CreateTemp",
		why:     "a plugin has no files but those of capabilities.files, for reading",
		instead: "grant them in the manifest, or use kv or checkpoints of github.com/quern-project/quern/sdk",
	},
	{
		names: "database/sql.Open database/sql.OpenDB",
		why:   noSockets, instead: postgresInstead,
	},
	{
		names: "os/exec.Command os/exec.CommandContext os.StartProcess",
		why:   "a plugin starts no programs", instead: "leave it out",
	},
}

const postgresInstead = "use Database of github.com/quern-project/quern/sdk, with capabilities.sql in the manifest"

// goPackages lists packages that do not work in a plugin, without the version at the end of their paths.
var goPackages = []obstacle{
	{
		names: "github.com/redis/go-redis github.com/go-redis/redis github.com/gomodule/redigo/redis github.com/hibiken/asynq",
		why:   noSockets, instead: "use kv, Enqueue and Publish of github.com/quern-project/quern/sdk",
	},
	{
		names: "github.com/jackc/pgx github.com/jackc/pgx/stdlib github.com/jackc/pgx/pgxpool github.com/lib/pq",
		why:   noSockets, instead: postgresInstead,
	},
	{
		names: "github.com/go-sql-driver/mysql go.mongodb.org/mongo-driver/mongo",
		why:   noSockets, instead: "reach the database by an HTTP API, with github.com/quern-project/quern/sdk/fetch",
	},
	{names: "google.golang.org/grpc", why: noSockets, instead: "use an HTTP API with github.com/quern-project/quern/sdk/fetch"},
}

// The version in the path of a module, at its end and before a package.
var (
	goVersion   = regexp.MustCompile(`/v[0-9]+$`)
	goVersionIn = regexp.MustCompile(`/v[0-9]+/`)
)

// goObstacles returns a warning for each package that a file of the author uses and that does not work in a plugin. It
// is no error, because the file may use a part of the package that works.
func goObstacles(name string, text []byte) (lines []string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil // the compiler tells of it
	}
	warn := func(at token.Pos, what, why string) {
		lines = append(lines, fmt.Sprintf("%s: warning: %s: %s", files.Position(at), what, why))
	}
	imported := map[string]string{} // paths by the names that the file uses
	for _, spec := range file.Imports {
		full := strings.Trim(spec.Path.Value, `"`)
		bare := goVersion.ReplaceAllString(full, "")
		if why := told(goVersionIn.ReplaceAllString(bare, "/"), goPackages); why != "" {
			warn(spec.Pos(), full, why)
		}
		if imported[path.Base(bare)] = full; spec.Name != nil {
			imported[spec.Name.Name] = full
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		use, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := use.X.(*ast.Ident)
		if ok && imported[of.Name] != "" {
			full := imported[of.Name]
			if why := told(full+"."+use.Sel.Name, goNames); why != "" {
				warn(use.Pos(), full+"."+use.Sel.Name, why)
				imported[of.Name] = "" // one line for each package
			}
		}
		return true
	})
	return lines
}
