package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// pythonHandler is a handler that fails two functions deep, and tries to color the terminal.
const pythonHandler = `def check(name):
    raise ValueError(f"{name} has no ink\x1b[31m")

def handle(task):
    check(task.input.decode())
`

// TestErrorLines: a traceback of Python and a stack of TypeScript are in the task's error, which `task show` shows whole, and
// logs by its first line.
func TestErrorLines(t *testing.T) {
	t.Parallel()
	for language, test := range map[string]struct {
		files func(t *testing.T, engine string) map[string][]byte
		input string
		first string
		lines []string
	}{
		"python": {
			pythonFiles, "Ada", `ValueError: Ada has no ink\x1b[31m [handler.py:2 in check < handler.py:5 in handle]`,
			[]string{"Traceback (most recent call last):", `  File "/app/handler.py", line 5, in handle`, `  File "/app/handler.py", line 2, in check`, `ValueError: Ada has no ink\x1b[31m`},
		},
		"javascript": {
			typescriptFiles, `{"name":"Ada"}`, "TypeError: Ada has no ink",
			[]string{"    at check (mapped/ink.ts:8:26)", "    at greet (mapped/handler.ts:10:9)", "    at handle (mapped/handler.ts:16:16)"},
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			engine := runtimetest.Engine(t, language)
			module, err := bundle.Append(contents(t, engine), test.files(t, engine))
			if err != nil {
				t.Fatal(err)
			}
			tenant := queuetest.Tenant()
			u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant})
			plugins := folder(t, map[string][]byte{"order": module})
			c, _ := u.host(plugins)
			first := "exit status 1: " + test.first
			waited := u.feed(test.input, "enqueue", "order", "-", "--id", "one", "--wait")
			if want := "task one failed (error): " + first + "\n"; waited.status != exitFailed || !strings.HasPrefix(waited.stderr, want) {
				t.Errorf("exit %d, %q, want %q", waited.status, waited.stderr, want)
			}
			inOrder(t, u.must("task", "show", "one"), append([]string{"(error) " + first}, test.lines...))
			var fields struct{ Error queue.Failure }
			if err := json.Unmarshal([]byte(u.must("task", "show", "one", "-o", "json")), &fields); err != nil {
				t.Fatal(err)
			}
			inOrder(t, fields.Error.Message, append([]string{first}, test.lines...))
			u.must("task", "retry", "one")
			_ = u.run("task", "wait", "one")
			again := u.must("task", "show", "one")
			if !regexp.MustCompile(`(?m)^history 1 .*: \(error\) ` + regexp.QuoteMeta(first) + "…$").MatchString(again) {
				t.Errorf("its history is not one line:\n%s", again)
			}
			quoted := strings.ReplaceAll(regexp.QuoteMeta(first), `"`, `\\"`)
			c.stderr.await(t, regexp.MustCompile(`task failed: [^\n]* error="?`+quoted+`…"?\n`))
		})
	}
}

// inOrder tests that a text has lines one after the other.
func inOrder(t *testing.T, text string, lines []string) {
	t.Helper()
	rest := text
	for _, line := range lines {
		var ok bool
		if _, rest, ok = strings.Cut(rest, line); !ok {
			t.Fatalf("there is no %q in its place in\n%s", line, text)
		}
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	bytes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func pythonFiles(t *testing.T, engine string) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"/lib/python311.zip": contents(t, filepath.Join(filepath.Dir(engine), "python", "lib", "python311.zip")),
		"/app/handler.py":    []byte(pythonHandler),
	}
}

// typescriptFiles are a handler of the JavaScript SDK's tests, bundled by esbuild with a source map.
func typescriptFiles(t *testing.T, engine string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../sdk/javascript/testdata")); err != nil {
		t.Fatal(err)
	}
	esbuild, err := filepath.Abs(filepath.Join(filepath.Dir(engine), "downloads/npm-javascript/node_modules/.bin/esbuild"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(esbuild); err != nil {
		runtimetest.Missing(t, "no esbuild: run make engines")
	}
	cmd := exec.CommandContext(t.Context(), esbuild, "mapped/handler.ts", "--bundle", "--format=esm", "--target=es2023", "--sourcemap=external",
		"--outfile=handler.js", "--log-level=warning")
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("esbuild: %v\n%s", err, said)
	}
	return map[string][]byte{
		"/app/handler.js": contents(t, filepath.Join(dir, "handler.js")), "/app/handler.js.map": contents(t, filepath.Join(dir, "handler.js.map")),
	}
}
