package javascript_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
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
	want := `["Fatal,QuernError,Retry,checkpoint,config,enqueue,http,kv,log,progress,publish,secrets",5,true,"ESTATE",` +
		`"kv_get a/b: there is no task: run the handler by testHost().run(handler, input) of @quern/sdk/testing (ESTATE)"]`
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
		"README.md", "index.d.ts", "index.js", "lib/bytes.js", "lib/errors.js", "lib/native.js", "lib/sdk.js", "lib/sourcemap.js",
		"lib/task.js", "package.json", "testing.d.ts", "testing.js",
	}
	if packed[0].Name != "@quern/sdk" || !slices.Equal(files, want) {
		t.Errorf("%s has %q, want %q", packed[0].Name, files, want)
	}
}
