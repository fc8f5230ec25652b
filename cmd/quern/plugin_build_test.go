package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// The smallest sources of each kind.
const (
	goHandler = "package main\n\nfunc main() {}\n\n//go:wasmexport quern_handle\nfunc handle() int32 { return 0 }\n"
	goCommand = "package main\n\n// quern_handle is what a handler would export.\nfunc main() { print(\"\") }\n"
	goModule  = "module quern.test/small\n\ngo 1.24\n"
	cHandler  = "#include <stdint.h>\n__attribute__((export_name(\"quern_handle\"))) int32_t handle(void) { return 0; }\n"
	cWithSDK  = "#include \"quern.h\"\nQUERN_HANDLER int32_t handle(void) { return quern_write(\"ok\"); }\n"
	// cOwnHeader is built with the header beside it alone.
	cOwnHeader  = cWithSDK + "#ifndef OWN\n#error another header\n#endif\n"
	rustCrate   = "[package]\nname = \"plugin\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"
	rustLibrary = rustCrate + "[lib]\ncrate-type = [\"cdylib\"]\n"
	rustHandler = "#[no_mangle]\npub extern \"C\" fn quern_handle() -> i32 { 0 }\n"
	ascConfig   = `{"entries": ["handler.ts"], "options": {"runtime": "stub", "exportStart": "_initialize"}}`
	ascHandler  = "export function quern_handle(): i32 { return 0; }\n"
	cCommand    = "#include <stdio.h>\n/* no \"quern_handle\" */\nint main(void) { return puts(\"ok\") < 0; }\n"
)

// sourceFolder is a folder of its own, called small, with files.
func sourceFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	for name, content := range files {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	return dir
}

// Source is built to the kind of plugin that it is of, in either language, under the name of its manifest or folder.
func TestPluginBuild(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	header := string(content(t, "../../sdk/c/quern.h"))
	for name, test := range map[string]struct {
		files map[string]string
		kind  string
		file  string
	}{
		"GoHandler":      {map[string]string{"go.mod": goModule, "main.go": goHandler, "main_test.go": "package main\n"}, "handler", "small.wasm"},
		"GoCommand":      {map[string]string{"go.mod": goModule, "main.go": goCommand, "small.yaml": "name: small\n", "other.yaml": ""}, "command", "small.wasm"},
		"GoTwoFiles":     {map[string]string{"go.mod": goModule, "main.go": "package main\n\nfunc main() { other() }\n", "other.go": "package main\n\nfunc other() {}\n"}, "command", "small.wasm"},
		"CHandler":       {map[string]string{"a.c": cHandler, "mail.yaml": "name: mail\n"}, "handler", "mail.wasm"},
		"CHandlerBySDK":  {map[string]string{"a.c": cWithSDK, "quern.h": header}, "handler", "small.wasm"},
		"CNoHeader":      {map[string]string{"a.c": cWithSDK}, "handler", "small.wasm"},
		"COwnHeader":     {map[string]string{"a.c": cOwnHeader, "include/quern.h": header, "quern.h": "#define OWN 1\n#include \"include/quern.h\"\n"}, "handler", "small.wasm"},
		"CCommand":       {map[string]string{"a.c": cCommand}, "command", "small.wasm"},
		"CTwoFiles":      {map[string]string{"a.c": cHandler, "b.c": "int unused(void) { return 1; }\n"}, "handler", "small.wasm"},
		"RustHandler":    {map[string]string{"Cargo.toml": rustLibrary, "src/lib.rs": rustHandler, "build.c": "broken"}, "handler", "small.wasm"},
		"RustCommand":    {map[string]string{"Cargo.toml": rustCrate, "src/main.rs": "fn main() {}\n"}, "command", "small.wasm"},
		"RustTarget":     {map[string]string{"Cargo.toml": rustLibrary, "src/lib.rs": "#[cfg(target_os = \"wasi\")]\n" + rustHandler, ".cargo/config.toml": "[build]\ntarget = \"" + runtimetest.RustWASI(t) + "\"\n"}, "handler", "small.wasm"},
		"AssemblyScript": {map[string]string{"asconfig.json": ascConfig, "handler.ts": ascHandler}, "handler", "small.wasm"},
		"GoBesideC":      {map[string]string{"go.mod": goModule, "main.go": goHandler, "old/old.c": cCommand}, "handler", "small.wasm"},
		"NothingToWatch": {map[string]string{"go.mod": goModule, "main.go": goHandler, ".hidden.go": "nonsense"}, "handler", "small.wasm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sourceFolder(t, test.files)
			u := newUser(t, "").asBuilt().with(compilers(t, dir))
			file := filepath.Join(dir, test.file)
			if r := u.run("plugin", "build", dir); r.status != exitDone || r.stdout != file+"\n" {
				t.Fatalf("%+v", r)
			}
			if view := u.must("plugin", "check", file); !strings.Contains(view, test.kind+"\n") {
				t.Errorf("it is no %s:\n%s", test.kind, view)
			}
			u.leavesNothing(dir)
		})
	}
}

