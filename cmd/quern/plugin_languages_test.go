package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/javascript"
)

// interpreters are the engines that tests compile once, because that takes seconds; others find them in the cache.
var interpreters = map[string]*sync.Once{"python": {}, "javascript": {}}

// interpreter is the path of an engine; a test without it is skipped.
func interpreter(t *testing.T, engine string) string {
	t.Helper()
	path := runtimetest.Engine(t, engine)
	interpreters[engine].Do(func() { newUser(t, "").asBuilt().must("plugin", "check", path) })
	return path
}

// quiet matches what a build writes to stderr if nothing is wrong: no more than a note on a busy machine.
var quiet = regexp.MustCompile(`^$`)

// A handler in Python or JavaScript becomes a plugin with the files that it needs, and the same source gives the same bytes.
func TestPluginBuildInterpreted(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	for name, test := range map[string]struct {
		engine        string
		files         map[string]string
		input, output string
		carries       []string // below /app
	}{
		"Python": {
			"python",
			map[string]string{
				"handler.py":   "from pathlib import Path\nfrom lib import words\n\ndef handle(task):\n    return words.shout(task.text) + Path(__file__).with_name('a.txt').read_text()\n",
				"lib/words.py": "def shout(text):\n    return text.upper()\n", "a.txt": "!", "test_handler.py": "", "lib/words_test.py": "", "tests/a.txt": "",
				"__pycache__/x.pyc": "", ".venv/pyvenv.cfg": "", "env/pyvenv.cfg": "", "env/x.py": "", "README.md": "", "small.yaml": "name: small\n",
				"requirements.txt": "# nothing\n", "data/README.md": "", "small.wasm": "", ".git/x.py": "",
			},
			"ada", "ADA!",
			[]string{"a.txt", "data/README.md", "handler.py", "lib/words.py"},
		},
		"TypeScript": {
			"javascript",
			map[string]string{
				"handler.ts":   "import { Fatal, type Task } from \"@quern/sdk\";\nimport { shout } from \"./lib/words\";\nimport text from \"./a.txt\";\nexport default async (task: Task) => { if (!Fatal) throw 1; return shout(task.text()) + text };\n",
				"lib/words.ts": "export const shout = (text: string): string => text.toUpperCase();\n", "a.txt": "!", "other.ts": "broken (",
			},
			"ada", "ADA!",
			[]string{"handler.js", "handler.js.positions"},
		},
		"JavaScript": {"javascript", map[string]string{"handler.js": "export default (task) => task.json().a\n"}, `{"a":[1]}`, "[1]", []string{"handler.js", "handler.js.positions"}},
		"Module":     {"javascript", map[string]string{"handler.mjs": "export default () => 'ok'\n"}, "", "ok", []string{"handler.js", "handler.js.positions"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter(t, test.engine)
			u := newUser(t, "").asBuilt()
			dir := sourceFolder(t, test.files)
			file := filepath.Join(dir, "small.wasm")
			r := u.run("plugin", "build", dir)
			said, named := strings.CutPrefix(r.stderr, "note: data files in small.wasm: a.txt, data/README.md\n")
			if r.status != exitDone || r.stdout != file+"\n" || named != (name == "Python") || !quiet.MatchString(said) {
				t.Fatalf("%+v", r)
			}
			u.leavesNothing(dir)
			if r := u.feed(test.input, "plugin", "run", file); r.status != exitDone || r.stdout != test.output {
				t.Errorf("%+v", r)
			}
			var view struct {
				Kind  string   `json:"kind"`
				Notes []string `json:"notes"`
				Files []struct {
					Path string `json:"path"`
					Size int64  `json:"size"`
				} `json:"files"`
			}
			if err := json.Unmarshal([]byte(u.must("plugin", "check", file, "-o", "json")), &view); err != nil {
				t.Fatal(err)
			}
			var carries []string
			for _, carried := range view.Files {
				if inside, ok := strings.CutPrefix(carried.Path, "/app/"); ok {
					carries = append(carries, inside)
				}
				if strings.HasSuffix(carried.Path, "/a.txt") && carried.Size != 1 {
					t.Errorf("%+v", carried)
				}
			}
			if view.Kind != "handler" || !slices.Equal(carries, test.carries) || view.Notes != nil {
				t.Errorf("%s with %v, want %v; notes %q", view.Kind, carries, test.carries, view.Notes)
			}
			if text := u.must("plugin", "check", file); !regexp.MustCompile(`files +\d+ with \S+, see -o json\n`).MatchString(text) {
				t.Errorf("its files are not shown:\n%s", text)
			}
			first := content(t, file)
			other := sourceFolder(t, test.files)
			to := filepath.Join(other, "handlers") // where quern dev builds it, again and again
			u.must("plugin", "build", other, "--to", to)
			u.must("plugin", "build", other, "--to", to)
			if again := content(t, filepath.Join(to, "small.wasm")); !bytes.Equal(first, again) {
				t.Error("the same source gave other bytes")
			}
		})
	}
}

