package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

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
	ofProcesses(t)
	for language, test := range map[string]struct {
		files fs.FS
		input string
		first string
		lines []string
	}{
		"python": {
			fstest.MapFS{"handler.py": {Data: []byte(pythonHandler)}},
			"Ada", `ValueError: Ada has no ink\x1b[31m [handler.py:2 in check < handler.py:5 in handle]`,
			[]string{"Traceback (most recent call last):", `  File "/app/handler.py", line 5, in handle`, `  File "/app/handler.py", line 2, in check`, `ValueError: Ada has no ink\x1b[31m`},
		},
		"javascript": {
			os.DirFS("../../sdk/javascript/testdata/mapped"), `{"name":"Ada"}`, "TypeError: Ada has no ink",
			[]string{"    at check (ink.ts:8:9)", "    at greet (handler.ts:10:3)", "    at handle (handler.ts:16:10)"},
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			interpreter(t, language)
			source, plugins := filepath.Join(t.TempDir(), "order"), t.TempDir()
			if err := os.CopyFS(source, test.files); err != nil {
				t.Fatal(err)
			}
			tenant := queuetest.Tenant()
			u := newUser(t, queuetest.Shared(t).URL()).asBuilt().with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant})
			u.must("plugin", "build", source, "--to", plugins)
			c, _ := u.host(plugins)
			first := test.first
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
			if !regexp.MustCompile(`(?m)^run 1 .*: \(error\) ` + regexp.QuoteMeta(first) + "…$").MatchString(again) {
				t.Errorf("its history is not one line:\n%s", again)
			}
			quoted := strings.ReplaceAll(regexp.QuoteMeta(first), `"`, `\\"`)
			c.stderr.await(t, regexp.MustCompile(`task failed: [^\n]* error="?`+quoted+`…"? trace=".*\n`))
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
