package javascript_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/javascript"
)

// TestNative: in Node, @quern/sdk has the errors and all names; what would call the host says that there is none.
func TestNative(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("no node: run make deps")
	}
	const source = `
		import * as sdk from "./index.js";
		const { Retry, QuernError, kv } = sdk;
		const said = [Object.keys(sdk).sort().join(), new Retry("a", { delay: 5 }).delay];
		try { kv("a").get("b"); } catch (e) { said.push(e instanceof QuernError, e.code, e.message); }
		process.stdout.write(JSON.stringify(said));`
	out, err := exec.CommandContext(t.Context(), node, "--input-type=module", "--eval", source).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := `["Failure,Fatal,QuernError,Retry,SQLError,checkpoint,config,database,enqueue,http,kv,log,progress,publish,secrets",5,true,"ESTATE",` +
		`"kv get a/b: there is no task: run the handler by testHost().run(handler, input) of @quern/sdk/testing (ESTATE)"]`
	if string(out) != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
}

// TestTestHost runs the tests of the host for tests.
func TestTestHost(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=tap", "testing.test.mjs").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n# fail 0\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestREADMETests runs the test that the README shows, of the handler that it shows, with the package as npm installs it.
func TestREADMETests(t *testing.T) {
	t.Parallel()
	readme, dir := readAll(t, "README.md"), t.TempDir()
	esbuild := filepath.Join(filepath.Dir(packages(t)), "../npm-javascript/node_modules/.bin/esbuild")
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, language := range map[string]string{"handler.ts": "ts", "handler.test.js": "js"} {
		_, code, _ := strings.Cut(readme, "\n```"+language+"\n")
		code, _, _ = strings.Cut(code, "\n```\n")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "node_modules/@quern/sdk"), javascript.Source); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{esbuild, "handler.ts", "--format=esm", "--outfile=handler.js", "--log-level=warning"},
		{"node", "--test", "--test-reporter=tap", "handler.test.js"},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || command[0] == "node" && !strings.Contains(string(out), "\n# pass 2\n") {
			t.Errorf("%v: %v\n%s", command, err, out)
		}
	}
}

// TestPack: what npm would publish is all that programs import, with the README, and nothing else.
func TestPack(t *testing.T) {
	t.Parallel()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("no npm: run make deps")
	}
	out, err := exec.CommandContext(t.Context(), npm, "pack", "--dry-run", "--json", "--ignore-scripts").Output()
	if err != nil {
		t.Fatal(err)
	}
	var packed []struct {
		Name  string
		Files []struct{ Path string }
	}
	if err := json.Unmarshal(out, &packed); err != nil || len(packed) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	var files []string
	for _, file := range packed[0].Files {
		files = append(files, file.Path)
	}
	slices.Sort(files)
	want := []string{
		"README.md", "globals.d.ts", "index.d.ts", "index.js", "lib/arguments.js", "lib/bytes.js", "lib/database-worker.js", "lib/database.js",
		"lib/errors.js", "lib/native.js", "lib/sdk.js", "lib/shared.js", "lib/sourcemap.js", "lib/sql.js", "lib/task.js", "package.json", "testing.d.ts", "testing.js",
	}
	if packed[0].Name != "@quern/sdk" || !slices.Equal(files, want) {
		t.Errorf("%s has %q, want %q", packed[0].Name, files, want)
	}
}

// An editor knows what the tests of a new plugin import from Node, without Node's types.
func TestTypesOfNode(t *testing.T) {
	t.Parallel()
	imports := regexp.MustCompile(`from "(node:[^"]+)"`).FindAllStringSubmatch(readAll(t, "../../cmd/quern/plugin/templates/javascript/handler.test.js.tmpl"), -1)
	if len(imports) == 0 {
		t.Fatal("the template's test imports nothing from Node")
	}
	for _, found := range imports {
		if !strings.Contains(readAll(t, "globals.d.ts"), "\ndeclare module \""+found[1]+"\";\n") {
			t.Errorf("globals.d.ts does not declare %s", found[1])
		}
	}
}