// Hosts share the library of the interpreter, because it is in a section of its own.
func TestPluginBuildSharesLibrary(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	interpreter(t, "python")
	u := newUser(t, "").asBuilt()
	var libraries [][]byte
	for _, source := range []string{"def handle(task): pass\n", "def handle(task): return 1\n"} {
		dir := sourceFolder(t, map[string]string{"handler.py": source})
		u.must("plugin", "build", dir)
		sections := bundle.Sections(content(t, filepath.Join(dir, "small.wasm")))
		if len(sections) != 2 {
			t.Fatalf("%d sections", len(sections))
		}
		libraries = append(libraries, sections[0])
	}
	if !bytes.Equal(libraries[0], libraries[1]) {
		t.Error("the library differs")
	}
}

// What is wrong with a handler is told with its file and line, and what was built before stays.
func TestPluginBuildInterpretedErrors(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	const built = "export default () => 'ok'\n"
	for name, test := range map[string]struct {
		engine string
		files  map[string]string
		status int
		says   string // a pattern
	}{
		"PythonSyntax":  {"python", map[string]string{"handler.py": "def handle(task)\n    pass\n"}, exitFailed, `(?s)File "\S*/small/handler.py", line 1\n.*SyntaxError: expected ':'\nquern: small does not start: its messages are above\n$`},
		"PythonRaises":  {"python", map[string]string{"handler.py": "import lib\n", "lib.py": "\nX = {}['ink']\n"}, exitFailed, `(?s)^Traceback.*small/handler.py", line 1, in <module>\n.*small/lib.py", line 2, in <module>\n.*KeyError: 'ink'\nquern: small does not start`},
		"PythonMissing": {"python", map[string]string{"handler.py": "import numpy.linalg\n"}, exitFailed, `quern: small does not start: no module named numpy: numpy has native code, which a plugin cannot load, and no version without: use the module statistics`},
		"PythonAbsent":  {"python", map[string]string{"handler.py": "import words.long\n"}, exitFailed, `quern: small does not start: no module named words: list its package in requirements.txt, and build the plugin again\n$`},
		"PythonRedis":   {"python", map[string]string{"handler.py": "", "requirements.txt": "redis==5.0.1\n"}, exitFailed, `^quern: \S*/small/requirements.txt:1: redis needs sockets, which a plugin does not have: use quern.kv, and grant capabilities.kv in the manifest\n$`},
		"PythonHides":   {"python", map[string]string{"handler.py": "def handle(task): pass\n", "quern/__init__.py": ""}, exitFailed, `^quern: \S*/small/quern/__init__.py hides Quern's own module quern: rename it\n$`},
		"PythonTests":   {"python", map[string]string{"handler.py": "import lib.test_data\n", "lib/__init__.py": "", "lib/test_data.py": ""}, exitFailed, `quern: small does not start: \S*/small/lib/test_data.py is left out of plugins, .*: rename it`},
		"PythonPart":    {"python", map[string]string{"handler.py": "import lib.words\n", "lib/__init__.py": ""}, exitFailed, `quern: small does not start: its messages are above\n$`},
		"PythonUTF16":   {"python", map[string]string{"handler.py": "import lib\n", "lib.py": "\xff\xfeX\x00\n\x00"}, exitFailed, `^quern: \S*/small/lib.py has NUL bytes, as files in UTF-16 have: save it as UTF-8\n$`},
		"PythonName":    {"python", map[string]string{"handler.py": "def handle(task): pass\n", "caf\xe9.txt": ""}, exitFailed, `^quern: "\S*/small/caf\\xe9.txt": the name is not UTF-8: rename it\n$`},
		"PythonFolder":  {"python", map[string]string{"handler.py/a.txt": ""}, exitUsage, `^quern: \S*/small/handler.py is a folder: put a file in its place\n$`},
		"PythonNative":  {"python", map[string]string{"handler.py": "import ssl\n"}, exitFailed, `the host speaks TLS: use quern.http`},
		"PythonNone":    {"python", map[string]string{"handler.py": "def run(task): pass\n"}, exitFailed, `handler.py has no function handle: add def handle\(task\)`},
		"Manifest":      {"python", map[string]string{"handler.py": "def handle(task): pass\n", "small.yaml": "name: small\nlimits: {memroy: 1MiB}\n"}, exitRefused, `memroy`},
		"Syntax":        {"javascript", map[string]string{"handler.ts": "\nexport default () => { const = 3 }\n"}, exitFailed, `^handler.ts:2:30: error: Expected identifier but found "="\n +export default .*\nquern: esbuild could not build small: its messages are above\n$`},
		"Latin1":        {"javascript", map[string]string{"handler.js": "import './a.js'\nexport default () => 1\n", "a.js": "// \ufffd\nlet a = 'caf\xe9'"}, exitFailed, `^a.js:2:13: error: byte 0xe9 is not UTF-8: save the file as UTF-8\n`},
		"NoLoader":      {"javascript", map[string]string{"handler.js": "import a from './a.svg'\nexport default () => a\n", "a.svg": "<svg>"}, exitFailed, `^handler.js:1:15: error: No loader is configured for "\.svg" files: a\.svg: import a text by adding with { type: "text" }`},
		"Attributes":    {"javascript", map[string]string{"handler.js": "import a from './a.svg' with { type: 'text' }\nimport b from './b.txt' with { type: 'bytes' }\nif (a + b.length != '<svg>1') throw a + b.length\nexport default () => a\n", "a.svg": "<svg>", "b.txt": "\xe9"}, exitDone, ``},
		"Raises":        {"javascript", map[string]string{"handler.ts": "import './ink';\nexport default () => {};\n", "ink.ts": "type A = string;\n\nthrow new TypeError('no ink');\n"}, exitFailed, `(?s)^TypeError: no ink\n.*ink.ts:3:7.*quern: small does not start`},
		"TSNoDefault":   {"javascript", map[string]string{"handler.ts": "export const a: number = 1;\n"}, exitFailed, `TypeError: handler.ts exports no default: write export default function`},
		"NoDefault":     {"javascript", map[string]string{"handler.js": "export const a = 1;\n"}, exitFailed, `handler.js exports no default`},
		"Node":          {"javascript", map[string]string{"handler.js": "import a from 'node:fs';\nimport b from 'http';\nimport c from 'child_process';\nexport default () => [a, b, c];\n"}, exitFailed, `(?s)handler.js:1:15: error: import of "node:fs": a plugin has no modules of Node: to read, import the file itself.*; to write, return the data, or keep it in kv.*handler.js:2:15: error: import of "http": .* use fetch, with capabilities.http.*handler.js:3:15: error: import of "child_process": .*enqueue`},
		"Browser":       {"javascript", map[string]string{"handler.js": "import { a } from 'b';\nif (a !== 'browser') throw a;\nexport default () => a;\n", "node_modules/b/package.json": `{"main": "a.js", "browser": {"./node.js": "./browser.js"}}`, "node_modules/b/a.js": "exports.a = require('./node.js')", "node_modules/b/node.js": "require('net')", "node_modules/b/browser.js": "module.exports = 'browser'"}, exitDone, ``},
		"NodePackage":   {"javascript", map[string]string{"handler.js": "import { Queue } from 'bullmq';\nimport pg from 'pg/lib';\nexport default () => [Queue, pg];\n"}, exitFailed, `^handler.js:1:23: error: import of "bullmq": a plugin has no sockets: use kv, enqueue and publish of @quern/sdk\n.*\nhandler.js:2:16: error: import of "pg/lib": a plugin has no sockets: .*\n.*\nquern: `},
		"NodeInPackage": {"javascript", map[string]string{"handler.js": "import a from 'a';\nimport b from '@b/b';\nexport default [a, b];\n", "node_modules/a/index.js": "import 'net';\nimport 'node:util';\nexport default 1\n", "node_modules/@b/b/index.js": "import 'util';\nimport 'path';\nexport default 1\n"}, exitFailed, `(?s)^node_modules/@b/b/index.js:1:8: error: the package @b/b needs modules of Node \(path, util\), .*: run npm install path@npm:path-browserify util\nnode_modules/a/index.js:1:8: error: the package a needs modules of Node \(net, util\), which a plugin does not have: use one that runs in browsers\nquern: `},
		"NodeNames":     {"javascript", map[string]string{"handler.ts": "// Buffer\nexport default function process(a: string) {\n  return process(a) + Buffer.from(a);\n}\n"}, exitFailed, `^handler.ts:3:23: error: Buffer is not defined: use Uint8Array and TextEncoder, or run npm install buffer .*\nquern: `},
		"Undefined":     {"javascript", map[string]string{"handler.ts": "import { kv, type Task } from '@quern/sdk';\nconst text = 'checkStok';\nexport default (task: Task) => {\n  if (kv('a').text('b') === text) return checkStok(task);\n};\n"}, exitDone, `^handler.ts:4:42: warning: checkStok is not defined: declare or import it; the engine has no global of that name\n$`},
		"Export":        {"javascript", map[string]string{"handler.ts": "import {\n  type Task,\n  kvs as kv,\n} from '@quern/sdk';\nexport default (task: Task) => kv('a').text(task.id);\n"}, exitFailed, `^handler.ts:3:3: error: @quern/sdk has no kvs: did you mean kv\?\n`},
		"WebSocket":     {"javascript", map[string]string{"handler.js": "export default () => new WebSocket('wss://a.example');\n"}, exitFailed, `^handler.js:1:26: error: WebSocket is not defined: a plugin has no sockets: use fetch\n`},
		"Process":       {"javascript", map[string]string{"handler.js": "export default () => process.exit(1);\n"}, exitFailed, `^handler.js:1:22: error: process is not defined: a plugin has only process.env, .*; throw Fatal or Failure instead of process.exit\n`},
		"TypeOf":        {"javascript", map[string]string{"handler.js": "if (typeof process !== 'undefined' || typeof Buffer === 'function') throw Buffer;\nexport default () => 1;\n"}, exitDone, ``},
		"Env":           {"javascript", map[string]string{"handler.js": "const { MODE } = process.env;\nif (MODE !== 'prod' || process.env.MODE !== MODE || process.env.KEY) throw MODE;\nexport default () => 1;\n", "small.yaml": "name: small\ncapabilities: {env: {MODE: prod}}\n"}, exitDone, `^handler.js:2:53: warning: process.env.KEY is undefined: add capabilities: {env: {KEY: ...}} to the manifest`},
		"Intl":          {"javascript", map[string]string{"handler.js": "export default () => new Intl.NumberFormat('de');\n"}, exitFailed, `^handler.js:1:26: error: Intl is not defined: a plugin has no Intl: use a package such as dayjs`},
		"Locale":        {"javascript", map[string]string{"handler.js": "export default () => (1.5).toLocaleString('de-DE');\n"}, exitDone, `^handler.js:1:28: warning: toLocaleString: the locale "de-DE" has no effect, because a plugin has no Intl: use a package such as dayjs, or format it yourself\n`},
		"OfTests":       {"javascript", map[string]string{"handler.js": "import { v } from './tests/util.js';\nexport default () => v;\n", "tests/util.js": "export const v = 1;\n"}, exitFailed, `error: tests/util.js is a test, which is not in a plugin: move what the handler imports to another folder`},
		"Testing":       {"javascript", map[string]string{"handler.js": "import { testHost } from '@quern/sdk/testing';\nexport default testHost;\n"}, exitFailed, `^handler.js:1:26: error: import of "@quern/sdk/testing": it is for tests in Node`},
		"NodeOptional":  {"javascript", map[string]string{"handler.js": "let a; try { a = require('fs') } catch { a = 1 }\nexport default () => a;\n"}, exitDone, ``},
		"Package":       {"javascript", map[string]string{"handler.js": "import a from '@left/pad/x';\nimport './none';\nexport default a;\n"}, exitFailed, `(?s)handler.js:1:15: error: import of "@left/pad/x": the package is not installed: run npm install @left/pad\n.*import of "./none": there is no such file`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter(t, test.engine)
			u := newUser(t, "").asBuilt()
			dir := sourceFolder(t, test.files)
			file := write(t, filepath.Join(dir, "small.wasm"), built)
			r := u.run("plugin", "build", dir)
			if r.status != test.status || !regexp.MustCompile(test.says).MatchString(r.stderr) {
				t.Errorf("%+v, want %d, %s", r, test.status, test.says)
			}
			if kept := string(content(t, file)) == built; kept == (test.status == exitDone) {
				t.Errorf("the file from before is kept: %t", kept)
			}
			u.leavesNothing(dir)
		})
	}
}

