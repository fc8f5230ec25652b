package runtime

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// setupBuild returns an engine of the test's own for guests that the compiler takes long for: seconds, and with
// the race detector minutes. So it runs in a child without, and the code is kept in build.
func setupBuild(t *testing.T, mode ResetMode) *Engine {
	t.Helper()
	version := strings.TrimSpace(goCommand(t, "list", "-m", "-f", "{{.Version}}", wazeroModule))
	cache := filepath.Join("..", "build", "test", "compiled")
	if err := os.MkdirAll(filepath.Dir(cache), 0o750); err != nil {
		t.Fatal(err)
	}
	config := Config{CacheDir: cache, Compiler: []string{compileChild(t)}, ResetMode: mode}
	engine, err := newEngine(t.Context(), config, version)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := engine.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return engine
}

const wazeroModule = "github.com/tetratelabs/wazero"

// compileChild is the path of a compiler without the race detector, in Go's build cache: go run leaves it there. It
// must take itself for what the test is: a build that does not know wazero's version.
func compileChild(t *testing.T) string {
	t.Helper()
	var path string
	version := "-ldflags=-X " + wazeroModule + "/internal/version.version=" + compile.Version()
	for range 2 { // the first run may have to link it, and then prints a temporary path
		path = strings.TrimSpace(goCommand(t, "run", "-exec=echo", version, "./testdata/compilechild"))
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("go run has left no %s: is this an old Go?", path)
	return ""
}

func goCommand(t *testing.T, arguments ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", arguments...)
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(output)
}

// pythonFiles are scripts in /scripts, and data.
func pythonFiles(t *testing.T) *Files {
	t.Helper()
	contents := map[string][]byte{
		"/data/stopwords.txt": []byte("the\na\nof\n"),
		"/scripts/once.py":    []byte("print('once', __import__('os').environ['TASK_ID'])\n"),
	}
	for _, name := range []string{"sitecustomize.py", "job.py", "words.py"} {
		source, err := os.ReadFile(filepath.Join("testdata", "python", name))
		if err != nil {
			t.Fatal(err)
		}
		contents["/scripts/"+name] = source
	}
	files, err := NewFiles(contents)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPython runs CPython, the largest guest here. Its program comes from stdin, as there are no arguments; or
// a granted script is the program, and stdin its data.
func TestPython(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the compiler takes long for it")
	}
	module, files := loadInto(t, setupBuild(t, ""), runtimetest.Python(t)), pythonFiles(t)
	script := map[string]string{"PYTHONPATH": "/scripts"}
	for name, test := range map[string]struct {
		env    map[string]string
		input  string
		limits Limits
		want   OutcomeKind
		output string // whole
		say    string // the message contains
	}{
		"program": {input: "print(6 * 7)", want: Complete, output: "42\n"},
		"nothing": {want: Complete},
		"arguments": {
			input: "import sys; print(sys.argv, sys.version_info[:2], sys.platform)",
			want:  Complete, output: "[''] (3, 12) wasi\n",
		},
		"library": {
			input: "import decimal, hashlib, json, re, zlib\n" +
				"print(decimal.Decimal('0.1') * 3, hashlib.sha256(b'abc').hexdigest()[:8], json.loads('[1.5e3]'),\n" +
				"      re.sub(r'(\\w)\\1', '<>', 'aabbc'), zlib.crc32(b'abc'))",
			want: Complete, output: "0.3 ba7816bf [1500.0] <><>c 891568578\n",
		},
		"sleep": {
			input: "import time\nt = time.monotonic()\ntime.sleep(0.02)\nprint(time.monotonic() - t >= 0.02, time.time() > 1.7e9)",
			want:  Complete, output: "True True\n",
		},
		"random": {
			input: "import os, random\nprint(len({os.urandom(16) for _ in range(100)}), random.random() != random.random())",
			want:  Complete, output: "100 True\n",
		},
		"granted file": {input: "print(open('/data/stopwords.txt').read(), end='')", want: Complete, output: "the\na\nof\n"},
		"directory":    {input: "import os; print(sorted(os.listdir('/scripts')))", want: Complete, output: "['job.py', 'once.py', 'sitecustomize.py', 'words.py']\n"},
		"write": {
			input: "import errno\ntry:\n  open('/data/new', 'w')\nexcept OSError as e:\n  print(errno.errorcode[e.errno])",
			want:  Complete, output: "EROFS\n",
		},
		"checkpoint":     {input: "print(open('/checkpoint').read())", want: Complete, output: "as far as 42\n"},
		"granted script": {input: "exec(open('/scripts/once.py').read())", want: Complete, output: "once id\n"},
		"script as the program": {
			env: script, input: `{"text": "The art of the art"}`,
			want: Complete, output: `{"art": 2}`,
		},
		"exit for good":  {env: script, input: `{}`, want: Fatal, say: "the task has no text"},
		"bad input":      {env: script, input: `{`, want: Failed, say: "exit status 1: json.decoder.JSONDecodeError: Expecting property name"},
		"exit to retry":  {input: "import sys; sys.exit(75)", want: Retry},
		"exception":      {input: "1 / 0", want: Failed, say: "exit status 1: ZeroDivisionError: division by zero"},
		"syntax":         {input: "1 +", want: Failed, say: "exit status 1: SyntaxError: invalid syntax"},
		"recursion":      {input: "def f(): return f() + 1\nf()", want: Failed, say: "RecursionError: maximum recursion depth exceeded"},
		"endless loop":   {input: "while True: pass", limits: Limits{CPU: time.Second}, want: LimitExceeded, say: "cpu limit of 1s"},
		"endless sleep":  {input: "import time; time.sleep(1e6)", limits: Limits{Timeout: time.Second}, want: LimitExceeded, say: "timeout of 1s"},
		"memory":         {input: "x = bytearray(1 << 30)", want: LimitExceeded, say: "memory limit of 64MiB"},
		"output":         {input: "while True: print('x' * 1000)", limits: Limits{Output: 1 << 20}, want: LimitExceeded, say: "output limit of 1MiB"},
		"no network":     {input: "import socket; socket.create_connection(('127.0.0.1', 80))", want: Failed, say: "exit status 1: "},
		"no subprocess":  {input: "import os; os.system('true')", want: Failed, say: "AttributeError"},
		"no other files": {input: "open('/etc/passwd')", want: Failed, say: "FileNotFoundError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := bound(module, "", Profile{Env: test.env, Files: files, Limits: test.limits}).Run(t.Context(), Call{
				TaskID: "id", Queue: "queue", Plugin: "python", Input: []byte(test.input),
				Checkpoint: []byte("as far as 42"),
			})
			if got.Kind != test.want || string(got.Output) != test.output || !strings.Contains(got.Message, test.say) {
				t.Errorf("outcome = %+v with %q, want %s with %q: %s", got, got.Output, test.want, test.output, test.say)
			}
		})
	}
}