// compilers is the environment of those of Rust, and puts that of AssemblyScript into a folder, for the source of either.
func compilers(t *testing.T, dir string) map[string]string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "Cargo.toml")); err == nil {
		return runtimetest.Cargo(t)
	}
	if _, err := os.Stat(filepath.Join(dir, "asconfig.json")); err == nil {
		if err := os.Symlink(runtimetest.Packages(t), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

// leavesNothing checks that no temporary file is in a folder.
func (u *user) leavesNothing(dir string) {
	u.t.Helper()
	for _, pattern := range []string{".small*", ".mail*", ".*-*"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			u.t.Errorf("it leaves %v: %v", left, err)
		}
	}
}

// What a compiler says goes through, and the last line says whose words these are; what was built before stays.
func TestPluginBuildErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files  map[string]string
		status int
		says   string // a pattern
	}{
		"Go":            {map[string]string{"go.mod": goModule, "main.go": "package main\n\nfunc main() { greet() }\n"}, exitFailed, `(?s)main.go:3:15: undefined: greet\n.*quern: go could not build small: its messages are above\n$`},
		"C":             {map[string]string{"a.c": "int main(void) { return 0 }\n"}, exitFailed, `(?s)a.c:1:26: error: expected ';'.*quern: clang\S* could not build small: its messages are above\n$`},
		"Link":          {map[string]string{"a.c": "int missing(void);\nint main(void) { return missing(); }\n"}, exitFailed, `(?s)undefined symbol: missing.*its messages are above\n$`},
		"GoProcess":     {map[string]string{"go.mod": goModule, "main.go": "package main\n\nimport \"os/exec\"\n\nfunc main() { exec.Command(greet()) }\n"}, exitFailed, `(?s)^main.go:5:15: warning: os/exec.Command.*undefined: greet\n`},
		"GoNoModule":    {map[string]string{"main.go": goHandler}, exitFailed, `(?s)go.mod.*its messages are above\n$`},
		"Rust":          {map[string]string{"Cargo.toml": rustLibrary, "src/lib.rs": "#[no_mangle]\npub extern \"C\" fn quern_handle() -> i32 { greet() }\n"}, exitFailed, `(?s)cannot find function .greet. in this scope\n +--> src/lib.rs:2:43\n.*quern: cargo could not build small: its messages are above\n$`},
		"RustTwo":       {map[string]string{"Cargo.toml": rustCrate, "src/bin/a.rs": "fn main() {}\n", "src/bin/b.rs": "fn main() {}\n"}, exitFailed, `^quern: cargo built a, b of small: a plugin is one module; leave one in Cargo.toml\n$`},
		"RustNone":      {map[string]string{"Cargo.toml": rustCrate, "src/lib.rs": rustHandler}, exitFailed, `^quern: cargo built no module of small: add to Cargo.toml the lines \[lib\] and crate-type = \["cdylib"\]\n$`},
		"AsConfig":      {map[string]string{"asconfig.json": ascConfig, "handler.ts": "export function quern_handle(): i32 { return greet(); }\n"}, exitFailed, `(?s)TS2304: Cannot find name 'greet'.*handler.ts\(1,46\).*quern: asc could not build small: its messages are above\n$`},
		"RustNoHandler": {map[string]string{"Cargo.toml": rustLibrary, "src/lib.rs": "pub fn greet() {}\n"}, exitFailed, `^quern: small.wasm is refused: no entry point .*Rust: #\[quern::handler\]`},
		"CNoImport":     {map[string]string{"a.c": "__attribute__((import_module(\"env\"), import_name(\"puts\"))) int print(void);\nint main(void) { return print(); }\n"}, exitFailed, `^quern: small.wasm is refused: unknown import env.puts`},
		"WarmCommand":   {map[string]string{"a.c": cCommand, "in": "", "small.yaml": "name: small\nwarm: {input: in}\n"}, exitFailed, `^quern: small.wasm is refused: warm: is for handlers, and the module is a command, which starts anew for every task \(\S*/small.yaml:2\): remove it`},
		"ASNoHandler":   {map[string]string{"asconfig.json": ascConfig, "handler.ts": "export function greet(): void {}\n"}, exitFailed, `^quern: small.wasm is refused: no entry point .*AssemblyScript: export function quern_handle\(\): i32 { return run\(FUNCTION\); }`},
		"ASConsole":     {map[string]string{"asconfig.json": ascConfig, "handler.ts": ascHandler + "console.log('');\n"}, exitFailed, `^quern: small.wasm is refused: unknown import env.console.log .*info for console.log`},
		"ASAbort":       {map[string]string{"asconfig.json": ascConfig, "handler.ts": ascHandler + "abort('');\n"}, exitFailed, `^quern: small.wasm is refused: unknown import env.abort .*"extends": "./quern/@quern/assemblyscript/asconfig.json"`},
		"ASNoOutput":    {map[string]string{"asconfig.json": `{"entries": ["handler.ts"], "options": {"noEmit": true}}`, "handler.ts": ascHandler}, exitFailed, `^quern: small.wasm is refused: the file is empty`},
		"ASNotJSON":     {map[string]string{"asconfig.json": "{\n\"extends\"\n}", "handler.ts": ascHandler}, exitFailed, `^quern: \S*/small/asconfig.json:3: invalid character '}' after object key: expected JSON, an object with at least "entries": \["handler.ts"\]\n$`},
		"ASNoEntries":   {map[string]string{"asconfig.json": "{}", "handler.ts": ascHandler}, exitFailed, `^quern: \S*/small/asconfig.json: entries does not name the handler's file: add "entries": \["handler.ts"\]\n$`},
		"ASEntries":     {map[string]string{"asconfig.json": `{"entries": "handler.ts"}`, "handler.ts": ascHandler}, exitFailed, `asconfig.json: entries does not name the handler's file: add`},
		"Nothing":       {map[string]string{"README.md": ""}, exitUsage, `^quern: folder ".*small" has no source: expected handler.py, handler.ts, handler.js, Cargo.toml, asconfig.json, or files of Go or C; name the folder of a plugin's source, or make one by .quern plugin new NAME.\n$`},
		"PythonAndTS":   {map[string]string{"handler.py": "", "handler.ts": ""}, exitUsage, `^quern: folder ".*small" has handler.py and handler.ts: a plugin has one handler; remove one, or move it to a folder of its own\n$`},
		"TSAndJS":       {map[string]string{"handler.ts": "", "handler.js": ""}, exitUsage, `has handler.js and handler.ts: a plugin has one handler`},
		"TSAndTSX":      {map[string]string{"handler.ts": "", "handler.tsx": ""}, exitUsage, `has handler.ts and handler.tsx: a plugin has one handler`},
		"GoAndPython":   {map[string]string{"go.mod": goModule, "main.go": goHandler, "more.go": "package main\n", "handler.py": ""}, exitUsage, `has main.go and handler.py: a plugin has one handler`},
		"GoAndC":        {map[string]string{"go.mod": goModule, "main.go": goHandler, "a.c": cHandler}, exitUsage, `has main.go and a.c: a plugin has one handler`},
		"ASAndJS":       {map[string]string{"asconfig.json": ascConfig, "handler.js": ""}, exitUsage, `has handler.js and asconfig.json: a plugin has one handler`},
		"RustAndJS":     {map[string]string{"Cargo.toml": rustCrate, "handler.js": ""}, exitUsage, `has handler.js and Cargo.toml: a plugin has one handler`},
		"JSAndC":        {map[string]string{"handler.mjs": "", "a.c": cHandler}, exitUsage, `has handler.mjs and a.c: a plugin has one handler`},
		"Manifests":     {map[string]string{"a.c": cHandler, "a.yaml": "", "b.yaml": ""}, exitUsage, `has the manifests a.yaml, b.yaml: name one of them small.yaml, after the folder\n$`},
		"Manifest":      {map[string]string{"a.c": cHandler, "small.yaml": "name: small\nlimits: {memroy: 1MiB}\n"}, exitRefused, `^quern: the manifest is refused: .*memroy`},
		"ManifestFile":  {map[string]string{"a.c": cHandler, "small.yaml": "name: small\ncapabilities: {files: [{from: a.bin, to: /a.bin}]}\n"}, exitRefused, `^quern: the manifest is refused: .*a\.bin.* no such file`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, to := sourceFolder(t, test.files), t.TempDir()
			u := newUser(t, "").with(compilers(t, dir))
			write(t, filepath.Join(to, "small.wasm"), "what was there")
			r := u.run("plugin", "build", dir, "--to", to)
			if r.status != test.status || r.stdout != "" || !regexp.MustCompile(test.says).MatchString(r.stderr) {
				t.Errorf("%+v, want %d, %s", r, test.status, test.says)
			}
			if got := string(content(t, filepath.Join(to, "small.wasm"))); got != "what was there" {
				t.Errorf("the file from before is %q", got)
			}
			u.leavesNothing(to)
		})
	}
	if r := newUser(t, "").run("plugin", "build", filepath.Join(t.TempDir(), "none")); r.status != exitUsage || !strings.Contains(r.stderr, "none\": no such file or directory: name the folder") {
		t.Errorf("%+v", r)
	}
}