// The error for engines that are not there says how to get them.
func TestPluginBuildWithoutEngine(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	u := newUser(t, "").asBuilt().with(map[string]string{"QUERN_ENGINES": filepath.Join(t.TempDir(), "none")})
	for _, name := range []string{"handler.py", "handler.ts"} {
		r := u.run("plugin", "build", sourceFolder(t, map[string]string{name: ""}))
		if want := regexp.MustCompile(`^quern: there is no engine \S+/none/\w+\.wasm: take quern from .pip install quern., .npm install quern. or the release archive`); r.status != exitRefused || !want.MatchString(r.stderr) {
			t.Errorf("%+v", r)
		}
	}
}

// An engine of which a part is missing is told by its name.
func TestPluginBuildTruncatedEngine(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	engine := content(t, interpreter(t, "javascript"))
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "javascript.wasm"), string(engine[:len(engine)/2]))
	source := sourceFolder(t, map[string]string{"handler.js": "export default () => 1\n"})
	r := newUser(t, "").asBuilt().run("plugin", "build", source, "--engines", dir)
	if want := "quern: read engine: " + file + " is truncated or damaged: install quern again, or run `make engines`"; r.status != exitRefused || !strings.HasPrefix(r.stderr, want) {
		t.Errorf("%+v, want %s", r, want)
	}
}

