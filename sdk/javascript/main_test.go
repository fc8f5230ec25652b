package javascript_test

import (
	"cmp"
	"context"
	"fmt"
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

// shared is what the tests have in common: compiling the engine takes a second.
var shared struct {
	once   sync.Once
	engine *runtime.Engine
	module *runtime.Module
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.module != nil {
		_ = shared.module.Close(context.Background())
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

// binary is the engine; the test is skipped if it has not been built.
func binary(t testing.TB) []byte {
	t.Helper()
	wasm, err := os.ReadFile(runtimetest.Engine(t, "javascript"))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// module is the compiled engine.
func module(t testing.TB) *runtime.Module {
	t.Helper()
	wasm := binary(t)
	shared.once.Do(func() {
		ctx := context.Background()
		if shared.engine, shared.err = runtime.New(ctx, runtime.Config{}); shared.err == nil {
			shared.module, shared.err = shared.engine.Load(ctx, wasm)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.module
}

// plugin is a handler in JavaScript.
type plugin struct {
	t     testing.TB
	files map[string][]byte
	// Profile is what all its tasks share; Files is set by run.
	runtime.Profile
}

// write makes a plugin of a module's source.
func write(t testing.TB, source string) *plugin {
	t.Helper()
	return &plugin{t: t, files: map[string][]byte{"/app/handler.js": []byte(source)}, Profile: runtime.Profile{Tenant: "tenant"}}
}

// handler makes a plugin of a function's body, whose parameter is task.
func handler(t testing.TB, body string) *plugin {
	t.Helper()
	return write(t, "export default async function (task) {"+body+"\n}")
}

// bind makes a pool.
func (p *plugin) bind() *runtime.Pool {
	p.t.Helper()
	files, err := runtime.NewFiles(p.files)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Files = files
	p.Limits.Timeout = cmp.Or(p.Limits.Timeout, patience)
	pool := module(p.t).Bind(p.Profile)
	p.t.Cleanup(pool.Close)
	return pool
}

// outcome is an outcome with its log.
type outcome struct {
	runtime.Outcome
	log []string
}

// run runs a task.
func (p *plugin) run(c runtime.Call) outcome {
	p.t.Helper()
	pool := p.bind()
	return p.runIn(pool, c)
}

// runIn runs a task in a pool that bind has made.
func (p *plugin) runIn(pool *runtime.Pool, c runtime.Call) outcome {
	p.t.Helper()
	var o outcome
	c.Log = func(line string) { o.log = append(o.log, line) }
	c.Denied = func(function, reason string) { o.log = append(o.log, function+": "+reason) }
	o.Outcome = pool.Run(p.t.Context(), c)
	return o
}

// input runs a task with an input, and returns its result. The test fails if the task does.
func (p *plugin) input(input string) string {
	p.t.Helper()
	o := p.run(runtime.Call{TaskID: "task", Input: []byte(input)})
	if o.Kind != runtime.Complete {
		p.t.Errorf("%s: %s\nlog: %s", o.Kind, o.Message, strings.Join(o.log, "\n"))
	}
	return string(o.Output)
}

// readAll is the contents of a file.
func readAll(t testing.TB, path string) string {
	t.Helper()
	contents, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(contents)
}

// packages is the folder with the npm packages of testdata.
func packages(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../../build/engines/downloads/npm-javascript-tests/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("no npm packages: run make deps")
	}
	return dir
}
