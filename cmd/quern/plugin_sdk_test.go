package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/cmd/quern/plugin"
	"github.com/quern-project/quern/sdk"
)

// What `plugin new` puts into a new plugin in Go is the SDK: every package of it that a plugin may link, with all that
// these import of ours.
func TestSDKIsWhole(t *testing.T) {
	t.Parallel()
	var got []string
	err := fs.WalkDir(sdk.Source, ".", func(file string, entry fs.DirEntry, err error) error {
		if folder := path.Join(plugin.SDKModule, "sdk", path.Dir(file)); err == nil && !entry.IsDir() && !slices.Contains(got, folder) {
			got = append(got, folder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, goos := range []string{"", "wasip1"} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, got...)...)
		cmd.Env = os.Environ()
		if goos != "" {
			cmd.Env = append(cmd.Env, "GOOS=wasip1", "GOARCH=wasm")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(string(out)) {
			if strings.HasPrefix(name, plugin.SDKModule+"/") && !slices.Contains(got, name) {
				t.Errorf("sdk.Source has no %s, which the SDK imports", name)
			}
		}
	}
	folders, err := filepath.Glob("../../sdk/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range folders {
		name := filepath.Base(filepath.Dir(file))
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if !slices.Contains([]string{"queue", "assemblyscript", "c", "conformance", "javascript", "outbox", "python", "rust"}, name) && !slices.Contains(got, plugin.SDKModule+"/sdk/"+name) {
			t.Errorf("sdk.Source has no package %s", name)
		}
	}
	if !bytes.Equal(content(t, "plugin/templates/LICENSE"), content(t, "../../LICENSE")) {
		t.Error("templates/LICENSE is not the module's: copy that")
	}
	if line := "\ngo " + plugin.SDKGoVersion + "\n"; !strings.Contains(string(content(t, "../../go.mod")), line) {
		t.Errorf("go.mod has no line %q: correct plugin.SDKGoVersion", line)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