// A handler that reads the result of a failed dependency says that it failed, not only that nothing was found.
func TestPluginFailedDependency(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	for engine, files := range map[string]map[string]string{
		"python":     {"handler.py": "def handle(task):\n    return task.result_of('bad')\n"},
		"javascript": {"handler.ts": "import type { Task } from '@quern/sdk';\nexport default (task: Task) => task.dependencies()[0].text();\n"},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			interpreter(t, engine)
			u := newUser(t, "").asBuilt()
			files["small.yaml"] = "name: small\n"
			dir := sourceFolder(t, files)
			u.must("plugin", "build", dir)
			r := u.run("plugin", "run", filepath.Join(dir, "small.wasm"), "--dependency", "bad")
			if r.status != exitFailed || !strings.Contains(r.stderr, "task bad failed and has no result") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A traceback, and a stack with the lines of TypeScript, show in `plugin run` and `plugin test`.
func TestPluginTracebacks(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	const manifest = "name: small\ntests: [{name: a}]\n"
	for engine, test := range map[string]struct {
		files map[string]string
		lines []string
	}{
		"python": {
			map[string]string{"handler.py": "import lib\n\ndef handle(task):\n    return lib.paint(task)\n", "lib.py": "def paint(task):\n    raise ValueError('no ink')\n"},
			[]string{`File "/app/handler.py", line 4, in handle`, `File "/app/lib.py", line 2, in paint`, "ValueError: no ink"},
		},
		"javascript": {
			map[string]string{"handler.ts": "import { paint } from './lib';\nexport default (task: unknown) => paint(task);\n", "lib.ts": "interface A { a: string }\nexport function paint(a: unknown): A {\n  throw new TypeError('no ink');\n}\n"},
			[]string{"at paint (lib.ts:3:9)", "(handler.ts:2:35)", "TypeError: no ink"},
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			interpreter(t, engine)
			u := newUser(t, "").asBuilt()
			test.files["small.yaml"] = manifest
			dir := sourceFolder(t, test.files)
			u.must("plugin", "build", dir)
			ran, tested := u.run("plugin", "run", filepath.Join(dir, "small.wasm")), u.run("plugin", "test", dir)
			for _, line := range test.lines {
				if ran.status != exitFailed || !strings.Contains(ran.stderr, line) {
					t.Errorf("plugin run: %d, without %q:\n%s", ran.status, line, ran.stderr)
				}
				if tested.status != exitFailed || !strings.Contains(tested.stdout, line) {
					t.Errorf("plugin test: %d, without %q:\n%s", tested.status, line, tested.stdout)
				}
			}
		})
	}
}

// Packages of npm that nobody here wrote are bundled.
func TestPluginBuildNPM(t *testing.T) {
	t.Parallel()
	packages := filepath.Join(filepath.Dir(interpreter(t, "javascript")), "downloads", "npm-javascript-tests", "node_modules")
	if _, err := os.Stat(packages); err != nil {
		runtimetest.Missing(t, "no npm packages: run make engines")
	}
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{"handler.ts": `
import { marked } from "marked";
import { z } from "zod";
const Page = z.object({ text: z.string() });
export default (task: any) => marked.parse(Page.parse(task.json()).text);
`})
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	u.must("plugin", "build", dir)
	file := filepath.Join(dir, "small.wasm")
	if r := u.feed(`{"text": "a *b*"}`, "plugin", "run", file); r.stdout != "<p>a <em>b</em></p>\n" {
		t.Errorf("%+v", r)
	}
	if r := u.feed(`{}`, "plugin", "run", file); r.status != exitFailed || !strings.Contains(r.stderr, "ZodError") {
		t.Errorf("%+v", r)
	}
}

