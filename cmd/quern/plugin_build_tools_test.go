package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// executable writes a program.
func executable(t *testing.T, file, text string) string {
	t.Helper()
	write(t, file, "#!/bin/sh\n"+text+"\n")
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// buildIn runs `quern plugin build` as a process with more variables in its environment.
func (u *user) buildIn(dir string, environment []string, args ...string) result {
	u.t.Helper()
	c := u.prepare(append([]string{"plugin", "build"}, args...)...)
	c.Dir, c.Env = dir, append(c.Env, environment...)
	if err := c.Start(); err != nil {
		u.t.Fatal(err)
	}
	return result{c.wait(u.t).ExitCode(), c.stdout.String(), c.stderr.String()}
}

// No name of a file is an option of the compiler: one could have it run a program of the folder.
func TestPluginBuildFileNames(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	dir := filepath.Join(t.TempDir(), "50%d") // wasm-ld replaces a % in the path of its output
	for name, text := range map[string]string{
		"mail.c": "int at(void), option(void), odd(void);\nint main(void) { return at() + option() + odd(); }\n",
		"-B.c":   "int option(void) { return 0; }\n", "@at.c": "int at(void) { return 0; }\n", "%d 'a'\n\"b\".c": "int odd(void) { return 0; }\n", "-o.c": "",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	for _, name := range []string{"wasm-ld", "wasm-ld-14", "wasm-opt"} {
		executable(t, filepath.Join(dir, ".c", name), "echo $0 >> "+ran+"; exit 1")
	}
	r := newUser(t, "").buildIn(dir, nil)
	if r.status != exitDone {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Errorf("a program of the folder ran: %s", content(t, ran))
	}
}

// A wasm-opt on the machine changes nothing: the module is the same, with the names of its functions.
func TestPluginBuildBesideWasmOpt(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	bin := t.TempDir()
	executable(t, filepath.Join(bin, "wasm-opt"), `for last; do :; done; printf '\0\2\1x' >> "$last"`)
	var modules [2][]byte
	for i, path := range []string{os.Getenv("PATH"), bin + ":" + os.Getenv("PATH")} {
		dir := sourceFolder(t, map[string]string{"a.c": cHandler})
		if r := newUser(t, "").buildIn(dir, []string{"PATH=" + path}); r.status != exitDone {
			t.Fatalf("%+v", r)
		}
		modules[i] = content(t, filepath.Join(dir, "small.wasm"))
	}
	if !bytes.Equal(modules[0], modules[1]) || !bytes.Contains(modules[0], []byte("quern_handle")) {
		t.Errorf("%d bytes without, %d with it", len(modules[0]), len(modules[1]))
	}
}

// Tools are found from where the user is, and none in the folder of the source: neither by a relative name, nor by a search path with
// the current folder.
func TestPluginBuildSearchesNothingInTheFolder(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	here := t.TempDir()
	clang, err := exec.LookPath(cCompiler(t))
	if err != nil {
		t.Fatal(err)
	}
	executable(t, filepath.Join(here, "tools", "clang"), `echo "[$PATH][$CPATH][$LD_LIBRARY_PATH][$PYTHONPATH]" >> "`+here+`/paths"; exec `+clang+` "$@"`)
	dir := filepath.Join(here, "mail")
	write(t, filepath.Join(dir, "mail.c"), cHandler)
	ran := filepath.Join(here, "ran")
	executable(t, filepath.Join(dir, "tools", "clang"), "echo $0 >> "+ran+"; exit 1")
	r := newUser(t, "").buildIn(here, []string{
		"CLANG=tools/clang", "PATH=:" + os.Getenv("PATH") + ":.", "CPATH=:/none", "LD_LIBRARY_PATH=:", "PYTHONPATH=.:/none/python",
	}, "mail")
	if r.status != exitDone {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Errorf("a program of the folder ran: %s", content(t, ran))
	}
	want := "[" + os.Getenv("PATH") + "][/none][][/none/python]"
	for line := range strings.Lines(string(content(t, filepath.Join(here, "paths")))) {
		if strings.TrimSpace(line) != want {
			t.Errorf("the compiler has %s, want %s", line, want)
		}
	}
}

// cCompiler is the path of the clang that builds plugins here.
func cCompiler(t *testing.T) string {
	t.Helper()
	found, err := exec.CommandContext(t.Context(), "../../.ci/clang").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(found))
}

// A compiler in a folder above that of the plugin is not run.
func TestPluginBuildRunsNothingAbove(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	dir := sourceFolder(t, map[string]string{"asconfig.json": ascConfig, "handler.ts": ascHandler})
	ran := filepath.Join(t.TempDir(), "ran")
	executable(t, filepath.Join(filepath.Dir(dir), "node_modules", ".bin", "asc"), "echo $0 >> "+ran+"; exit 1")
	r := newUser(t, "").buildIn(dir, []string{"PATH=/usr/bin:/bin"})
	if r.status != exitRefused || !strings.Contains(r.stderr, "cannot build small without AssemblyScript: run `npm install --save-dev assemblyscript` in") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Errorf("a program of the folder above ran: %s", content(t, ran))
	}
}