// A compiler that is missing, or cannot do WebAssembly, is told with the remedy.
func TestPluginBuildWithoutCompiler(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	write(t, filepath.Join(bin, "clang"), "#!/bin/sh\necho no wasm-ld >&2\nexit 1\n")
	if err := os.Chmod(filepath.Join(bin, "clang"), 0o755); err != nil {
		t.Fatal(err)
	}
	golang, c := sourceFolder(t, map[string]string{"main.go": goHandler}), sourceFolder(t, map[string]string{"a.c": cHandler})
	rust := sourceFolder(t, map[string]string{"Cargo.toml": rustLibrary, "src/lib.rs": rustHandler})
	script := sourceFolder(t, map[string]string{"asconfig.json": ascConfig, "handler.ts": ascHandler})
	programs := t.TempDir() // a Rust whose libraries are nowhere
	for name, says := range map[string]string{"cargo": "exit 1", "rustc": "echo /none/lib"} {
		write(t, filepath.Join(programs, name), "#!/bin/sh\n"+says+"\n")
		if err := os.Chmod(filepath.Join(programs, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ dir, path, named, says string }{
		{rust, t.TempDir(), "", "quern: cannot build small without Rust: there is no cargo: install it from https://rustup.rs, and run `rustup target add wasm32-unknown-unknown`"},
		{rust, programs, "", "rustc has no library for wasm32-unknown-unknown: run `rustup target add wasm32-unknown-unknown`, or on Debian"},
		{script, t.TempDir(), "", "quern: cannot build small without AssemblyScript: run `npm install --save-dev assemblyscript` in " + script},
		{golang, t.TempDir(), "", "quern: cannot build small without Go: install it from https://go.dev/dl/, with `go` in PATH, or make it in another folder with `quern plugin new NAME --lang python`"},
		{c, t.TempDir(), "", "quern: there is no clang (tried clang, clang-22"},
		{c, bin, "", "quern: no clang here builds for WebAssembly (clang: no wasm-ld or wasi-libc): install one, on Debian with"},
		{c, t.TempDir(), filepath.Join(bin, "clang"), "quern: no clang here builds for WebAssembly (" + bin},
	} {
		u := newUser(t, "")
		cmd := u.prepare("plugin", "build", test.dir)
		cmd.Env = []string{"PATH=" + test.path, "CLANG=" + test.named}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if state := cmd.wait(t); state.ExitCode() != exitRefused || !strings.Contains(cmd.stderr.String(), test.says) {
			t.Errorf("exit %d: %s, want %s", state.ExitCode(), cmd.stderr, test.says)
		}
	}
}

// A build that is interrupted leaves nothing.
func TestPluginBuildInterrupted(t *testing.T) {
	t.Parallel()
	clang := write(t, filepath.Join(t.TempDir(), "clang"), "#!/bin/sh\nfor word; do\n\tif [ $word = ./a.c ]; then echo compiling >&2; exec sleep 300; fi\ndone\n")
	if err := os.Chmod(clang, 0o755); err != nil {
		t.Fatal(err)
	}
	u := newUser(t, "").with(map[string]string{"CLANG": clang})
	dir := sourceFolder(t, map[string]string{"a.c": cHandler})
	build := u.spawn("plugin", "build", dir)
	build.stderr.await(t, regexp.MustCompile("compiling"))
	if err := build.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state := build.wait(t); state.ExitCode() != exitRefused || !strings.Contains(build.stderr.String(), "interrupted, so small is not built") {
		t.Errorf("%s: %s", state, build.stderr)
	}
	u.leavesNothing(dir)
}

// A build into another folder brings what a host reads beside the module, and that alone.
func TestPluginBuildTo(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{
		"a.c": cHandler, "data/model.bin": "model", "tests/in": "x", "README.md": "", "sample": "warm",
		"small.yaml": "name: small\nwarm: {input: sample}\ncapabilities: {files: [{from: data/model.bin, to: /model.bin}]}\ntests: [{input: tests/in}]\n",
	})
	to := filepath.Join(t.TempDir(), "new", "handlers")
	for range 2 {
		if got := u.must("plugin", "build", dir, "--to", to); got != filepath.Join(to, "small.wasm")+"\n" {
			t.Errorf("%q", got)
		}
		var there []string
		err := filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				name, _ := filepath.Rel(to, path)
				there = append(there, name)
			}
			return err
		})
		if want := []string{"data/model.bin", "sample", "small.wasm", "small.yaml"}; err != nil || !slices.Equal(there, want) {
			t.Errorf("it has %v, want %v: %v", there, want, err)
		}
	}
	u.must("plugin", "check", filepath.Join(to, "small.wasm"))
	if found, _ := filepath.Glob(filepath.Join(dir, "*.wasm")); len(found) > 0 {
		t.Errorf("it also built %v", found)
	}
	u.must("plugin", "build", dir, "--to", filepath.Join(dir, "..", "small")) // the folder itself, which is not copied
	u.must("plugin", "check", filepath.Join(dir, "small.wasm"))
}

