package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// saying is the source of a handler in C that answers a text.
func saying(text string) string {
	return fmt.Sprintf("#include \"quern.h\"\nQUERN_HANDLER int32_t handle(void) { return quern_write(%q); }\n", text)
}

// Whatever way a file is saved in, tasks get what the new source says; while it does not compile, what the last one did says.
func TestDevRebuilds(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{
		"a.c": saying("one"), "quern.h": string(content(t, "../../sdk/c/quern.h")), "small.yaml": "name: small\n",
	})
	plugins := filepath.Join(t.TempDir(), "handlers")
	dev := u.spawnIn(t.TempDir(), "dev", "--source", dir, "--plugins", plugins, "--log-level", "debug")
	dev.stderr.await(t, regexp.MustCompile(`building small\n`))
	dev.stderr.await(t, regexp.MustCompile(`built small in \S+: source=`))
	dev.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=small`))
	answers := func(want string) {
		t.Helper()
		eventually(t, "the answer "+want, func() bool {
			return u.must("enqueue", "small", "--wait") == want
		})
	}
	answers("one")

	write(t, filepath.Join(dir, "notes.txt"), "buy ink\n")
	dev.stderr.await(t, regexp.MustCompile(`small is as before`))
	if said := dev.stderr.String(); strings.Contains(said, "rebuilt") {
		t.Errorf("a rebuild without a change is told, which would change a log in the folder:\n%s", said)
	}

	file := filepath.Join(dir, "a.c")
	write(t, file, saying("two")) // in place
	answers("two")
	replace := func(text string) {
		t.Helper()
		if err := os.Rename(write(t, filepath.Join(dir, ".a.c.swp"), text), file); err != nil {
			t.Fatal(err)
		}
	}
	replace(saying("three"))
	answers("three")
	if err := os.Rename(file, file+"~"); err != nil { // with a backup, as others do
		t.Fatal(err)
	}
	write(t, file, saying("four"))
	answers("four")
	dev.stderr.await(t, regexp.MustCompile(`rebuilt small in [0-9.]+m?s\n`))

	replace("QUERN_HANDLER int32_t handle(void) { return }\n")
	dev.stderr.await(t, regexp.MustCompile(`a\.c:1:.* error: `))
	dev.stderr.await(t, regexp.MustCompile(`cannot rebuild small; the last version keeps running: error="clang\S* could not build small`))
	answers("four")
	const failed = `a.c:1:1: error: unknown type name`
	eventually(t, "others learn of the failed build", func() bool { return strings.Contains(u.must("plugin", "ls"), failed) })
	if r := u.run("enqueue", "small", "--wait"); !strings.Contains(r.stderr, "quern: the last build failed, so the version before it answers: clang") || !strings.Contains(r.stderr, failed) {
		t.Errorf("enqueue: %+v", r)
	}
	if said := u.run("doctor").stdout; !strings.Contains(said, "the last build of the plugin small on ") || !strings.Contains(said, "`quern plugin build "+dir+"` shows all of it") {
		t.Errorf("doctor: %s", said)
	}
	replace(saying("five"))
	answers("five")

	write(t, filepath.Join(dir, "words", "six.h"), "#define WORD \"six\"\n") // a folder that is new
	replace("#include \"quern.h\"\n#include \"words/six.h\"\nQUERN_HANDLER int32_t handle(void) { return quern_write(WORD); }\n")
	answers("six")
	write(t, filepath.Join(dir, "words", "six.h"), "#define WORD \"seven\"\n")
	answers("seven")

	write(t, filepath.Join(dir, "small.yaml"), "name: small\nversion: 2.0.0\n") // the manifest goes along
	eventually(t, "the new version", func() bool { return strings.Contains(u.must("plugin", "ls"), "2.0.0") })
	write(t, filepath.Join(dir, "small.yaml"), "name: small\nverison: 3.0.0\n")
	dev.stderr.await(t, regexp.MustCompile(`cannot rebuild small.*the manifest is refused: .*verison`))
	answers("seven")
	u.leavesNothing(plugins)
}

