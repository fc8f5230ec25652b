package plugin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins/manifest"
)

// The manifest of a new plugin shows every section that there is, in a form that can be used: without its marks a comment
// is a setting.
func TestPluginNewManifest(t *testing.T) {
	t.Parallel()
	files, err := pluginFiles("greet", "c")
	if err != nil {
		t.Fatal(err)
	}
	written := string(files["greet.yaml"])
	all := regexp.MustCompile(`(?m)^( *)# ( *[a-z_]+:)`).ReplaceAllString(written, "$1$2")
	if strings.Count(all, "\n  cpu: 10s ") != 1 || strings.Count(all, "\n  max_attempts: 5 ") != 1 {
		t.Errorf("it is not uncommented:\n%s", all)
	}
	for _, text := range []string{written, all} {
		if _, err := manifest.Parse("greet.yaml", []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	type keys struct {
		Properties map[string]keys `json:"properties"`
	}
	var schema keys
	if err := json.Unmarshal(manifest.Schema(), &schema); err != nil || len(schema.Properties) < 10 {
		t.Fatalf("%v: %+v", err, schema)
	}
	for key, of := range schema.Properties {
		section := regexp.MustCompile(`(?m)^` + key + `:.*\n((?: .*\n)*)`).FindString(all)
		if section == "" && key != "entry" { // that is for Extism plugins
			t.Errorf("it does not show %s", key)
		}
		for below := range of.Properties {
			if key != "config" && !regexp.MustCompile(`[ {]`+below+`: `).MatchString(section) {
				t.Errorf("it does not show %s of %s", below, key)
			}
		}
	}
}

// A plugin names the npm package that has brought the program, so that a clone of it can build; and no other.
func TestPluginNewNPM(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "node_modules", "@quern", "linux-x64")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "quern")
	for file, text := range map[string]string{program: "", filepath.Join(folder, "package.json"): `{"version": "1.2.3"}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "quern")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	if got := npmVersion(link); got != "1.2.3" {
		t.Errorf("version %q of the package", got)
	}
	if got := npmVersion(filepath.Join(t.TempDir(), "quern")); got != "" {
		t.Errorf("version %q without a package", got)
	}
	for _, language := range []string{"javascript", "typescript", "assemblyscript"} {
		for _, version := range []string{"", "1.2.3"} {
			text, err := filledTemplate("templates/"+language+"/package.json.tmpl", blanks{NPM: version})
			var about struct{ DevDependencies map[string]string }
			if err != nil || json.Unmarshal(text, &about) != nil || about.DevDependencies["quern"] != map[bool]string{true: "^1.2.3"}[version != ""] {
				t.Errorf("%s %s: %v\n%s", language, version, err, text)
			}
		}
	}
}

// TestNoteModule: a new plugin in Go inside a module or a workspace says that it is no part of it.
func TestNoteModule(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"go.mod": "is a module of its own, no part of that in ", "go.work": "go work use ", "other": "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		cmd := &cobra.Command{}
		cmd.SetErr(&stderr)
		noteModule(cmd, filepath.Join(dir, "jobs", "orders"))
		if !strings.Contains(stderr.String(), want) || want == "" && stderr.Len() > 0 {
			t.Errorf("%s: %q, want %q", file, &stderr, want)
		}
	}
}