// What is run and tested is what the source says now, whichever file of it was saved, and nothing is built without need, nor in a
// folder that may be somebody else's.
func TestPluginIsRebuilt(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{
		"a.c": saying("one"), "small.yaml": "name: small\ntests:\n- {input: in, output: out}\n", "in": "", "out": "two", "README.md": "",
	})
	module := filepath.Join(dir, "small.wasm")
	newer := func(name string) {
		t.Helper()
		at := time.Now().Add(time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(status int, stdout, stderr string, args ...string) {
		t.Helper()
		r := u.run(append([]string{"plugin"}, args...)...)
		if r.status != status || r.stdout != stdout || !regexp.MustCompile("^"+stderr+"$").MatchString(r.stderr) {
			t.Errorf("%q: exit %d, %q, %q; expected %d, %q, %q", args, r.status, r.stdout, r.stderr, status, stdout, stderr)
		}
	}
	inside := func(says string) {
		t.Helper()
		c := u.spawnIn(dir, "plugin", "run", "small.wasm")
		if c.wait(t); c.stdout.String() != "one" || !strings.Contains(c.stderr.String(), says) {
			t.Errorf("in its folder: %q, %q", c.stdout, c.stderr)
		}
	}
	const remedy = "build it with .quern plugin build \\S+/small. if you trust what is in that folder\n"
	expect(exitUsage, "", `quern: \S+small.wasm does not exist: `+remedy, "run", module)
	inside("small.wasm does not exist: building small\n")
	for _, name := range []string{"small.yaml", "in", "out", "README.md"} {
		newer(name)
	}
	expect(exitDone, "one", "", "run", module)
	write(t, filepath.Join(dir, "a.c"), saying("two"))
	newer("a.c")
	expect(exitDone, "one", "", "run", "--no-build", module)
	expect(exitDone, "one", `quern: \S+a.c is newer than \S+small.wasm, which is used as it is: `+remedy, "run", module)
	expect(exitDone, "ok   small: in\n1 test passed\n", `quern: \S+a.c is newer than \S+small.wasm: building small\n`, "test", dir)

	write(t, filepath.Join(dir, "a.c"), "no C\n")
	newer("a.c")
	expect(exitFailed, "", `(?s).*a\.c:1.*`, "test", dir)
	without := u.with(map[string]string{"CLANG": filepath.Join(dir, "none")})
	c := without.spawnIn(dir, "plugin", "run", "small.wasm")
	if c.wait(t); c.stdout.String() != "two" || !strings.Contains(c.stderr.String(), "the outdated one is used: ") {
		t.Errorf("without a compiler: %q, %q", c.stdout, c.stderr)
	}
}