// The tests of a new plugin in Python run by pytest: natively with the packages that the plugin has, and in its engine. A changed test
// needs no new module.
func TestPluginPytest(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	interpreter(t, "python")
	u := newUser(t, "").asBuilt().with(map[string]string{"PYTHON": absolute(t, "../../build/venv/bin/python")})
	dir := filepath.Join(t.TempDir(), "greet")
	u.must("plugin", "new", dir, "--lang", "python")
	for name, text := range map[string]string{
		"words/words.py": "VERSION = 'of the plugin'\n", "words/pyproject.toml": "[project]\nname = 'words'\nversion = '1.0'\n", "requirements.txt": "./words\n",
		"handler.py": "import logging, quern, words\ndef handle(task):\n    logging.info('greets')\n    if task.text == 'open': open('x', 'w')\n" +
			"    if task.text == 'retry': raise quern.Retry('later', delay=3)\n    return words.VERSION\n",
		"test_handler.py": `
import handler
from quern import testing

def test_natively(): assert testing.run(handler.handle).text == "of the plugin"

def test_in_the_engine(quern_plugin):
    result = quern_plugin.run("a")
    assert (result.status, result.text, result.log) == ("complete", "of the plugin", [("", "greets", {})])
    result = quern_plugin.run("open")
    assert result.status == "failed" and result.error.startswith("OSError: [Errno 69] a handler writes no files")
    assert result.traceback.startswith("Traceback (most recent call last):")
    result = quern_plugin.run("retry")
    assert (result.status, result.error) == ("retry", "later")
`,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	u.must("plugin", "build", dir)
	before := content(t, filepath.Join(dir, "greet.wasm"))
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(filepath.Join(dir, "test_handler.py"), later, later); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"", absolute(t, "../../sdk/python/package/src")} {
		passed := "2 passed"
		if library != "" { // the installed package goes before the copy in .quern, which has no client
			write(t, filepath.Join(dir, "test_producer.py"), "def test_client(): from quern.client import Client\n")
			passed = "3 passed"
		}
		c := u.prepare()
		c.Path, c.Args, c.Dir = absolute(t, "../../build/venv/bin/python"), []string{"python", "-m", "pytest", "-p", "no:cacheprovider", "-q"}, dir
		c.Env = append(c.Env, "QUERN="+path, "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+library)
		if err := c.Run(); err != nil || !strings.Contains(c.stdout.String(), passed) {
			t.Errorf("%v: run make deps if it is not installed\n%s%s", err, c.stdout, c.stderr)
		}
	}
	if r := u.run("plugin", "test", filepath.Join(dir, "greet.wasm")); strings.Contains(r.stderr, "building") {
		t.Errorf("a changed test builds the module again: %s", r.stderr)
	}
	if !bytes.Equal(before, content(t, filepath.Join(dir, "greet.wasm"))) {
		t.Error("the module has changed")
	}
}

// pip is a Python with pip and an index that it reaches; a test without is skipped.
func pip(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("pip downloads packages each time")
	}
	for _, python := range []string{"../../build/venv/bin/python", "python3"} {
		path, err := exec.LookPath(python)
		if err == nil && exec.CommandContext(t.Context(), path, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", t.TempDir(), "six").Run() == nil {
			path, err = filepath.Abs(path)
			if err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	runtimetest.Missing(t, "no pip that reaches PyPI: run make deps")
	return ""
}

// Packages of PyPI that nobody here wrote are installed: pure wheels, and those that have only native ones. The second build needs
// neither pip nor a network.
func TestPluginBuildPyPI(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	interpreter(t, "python")
	u := newUser(t, "").asBuilt().with(map[string]string{"PYTHON": pip(t)})
	more := rand.Text() + ".txt" // so that packages of an earlier run are not found
	dir := sourceFolder(t, map[string]string{
		"requirements.txt": "-r " + more + "\npython-dateutil==2.9.0.post0 # pure\ncolorama==0.4.6; sys_platform == \"win32\"\n",
		more:               "Jinja2==3.1.6\nPyYAML==6.0.2\n",
		"handler.py": `
import datetime, importlib.util, dateutil.relativedelta, jinja2, yaml
PAGE = jinja2.Template("{{ name|e }}, {{ day }}, {{ other }}")
def handle(task):
    day = datetime.date(2024, 1, 31) + dateutil.relativedelta.relativedelta(months=1)
    return PAGE.render(name=yaml.safe_load(task.text)["name"], day=day, other=importlib.util.find_spec("colorama"))
`,
	})
	file := filepath.Join(dir, "small.wasm")
	if r := u.run("plugin", "build", dir); r.status != exitDone || !strings.Contains(r.stderr, "installing requirements.txt of small by ") {
		t.Fatalf("%+v", r)
	}
	first := content(t, file)
	if r := u.feed("name: <Ada>", "plugin", "run", file); r.stdout != "&lt;Ada&gt;, 2024-02-29, None" {
		t.Errorf("%+v", r)
	}
	offline := u.with(map[string]string{"PYTHON": "none"})
	if r := offline.run("plugin", "build", dir); r.status != exitDone || !quiet.MatchString(r.stderr) || !bytes.Equal(content(t, file), first) {
		t.Errorf("again: %+v", r)
	}
	write(t, filepath.Join(dir, more), "Jinja2==3.1.5\n")
	if r := offline.run("plugin", "build", dir); r.status != exitRefused || !strings.Contains(r.stderr, "quern: there is no Python 3 with pip to install requirements.txt (tried none): install one") {
		t.Errorf("changed: %+v", r)
	}
}

// Packages with native code are refused by name, with what to do.
func TestPluginBuildNative(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	interpreter(t, "python")
	u := newUser(t, "").asBuilt().with(map[string]string{"PYTHON": pip(t)})
	for requirement, says := range map[string]string{
		"Pillow==11.1.0":       "/small/requirements.txt:1: Pillow has native code, which a plugin cannot load, and no version without: ",
		"quern-no-such==1.0.0": "ERROR: No matching distribution found for quern-no-such==1.0.0\nquern: pip finds no quern-no-such==1.0.0 that a plugin can have (its messages are above): ",
		"-e .":                 "a plugin has its packages in it: write the path or URL without -e",
	} {
		dir := sourceFolder(t, map[string]string{"handler.py": "def handle(task): pass\n", "requirements.txt": requirement + "\n"})
		if r := u.run("plugin", "build", dir); r.status != exitFailed || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %+v", requirement, r)
		}
		u.leavesNothing(dir)
	}
}

// dev builds handlers in Python and TypeScript again when they are saved.
func TestDevRebuildsInterpreted(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	u := newUser(t, "").asBuilt()
	for engine, test := range map[string]struct{ file, source string }{
		"python":     {"handler.py", "def handle(task):\n    return 'ANSWER'\n"},
		"javascript": {"handler.ts", "export default (): string => 'ANSWER';\n"},
	} {
		interpreter(t, engine)
		dir := sourceFolder(t, map[string]string{"small.yaml": "name: small\n"})
		save := func(answer string) {
			write(t, filepath.Join(dir, test.file), strings.ReplaceAll(test.source, "ANSWER", answer))
		}
		save("one")
		u := u.with(map[string]string{"XDG_RUNTIME_DIR": t.TempDir()})
		dev := u.spawnIn(t.TempDir(), "dev", "--source", dir, "--plugins", filepath.Join(t.TempDir(), "handlers"))
		dev.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=small`))
		for _, want := range []string{"one", "two"} {
			save(want)
			eventually(t, "the answer "+want, func() bool { return u.must("enqueue", "small", "--wait") == want })
		}
		write(t, filepath.Join(dir, test.file), "broken (\n")
		dev.stderr.await(t, regexp.MustCompile(`cannot rebuild small; the last version keeps running`))
		if got := u.must("enqueue", "small", "--wait"); got != "two" {
			t.Errorf("%s: %q", engine, got)
		}
	}
}

// What handlers in JavaScript get from the host for tests in Node is what the real engine and host give them.
func TestJavaScriptTestHost(t *testing.T) {
	t.Parallel()
	interpreter(t, "javascript")
	dir := sourceFolder(t, map[string]string{
		"package.json": `{"type": "module"}`,
		"small.yaml": "name: small\nconfig: {size: \"9\"}\ncapabilities:\n  kv: [{bucket: b, access: rw}]\n  enqueue: {queues: [\"mail.*\"]}\n" +
			"  publish: {topics: [orders]}\n",
		"handler.js": `
import { checkpoint, config, enqueue, http, kv, log, progress, publish, secrets } from "@quern/sdk";
const b = kv("b"), text = (bytes) => bytes && new TextDecoder().decode(bytes), big = "x".repeat(600 << 10);
const calls = (task) => [
  () => task.text(), () => task.bytes().length, () => task.json(), () => task.attempt, () => task.maxAttempts, () => task.key, () => task.cancelled,
  () => task.dependencies(), () => task.resultOf("none"), () => task.reschedules, () => task.previousError,
  () => config.get("size"), () => config.get("none"), () => secrets.get("none"),
  () => b.name, () => b.get("none"), () => b.set("a", "é"), () => b.text("a"), () => text(b.get("a")), () => b.set("j", { n: [1, null] }), () => b.json("j"),
  () => b.set("n", 5), () => b.increment("n"), () => b.increment("n", -10n), () => b.increment("m", 2 ** 53), () => typeof b.increment("m", 1), () => b.increment("a"),
  () => b.set("max", "9223372036854775807"), () => b.increment("max"), () => b.set("wrong", "007"), () => b.increment("wrong"),
  () => b.swap("s", undefined, "1"), () => b.swap("s", undefined, "2"), () => b.swap("s", "1", "2"), () => b.swap("s", "1", "3"), () => b.text("s"),
  () => b.swap("none", "1", "2"), () => b.set("ttl", "1", { ttl: 60000 }), () => b.text("ttl"), () => b.set("ttl", "1", { ttl: -1 }), () => b.set("ttl", "1", { ttl: "1s" }),
  () => b.list(), () => b.list({ prefix: "m" }), () => b.list({ after: "m", limit: 2 }), () => b.list({ limit: 0 }), () => b.list({ limit: 1001 }),
  () => b.delete("a"), () => b.delete("a"), () => b.set("", "x"), () => b.get("a\u0001"), () => b.get("k".repeat(257)), () => b.set("big", big), () => b.set("f", () => 1),
  () => b.set("bytes", new Uint8Array([255, 0])), () => b.get("bytes").join(), () => b.set("wide", new Uint16Array([0x4241])), () => b.text("wide"),
  () => b.set("empty", ""), () => b.text("empty"), () => b.set("nothing"), () => b.text("nothing"),
  () => kv("other").get("a"), () => kv("").get("a"), () => kv("other").set("a", "b"),
  () => checkpoint.load(), () => checkpoint.save({ at: 1 }), () => checkpoint.json(), () => checkpoint.save(big + big), () => checkpoint.text(),
  () => progress(0.5, "half"), () => progress(7), () => progress(NaN), () => log.info("a", { b: 1 }), () => log("loud", "a"), () => log(9, "a"), () => log.info("a", { b: "x".repeat(4000) }),
  () => typeof enqueue("mail.a", { a: 1 }), () => enqueue("mail.a", "x", { id: "i", delay: 5, labels: { a: "b" }, unique: true }), () => enqueue("other"), () => enqueue("mail a"),
  () => enqueue("mail.a", "x", { priority: 101 }), () => enqueue("mail.a", "x", { delay: 5, at: new Date() }), () => enqueue("mail.a", "x", { dealy: 1 }), () => enqueue("mail.a", "x", { when: "any" }),
  () => enqueue("mail.a", "x", { unique: { for: 5 } }), () => enqueue("mail.a", "x", { id: "a b" }), () => enqueue("mail.a", "x", { delay: "5s" }), () => typeof enqueue("mail.a", "x", { after: ["i"], when: "ended" }),
  () => publish("orders", { a: 1 }, { id: "p", attributes: { type: "made" } }), () => publish("others", ""), () => publish("or*", ""), () => publish("orders", "", { attributes: { Type: "a" } }),
  () => http("https://a.example/"), () => http({ url: "ftp://a.example/" }), () => http({ url: "https://a.example/", method: "CONNECT" }), () => http({ uri: "x" }),
];
export default (task) => calls(task).map((call) => {
  try {
    const value = call() ?? null;
    return [String(call), typeof value === "bigint" ? "bigint " + value : value];
  } catch (error) {
    return [String(call), "thrown: " + error.name, error.code, error.call, text(error.present)];
  }
});
`,
		"run.mjs": `
import { testHost } from "@quern/sdk/testing";
import handler from "./handler.js";
const host = testHost({ config: { size: "9" }, kv: { b: {} }, queues: ["mail.*"], topics: ["orders"] });
const result = await host.run(handler, '{"n":"ü"}');
process.stdout.write(result.text() + result.error);
`,
	})
	if err := os.CopyFS(filepath.Join(dir, "node_modules", "@quern", "sdk"), javascript.Source); err != nil {
		t.Fatal(err)
	}
	u := newUser(t, "").asBuilt()
	u.must("plugin", "build", dir)
	ran := u.feed(`{"n":"ü"}`, "plugin", "run", filepath.Join(dir, "small.wasm"))
	cmd := exec.CommandContext(t.Context(), "node", "run.mjs")
	cmd.Dir = dir
	inNode, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got, want [][]any
	if err := errors.Join(json.Unmarshal(inNode, &got), json.Unmarshal([]byte(ran.stdout), &want)); err != nil {
		t.Fatalf("%v\nin Node: %s\nin the engine: %s%s", err, inNode, ran.stdout, ran.stderr)
	}
	if len(got) != len(want) || len(want) < 90 {
		t.Fatalf("%d calls in Node, %d in the engine", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i][1:], want[i][1:]) {
			t.Errorf("%s: in Node %v, in the engine %v", want[i][0], got[i][1:], want[i][1:])
		}
	}
}
