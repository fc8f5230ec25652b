// These tests run handlers in Python through the real runtime.
package python_test

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
)

// patience bounds each task that a test waits for, and each start.
const patience = time.Minute

// shared is the engine of all tests; set by TestMain.
var shared struct {
	missing string // why there is none
	engine  *runtime.Engine
	module  func() (*runtime.Module, error)
	library map[string][]byte
	size    int
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	root := filepath.Join("..", "..", "build")
	folder := cmp.Or(os.Getenv("QUERN_ENGINES"), filepath.Join(root, "engines"))
	binary, err := os.ReadFile(filepath.Join(folder, "python.wasm"))
	if err != nil {
		shared.missing = fmt.Sprintf("no engine for Python (%v): run make engines", err)
		return m.Run()
	}
	shared.size = len(binary)
	if shared.library, err = tree(filepath.Join(folder, "python", "lib"), "/lib"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cache := filepath.Join(root, "test", "compiled")
	if err := os.MkdirAll(filepath.Dir(cache), 0o750); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if shared.engine, err = runtime.New(ctx, runtime.Config{CacheDir: cache}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.engine.Close(ctx)
	shared.module = sync.OnceValues(func() (*runtime.Module, error) { return shared.engine.Load(ctx, binary) })
	return m.Run()
}

// tree reads a folder's files, by the paths at which a guest finds them.
func tree(folder, at string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		files[at+"/"+filepath.ToSlash(inside)], err = os.ReadFile(path)
		return err
	})
	return files, err
}

// need skips a test without an engine.
func need(t testing.TB) *runtime.Module {
	t.Helper()
	if shared.missing != "" {
		t.Skip(shared.missing)
	}
	module, err := shared.module()
	if err != nil {
		t.Fatalf("load the engine: %v", err)
	}
	return module
}

// plugin is a handler in Python, with its pool.
type plugin struct {
	pool *runtime.Pool
}

// setup makes a plugin of the user's files, by their names below /app.
func setup(t testing.TB, files map[string]string, profile runtime.Profile) *plugin {
	t.Helper()
	module := need(t)
	all := maps.Clone(shared.library)
	for name, text := range files {
		all["/app/"+name] = []byte(text)
	}
	tree, err := runtime.NewFiles(all)
	if err != nil {
		t.Fatal(err)
	}
	profile.Files, profile.Tenant = tree, cmp.Or(profile.Tenant, "acme")
	if profile.Limits.Timeout == 0 {
		profile.Limits.Timeout = patience
	}
	p := &plugin{pool: module.Bind(profile)}
	t.Cleanup(p.pool.Close)
	return p
}

// handler makes a plugin of one file, handler.py.
func handler(t testing.TB, source string) *plugin {
	t.Helper()
	return setup(t, map[string]string{"handler.py": source}, runtime.Profile{})
}

// ran is what a task left.
type ran struct {
	runtime.Outcome
	log []string
}

func (r ran) logged() string { return strings.Join(r.log, "\n") }

func (p *plugin) call(t testing.TB, c runtime.Call) (r ran) {
	t.Helper()
	c.TaskID, c.Queue, c.Plugin = cmp.Or(c.TaskID, "id"), cmp.Or(c.Queue, "queue"), cmp.Or(c.Plugin, "plugin")
	c.Log = func(line string) { r.log = append(r.log, line) }
	r.Outcome = p.pool.Run(t.Context(), c)
	return r
}

func (p *plugin) run(t testing.TB, input string) ran {
	t.Helper()
	return p.call(t, runtime.Call{Input: []byte(input)})
}

// result runs a task that completes.
func (p *plugin) result(t testing.TB, input string) string {
	t.Helper()
	r := p.run(t, input)
	if r.Kind != runtime.Complete {
		t.Fatalf("%s: %s\n%s", r.Kind, r.Message, r.logged())
	}
	return string(r.Output)
}