// What another user put into a folder above, such as /tmp, decides nothing.
func TestPluginBuildBelowAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root gives files to another user")
	}
	const nobody = 65534
	for above, files := range map[string]map[string]string{
		"Cargo.toml":                     {"Cargo.toml": rustLibrary, "src/lib.rs": rustHandler},
		".cargo/config.toml":             {"Cargo.toml": rustLibrary, "src/lib.rs": rustHandler},
		"rust-toolchain.toml":            {"Cargo.toml": rustLibrary, "src/lib.rs": rustHandler},
		"go.mod":                         {"main.go": goHandler},
		"go.work":                        {"go.mod": goModule, "main.go": goHandler},
		"tsconfig.json":                  {"handler.ts": "export default () => 0\n"},
		"node_modules/left/package.json": {"handler.js": "export default () => 0\n"},
	} {
		dir := sourceFolder(t, files)
		write(t, filepath.Join(filepath.Dir(dir), above), "")
		name, _, _ := strings.Cut(above, "/")
		path := filepath.Join(filepath.Dir(dir), name)
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		u := newUser(t, "")
		if r := u.run("plugin", "build", dir); r.status != exitRefused || !strings.Contains(r.stderr, path+" belongs to another user, who would decide how small is built: remove it") {
			t.Errorf("%s: %+v", above, r)
		}
		if err := os.Chown(dir, nobody, nobody); err != nil { // whose folder it is decides that anyway, as in a container
			t.Fatal(err)
		}
		if r := u.run("plugin", "build", dir); strings.Contains(r.stderr, "belongs to another user") {
			t.Errorf("%s, of the same owner: %+v", above, r)
		}
	}
}

// Rust writes to no folder with these characters in its path, and its messages do not say why.
func TestPluginBuildRustPath(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	dir := filepath.Join(t.TempDir(), "feature%2Fcart")
	write(t, filepath.Join(dir, "Cargo.toml"), rustLibrary+"[dependencies]\nother = { path = \"other\" }\n[workspace]\n")
	write(t, filepath.Join(dir, "src", "lib.rs"), rustHandler)
	write(t, filepath.Join(dir, "other", "Cargo.toml"), strings.Replace(rustCrate, `"plugin"`, `"other"`, 1))
	write(t, filepath.Join(dir, "other", "src", "lib.rs"), "")
	u := newUser(t, "").asBuilt().with(compilers(t, dir))
	r := u.run("plugin", "build", dir)
	if r.status == exitFailed && !strings.Contains(r.stderr, "because of the % in the path: move the folder, or set CARGO_TARGET_DIR") {
		t.Errorf("%+v", r)
	}
	if r := u.with(map[string]string{"CARGO_TARGET_DIR": t.TempDir()}).run("plugin", "build", dir); r.status != exitDone {
		t.Errorf("with the remedy: %+v", r)
	}
}

// No plugin is made whose files Windows cannot have and whose module Go refuses.
func TestPluginNewDeviceNames(t *testing.T) {
	t.Parallel()
	u, dir := newUser(t, ""), t.TempDir()
	for _, name := range []string{"con", "AUX", "nul.mail", "com1", "lpt9"} {
		r := u.run("plugin", "new", filepath.Join(dir, name))
		if _, err := os.Stat(filepath.Join(dir, name)); r.status != exitUsage || !strings.Contains(r.stderr, "use another one, such as my-"+name) || err == nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for _, name := range []string{"console", "mail.con", "com10"} {
		u.must("plugin", "new", filepath.Join(dir, name))
	}
}

// The same source makes the same bytes in every folder: a host has the machine code of these already.
func TestPluginBuildIsReproducible(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	if testing.Short() {
		t.Skip("all is built twice")
	}
	for name, files := range map[string]map[string]string{
		"Go":             {"go.mod": goModule, "main.go": goHandler},
		"C":              {"a.c": "#include <assert.h>\n#include <stdlib.h>\n" + cWithSDK + "void check(void) { assert(getenv(__FILE__)); }\n"},
		"Rust":           {"Cargo.toml": rustLibrary, "src/lib.rs": "#[no_mangle]\npub extern \"C\" fn quern_handle() -> i32 { option_env!(\"NONE\").unwrap_or(\"1\").parse().unwrap() }\n"},
		"AssemblyScript": {"asconfig.json": ascConfig, "handler.ts": ascHandler},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var modules [2][]byte
			for i, below := range []string{"a", "another/folder"} {
				dir := filepath.Join(t.TempDir(), filepath.FromSlash(below), "small")
				for name, text := range files {
					write(t, filepath.Join(dir, filepath.FromSlash(name)), text)
				}
				u := newUser(t, "").asBuilt().with(compilers(t, dir))
				u.must("plugin", "build", dir)
				modules[i] = content(t, filepath.Join(dir, "small.wasm"))
			}
			if !bytes.Equal(modules[0], modules[1]) {
				t.Errorf("%d bytes in one folder, %d other ones in another", len(modules[0]), len(modules[1]))
			}
		})
	}
}