// In the folder of a plugin's source that is what dev builds, also beside the source.
func TestDevInTheFolder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ plugins, module string }{{"", "handlers/small.wasm"}, {".", "small.wasm"}} {
		u := newUser(t, "")
		dir := sourceFolder(t, map[string]string{"go.mod": goModule, "main.go": goHandler, "small.yaml": "name: small\n"})
		args := []string{"dev"}
		if test.plugins != "" {
			args = append(args, "--plugins", test.plugins)
		}
		dev := u.spawnIn(dir, args...)
		dev.stderr.await(t, regexp.MustCompile(`built small in `))
		dev.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=small`))
		u.must("enqueue", "small", "--wait")
		if _, err := os.Stat(filepath.Join(dir, test.module)); err != nil {
			t.Error(err)
		}
		if said := dev.stderr.String(); strings.Contains(said, "rebuilt") {
			t.Errorf("its own files made it build again:\n%s", said)
		}
	}
}

// What dev writes into a file of the folder is no change of the source, not even when the source does not compile.
func TestDevLogInTheFolder(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := sourceFolder(t, map[string]string{"a.c": saying("one"), "small.yaml": "name: small\n"})
	log, err := os.Create(filepath.Join(dir, "notes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	dev := u.prepare("dev")
	dev.Dir, dev.Stdout, dev.Stderr = dir, log, log
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		dev.wait(t)
	})
	save := func(text string) {
		t.Helper()
		if err := os.Rename(write(t, filepath.Join(dir, ".a.c.swp"), text), filepath.Join(dir, "a.c")); err != nil {
			t.Fatal(err)
		}
	}
	logged := func(text string) int { return strings.Count(string(content(t, log.Name())), text) }
	eventually(t, "the plugin is served", func() bool { return logged("serving queue: ") > 0 })
	save("no C\n")
	eventually(t, "the build fails", func() bool { return logged("cannot rebuild small") > 0 })
	for range 20 {
		u.must("enqueue", "small", "--wait") // each is a line in the file
	}
	save(saying("two"))
	eventually(t, "the build succeeds", func() bool { return logged("rebuilt small") > 0 })
	if n := logged("cannot rebuild small"); n != 1 {
		t.Errorf("the build failed %d times", n)
	}
}

// A folder of a plugin that cannot be built is not passed over in silence; one of something else is.
func TestDevTellsOfItsFolder(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	for manifest, want := range map[string]bool{"name: mail\n": true, "services: {}\n": false} {
		dir := sourceFolder(t, map[string]string{"a.c": cHandler, "mail.yaml": manifest, "other.yaml": ""})
		dev := u.spawnIn(dir, "dev", "--plugins", t.TempDir())
		dev.stderr.await(t, regexp.MustCompile(`watching for plugins`))
		_ = dev.Process.Signal(syscall.SIGTERM)
		dev.wait(t)
		const says = "quern: the current folder is not built: folder \".\" has the manifests mail.yaml, other.yaml: name one of them small.yaml"
		if got := strings.Contains(dev.stderr.String(), says); got != want {
			t.Errorf("%q: it is told: %t\n%s", manifest, got, dev.stderr)
		}
	}
}

// A dev takes another port for its page if 9465 is in use, and names what the plugin directory has of former plugins.
func TestDevBesideOthers(t *testing.T) {
	t.Parallel()
	eventually(t, "the port of the page is this test's: another program keeps it", func() bool { // those of other tests come and go
		busy, err := net.Listen("tcp", "127.0.0.1:9465")
		if err == nil {
			t.Cleanup(func() { _ = busy.Close() })
		}
		return err == nil
	})
	dir := sourceFolder(t, map[string]string{
		"a.c": saying("one"), "quern.h": string(content(t, "../../sdk/c/quern.h")), "small.yaml": "name: small\n",
	})
	plugins := folder(t, map[string][]byte{"old": runtimetest.Echo(t)})
	u := newUser(t, "")
	dev := u.spawnIn(t.TempDir(), "dev", "--source", dir, "--plugins", plugins)
	dev.stderr.await(t, regexp.MustCompile(`served as they are, without a source: remove what is not wanted: plugins=\S+ files=\["old\.wasm"\]\n`))
	dev.stderr.await(t, regexp.MustCompile(`quern\.admin: listening: admin=127\.0\.0\.1:\d+ page=`))
	if said := dev.stderr.String(); strings.Contains(said, "127.0.0.1:9465") {
		t.Errorf("it has the port of another program:\n%s", said)
	}

	// The client in Python finds that port by itself.
	dev.stderr.await(t, regexp.MustCompile(`watching for plugins`))
	producer := exec.CommandContext(t.Context(), absolute(t, "../../build/venv/bin/python"), "-c",
		`from quern.client import Client; print(Client().enqueue("unserved", "Ada", id="found").id)`)
	producer.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+u.env["XDG_RUNTIME_DIR"], "QUERN_SERVER=",
		"PYTHONPATH="+absolute(t, "../../sdk/python/package/src"), "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder // it also warns that no host serves the queue
	producer.Stderr = &stderr
	if said, err := producer.Output(); err != nil || string(said) != "found\n" {
		t.Errorf("%v: %q\n%s", err, said, &stderr)
	}
	if got := u.must("task", "show", "found", "-o", "json"); !strings.Contains(got, `"unserved"`) {
		t.Errorf("the task is\n%s", got)
	}
}

// Beside a build of TypeScript, tsc of the plugin's node_modules tells type errors. The handler is served all the same.
func TestDevTellsTypeErrors(t *testing.T) {
	t.Parallel()
	tsc := filepath.Join(filepath.Dir(interpreter(t, "javascript")), "downloads", "npm-javascript-tests", "node_modules", ".bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		runtimetest.Missing(t, "no tsc: run make deps-all")
	}
	u := newUser(t, "")
	dir := filepath.Join(t.TempDir(), "greet")
	u.must("plugin", "new", dir, "--lang", "typescript")
	for _, name := range []string{"handler.test.ts", "package.json"} { // this one needs vitest's types
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.Symlink(tsc, filepath.Join(bin, "tsc"))); err != nil {
		t.Fatal(err)
	}
	handler := func(text string) {
		write(t, filepath.Join(dir, "handler.ts"), "import type { Task } from \"@quern/sdk\";\nexport default function (task: Task): string {\n  "+text+"\n}\n")
	}
	handler(`return task.texd?.() ?? "one";`)
	dev := u.spawnIn(dir, "dev", "--log-level", "debug")
	dev.stderr.await(t, regexp.MustCompile(`\[WARN\]  quern: greet: handler\.ts:3:15: error TS2339: Property 'texd' does not exist on type 'Task<any>'\.\n`))
	eventually(t, "the handler is served", func() bool { return u.run("enqueue", "greet", "--wait").stdout == "one" })

	write(t, filepath.Join(dir, "notes.txt"), "buy ink\n")
	dev.stderr.await(t, regexp.MustCompile(`greet is as before`))
	handler(`return 2 as unknown as number;`)
	dev.stderr.await(t, regexp.MustCompile(`greet: handler\.ts:3:3: error TS2322: Type 'number' is not assignable to type 'string'\.\n`))
	if n := strings.Count(dev.stderr.String(), "TS2339"); n != 1 {
		t.Errorf("an error is told %d times, which would change a log in the folder", n)
	}
	handler(`return "three";`)
	dev.stderr.await(t, regexp.MustCompile(`the types of greet are right again\n`))
}
