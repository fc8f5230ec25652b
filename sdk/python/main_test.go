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

	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// patience bounds each task that a test waits for, and each start.
const patience = 5 * time.Minute

// shared is the engine of all tests, which the first one loads.
var shared struct {
	once    sync.Once
	engine  *runtime.Engine
	module  *runtime.Module
	library map[string][]byte
	size    int
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.engine != nil {
		_ = shared.engine.Close(context.Background())
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// load compiles an engine, and reads its library.
func load(path string) error {
	ctx := context.Background()
	binary, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	shared.size = len(binary)
	if shared.library, err = tree(filepath.Join(filepath.Dir(path), "python", "lib"), "/lib"); err != nil {
		return err
	}
	cache := filepath.Join("..", "..", "build", "test", "compiled")
	if err := os.MkdirAll(filepath.Dir(cache), 0o750); err != nil {
		return err
	}
	if shared.engine, err = runtime.New(ctx, runtime.Config{CacheDir: cache}); err != nil {
		return err
	}
	shared.module, err = shared.engine.Load(ctx, binary)
	return err
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

// need is the compiled engine; a test without it is skipped.
func need(t testing.TB) *runtime.Module {
	t.Helper()
	path := runtimetest.Engine(t, "python")
	shared.once.Do(func() { shared.err = load(path) })
	if shared.err != nil {
		t.Fatalf("load the engine: %v", shared.err)
	}
	return shared.module
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
