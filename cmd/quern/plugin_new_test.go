package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/plugin"
)

// A reader that leaves, as head does, leaves a whole folder behind.
func TestPluginNewWithoutReader(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	defer writer.Close()
	dir := t.TempDir()
	c := newUser(t, "").prepare("plugin", "new", filepath.Join(dir, "cut"))
	c.Stdout = writer
	_ = c.Run()
	newUser(t, "").must("plugin", "new", filepath.Join(dir, "whole"))
	var made [2]int
	for i, name := range []string{"cut", "whole"} {
		err := filepath.WalkDir(filepath.Join(dir, name), func(string, fs.DirEntry, error) error { made[i]++; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if made[0] != made[1] {
		t.Errorf("it made %d files and folders, want %d", made[0], made[1])
	}
}

// `plugin new` says what comes next, by the program that started it, and where the tests of the handler are.
func TestPluginNewSaysWhatIsNext(t *testing.T) {
	t.Parallel()
	for language, want := range map[string]string{
		"go":         "quern: next: cd DIR && quern dev\nquern: its tests are in cart.yaml and main_test.go: change them with the handler\n",
		"c":          "quern: next: cd DIR && quern dev\nquern: its tests are in cart.yaml: change them with the handler\n",
		"typescript": "quern: next: cd DIR && npx quern dev\nquern: its tests are in cart.yaml and handler.test.ts: change them with the handler\n",
	} {
		u, dir := newUser(t, ""), filepath.Join(t.TempDir(), "cart")
		if language == "typescript" {
			u.env["npm_execpath"] = "/usr/lib/node_modules/npm/bin/npm-cli.js"
		}
		if r := u.run("plugin", "new", dir, "--lang", language); r.status != exitDone || r.stderr != strings.ReplaceAll(want, "DIR", dir) {
			t.Errorf("%s: %+v", language, r)
		}
	}
}

// What `plugin new` makes is built, tested, run and served as its README says: every command of the README in its order,
// by a shell in the new folder, without a network.
func TestPluginNew(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	for language, files := range map[string][]string{
		"go": {".gitignore", "README.md", "go.mod", "greet.yaml", "main.go", "main_test.go", "quern.schema.json", "tests/ada.out", "tests/ada.txt"},
		"c":  {".gitignore", "README.md", "greet.c", "greet.yaml", "quern.h", "quern.schema.json", "tests/ada.out", "tests/ada.txt"},
		"python": { // no pyproject.toml: if several plugins are tested together, pytest would take the folder of one for the root of all
			".gitignore", "README.md", "conftest.py", "greet.yaml", "handler.py", "mypy.ini", "pyrightconfig.json", "quern.schema.json", "requirements.txt",
			"test_handler.py",
			"tests/ada.out", "tests/ada.txt",
		},
		"javascript": {
			".gitignore", "README.md", "greet.yaml", "handler.js", "handler.test.js", "jsconfig.json", "package.json", "quern.schema.json", "tests/ada.out", "tests/ada.txt",
		},
		"typescript": {
			".gitignore", "README.md", "greet.yaml", "handler.test.ts", "handler.ts", "package.json", "quern.schema.json", "tests/ada.out", "tests/ada.txt", "tsconfig.json",
		},
		"rust": {".cargo/config.toml", ".gitignore", "Cargo.toml", "README.md", "greet.yaml", "quern.schema.json", "src/lib.rs", "tests/ada.out", "tests/ada.txt"},
		"assemblyscript": {
			".gitignore", "README.md", "asconfig.json", "greet.yaml", "handler.ts", "package.json", "quern.schema.json", "tests/ada.out", "tests/ada.txt",
			"tsconfig.json",
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "")
			switch language {
			case "python":
				interpreter(t, "python")
			case "javascript", "typescript":
				interpreter(t, "javascript")
			}
			dir := filepath.Join(t.TempDir(), "greet")
			made := strings.Fields(u.must("plugin", "new", dir, "--lang", language))
			for i, name := range made {
				made[i], _ = filepath.Rel(dir, name)
			}
			if slices.Sort(made); !slices.Equal(made, files) {
				t.Errorf("it made %v, want %v", made, files)
			}
			if r := u.run("plugin", "new", dir); r.status != exitRefused || !strings.Contains(r.stderr, "exists already: choose another name") {
				t.Errorf("again: exit %d: %s", r.status, r.stderr)
			}
			u = u.with(compilers(t, dir))
			u.schema(dir)

			commands := readmeCommands(t, dir)
			want := 5
			if language == "go" {
				want = 8
			}
			if len(commands) != want {
				t.Fatalf("the README has the commands %q", commands)
			}
			if got := u.shell(dir, commands[0]); got != "greet.wasm\n" {
				t.Errorf("%s: %q", commands[0], got)
			}
			if view := u.shell(dir, "quern plugin check greet.wasm"); !regexp.MustCompile(`kind +handler\n`).MatchString(view) {
				t.Errorf("it is no handler:\n%s", view)
			}
			if got := u.shell(dir, commands[1]); got != "ok   greet: tests/ada.txt\nok   greet: without a name\nall 2 tests passed\n" {
				t.Errorf("%s: %q", commands[1], got)
			}
			if got := u.shell(dir, commands[2]); got != "Hello, Ada!\n" {
				t.Errorf("%s: %q", commands[2], got)
			}
			if language == "go" {
				u.shell(dir, "go vet ./... && go test ./...")
				if got := u.shell(dir, "echo Ada | go run ."); got != "Hello, Ada!\n" {
					t.Errorf("go run: %q", got)
				}
			}
			switch language {
			case "javascript":
				if got := u.shell(dir, "npm test"); !regexp.MustCompile(`(?m)^(#|ℹ) pass 2$`).MatchString(got) {
					t.Errorf("npm test: %s", got)
				}
			case "typescript":
				u.shell(dir, withoutVitest(t, dir))
			}
			if language == "rust" {
				if got := u.shell(dir, "$CARGO test --offline"); !strings.Contains(got, "test result: ok. 2 passed; 0 failed") {
					t.Errorf("cargo test: %s", got)
				}
			}
			dev := u.spawnIn(dir, strings.Fields(commands[3])[1:]...)
			dev.stderr.await(t, regexp.MustCompile(`built greet in `))
			dev.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=greet`))
			if got := u.shell(dir, commands[4]); got != "Hello, Ada!\n" {
				t.Errorf("%s: %q", commands[4], got)
			}
			r := u.run("enqueue", "greet", "--wait")
			if r.status != exitFailed || !strings.Contains(r.stderr, "failed (fatal): no parameters: give a name") {
				t.Errorf("without parameters: exit %d: %s", r.status, r.stderr)
			}
		})
	}
}

// withoutVitest returns a command that runs a new plugin's tests in TypeScript, without vitest, which npm would download: two
// functions stand for its own.
func withoutVitest(t *testing.T, dir string) string {
	t.Helper()
	write(t, filepath.Join(dir, ".test", "vitest.mjs"), `
import assert from "node:assert/strict";
export { test } from "node:test";
export const expect = (got) => ({ toBe: (want) => assert.equal(got, want), toEqual: (want) => assert.deepEqual(got, want) });
`)
	esbuild := filepath.Join(filepath.Dir(interpreter(t, "javascript")), "downloads", "npm-javascript", "node_modules", ".bin", "esbuild")
	return cli.ShellWord(esbuild) + " handler.test.ts --bundle --platform=node --format=esm --external:@quern/sdk --alias:vitest=./.test/vitest.mjs " +
		"--outfile=.test/handler.test.mjs --log-level=warning && node --test .test/handler.test.mjs"
}

// A new plugin in Go is a module like any other: it gets a dependency, and at last the published SDK in the place of its own, as the
// README says. Without a network nothing else is asked for.
func TestPluginNewDependencies(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	if testing.Short() {
		t.Skip("a plugin is built, vetted and tested twice")
	}
	u := newUser(t, "")
	dir := filepath.Join(t.TempDir(), "greet")
	u.must("plugin", "new", dir)
	module := content(t, filepath.Join(dir, "go.mod"))
	u.shell(dir, "go mod tidy && go mod verify && go mod vendor && rm -r vendor")
	if tidy := content(t, filepath.Join(dir, "go.mod")); !bytes.Equal(tidy, module) {
		t.Errorf("go mod tidy makes of go.mod\n%s", tidy)
	}

	proxy := t.TempDir()
	offline := "export GOSUMDB=off GOFLAGS='-modcacherw -trimpath' GOMODCACHE=" + t.TempDir() + "; "
	online := offline + "export GOPROXY=file://" + filepath.ToSlash(proxy) + "; "
	const check = "go mod verify && go vet ./... && go test ./... && quern plugin build && quern plugin test"
	publish(t, proxy, "example.com/words", map[string][]byte{
		"go.mod":   []byte("module example.com/words\n\ngo 1.26.0\n"),
		"words.go": []byte("package words\n\nconst Hello = \"Hello\"\n"),
	})
	use := []byte("package main\n\nimport \"example.com/words\"\n\nvar _ = words.Hello\n")
	if err := os.WriteFile(filepath.Join(dir, "use.go"), use, 0o600); err != nil {
		t.Fatal(err)
	}
	u.shell(dir, online+"go get example.com/words && go mod tidy")
	u.shell(dir, offline+check)

	own := os.DirFS(filepath.Join(dir, "quern"))
	files := map[string][]byte{}
	err := fs.WalkDir(own, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[name], err = fs.ReadFile(own, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, proxy, plugin.SDKModule, files)
	u.shell(dir, online+strings.Join(readmeCommands(t, dir)[5:], " && "))
	u.shell(dir, offline+check)
	if got := u.shell(dir, offline+"go list -m "+plugin.SDKModule); got != plugin.SDKModule+" v1.0.0\n" {
		t.Errorf("it is built with %s", got)
	}
}

// publish puts the version v1.0.0 of a module into a folder that is a proxy for Go.
func publish(t *testing.T, proxy, module string, files map[string][]byte) {
	t.Helper()
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for name, text := range files {
		w, err := z.Create(module + "@v1.0.0/" + name)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"list": []byte("v1.0.0\n"), "v1.0.0.info": []byte(`{"Version": "v1.0.0"}`), "v1.0.0.mod": files["go.mod"], "v1.0.0.zip": packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// schema checks that the manifest names a schema that is there, which editors look at.
func (u *user) schema(dir string) {
	u.t.Helper()
	first, _, _ := strings.Cut(string(content(u.t, filepath.Join(dir, "greet.yaml"))), "\n")
	name, ok := strings.CutPrefix(first, "# yaml-language-server: $schema=")
	if !ok {
		u.t.Fatalf("the manifest begins with %q", first)
	}
	var schema map[string]any
	if err := json.Unmarshal(content(u.t, filepath.Join(dir, name)), &schema); err != nil || schema["properties"] == nil {
		u.t.Errorf("%s is no schema: %v", name, err)
	}
}

// readmeCommands are the indented lines of the README in a folder.
func readmeCommands(t *testing.T, dir string) []string {
	t.Helper()
	var commands []string
	for line := range strings.Lines(string(content(t, filepath.Join(dir, "README.md")))) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// spawnIn starts the program in a folder, as a process that finds the Go of this machine with its cache but no network; it
// ends with the test at the latest.
func (u *user) spawnIn(dir string, args ...string) *child {
	u.t.Helper()
	c := u.prepare(args...)
	c.Dir = dir
	c.Env = append(c.Env, "GOPROXY=off")
	if err := c.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		if u.t.Failed() {
			u.t.Logf("quern %s: %s\n%s", strings.Join(args, " "), c.ProcessState, c.stderr)
		}
	})
	return c
}

// shell runs a line in a folder as the user would, without a network for Go, and returns stdout.
func (u *user) shell(dir, line string) string {
	u.t.Helper()
	quern, err := binary()
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.CommandContext(u.t.Context(), "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(quern)+string(os.PathListSeparator)+os.Getenv("PATH"), "GOPROXY=off",
		"GOFLAGS=-trimpath") // as the tests are built: what is in the cache serves
	for name, value := range u.env {
		if name != "XDG_CACHE_HOME" { // that of compilers stays theirs
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		u.t.Fatalf("%s: %v\n%s", line, err, &stderr)
	}
	return string(stdout)
}
