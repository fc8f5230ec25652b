package dev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/sdk/queue"
)

func TestDevSources(t *testing.T) {
	t.Parallel()
	one, two := sourceFolder(t, map[string]string{"a.c": ""}), sourceFolder(t, map[string]string{"a.c": ""})
	for _, test := range []struct {
		folders []string
		says    string
	}{
		{[]string{one, two}, "is the plugin small, too: name each once"},
		{[]string{filepath.Join(one, "none")}, "no such file or directory: name the folder of a plugin's source"},
		{[]string{t.TempDir()}, "has no source: expected handler.py"},
	} {
		var stderr strings.Builder
		_, err := devSources(test.folders, nil)
		if status := cli.Report(err, &stderr); status != cli.ExitUsage || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("exit %d: %s, want %q", status, &stderr, test.says)
		}
	}
	told := ""
	tell := func(text string) { told += text }
	if sources, err := devSources(nil, tell); err != nil || len(sources) > 0 || told != "" { // the folder of this test is no plugin's
		t.Errorf("%+v, %v, %s", sources, err, told)
	}
}

// Not every folder with source and a YAML file is a plugin's.
func TestSourceSays(t *testing.T) {
	t.Parallel()
	for manifest, want := range map[string]bool{
		"name: small\n": true, "# a comment\nversion: 1.0.0\nname:   \"small\"\n": true,
		"": false, "services: {}\n": false, "name: smaller\n": false, "x:\n  name: small\n": false,
	} {
		s, err := build.Read(sourceFolder(t, map[string]string{"main.go": "package main", "small.yaml": manifest}))
		if err != nil || isNamed(s) != want {
			t.Errorf("%q: %t, %v", manifest, isNamed(s), err)
		}
	}
	if s, err := build.Read(sourceFolder(t, map[string]string{"main.go": "package main"})); err != nil || isNamed(s) {
		t.Errorf("without a manifest: %t, %v", isNamed(s), err)
	}
}

// What is looked at is source alone: not what editors, builds and the plugin directory leave.
func TestRebuilderLook(t *testing.T) {
	t.Parallel()
	dir := sourceFolder(t, map[string]string{
		"handler.js": "", "handler.test.js": "", "test/a.js": "", "tests/warm.txt": "", "a/b.go": "", "vendor/x/x.go": "", "small.yaml": "name: small\nwarm: {input: tests/warm.txt}\n", "requirements.txt": "", "package.json": "", "data/model.bin": "", "small.wasm": "", ".main.go.swp": "", "main.go~": "", "#main.go#": "", "4913": "",
		".git/index": "", "node_modules/x/x.js": "", "__pycache__/x.pyc": "", "env/pyvenv.cfg": "", "env/lib/x.py": "", "handlers/small.yaml": "",
	})
	s, err := build.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &rebuilder{dir: dir, to: filepath.Join(dir, "handlers"), tests: s.Tests, logger: hclog.NewNullLogger()}
	seen := r.look()
	for _, name := range []string{"handler.js", "tests/warm.txt", "a/b.go", "vendor/x/x.go", "small.yaml", "data/model.bin", "requirements.txt", "package.json"} {
		if _, ok := seen[filepath.Join(dir, name)]; !ok {
			t.Errorf("%s is passed over", name)
		}
		delete(seen, filepath.Join(dir, name))
	}
	if len(seen) > 0 {
		t.Errorf("it looks at %v", seen)
	}
}

// sourceFolder makes a folder named small with files.
func sourceFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A task that puts itself off has not failed.
func TestEndedLine(t *testing.T) {
	t.Parallel()
	failure := &queue.Failure{Reason: queue.ReasonError, Message: "no answer"}
	for want, ended := range map[string]host.Ended{
		"✓ mail 1.0 ms":                                                {},
		"✗ mail 1.0 ms one: (error) no answer":                         {Failure: failure},
		"↻ mail 1.0 ms one: (error) no answer: it will be tried again": {Failure: failure, Again: true},
		"✓ mail 204, 1.0 ms":                                           {Status: 204},
		"✗ mail 1.0 ms one: (error) the server answered 500":           {Status: 500, Failure: &queue.Failure{Reason: queue.ReasonError, Message: "the server answered 500"}},
		"✗ mail 1.0 ms one: (trap) boom [main.a (a.go:1) < …]\n    main.a (a.go:1)\n    main.b (a.go:9)": {Failure: &queue.Failure{Reason: queue.ReasonTrap, Message: "boom [main.a (a.go:1) < …]", Backtrace: []string{"main.a (a.go:1)", "main.b (a.go:9)"}}},
		"✗ mail 1.0 ms one: (trap) boom [main.a (a.go:1)]":                                               {Failure: &queue.Failure{Reason: queue.ReasonTrap, Message: "boom [main.a (a.go:1)]", Backtrace: []string{"main.a (a.go:1)"}}},
		"✗ mail 1.0 ms one: (error) KeyError: 'id'…\n    handler.py:7 in f\n      x[\"id\"]":             {Failure: &queue.Failure{Reason: queue.ReasonError, Message: "KeyError: 'id'\nhandler.py:7 in f\n  x[\"id\"]"}},
		"↻ mail 1.0 ms one: (put off) no answer: it runs again later, without counting an attempt":       {Failure: failure, Again: true, PutOff: true},
	} {
		ended.Queue, ended.ID, ended.Took = "mail", "one", time.Millisecond
		if got := endedLine(show.Screen{}, ended); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestChanged: a rebuild names a changed file of source, and no other file: one could be the log of dev itself.
func TestChanged(t *testing.T) {
	t.Parallel()
	dir := sourceFolder(t, map[string]string{"a.go": "", "dev.log": ""})
	look := func() map[string]build.Stamp { return build.Files(dir, "", func(string) {}) }
	before := look()
	for _, step := range []struct{ file, want string }{{"dev.log", ""}, {"nohup.out", ""}, {"small.yaml", "small.yaml"}, {"a.go", "a.go"}} {
		if err := os.WriteFile(filepath.Join(dir, step.file), []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		now := look()
		if got := changed(before, now); got != step.want {
			t.Errorf("%s: %q, want %q", step.file, got, step.want)
		}
		before = now
	}
}
